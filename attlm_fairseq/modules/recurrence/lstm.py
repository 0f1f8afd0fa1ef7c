"""The LSTM that all the papers use, with one bias per gate.

Shapes: B sentences in the batch, L layers, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.bfloat16_lstm_steps import Bfloat16LSTM
from attlm_fairseq.modules.kernels.low_precision import DTYPE
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell
from attlm_fairseq.modules.kernels.lstm_over_time import lstm_over_time
from attlm_fairseq.modules.recurrence.torch_layers import ReadLayer, TorchLayers, lstm_layer, weights_of
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State

MOST_WORDS = 0.7  # share of the positions up to which skipping the others is faster in float32 (1 and 2 threads, 2 x 650)


class LSTM(TorchLayers, nn.LSTM):
    """An LSTM of L layers.

    ``i, f, o = sigmoid(W x_t + U h_{t-1} + b)``, ``g = tanh(W x_t + U h_{t-1} + b)``, ``c_t = f c_{t-1} + i g`` and
    ``h_t = o tanh(c_t)``, with W, U and b of its own for each of i, f, o and g.

    Its state is ``h`` and ``c``, (B, L, H) each. Under autocast to bfloat16, products are in bfloat16 (on a GPU in TF32, by cuDNN), the
    state in float32.
    """

    name: ClassVar[str] = "lstm"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers",)
    defaults: ClassVar[Mapping[str, Any]] = {"forget_bias": 1.0}

    def __init__(self, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> None:
        super().__init__(embedding_size, config, regularisation)
        self.forget_bias = config["forget_bias"]

    def initialise_biases(self) -> None:
        """Set the biases of the forget gates to ``forget_bias``; None leaves them as they are."""
        for layer in range(self.num_layers if self.forget_bias is not None else 0):
            _, forget, _, _ = getattr(self, f"bias_ih_l{layer}").chunk(4)
            nn.init.constant_(forget, self.forget_bias)

    def initial(self, rows: int) -> State:
        zeros = weights_of(self, 0)[1].new_zeros(rows, self.num_layers, self.hidden_size)
        return zeros, zeros

    def layer_reader(self, low: bool, lengths: Tensor | None) -> ReadLayer:
        if low or self.skips(lengths):
            return partial(lstm_over_time, lengths=lengths, dtype=DTYPE if low else torch.float32)
        return lstm_layer

    def skips(self, lengths: Tensor | None) -> bool:
        if lengths is None or weights_of(self, 0)[0].dtype != torch.float32:
            return False
        return float(lengths.float().mean()) < MOST_WORDS * int(lengths.max())

    def read_together(self, embedded: Tensor, before: State) -> tuple[Tensor, State]:
        return self(embedded, before)

    def cell(self, inputs: Tensor, recurrent: Tensor, before: State) -> State:
        hidden, cell = before
        # In place, since memory traffic dominates the cost. Not under autocast, which ignores in-place products.
        low = torch.is_autocast_enabled(inputs.device.type)
        return lstm_cell(torch.addmm(inputs, hidden, recurrent.t()) if low else inputs.addmm_(hidden, recurrent.t()), cell)

    def bfloat16_steps(self) -> Bfloat16LSTM:
        return Bfloat16LSTM(self, self.below)
