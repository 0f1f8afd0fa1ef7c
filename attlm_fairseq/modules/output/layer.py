"""The OutputLayer contract: from features to the probabilities of the next word.

Shapes: N predictions, E events, F features, V vocabulary, M columns of what a reader has read. Natural log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from attlm_fairseq.modules.kernels.linear_nll import Loss, LossTerms
from attlm_fairseq.modules.kernels.softmax_events import no_check
from attlm_fairseq.modules.memory.reader import Read


class OutputLayer(Protocol):
    """A distribution over V words for each prediction.

    ``read``, what the memory reader has read for the same predictions, is for layers that put probability on words in the memory
    (pointers, caches): these say ``needs_read`` and get it always, others may get None.
    """

    needs_read: ClassVar[bool]

    @property
    def bias(self) -> Tensor:
        """The biases, which start at the log unigram distribution, see ``init_bias``."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """As of ``nn.Module``, which every output layer is."""
        ...

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As of ``nn.Module``: ties the matrix ``weight`` of a layer that has one."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """As of ``nn.Module``."""
        ...

    def __call__(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Features (.., F) -> logits (.., V), whose ``log_softmax`` is the log-probabilities."""
        ...

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Features (.., F) -> log-probabilities (.., V); computed in float32 at least."""
        ...

    def log_probs_of(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Features (N, F) and words (N,) -> the words' log-probabilities (N,)."""
        ...

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Features (N, F) and words (N,) -> the sum of their negative log-probabilities, a scalar to be differentiated."""
        ...

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms) -> Loss:
        """As ``nll``, with what training may add to it.

        Raises:
            ValueError: The layer does not have a term that is not 0.
        """
        ...

    def init_bias(self, log_probs: Tensor) -> None:
        """Set the biases so that features of zero predict this distribution (V,), as far as the layer can."""
        ...

    def with_temperature(self, temperature: float) -> OutputLayer:
        """Return a layer whose logits are divided by ``temperature``; this one, and embeddings tied to it, stay as they are."""
        ...

    def events(self, rounded: Callable[[Tensor], Tensor] | None = None) -> EventLogProbs:
        """Return what scores single words in shared contexts; ``rounded`` gives matrices in lower precision if that is wanted."""
        ...


class EventLogProbs(Protocol):
    """Log-probabilities of single words, what belongs to a context computed once. Without gradients."""

    def __call__(self, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check) -> Tensor:
        """Return ``ln p(words[e] | features[contexts[e]])`` (E,) for features (N, F), contexts (E,) and words (E,).

        ``check`` is called between pieces, and may raise what ends this.
        """
        ...
