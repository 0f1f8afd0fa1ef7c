"""The attention weights of sentences, labelled: which state each prediction reads, and how much of it.

Shapes: B sentences in the batch, T positions (the sentence start and the n words: T = n + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import EOS, PAD, UNK
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.memory import AttentiveReader, AveragingReader, KeyValuePredictReader, Reader, SelectionReader

BATCH_TOKENS = 2048  # read together, padding included; `combined` holds 32 state vectors a token
INITIAL_STATE = "h_0"
START, END = "<s>", "</s>"


@dataclass(frozen=True)
class SentenceAttention:
    """What the model reads for each prediction of a sentence ``w_1 .. w_n``.

    ``weights`` (n + 1, n + 2): row t is the prediction of word t + 1, the last one of the sentence end. Column 0 is the LSTM's initial
    state ``h_0``, column 1 the state after reading the sentence start, column i + 1 the state after reading ``w_i``. ``in_memory`` has
    the same shape: False where the model has no such state in its memory; the weight there is 0. A row sums to 1, or to 0 over an
    empty memory.
    """

    words: tuple[str, ...]
    oov: tuple[bool, ...]
    weights: np.ndarray
    in_memory: np.ndarray
    log_probs: tuple[float, ...] | None = None  # natural log, of each word and of the sentence end; where asked for

    @property
    def inputs(self) -> tuple[str, ...]:
        """The labels of all columns."""
        return (INITIAL_STATE, START, *self.words)

    @property
    def predicted(self) -> tuple[str, ...]:
        """The labels of the rows."""
        return (*self.words, END)

    @property
    def columns(self) -> list[int]:
        """The columns that some prediction has in its memory, to be shown; the others never mean anything to this model."""
        return np.flatnonzero(self.in_memory.any(axis=0)).tolist()

    def unknown_input(self, column: int) -> bool:
        """Whether the input of a column is a word that the LM reads as ``<unk>``."""
        return column >= 2 and self.oov[column - 2]

    def unknown_prediction(self, row: int) -> bool:
        """Whether the prediction of a row is of a word that the LM does not know: of ``<unk>``."""
        return row < len(self.oov) and self.oov[row]


def states_before(reader: AttentiveReader, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Attentive: column i is the state after input i; the current one is stored after its prediction, unless it is to be read too."""
    return torch.nn.functional.pad(weights, (1, 0)), memory_mask(weights.size(1), newest=0 if reader.current else 1)


def initial_and_all_states(reader: AveragingReader, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Averaging: column i is the state after input i, the current one included; what is missing to 1 is the share of ``h_0``."""
    return torch.cat((1 - weights.sum(dim=2, keepdim=True), weights), dim=2), memory_mask(weights.size(1), newest=0, initial=True)


def initial_and_states_before(reader: SelectionReader, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Selection: column 0 is ``h_0``, column i + 1 the state after input i; the current one is not in the memory."""
    return torch.nn.functional.pad(weights, (0, 1)), memory_mask(weights.size(1), newest=1, initial=True)


def states_in_window(reader: KeyValuePredictReader, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Key-value-predict: column i is the state after input i, of the last L before the current one."""
    return torch.nn.functional.pad(weights, (1, 0)), memory_mask(weights.size(1), newest=1, oldest=reader.window)


MEMORIES: dict[type[Reader], Callable[[Reader, Tensor], tuple[Tensor, Tensor]]] = {
    AttentiveReader: states_before,
    AveragingReader: initial_and_all_states,
    SelectionReader: initial_and_states_before,
    KeyValuePredictReader: states_in_window,
}
"""What the columns of a reader's weights (B, T, T) are: -> weights and mask as in :class:`SentenceAttention`, (B, T, T + 1), (T, T + 1)."""


def memory_mask(length: int, newest: int, oldest: int | None = None, initial: bool = False) -> Tensor:
    """(T, T + 1): position t has the states after inputs t - oldest .. t - newest in memory, and ``h_0`` or not."""
    back = torch.arange(length).unsqueeze(1) - torch.arange(-1, length)  # by column: of h_0, of input 0, of input 1, ..
    mask = (back >= newest) & (back <= (length if oldest is None else oldest))
    mask[:, 0] = initial
    return mask


def require_weights(trained: TrainedModel) -> None:
    """Raises InputError for a model that has no attention weights, or whose columns nobody has described."""
    model = trained.model
    if type(model.reader) not in MEMORIES:
        _, weights = model.extract_features(torch.full((1, 2), EOS, device=model.embedding.weight.device), need_weights=True)
        if weights is not None:
            raise InputError(
                f"the attention weights of architecture {trained.architecture} cannot be labelled: describe the columns of its "
                f"{type(model.reader).__name__} in MEMORIES, in attlm_fairseq/attention/weights.py",
                path=trained.path,
            )
        raise InputError(
            f"a model of architecture {trained.architecture} has no attention weights to show: it does not choose what it reads",
            path=trained.path,
        )


@torch.inference_mode()
def read_batch(trained: TrainedModel, ids: Sequence[Sequence[int]], with_log_probs: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sentences of token ids -> weights (B, T, T + 1), mask (T, T + 1), on the CPU, and log-probabilities (B, T) on request.

    T is that of the longest sentence; what lies beyond a shorter one is of no meaning.
    """
    model = trained.model
    length = 1 + max(map(len, ids))
    rows = [[EOS, *sentence, *[PAD] * (length - 1 - len(sentence))] for sentence in ids]
    tokens = torch.tensor(rows, device=model.embedding.weight.device)
    features, weights = model.extract_features(tokens, need_weights=True)
    weights, mask = MEMORIES[type(model.reader)](model.reader, weights.float().cpu())
    if not with_log_probs:
        return weights, mask, None
    targets = torch.cat((tokens[:, 1:], tokens[:, :1]), dim=1)
    for row, sentence in enumerate(ids):
        targets[row, len(sentence)] = EOS
    return weights, mask, model.log_probs(features).gather(2, targets.unsqueeze(2)).squeeze(2).cpu()


def sentence_attention(
    trained: TrainedModel, sentences: Sequence[Sequence[str]], with_log_probs: bool = False
) -> Iterator[SentenceAttention]:
    """The attention of each sentence, in order. The words are looked up as they are. Raises InputError as :func:`require_weights`."""
    require_weights(trained)
    ids = [trained.vocabulary.ids(words) for words in sentences]
    found: dict[int, SentenceAttention] = {}
    for places in batches_of_like_length([len(sentence) for sentence in ids]):
        weights, mask, log_probs = read_batch(trained, [ids[place] for place in places], with_log_probs)
        for row, place in enumerate(places):
            length = 1 + len(ids[place])
            in_memory = mask[:length, : length + 1]
            found[place] = SentenceAttention(
                tuple(sentences[place]),
                tuple(token == UNK for token in ids[place]),
                weights[row, :length, : length + 1].numpy(),
                in_memory.numpy(),
                None if log_probs is None else tuple(log_probs[row, :length].tolist()),
            )
    for place in range(len(sentences)):
        yield found.pop(place)


def batches_of_like_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of sentences, shortest first, in batches of at most ``BATCH_TOKENS`` tokens with padding, or of one sentence."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        if batch and (len(batch) + 1) * (1 + lengths[place]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
