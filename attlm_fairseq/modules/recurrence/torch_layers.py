"""What ``LSTM`` and ``RNN`` share: recurrences over torch's own recurrent layers.

Shapes: B sentences in the batch, T positions, E embedding, L layers, H hidden size, G H with one H per gate.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.recurrence.recurrence import NoAttention, with_layers_below
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State

ReadLayer = Callable[..., tuple[Tensor, ...]]
"""Computes one layer as ``lstm_layer`` and ``rnn_layer`` do, given inputs, weights and the parts of the layer's state."""


class TorchLayers(NoAttention, nn.RNNBase):
    """Base of the recurrences of L layers whose weights and fused calls are torch's. A state has parts (B, L, H).

    torch's second bias is fixed at 0: only the sum of its two biases matters, and the papers have one bias.
    """

    def __init__(self, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> None:
        layers = config["decoder_layers"]
        dropout = regularisation.dropout_between if layers > 1 else 0.0
        super().__init__(embedding_size, config["decoder_hidden_size"], layers, batch_first=True, dropout=dropout)  # type: ignore[arg-type]  # of nn.LSTM or nn.RNN
        self.regularisation = regularisation
        self.lower_size = self.hidden_size
        self.below: tuple[int, ...] = config["lower_layers"]
        for name, parameter in self.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(parameter).requires_grad_(False)

    @abstractmethod
    def layer_reader(self, low: bool, lengths: Tensor | None) -> ReadLayer:
        """Return the function that reads a layer; ``low``: under autocast to bfloat16; ``lengths``: as in ``read``."""

    def skips(self, lengths: Tensor | None) -> bool:
        """Return whether skipping padding, given the numbers of words of the rows, is faster than torch's fused call."""
        return False

    @abstractmethod
    def read_together(self, embedded: Tensor, before: State) -> tuple[Tensor, State]:
        """Return the outputs and the new state by torch's fused call for all layers. The parts of the states are (L, B, H)."""

    @abstractmethod
    def cell(self, inputs: Tensor, recurrent: Tensor, before: State) -> State:
        """Step one layer.

        Args:
            inputs: the layer's input projections (B, G H), which may be overwritten.
            recurrent: the recurrent matrix (G H, H).
            before: the parts of the state before, (B, H) each, the output first.

        Returns:
            The parts of the new state.
        """

    def read(self, embedded: Tensor, before: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        device = embedded.device.type
        low = torch.is_autocast_enabled(device)
        if low and device == "cuda":  # cuDNN in TF32 keeps the state in float32 and rounds products less, without a launch for each step
            dtype = weights_of(self, 0)[0].dtype
            with torch.autocast(device, enabled=False):
                return self.read(embedded.to(dtype), tuple(part.to(dtype) for part in before), lengths)
        if low or self.below or (self.training and self.regularisation.needs_layers) or self.skips(lengths):
            return self._read_layers(embedded, before, self.layer_reader(low, lengths))
        outputs, after = self.read_together(embedded, tuple(part.transpose(0, 1).contiguous() for part in before))
        return outputs, tuple(part.transpose(0, 1) for part in after)

    def _read_layers(self, sequence: Tensor, before: State, read_layer: ReadLayer) -> tuple[Tensor, State]:
        """Compute ``read`` layer by layer, with dropout between the layers."""
        outputs, after = [], []
        for layer, state in enumerate(zip(*(part.unbind(1) for part in before), strict=True)):
            weight, recurrent, bias = weights_of(self, layer)
            if layer:
                sequence = self.regularisation.drop(sequence, self.dropout, self.training)
                outputs.append(sequence)
            recurrent = self.regularisation.drop_weights(recurrent, self.training)
            sequence, *state_after = read_layer(sequence, weight, recurrent, bias, *state)
            after.append(state_after)
        return with_layers_below([*outputs, sequence], self.below), stacked(after)

    def inputs(self, embedded: Tensor) -> Tensor:
        """Return the input projections of the first layer, ``W x + b`` (B, G H)."""
        weight, _, bias = weights_of(self, 0)
        return nn.functional.linear(embedded, weight, bias)

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        """Compute layer by layer. torch's fused call copies the weights at every step, which costs as much as the products."""
        after: list[State] = []
        for layer, state in enumerate(zip(*(part.unbind(1) for part in before), strict=True)):
            weight, recurrent, bias = weights_of(self, layer)
            if layer:
                inputs = nn.functional.linear(self.regularisation.drop(after[-1][0], self.dropout, self.training), weight, bias)
            after.append(self.cell(inputs, recurrent, state))
        return with_layers_below([state[0] for state in after], self.below), stacked(after)


def stacked(states: Sequence[Sequence[Tensor]]) -> State:
    """Return the state of all layers, with parts (B, L, H), given the state of each layer."""
    return tuple(torch.stack(parts, dim=1) for parts in zip(*states, strict=True))


def weights_of(layers: nn.RNNBase, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input matrix, the recurrent matrix and the bias of a layer."""
    weight, recurrent, bias, other = (getattr(layers, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return weight, recurrent, bias + other


def lstm_layer(
    inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute one LSTM layer by torch's fused call, with weights that need not be parameters (such as weights with dropout).

    Args:
        inputs: (B, T, E).
        weight: the input matrix (4 H, E).
        recurrent: the recurrent matrix (4 H, H).
        bias: (4 H,).
        hidden: ``h`` before the first position, (B, H).
        cell: ``c`` before the first position, (B, H).

    Returns:
        Outputs (B, T, H), and ``h`` and ``c`` after the last position.
    """
    weights = [weight, recurrent, bias, torch.zeros_like(bias)]
    state = (hidden.unsqueeze(0).contiguous(), cell.unsqueeze(0).contiguous())
    outputs, hidden, cell = torch._VF.lstm(inputs, state, weights, True, 1, 0.0, True, False, True)
    return outputs, hidden[0], cell[0]


def rnn_layer(inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one layer of a plain RNN by torch's fused call.

    Args:
        inputs: (B, T, E).
        weight: the input matrix (H, E).
        recurrent: the recurrent matrix (H, H).
        bias: (H,).
        hidden: the state before the first position, (B, H).

    Returns:
        Outputs (B, T, H), and the state after the last position.
    """
    weights = [weight, recurrent, bias, torch.zeros_like(bias)]
    outputs, hidden = torch._VF.rnn_tanh(inputs, hidden.unsqueeze(0).contiguous(), weights, True, 1, 0.0, True, False, True)
    return outputs, hidden[0]


def rnn_layer_by_steps(inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``rnn_layer`` under autocast, keeping the state in float32. torch's fused call would round the state."""
    outputs = []
    for step in (nn.functional.linear(inputs, weight).to(bias.dtype) + bias).unbind(1):
        hidden = torch.tanh(step + nn.functional.linear(hidden, recurrent))
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), hidden
