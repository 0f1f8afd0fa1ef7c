"""A projection of the states, which any reader reads in place of the states.

Shapes: B sentences in the batch, T positions, H hidden size, P size of the projection.
"""

from __future__ import annotations

from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.memory.reader import MemoryReader, Read, Reader
from attlm_fairseq.modules.state import Memory


class ProjectedReader(MemoryReader):
    """The features of a reader, ``inner``, that reads ``p_t = W_p h_t + b_p`` (P) in place of the states ``h_t`` (H).

    A tied output layer needs features of the size of the embeddings. With this the states may be larger. No paper on the memories has it.
    """

    inner: Reader

    def __init__(self, inner: Reader, hidden_size: int, size: int) -> None:
        """Build the projection for ``inner``, which was built for states of P = ``size``."""
        super().__init__()
        self.projection = nn.Linear(hidden_size, size)  # W_p, b_p
        self.inner = inner
        self.size = size
        self.feature_size = inner.feature_size

    @property
    def starts_with_state(self) -> bool:
        return False

    @property
    def columns(self) -> Columns | None:
        return self.inner.columns

    def initialise_biases(self) -> None:
        self.inner.initialise_biases()

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        return self.inner(self.projection(states), tokens, memory, need_read)

    def read_on(self, states: Tensor, tokens: Tensor, memory: Memory, need_read: bool = False) -> tuple[Tensor, Read | None, Memory]:
        return self.inner.read_on(self.projection(states), tokens, memory, need_read)

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        return self.inner.advance(self.projection(states), tokens, memory)

    def empty_memory(self, state: Tensor) -> Memory:
        return self.inner.empty_memory(state.new_zeros(len(state), self.size))

    def updated_memory(self, memory: Memory) -> Memory:
        return self.inner.updated_memory(memory)
