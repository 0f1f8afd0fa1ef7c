"""The attention weights of sentences, labelled: which state each prediction reads, and how much of it.

Shapes: B sentences in the batch, T positions (the sentence start and the n words: T = n + 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.attention.contributions import contribution_shares, require_lstm
from attlm_fairseq.batching import padded_batches
from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import EOS, PAD, UNK
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.text.symbols import END, START

BATCH_TOKENS = 2048  # per batch, padding included; the score `combined` holds 32 state vectors per token
INITIAL_STATE = "h_0"


@dataclass(frozen=True)
class SentenceAttention:
    """What the model reads for each prediction of a sentence ``w_1 .. w_n``.

    Row t of the matrices is the prediction of word t + 1; the last row is that of the sentence end. Column 0 is the LSTM's
    initial state ``h_0``, column 1 the state after the sentence start, column i + 1 the state after ``w_i``.

    Attributes:
        words: ``w_1 .. w_n``.
        oov: for each word, whether the LM reads it as ``<unk>``.
        weights: attention weights (n + 1, n + 2). A row sums to 1, to 0 if the memory is empty, or to less than 1 if a
            pointer leaves the rest to the softmax.
        in_memory: whether the state is in the memory, (n + 1, n + 2). If not, its weight is 0.
        log_probs: ln p of each word and of the sentence end, if requested.
        of: what a column is: the ``state`` after an input, or the ``word`` itself.
        contributions: the share of each input in the LSTM's cell, (n + 1, n + 2), if requested. See ``contributions.py``.
    """

    words: tuple[str, ...]
    oov: tuple[bool, ...]
    weights: np.ndarray
    in_memory: np.ndarray
    log_probs: tuple[float, ...] | None = None
    of: str = "state"
    contributions: np.ndarray | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return (INITIAL_STATE, START, *self.words)

    @property
    def predicted(self) -> tuple[str, ...]:
        return (*self.words, END)

    @property
    def columns(self) -> list[int]:
        """The columns to show: those that are in the memory of at least one prediction."""
        return np.flatnonzero(self.in_memory.any(axis=0)).tolist()

    def of_contributions(self) -> SentenceAttention | None:
        """Return the sentence with contributions as its weights and all inputs so far as its memory; None without contributions."""
        if self.contributions is None:
            return None
        so_far = np.tril(np.ones_like(self.in_memory), 1)
        so_far[:, 0] = False
        return replace(self, weights=self.contributions, in_memory=so_far, contributions=None)

    def unknown_input(self, column: int) -> bool:
        """Return whether the input of a column is a word that the LM reads as ``<unk>``."""
        return column >= 2 and self.oov[column - 2]

    def unknown_prediction(self, row: int) -> bool:
        """Return whether the LM predicts the word of a row as ``<unk>``."""
        return row < len(self.oov) and self.oov[row]


def by_state(columns: Columns, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (B, T, T + 1) and mask (T, T + 1) as in ``SentenceAttention``, given a reader's weights (B, T, M)."""
    length, first = weights.size(1), 0 if columns.initial else 1
    padded = torch.nn.functional.pad(weights, (first, length + 1 - first - weights.size(2)))
    return padded, memory_mask(length, columns)


def memory_mask(length: int, columns: Columns) -> Tensor:
    """Return a mask (T, T + 1): which of ``h_0`` and the states after each input are in memory at each position."""
    back = torch.arange(length).unsqueeze(1) - torch.arange(-1, length)  # distance of h_0, of input 0, of input 1, ..
    mask = (back >= columns.newest) & (back <= (length if columns.oldest is None else columns.oldest))
    mask[:, 0] &= columns.initial
    return mask


def require_weights(trained: TrainedModel) -> Columns:
    """Return the meaning of the columns of the model's weights. Raises InputError for a model without attention weights."""
    columns = trained.model.reader.columns or trained.model.recurrence.columns
    if columns is None:
        raise InputError(
            f"a model of architecture {trained.architecture} has no attention weights to show: it does not choose what it reads",
            path=trained.path,
        )
    return columns


def inputs_of(trained: TrainedModel, ids: Sequence[Sequence[int]]) -> Tensor:
    """Return the inputs (B, T) of sentences of token ids: the sentence start and the words, padded on the right."""
    length = 1 + max(map(len, ids))
    rows = [[EOS, *sentence, *[PAD] * (length - 1 - len(sentence))] for sentence in ids]
    return torch.tensor(rows, device=trained.model.embedding.weight.device)


def weights_of(model: LanguageModel, tokens: Tensor, read: Read | None) -> Tensor:
    """Return the attention weights (B, T, M): those in ``read``, or of the recurrence if the reader has none."""
    if read is not None:
        return read.weights
    weights = model.recurrence.weights(model.embedding(tokens), model.recurrence.initial(len(tokens)))
    assert weights is not None, "a recurrence with columns has weights"
    return weights


@torch.inference_mode()
@full_float32()
def read_batch(trained: TrainedModel, ids: Sequence[Sequence[int]], with_log_probs: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return weights (B, T, T + 1), mask (T, T + 1) and, if requested, ln p (B, T) of sentences of token ids, on the CPU.

    T is the length of the longest sentence. Values after the end of a shorter sentence are meaningless.
    """
    model = trained.model
    tokens = inputs_of(trained, ids)
    features, read = model.extract_features(tokens, need_read=True)
    weights, mask = by_state(require_weights(trained), weights_of(model, tokens, read).float().cpu())
    if not with_log_probs:
        return weights, mask, None
    targets = torch.cat((tokens[:, 1:], tokens[:, :1]), dim=1)
    for row, sentence in enumerate(ids):
        targets[row, len(sentence)] = EOS
    whole = torch.ones_like(tokens, dtype=torch.bool)
    log_probs = model.output.log_probs_of(features[whole], targets[whole], read and read.at(whole))
    return weights, mask, log_probs.unflatten(0, tokens.shape).cpu()


def sentence_attention(
    trained: TrainedModel, sentences: Sequence[Sequence[str]], with_log_probs: bool = False, with_contributions: bool = False
) -> Iterator[SentenceAttention]:
    """Yield the attention of each sentence, in order. Words are looked up as given.

    Raises:
        InputError: the model has no attention weights or, with contributions, no LSTM.
    """
    of = require_weights(trained).of
    if with_contributions:
        require_lstm(trained)
    ids = [trained.vocabulary.ids(words) for words in sentences]
    found: dict[int, SentenceAttention] = {}
    by_length = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    for places in padded_batches(by_length, lambda place: 1 + len(ids[place]), BATCH_TOKENS):
        batch = [ids[place] for place in places]
        weights, mask, log_probs = read_batch(trained, batch, with_log_probs)
        with full_float32():
            shares = contribution_shares(trained.model, inputs_of(trained, batch)).cpu().numpy() if with_contributions else None
        for row, place in enumerate(places):
            length = 1 + len(ids[place])
            in_memory = mask[:length, : length + 1]
            found[place] = SentenceAttention(
                tuple(sentences[place]),
                tuple(token == UNK for token in ids[place]),
                weights[row, :length, : length + 1].numpy(),
                in_memory.numpy(),
                None if log_probs is None else tuple(log_probs[row, :length].tolist()),
                of,
                None if shares is None else np.pad(shares[row, :length, :length], ((0, 0), (1, 0))),
            )
    for place in range(len(sentences)):
        yield found.pop(place)
