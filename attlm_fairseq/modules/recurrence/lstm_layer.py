"""A single LSTM layer, for places other than directly over the embeddings.

Shapes: B sentences in the batch, T positions, E input size, H hidden size.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.low_precision import DTYPE
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell
from attlm_fairseq.modules.kernels.lstm_over_time import lstm_over_time
from attlm_fairseq.modules.recurrence.torch_layers import lstm_layer
from attlm_fairseq.modules.regularisation import Regularisation


class LSTMLayer(nn.Module):
    """The equations of ``LSTM``, with linear layers. So bfloat16 and int8 steps round its products like those of any reader."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float | None) -> None:
        super().__init__()
        self.forget_bias = forget_bias
        self.from_input = nn.Linear(input_size, 4 * hidden_size)  # W, b
        self.from_state = nn.Linear(hidden_size, 4 * hidden_size, bias=False)  # U

    def initialise_biases(self) -> None:
        """Set the bias of the forget gate to ``forget_bias``; None leaves it as it is."""
        if self.forget_bias is not None:
            _, forget, _, _ = self.from_input.bias.chunk(4)
            nn.init.constant_(forget, self.forget_bias)

    def read(self, sequence: Tensor, hidden: Tensor, cell: Tensor, *, regularisation: Regularisation) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs (B, T, H), h and c (B, H), given inputs (B, T, E) and h and c before them.

        In training, weight dropout is applied to U.
        """
        low = torch.is_autocast_enabled(sequence.device.type)
        if sequence.size(1) == 1 and not low and not torch.is_grad_enabled():  # a step, of which the layers may be rounded
            hidden, cell = lstm_cell(self.from_input(sequence[:, 0]) + self.from_state(hidden), cell)
            return hidden.unsqueeze(1), hidden, cell
        read = partial(lstm_over_time, dtype=DTYPE) if low else lstm_layer
        recurrent = regularisation.drop_weights(self.from_state.weight, self.training)
        return read(sequence, self.from_input.weight, recurrent, self.from_input.bias, hidden, cell)
