"""The one language model of the package: embedding -> LSTM -> memory reader -> output layer.

Shapes: B sentences in the batch, T positions, V vocabulary, E embedding, L layers, H size of an LSTM state, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.bfloat16_lstm import bfloat16_lstm
from attlm_fairseq.modules.kernels.dropout import Dropout
from attlm_fairseq.modules.kernels.linear_nll import linear_nll
from attlm_fairseq.modules.memory import READERS, Memory, Reader
from attlm_fairseq.modules.output.adaptive import AdaptiveOutput

OUTPUT_LAYERS = ("tied", "untied", "adaptive")
CACHED_LOGITS = 1 << 17  # that stay in a processor's cache until they are summed


class LanguageModelState(NamedTuple):
    """Everything the model knows of the words read so far. A value: steps return a new one and change nothing."""

    hidden: Tensor  # (B, L, H)
    cell: Tensor  # (B, L, H)
    memory: Memory  # the reader's; batch first

    def select(self, rows: Tensor) -> LanguageModelState:
        """The state of the given rows (N,) in their order; a row may be taken any number of times."""
        return LanguageModelState(
            self.hidden.index_select(0, rows),
            self.cell.index_select(0, rows),
            tuple(part.index_select(0, rows) for part in self.memory),
        )

    def row(self, row: int) -> LanguageModelState:
        """The state of one row, in memory of its own."""
        hidden, cell, *memory = (part[row : row + 1].clone() for part in (self.hidden, self.cell, *self.memory))
        return LanguageModelState(hidden, cell, tuple(memory))

    def detach(self) -> LanguageModelState:
        """The same values without what gradients need: truncated backpropagation stops here."""
        return LanguageModelState(self.hidden.detach(), self.cell.detach(), tuple(part.detach() for part in self.memory))

    @property
    def has_slots(self) -> bool:
        """Whether the memory has a slot for each state, as :data:`Memory` describes them, rather than sums or a fixed number of outputs."""
        return bool(self.memory) and self.memory[-1].dtype == torch.bool

    def newest(self, slots: int) -> LanguageModelState:
        """This state with no more than the newest slots of a memory of slots; any other memory stays as it is."""
        if not self.has_slots:
            return self
        return self._replace(memory=tuple(part[:, -slots:] for part in self.memory))

    def restart(self, rows: Tensor, initial: LanguageModelState) -> LanguageModelState:
        """This state with the rows (B,) bool replaced by the one row of ``initial``; memory slots that no row has are left out."""

        def replaced(part: Tensor, new: Tensor) -> Tensor:
            slots = part.size(1) - new.size(1) if part.dim() > 1 else 0
            if slots > 0:  # a memory of slots: the shorter one is padded on the left
                new = torch.cat((new.new_zeros(1, slots, *new.shape[2:]), new), dim=1)
            elif slots < 0:
                part = torch.cat((part.new_zeros(len(part), -slots, *part.shape[2:]), part), dim=1)
            return torch.where(rows.view(-1, *[1] * (part.dim() - 1)), new, part)

        memory = tuple(replaced(part, new) for part, new in zip(self.memory, initial.memory, strict=True))
        if self.has_slots and memory[-1].size(1):
            first = int(memory[-1].any(dim=0).int().argmax()) if memory[-1].any() else memory[-1].size(1)
            memory = tuple(part[:, first:] for part in memory)
        return LanguageModelState(replaced(self.hidden, initial.hidden), replaced(self.cell, initial.cell), memory)


class LanguageModel(nn.Module):
    """A recurrent language model whose features come from a memory reader.

    The whole sequence at once (:meth:`forward`, one fused LSTM call), in pieces (:meth:`read`) and step by step (:meth:`step`) agree to
    rounding. State and memory are passed in and out, never kept on the module.

    Under autocast to bfloat16 the products of matrices are in bfloat16; the states, what is added up, and the loss are float32.

    Dropout is applied to the embeddings, between LSTM layers and to the features; the states in the memory have none.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_size: int,
        state_size: int,
        layers: int,
        reader: Reader,
        *,
        padding_index: int,
        output: str = "tied",
        cutoffs: Sequence[int] = (),
        dropout: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> None:
        """``dropout`` holds the probabilities for the embeddings, between the layers and for the features.

        ``output``: ``tied`` to the embeddings, ``untied``, or ``adaptive`` with its ``cutoffs`` (see :class:`AdaptiveOutput`).
        Raises ValueError when the output is to be tied to embeddings of another size than the features, or the cutoffs do not fit.
        """
        super().__init__()
        if output == "tied" and embedding_size != reader.feature_size:
            raise ValueError(
                f"the output layer can only be tied to the embeddings when both have one size: the embeddings have {embedding_size}, "
                f"the features {reader.feature_size}; use equal sizes or --output-layer untied"
            )
        embedding_dropout, layer_dropout, feature_dropout = dropout
        self.embedding = nn.Embedding(vocabulary_size, embedding_size, padding_idx=padding_index)
        self.lstm = nn.LSTM(embedding_size, state_size, layers, batch_first=True, dropout=layer_dropout if layers > 1 else 0.0)
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias_hh"):  # torch has two biases that only ever act as their sum; the papers have one
                nn.init.zeros_(parameter).requires_grad_(False)
        self.reader = reader
        if output == "adaptive":
            self.output = AdaptiveOutput(reader.feature_size, vocabulary_size, cutoffs)
        else:
            self.output = nn.Linear(reader.feature_size, vocabulary_size)
        if output == "tied":
            self.output.weight = self.embedding.weight
        self.embedding_dropout = Dropout(embedding_dropout)
        self.feature_dropout = Dropout(feature_dropout)

    @torch.no_grad()
    def initialise(self, init_range: float, forget_bias: float) -> None:
        """All weights uniform in [-init_range, init_range], all biases 0 but the LSTM's forget gate's; padding embeds to 0."""
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -init_range, init_range)
        for layer in range(self.lstm.num_layers):
            forget = slice(self.lstm.hidden_size, 2 * self.lstm.hidden_size)  # torch orders the gates: input, forget, cell, output
            getattr(self.lstm, f"bias_ih_l{layer}")[forget] = forget_bias
        self.embedding.weight[self.embedding.padding_idx] = 0.0

    @torch.no_grad()
    def predict_frequencies(self, counts: Tensor) -> None:
        """Set the output biases so that features of zero predict each word by its count (V,), one that has none as half a one.

        The clusters of the adaptive softmax are predicted by theirs, and the words within one, which have no biases, all alike.

        With biases of zero the first thing an LSTM learns is the frequency of words, and with Adam, which moves every weight alike, it
        learns them as constant features: states are driven to where nothing moves them any more, for good in long documents.
        """
        counts = counts.to(self.output_bias.device).double().clamp(min=0.5)
        log_probs = (counts / counts.sum()).log()
        if isinstance(self.output, AdaptiveOutput):
            log_probs = self.output.of_head(log_probs)
        self.output_bias.copy_(log_probs)

    @property
    def output_bias(self) -> Tensor:
        """The output layer's biases: of words, or of the adaptive softmax's frequent words and clusters."""
        return self.output.clusters.head.bias if isinstance(self.output, AdaptiveOutput) else self.output.bias

    def parameter_count(self) -> int:
        """Number of trained parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def forward(self, tokens: Tensor, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """Token ids (B, T) -> logits (B, T, V) of the token after each position and, on request, attention weights (B, T, M).

        The adaptive softmax gives log-probabilities for logits: their ``log_softmax`` is themselves.

        Every row starts from the initial state and an empty memory. Padding belongs on the right, where causality keeps it from
        touching anything that counts. ``log_softmax`` of the logits gives natural-log probabilities.
        """
        features, weights = self.extract_features(tokens, need_weights)
        return self.output(features), weights

    def extract_features(self, tokens: Tensor, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """Token ids (B, T) -> features (B, T, F), the input of the output layer, and weights as :meth:`forward`."""
        zeros = self.embedding.weight.new_zeros(self.lstm.num_layers, len(tokens), self.lstm.hidden_size)
        states, _ = self._states(tokens, (zeros, zeros))
        features, weights = self.reader(states, need_weights)
        return self.feature_dropout(features), weights

    def _states(self, tokens: Tensor, before: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Token ids (B, T), ``h`` and ``c`` (L, B, H) before them -> the last layer's states (B, T, H), ``h`` and ``c`` after them."""
        embedded = self.embedding_dropout(self.embedding(tokens))
        if torch.is_autocast_enabled(embedded.device.type):
            return bfloat16_lstm(self.lstm, embedded, before)
        return self.lstm(embedded, before)

    def nll(self, features: Tensor, targets: Tensor) -> Tensor:
        """Features (N, F) and the tokens (N,) that follow -> the sum of their negative natural-log probabilities, a scalar."""
        if isinstance(self.output, AdaptiveOutput):
            return self.output.nll(features, targets)
        return linear_nll(features, self.output.weight, self.output.bias, targets)

    def log_probs(self, features: Tensor) -> Tensor:
        """Features (.., F) -> natural-log probabilities (.., V) of the next token; computed in float32 at least."""
        on_processor = features.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not torch.is_grad_enabled()
        if on_processor and isinstance(self.output, nn.Linear) and features.dtype in (torch.float32, torch.float64):
            return log_softmax_in_place(features @ self.output.weight.t(), self.output.bias)
        logits = self.output(features)
        return torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def initial_state(self, batch: int) -> LanguageModelState:
        """The state before the first token: zeros and an empty memory, ``batch`` rows of it."""
        zeros = self.embedding.weight.new_zeros(batch, self.lstm.num_layers, self.lstm.hidden_size)
        return LanguageModelState(zeros, zeros, self.reader.empty_memory(zeros[:, 0]))

    def step(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """Token ids (B,) and the state before them -> logits (B, V) of the next token and the state after them."""
        features, state = self.step_features(tokens, state)
        return self.output(features), state

    def step_features(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """As :meth:`step`, without the output layer: features (B, F)."""
        return self.step_inputs(self.input_gates(tokens), state)

    def input_gates(self, tokens: Tensor) -> Tensor:
        """Token ids (B,) -> what they add to the first layer's four gates (B, 4 H), biases included: the same wherever a token stands."""
        embedded = self.embedding_dropout(self.embedding(tokens))
        return nn.functional.linear(embedded, self.lstm.weight_ih_l0, self._gate_biases(0))

    def step_inputs(self, input_gates: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """As :meth:`step_features`, from the tokens' :meth:`input_gates` (B, 4 H), which are overwritten.

        Layer by layer: torch's fused call would rearrange the weights at every step, which costs as much as using them.
        """
        size = self.lstm.hidden_size
        device = input_gates.device.type
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        for layer in range(self.lstm.num_layers):
            if layer:
                inputs = nn.functional.dropout(hidden[-1], self.lstm.dropout, self.training)
                input_gates = nn.functional.linear(inputs, getattr(self.lstm, f"weight_ih_l{layer}"), self._gate_biases(layer))
            product = (state.hidden[:, layer], getattr(self.lstm, f"weight_hh_l{layer}").t())
            # in place: what all this costs is memory traffic; but torch's autocast leaves products in place as they are
            gates = torch.addmm(input_gates, *product) if torch.is_autocast_enabled(device) else input_gates.addmm_(*product)
            gates[:, : 2 * size].sigmoid_()
            gates[:, 2 * size : 3 * size].tanh_()
            gates[:, 3 * size :].sigmoid_()
            written, kept, candidate, shown = gates.chunk(4, dim=-1)  # torch orders the gates: input, forget, cell, output
            cell.append(torch.addcmul(kept * state.cell[:, layer], written, candidate))
            hidden.append(shown * torch.tanh(cell[-1]))
        outputs = hidden[-1].unsqueeze(1)
        features, _ = self.reader(outputs, memory=state.memory)
        memory = self.reader.advance(outputs, state.memory)
        return self.feature_dropout(features.squeeze(1)), LanguageModelState(torch.stack(hidden, 1), torch.stack(cell, 1), memory)

    def _gate_biases(self, layer: int) -> Tensor:
        return getattr(self.lstm, f"bias_ih_l{layer}") + getattr(self.lstm, f"bias_hh_l{layer}")

    def read(
        self, tokens: Tensor, state: LanguageModelState, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None, LanguageModelState]:
        """Token ids (B, T) and the state before them -> features (B, T, F), weights as the reader gives them, the state after them."""
        outputs, after = self._read(tokens, state)
        features, weights = self.reader(outputs, need_weights, state.memory)
        return self.feature_dropout(features), weights, after

    def state_after(self, tokens: Tensor, state: LanguageModelState) -> LanguageModelState:
        """Token ids (B, T) and the state before them -> the state after them: :meth:`read` without what the memory is read for."""
        return self._read(tokens, state)[1]

    def _read(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """Token ids (B, T) and the state before them -> the last layer's states (B, T, H), the state after them."""
        layers_first = (state.hidden.transpose(0, 1).contiguous(), state.cell.transpose(0, 1).contiguous())  # (L, B, H)
        outputs, (hidden, cell) = self._states(tokens, layers_first)
        memory = self.reader.advance(outputs, state.memory)
        return outputs, LanguageModelState(hidden.transpose(0, 1), cell.transpose(0, 1), memory)


def log_softmax_in_place(logits: Tensor, bias: Tensor) -> Tensor:
    """``log_softmax`` of logits (.., V) and the bias (V,) that they lack, in the logits' own memory, a few rows at a time.

    Memory that the system gives anew takes longer to get than the sums, and going over all rows, as adding a bias to them does, too.
    """
    rows = logits.view(-1, logits.size(-1))
    at_once = max(1, CACHED_LOGITS // rows.size(1))
    held = logits.new_empty(at_once * rows.size(1))
    for some in rows.split(at_once):
        largest = some.add_(bias).amax(dim=-1, keepdim=True)
        shifted = torch.sub(some, largest, out=held[: some.numel()].view_as(some))
        some.sub_(largest).sub_(shifted.exp_().sum(dim=-1, keepdim=True).log_())  # in this order no digits are lost
    return logits


DROPOUTS = ("dropout_in", "dropout_between", "dropout_out")


def build_language_model(family: str, config: Mapping[str, Any], vocabulary_size: int, padding_index: int) -> LanguageModel:
    """Build the model of a family (a key of ``READERS``) from its options, named as on fairseq-train's command line.

    Raises ValueError for sizes that do not go together and for choices that there are not, such as those of a later version.
    """
    output = str(config["output_layer"])
    if output not in OUTPUT_LAYERS:
        raise ValueError(f"output layer {output!r} is not one of: {', '.join(OUTPUT_LAYERS)}")
    dropout = tuple(config["dropout"] if config[name] is None else config[name] for name in DROPOUTS)
    for name, probability in zip(DROPOUTS, dropout, strict=True):
        if not 0 <= probability <= 1:  # nan too
            raise ValueError(f"{name} is {probability}, expected a probability")
    return LanguageModel(
        vocabulary_size,
        config["decoder_embed_dim"],
        config["decoder_hidden_size"],
        config["decoder_layers"],
        READERS[family].from_config(config["decoder_hidden_size"], config),
        padding_index=padding_index,
        output=output,
        cutoffs=parse_cutoffs(config.get("adaptive_cutoffs")),  # checkpoints of before there was an adaptive softmax lack the option
        dropout=dropout,
    )


def parse_cutoffs(text: str | None) -> list[int]:
    """``2000,10000`` as numbers. Raises ValueError."""
    try:
        return [int(number) for number in text.split(",")] if text else []
    except (ValueError, AttributeError):  # no text: only in a file that is not as it was written
        raise ValueError(f"--adaptive-cutoffs {text!r}: expected whole numbers joined by commas, such as 2000,10000") from None
