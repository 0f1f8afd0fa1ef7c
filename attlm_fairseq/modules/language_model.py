"""The one language model of the package: embedding -> recurrence -> memory reader -> output layer.

Shapes: B sentences in the batch, T positions, V vocabulary, E embedding, H size of a state, F features, K what a word contributes.
"""

from __future__ import annotations

import copy
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.memory import Read, Reader
from attlm_fairseq.modules.output import OutputLayer
from attlm_fairseq.modules.recurrence import Recurrence
from attlm_fairseq.modules.regularisation import NOTHING_LEFT_OUT, Regularisation
from attlm_fairseq.modules.state import LanguageModelState, Memory


class Inputs(NamedTuple):
    """Words and what each contributes to the recurrence, wherever it stands."""

    tokens: Tensor  # (B,)
    values: Tensor  # (B, K)

    def select(self, places: Tensor) -> Inputs:
        """Return the words at the given places (N,)."""
        return Inputs(self.tokens.index_select(0, places), self.values.index_select(0, places))


class LanguageModel(nn.Module):
    """A recurrent language model whose features come from a memory reader.

    The whole sequence at once (``forward``), in pieces (``read``) and step by step (``step``) agree to rounding. State and
    memory are passed in and out, never kept on the module.

    Under autocast to bfloat16 the products of matrices are in bfloat16; the states, what is added up, and the loss are float32.

    Dropout (``Regularisation``) is applied to the embeddings, within the recurrence and to the features; the states in the memory
    have none.
    """

    def __init__(
        self,
        recurrence: Recurrence,
        reader: Reader,
        output: OutputLayer,
        *,
        vocabulary_size: int,
        embedding_size: int,
        padding_index: int,
        tied: bool = False,
        regularisation: Regularisation = NOTHING_LEFT_OUT,
    ) -> None:
        """``tied``: the output layer's matrix is that of the embeddings.

        Raises:
            ValueError: The output layer is to be tied to embeddings of another size than the features.
        """
        super().__init__()
        if tied and embedding_size != reader.feature_size:
            raise ValueError(
                f"the output layer can only be tied to the embeddings when both have one size: the embeddings have {embedding_size}, "
                f"the features {reader.feature_size}; use equal sizes or --output-layer untied"
            )
        self.embedding = nn.Embedding(vocabulary_size, embedding_size, padding_idx=padding_index)
        self.body = recurrence.name  # its name in checkpoints
        self.add_module(recurrence.name, cast(nn.Module, recurrence))
        self.reader = reader
        self.output = output
        if tied:
            self.output.register_parameter("weight", cast(nn.Parameter, self.embedding.weight))
        self.regularisation = regularisation

    @property
    def recurrence(self) -> Recurrence:
        """What reads the words one after another."""
        return getattr(self, self.body)

    @property
    def tied(self) -> bool:
        """Whether the output layer's matrix is that of the embeddings."""
        return any(parameter is self.embedding.weight for parameter in self.output.parameters())

    @torch.no_grad()
    def initialise(self, init_range: float, biases_too: bool = False) -> None:
        """All weights uniform in [-init_range, init_range], all biases 0 but those that the recurrence sets; padding embeds to 0.

        ``biases_too``: the trained biases are drawn like the weights, but for those that the recurrence sets.
        """
        for name, parameter in self.named_parameters():
            if "bias" in name and not (biases_too and parameter.requires_grad):
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -init_range, init_range)
        self.recurrence.initialise_biases()
        self.embedding.weight[self.embedding.padding_idx] = 0.0

    def init_output_bias(self, counts: Tensor) -> None:
        """Initialise the output bias to the log unigram distribution of the counts (V,); words with count 0 count as 0.5.

        With biases of zero the first thing an LSTM learns is the frequency of words, and with Adam, which moves every weight alike, it
        learns them as constant features: it saturates and, on long documents, never recovers.
        """
        counts = counts.to(self.embedding.weight.device).double().clamp(min=0.5)
        self.output.init_bias((counts / counts.sum()).log())

    def with_output(self, output: OutputLayer) -> LanguageModel:
        """Return a model with another output layer that shares all else with this one, which does not change."""
        other = copy.copy(self)
        other._modules = dict(self._modules)
        other.output = output
        return other

    def parameter_count(self) -> int:
        """Number of trained parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def forward(self, tokens: Tensor, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Token ids (B, T) -> logits (B, T, V) of the token after each position and, on request, what the reader has read.

        ``log_softmax`` of the logits gives natural-log probabilities; the adaptive softmax has these for logits.

        Every row starts from the initial state and an empty memory. Padding belongs on the right, where causality keeps it from
        touching anything that counts.
        """
        features, read = self.extract_features(tokens, need_read)
        return self.output(features, read), read

    def extract_features(self, tokens: Tensor, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Token ids (B, T) -> features (B, T, F), the input of the output layer, and what was read as in ``forward``."""
        outputs, _ = self.advance(tokens)
        return self.features(outputs, tokens, None, need_read)

    def read(self, tokens: Tensor, state: LanguageModelState, need_read: bool = False) -> tuple[Tensor, Read | None, LanguageModelState]:
        """Token ids (B, T) and the state before them -> features (B, T, F), what was read on request, the state after them."""
        outputs, after = self.advance(tokens, state)
        return *self.features(outputs, tokens, state.memory, need_read), cast(LanguageModelState, after)

    def state_after(self, tokens: Tensor, state: LanguageModelState) -> LanguageModelState:
        """Like ``read``, but return only the state."""
        return cast(LanguageModelState, self.advance(tokens, state)[1])

    def initial_state(self, batch: int) -> LanguageModelState:
        """The state before the first token: that of the recurrence and an empty memory, ``batch`` rows of it."""
        nothing = self.embedding.weight.new_zeros(batch, self.recurrence.hidden_size)
        return LanguageModelState(self.recurrence.initial(batch), self.reader.empty_memory(nothing))

    def step(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """Token ids (B,) and the state before them -> logits (B, V) of the next token and the state after them."""
        features, read, state = self.step_features(self.inputs(tokens), state)
        return self.output(features, read), state

    def inputs(self, tokens: Tensor) -> Inputs:
        """Token ids (B,) -> what they contribute to the recurrence wherever they stand: computed once per distinct word."""
        return Inputs(tokens, self.recurrence.inputs(self._embedded(tokens)))

    def step_features(self, inputs: Inputs, state: LanguageModelState) -> tuple[Tensor, Read | None, LanguageModelState]:
        """Words as ``inputs``, whose values are overwritten, and the state before -> features (B, F), what was read, state after.

        What was read is there if the output layer needs it, one prediction per row: (B, M).
        """
        output, recurrent = self.recurrence.step(inputs.values, state.recurrent)
        outputs, tokens = output.unsqueeze(1), inputs.tokens.unsqueeze(1)
        features, read = self.features(outputs, tokens, state.memory, False)
        after = LanguageModelState(recurrent, self.reader.advance(outputs, tokens, state.memory))
        return features.squeeze(1), read and read.at(torch.ones_like(tokens, dtype=torch.bool)), after

    def _embedded(self, tokens: Tensor) -> Tensor:
        embedded = self.regularisation.drop_words(self.embedding(tokens), tokens, self.embedding.num_embeddings, self.training)
        return self.regularisation.drop(embedded, self.regularisation.dropout_in, self.training)

    def advance(self, tokens: Tensor, state: LanguageModelState | None = None) -> tuple[Tensor, LanguageModelState | None]:
        """Token ids (B, T) and the state before them -> the recurrence's outputs (B, T, H), the state after them.

        Without a state every row starts from the initial one, and there is none after them.
        """
        before = self.recurrence.initial(len(tokens)) if state is None else state.recurrent
        outputs, recurrent = self.recurrence.read(self._embedded(tokens), before)
        return outputs, None if state is None else LanguageModelState(recurrent, self.reader.advance(outputs, tokens, state.memory))

    def features(
        self, outputs: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False
    ) -> tuple[Tensor, Read | None]:
        """Outputs (B, T, H) and their tokens (B, T) -> features (B, T, F) and what was read, if it is needed. No memory: an empty one."""
        features, read = self.reader(outputs, tokens, memory, need_read or self.output.needs_read)
        return self.regularisation.drop(features, self.regularisation.dropout_out, self.training), read
