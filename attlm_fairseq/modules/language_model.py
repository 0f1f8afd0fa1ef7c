"""The language model that all families share: embedding -> recurrence -> memory reader -> output layer.

Shapes: B sentences in the batch, T positions, V vocabulary, E embedding, H hidden size, F features, K input projection.
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

OF_WORDS = ("embedding.", "output.", *(f"reader.{inner}word_{part}." for inner in ("", "inner.") for part in ("keys", "values")))
"""The parameters with one row per word begin so."""


class Inputs(NamedTuple):
    """Tokens with their input projections, which do not depend on the position."""

    tokens: Tensor  # (B,)
    values: Tensor  # (B, K), the input projections

    def select(self, places: Tensor) -> Inputs:
        """Return the tokens at the given indexes (N,)."""
        return Inputs(self.tokens.index_select(0, places), self.values.index_select(0, places))


class LanguageModel(nn.Module):
    """A recurrent language model whose features come from a memory reader.

    ``forward`` (whole sequences), ``read`` (pieces) and ``step`` (single tokens) agree, except for rounding. State and
    memory are arguments and results; the module does not store them.

    Under autocast to bfloat16, matrix products are in bfloat16. States, sums and the loss are in float32.

    Dropout (``Regularisation``) is applied to the embeddings, within the recurrence and to the features. It is not
    applied to the states in the memory.
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
        """Assemble the model.

        Args:
            recurrence: reads the embeddings.
            reader: computes the features from the states and the memory.
            output: predicts the next token from the features.
            vocabulary_size: V.
            embedding_size: E.
            padding_index: the token whose embedding is 0.
            tied: whether the output layer shares its matrix (V, F) with the embeddings (V, E).
            regularisation: dropout in training.

        Raises:
            ValueError: ``tied`` is set, but E differs from the size of the word vectors of the output layer, as a rule F.
        """
        super().__init__()
        if tied and embedding_size != output.vector_size:
            raise ValueError(
                f"the output layer can only be tied to the embeddings when both have one size: the embeddings have {embedding_size}, "
                f"the features {output.vector_size}; use equal sizes, a --projection-size that makes them equal, or --output-layer untied"
            )
        self.embedding = nn.Embedding(vocabulary_size, embedding_size, padding_idx=padding_index)
        self.body = recurrence.name  # the recurrence's name in checkpoints
        self.add_module(recurrence.name, cast(nn.Module, recurrence))
        self.reader = reader
        self.output = output
        if tied:
            self.output.register_parameter("weight", cast(nn.Parameter, self.embedding.weight))
        self.regularisation = regularisation

    @property
    def recurrence(self) -> Recurrence:
        """The recurrence that reads the embeddings."""
        return getattr(self, self.body)

    @property
    def feature_size(self) -> int:
        """The size F of the features that enter the output layer: those of the reader, and outputs of lower layers."""
        return self.reader.feature_size + len(self.recurrence.below) * self.recurrence.lower_size

    @property
    def tied(self) -> bool:
        """Whether the output layer shares its matrix with the embeddings."""
        return any(parameter is self.embedding.weight for parameter in self.output.parameters())

    @torch.no_grad()
    def initialise(self, init_range: float, biases_too: bool = False, layers_too: bool = True) -> None:
        """Draw all weights uniformly from [-init_range, init_range]; set biases and the embedding of padding to 0.

        The parts may set some parameters to other values, such as the forget bias.

        Args:
            init_range: the largest absolute value of a weight.
            biases_too: draw the trained biases like the weights, except those that the parts set.
            layers_too: if False, draw only the tables of words (the embeddings and those of a reader) and the matrices of the softmax.
                Other weights and their biases keep the values with which PyTorch has built the layers.
        """
        for name, parameter in self.named_parameters():
            one_number = name.startswith("output.") and parameter.dim() == 0  # a layer of the user's own may learn its temperature
            of_words = name.startswith(OF_WORDS) and not name.startswith(("output.latents.", "output.prior.")) and not one_number
            if not (layers_too or of_words):
                continue
            if "bias" in name and not (biases_too and parameter.requires_grad):
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -init_range, init_range)
        self.recurrence.initialise_biases()
        self.reader.initialise_biases()
        self.output.initialise_biases()
        self.embedding.weight[self.embedding.padding_idx] = 0.0

    def init_output_bias(self, counts: Tensor) -> None:
        """Initialise the output bias to the log unigram distribution of the counts (V,); words with count 0 count as 0.5.

        If the biases start at 0, an LSTM first learns the word frequencies. Adam moves all weights at a similar rate, so
        the LSTM encodes the frequencies in constant features. It saturates, and on long documents it never recovers.
        """
        counts = counts.to(self.embedding.weight.device).double().clamp(min=0.5)
        self.output.init_bias((counts / counts.sum()).log())

    def with_output(self, output: OutputLayer) -> LanguageModel:
        """Return a model with another output layer. It shares all other parts with this model, which does not change."""
        other = copy.copy(self)
        other._modules = dict(self._modules)
        other.output = output
        return other

    def parameter_count(self) -> int:
        """Return the number of trained parameters; tied parameters count once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def forward(self, tokens: Tensor, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Predict the token after each position.

        Every row starts from the initial state and an empty memory.

        Args:
            tokens: (B, T). Padding must be on the right: predictions depend on earlier tokens only, so it changes none.
            need_read: return the reader's attention weights too.

        Returns:
            Logits (B, T, V) and what the reader has read, if requested or needed by the output layer; None for readers that
            read nothing. ``log_softmax`` of the logits gives natural-log probabilities. The adaptive softmax, mixtures of
            softmaxes and the pointer return log-probabilities as their logits.
        """
        features, read = self.extract_features(tokens, need_read)
        return self.output(features, read), read

    def extract_features(self, tokens: Tensor, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return the features (B, T, F), which are the input of the output layer, for tokens (B, T), else as ``forward``."""
        _, features, read, _ = self.outputs(tokens, None, need_read)
        return features, read

    def read(self, tokens: Tensor, state: LanguageModelState, need_read: bool = False) -> tuple[Tensor, Read | None, LanguageModelState]:
        """Continue from a state.

        Args:
            tokens: (B, T).
            state: the state before the tokens.
            need_read: return the reader's attention weights too.

        Returns:
            Features (B, T, F), what the reader has read as in ``forward``, and the state after the tokens.
        """
        _, features, read, after = self.outputs(tokens, state, need_read)
        return features, read, cast(LanguageModelState, after)

    def state_after(self, tokens: Tensor, state: LanguageModelState) -> LanguageModelState:
        """Return only the state after the tokens (B, T), as ``read`` computes it."""
        outputs, recurrent = self.recurrence.read(self._embedded(tokens), state.recurrent)
        return LanguageModelState(recurrent, self.reader.advance(self.states(outputs), tokens, state.memory))

    def initial_state(self, batch: int) -> LanguageModelState:
        """Return ``batch`` rows of the state before the first token: the recurrence's initial state and an empty memory."""
        nothing = self.embedding.weight.new_zeros(batch, self.recurrence.hidden_size)
        return LanguageModelState(self.recurrence.initial(batch), self.reader.empty_memory(nothing))

    def updated_state(self, state: LanguageModelState) -> LanguageModelState:
        """Return the state after the weights have changed: products with them that it keeps for speed are computed again."""
        return LanguageModelState(self.recurrence.updated_state(state.recurrent), self.reader.updated_memory(state.memory))

    def step(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """Return the logits (B, V) of the next token and the new state, given tokens (B,) and the state before them."""
        features, read, state = self.step_features(self.inputs(tokens), state)
        return self.output(features, read), state

    def inputs(self, tokens: Tensor) -> Inputs:
        """Return the input projections of tokens (B,). They do not depend on the position: compute them once per word."""
        return Inputs(tokens, self.recurrence.inputs(self._embedded(tokens)))

    def step_features(self, inputs: Inputs, state: LanguageModelState) -> tuple[Tensor, Read | None, LanguageModelState]:
        """Read one token per row.

        Args:
            inputs: the tokens as ``inputs`` returns them. Their values are overwritten.
            state: the state before the tokens.

        Returns:
            Features (B, F), what the reader has read (weights (B, M)) if the output layer needs it, and the new state.
        """
        output, recurrent = self.recurrence.step(inputs.values, state.recurrent)
        tokens = inputs.tokens.unsqueeze(1)
        features, read, memory = self._features(output.unsqueeze(1), tokens, state.memory, False)
        after = LanguageModelState(recurrent, cast(Memory, memory))
        return features.squeeze(1), read and read.at(torch.ones_like(tokens, dtype=torch.bool)), after

    def _embedded(self, tokens: Tensor) -> Tensor:
        embedded = self.regularisation.drop_words(self.embedding(tokens), tokens, self.embedding.num_embeddings, self.training)
        return self.regularisation.drop(embedded, self.regularisation.dropout_in, self.training)

    def _lengths(self, tokens: Tensor) -> Tensor | None:
        """Return the number of tokens of each row (B,) before the padding; None if no row has any, or on a GPU, which would wait."""
        if tokens.device.type != "cpu" or not tokens.numel():
            return None
        counts = ((tokens != self.embedding.padding_idx) * torch.arange(1, tokens.size(1) + 1)).amax(1).clamp_(min=1)
        return None if bool((counts == tokens.size(1)).all()) else counts

    def outputs(
        self, tokens: Tensor, state: LanguageModelState | None = None, need_read: bool = False
    ) -> tuple[Tensor, Tensor, Read | None, LanguageModelState | None]:
        """Return everything that is computed before the output layer.

        Args:
            tokens: (B, T).
            state: the state before the tokens; None starts every row from the initial state.
            need_read: return the reader's attention weights too.

        Returns:
            The recurrence's outputs (B, T, ..), whose first part are the ``states``; features (B, T, F); what the reader has
            read if it is requested or the output layer needs it; the state after the tokens, None if ``state`` is None.
        """
        before = self.recurrence.initial(len(tokens)) if state is None else state.recurrent
        lengths = self._lengths(tokens) if state is None else None
        outputs, recurrent = self.recurrence.read(self._embedded(tokens), before, lengths)
        features, read, memory = self._features(outputs, tokens, state and state.memory, need_read)
        return outputs, features, read, None if memory is None else LanguageModelState(recurrent, memory)

    def states(self, outputs: Tensor) -> Tensor:
        """Return the states (.., H) of the top layer, given the recurrence's outputs, which may hold those of lower layers, too."""
        return outputs[..., : self.recurrence.hidden_size]

    def joined(self, features: Tensor, outputs: Tensor) -> Tensor:
        """Return the reader's features (.., F), followed by the outputs of lower layers that the output layer needs."""
        return torch.cat((features, outputs[..., self.recurrence.hidden_size :]), dim=-1) if self.recurrence.below else features

    def _features(
        self, outputs: Tensor, tokens: Tensor, memory: Memory | None, need_read: bool
    ) -> tuple[Tensor, Read | None, Memory | None]:
        """Return features (B, T, F), what the reader has read, and the memory afterwards; None if ``memory`` is None."""
        states, need_read = self.states(outputs), need_read or self.output.needs_read
        after: Memory | None = None
        if memory is None:
            features, read = self.reader(states, tokens, None, need_read)
        else:
            features, read, after = self.reader.read_on(states, tokens, memory, need_read)
        return self.joined(self.regularisation.drop(features, self.regularisation.dropout_out, self.training), outputs), read, after
