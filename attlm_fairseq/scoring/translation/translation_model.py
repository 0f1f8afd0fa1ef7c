"""The contract of translation models that score pairs of sentences, from fairseq or Hugging Face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import torch


class Pair(NamedTuple):
    """The token ids that the encoder reads and those that the decoder predicts, with sentence ends and marks of languages."""

    read: tuple[int, ...]
    written: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.written)


class Prefixes(NamedTuple):
    """What the hypotheses of a batch have in common: a prefix after the same source sentence needs one softmax.

    Attributes:
        first: row and place of each of the U distinct prefixes where it stands first; place 0 is before the first token.
        ends: the prefix, 0 .. U - 1, before each token that the pairs write, pair after pair.
        tokens: these tokens.
    """

    first: list[tuple[int, int]]
    ends: list[int]
    tokens: list[int]

    @classmethod
    def of(cls, batch: Sequence[Pair]) -> Prefixes:
        """Find the distinct prefixes of a batch."""
        numbers: dict[tuple[object, int], int] = {}  # of a prefix, by the one before it, or the source, and the last token
        first: list[tuple[int, int]] = []
        ends: list[int] = []
        for row, pair in enumerate(batch):
            before: object = pair.read
            for place, token in enumerate((-1, *pair.written[:-1])):
                number = numbers.setdefault((before, token), len(numbers))
                if number == len(first):
                    first.append((row, place))
                ends.append(number)
                before = number
        return cls(first, ends, [token for pair in batch for token in pair.written])

    def by_pair(self, batch: Sequence[Pair], values: Sequence[float]) -> list[tuple[float, ...]]:
        """Return the values of the pairs' tokens, pair by pair."""
        rest = iter(values)
        return [tuple(islice(rest, len(pair))) for pair in batch]


class TranslationModel(ABC):
    """An encoder-decoder model with its vocabularies: what ``TranslationScorer`` needs of it.

    Attributes:
        word_by_word: whether the tokens that it writes are the words and the sentence end. If not, words are cut into pieces.
        vocabulary_size: number of tokens that it can write.
        layer_size: the largest number of values that a layer computes for a token.
        heads: number of attention heads.
        most_read: the most tokens that it can read, with the sentence end; None: no limit.
        most_written: the most tokens that it can write.
    """

    word_by_word: bool
    vocabulary_size: int
    layer_size: int
    heads: int
    most_read: int | None
    most_written: int | None

    @abstractmethod
    def read_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        """Return the token ids of a sentence that the encoder reads."""

    @abstractmethod
    def written_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        """Return the token ids of a sentence that the decoder predicts."""

    @abstractmethod
    def unknown_read(self, words: Sequence[str]) -> tuple[bool, ...]:
        """Return for each word whether it, or a piece of it, is unknown to the encoder."""

    @abstractmethod
    def unknown_written(self, words: Sequence[str]) -> tuple[bool, ...]:
        """Return for each word whether it, or a piece of it, is unknown to the decoder."""

    @abstractmethod
    def log_probs(self, batch: Sequence[Pair]) -> list[tuple[float, ...]]:
        """Return ln p of each token that each pair writes. A mark of a language, which is given and not predicted, has 0."""

    @abstractmethod
    def searched(self, sentences: Sequence[Sequence[str]], count: int, most_pieces: int) -> list[list[str]]:
        """Return at most ``count`` probable translations of each sentence, by beam search, best first.

        Left out are those with unknown words, and those that have not ended after ``most_pieces``.
        """

    @abstractmethod
    def signature(self) -> dict[str, object]:
        """Return what identifies the probabilities: the kind of model, its files with SHA-256 and its vocabularies."""

    def notes(self, name: str) -> list[str]:
        """Return one-line remarks on the model, which is called ``name``."""
        return []


def layer_sizes(models: Sequence[torch.nn.Module]) -> tuple[int, int]:
    """Return the largest input of a product in the models' layers, and their largest number of attention heads."""
    modules = [module for model in models for module in model.modules()]
    sizes = [module.in_features for module in modules if isinstance(module, torch.nn.Linear)]
    heads = [value for module in modules for name in ("num_heads", "n_heads") if isinstance(value := getattr(module, name, 0), int)]
    return max(sizes, default=0), max(heads, default=0)
