"""Cache models: recent words are likely to occur again. Their cache probability is mixed into the probabilities of an LM.

    p(w) = (1 - weight) p_LM(w) + weight p_cache(w)
    p_cache(w) = sum of a_i over those of the last N events i that were w / sum of all a_i

Events are the words and sentence ends of the history and of the sentence so far. A cache without events is not mixed in.
All unknown words count as one word.

Shapes: M events of the history, T events of a sentence, F features.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Protocol, cast

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore, Walked, without_features

BLOCK_EVENTS = 128  # events whose cache weights are in memory at once
UNKNOWN, END = 0, 1  # the numbers of all unknown words and of the sentence end; words follow
_NUMBERING = threading.Lock()


class Cache(Protocol):
    """The weights of past events in a cache."""

    needs_features: ClassVar[bool]  # whether it compares the LM's features rather than counting

    @property
    def size(self) -> int:
        """N: the number of most recent events in the cache."""

    @property
    def weight(self) -> float:
        """Return the share of the cache in the mixed probability."""

    def log_weights(self, features: np.ndarray, sentence: int) -> np.ndarray:
        """Return ``ln a_i`` (T, M + T) of all events for the last ``sentence`` = T, given the features (M + T, F)."""


@dataclass(frozen=True)
class NeuralCache:
    """The continuous cache of Grave, Joulin and Usunier (2017): ``a_i = exp(theta h_i . h_t)``.

    ``h_t`` are the features from which the LM predicts event t; for a plain LSTM, its last layer's outputs.
    """

    needs_features: ClassVar[bool] = True

    size: int
    theta: float
    weight: float

    def __post_init__(self) -> None:
        check_size_and_weight(self.size, self.weight)
        if not 0 <= self.theta < math.inf:
            raise InputError(f"theta is {self.theta}, expected a number that is not negative")

    def log_weights(self, features: np.ndarray, sentence: int) -> np.ndarray:
        return self.theta * (features[len(features) - sentence :] @ features.T).astype(np.float64)

    def __str__(self) -> str:
        return f"{self.size}:{self.theta:g}:{self.weight:g}"


@dataclass(frozen=True)
class UnigramCache:
    """The unigram cache of n-gram LMs: ``a_i = decay^age``. The last event has age 0. With decay 1 it is the unigram frequency."""

    needs_features: ClassVar[bool] = False

    size: int
    weight: float
    decay: float = 1.0

    def __post_init__(self) -> None:
        check_size_and_weight(self.size, self.weight)
        if not 0 < self.decay <= 1:
            raise InputError(f"the decay is {self.decay}, expected a number above 0 and up to 1")

    def log_weights(self, features: np.ndarray, sentence: int) -> np.ndarray:
        ages = np.arange(len(features) - sentence, len(features))[:, None] - 1 - np.arange(len(features))
        return np.maximum(ages, 0) * math.log(self.decay)

    def __str__(self) -> str:
        return f"{self.size}:{self.weight:g}:{self.decay:g}"


def check_size_and_weight(size: int, weight: float) -> None:
    """Raise InputError if the size or the weight is out of range."""
    if size < 1:
        raise InputError(f"the size of the cache is {size}, expected at least 1")
    if not 0 <= weight < 1:
        raise InputError(f"the weight of the cache is {weight}, expected a number from 0 to below 1")


def cache_probabilities(log_weights: np.ndarray, words: np.ndarray, size: int) -> np.ndarray:
    """Return ``p_cache`` (T,) of the last T of the events ``words`` (M + T,); nan if no event is in the cache.

    ``log_weights`` (T, M + T) are the ln of each event's weight in each prediction.
    """
    length, events = log_weights.shape
    place = np.arange(events - length, events)[:, None]
    entry = np.arange(events)
    visible = (entry < place) & (entry >= place - size)
    masked = np.where(visible, log_weights, -np.inf)
    top = masked.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # 0 / 0 if the cache is empty
        weights = np.exp(masked - top)
        return (weights * (words == words[events - length :, None])).sum(axis=1) / weights.sum(axis=1)


def cached_probabilities(cache: Cache, features: np.ndarray, words: np.ndarray, begin: int = 0) -> np.ndarray:
    """Return ``p_cache`` (M - begin,) of the events from ``begin`` on, given the features (M, F) and ``words`` (M,) of all of them.

    In blocks, since each has as many weights as it has events times those it sees.
    """
    found = [np.empty(0)]
    for first in range(begin, len(words), BLOCK_EVENTS):
        end = min(first + BLOCK_EVENTS, len(words))
        seen = slice(max(0, first - cache.size), end)
        found.append(cache_probabilities(cache.log_weights(features[seen], end - first), words[seen], cache.size))
    return np.concatenate(found)


def mixed(log_probs: np.ndarray, cached: np.ndarray, weight: float) -> np.ndarray:
    """Return ``ln ((1 - weight) p + weight p_cache)``; ``ln p`` where ``cached`` is nan."""
    if not weight:
        return log_probs
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.logaddexp(log_probs + math.log1p(-weight), np.log(cached) + math.log(weight))
    return np.where(np.isnan(cached), log_probs, found)


class CacheScorer(Scorer):
    """An LM with a cache. The cache sees the whole history up to its size, even if the LM itself sees less of it."""

    def __init__(self, scorer: Scorer, cache: Cache) -> None:
        if not scorer.scores_end:
            raise InputError(f"{scorer.name} does not score the sentence end, which a cache predicts, too: leave out its cache")
        self.members = (scorer,)
        self.name = scorer.name
        self.cache = cache
        self._numbers: dict[str, int] = {}  # of words, shared by the scorers after other histories
        self._words = np.empty(0, dtype=np.int64)  # the last events
        self._features = np.empty((0, 0), dtype=np.float32)

    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        return self.score_many([(self, sentences)])[0]

    def score_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        found = self._read([(scorer.members[0], sentences) for scorer, sentences in requests])
        return [
            [cast(CacheScorer, scorer)._mixed(words, *read) for words, read in zip(sentences, of_request, strict=True)]
            for (scorer, sentences), of_request in zip(requests, found, strict=True)
        ]

    def after(self, history: Sequence[Sentence]) -> Scorer:
        return self.after_many([(self, history)])[0]

    def after_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[Scorer]:
        return [walked.later for walked in self.walk(requests)]

    def walk(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]], features: bool = False) -> list[Walked]:
        own = [(scorer.members[0], sentences) for scorer, sentences in requests]
        compares = self.cache.needs_features
        found = []
        for (scorer, sentences), walked in zip(requests, self.members[0].walk(own, features or compares), strict=True):
            later, scores = cast(CacheScorer, scorer), []
            for words, score, read in zip(sentences, walked.scores, walked.features, strict=True):
                of_events = read if compares else read[:, :0]
                scores.append(later._mixed(words, score, of_events))
                later = later._after(walked.later, self.numbered(words, score), of_events)
            found.append(Walked(scores, [read if features else read[:, :0] for read in walked.features], later))
        return found

    def exact(self) -> Scorer:
        member = self.members[0].exact()
        return self if member is self.members[0] else self._with_member(member)

    def signature(self) -> dict[str, object]:
        kind = "neural cache" if self.cache.needs_features else "unigram cache"
        return self.members[0].signature() | {kind: asdict(self.cache)}  # type: ignore[call-overload]  # a Protocol of dataclasses

    def _read(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[SentenceScore, np.ndarray]]]:
        """Return the LM's own scores, with features (T, F) if the cache needs them, else (T, 0)."""
        if self.cache.needs_features:
            return self.members[0].score_with_features(requests)
        return without_features(self.members[0].score_many(requests))

    def numbered(self, words: Sentence, score: SentenceScore) -> np.ndarray:
        """Return the events of a sentence as numbers (T,) that differ if the events do."""
        known = [UNKNOWN if oov else self._number(word) for word, oov in zip(words, score.oov, strict=True)]
        return np.array([*known, END], dtype=np.int64)

    def _number(self, word: str) -> int:
        if (number := self._numbers.get(word)) is not None:
            return number
        with _NUMBERING:  # threads of a program may share the numbers
            return self._numbers.setdefault(word, len(self._numbers) + 2)

    def _mixed(self, words: Sentence, score: SentenceScore, features: np.ndarray) -> SentenceScore:
        own = self.numbered(words, score)
        cached = cached_probabilities(self.cache, self._joined(features), np.concatenate((self._words, own)), len(self._words))
        return SentenceScore(tuple(mixed(np.array(score.log_probs), cached, self.cache.weight).tolist()), score.oov)

    def _joined(self, features: np.ndarray) -> np.ndarray:
        return np.concatenate((self._features, features)) if len(self._features) else features

    def _after(self, member: Scorer, events: np.ndarray, features: np.ndarray) -> CacheScorer:
        later = self._with_member(member)
        later._words = np.concatenate((self._words, events))[-self.cache.size :]
        later._features = self._joined(features)[-self.cache.size :]
        return later

    def _with_member(self, member: Scorer) -> CacheScorer:
        """Return the same cache with the same words, for another state of the LM."""
        later = copy.copy(self)
        later.members = (member,)
        return later


def parse_neural_cache(text: str) -> NeuralCache:
    """Return ``SIZE:THETA:WEIGHT`` as a cache.

    Raises:
        InputError: the text has another form, the size is not a whole number of at least 1, theta is negative or
            infinite, or the weight is not from 0 to below 1.
    """
    size, theta, weight = _numbers_of(text, 3, "SIZE:THETA:WEIGHT, such as 500:0.7:0.1")
    return NeuralCache(int(size), theta, weight)


def parse_unigram_cache(text: str) -> UnigramCache:
    """Return ``SIZE:WEIGHT`` or ``SIZE:WEIGHT:DECAY`` as a cache.

    Raises:
        InputError: the text has another form, the size is not a whole number of at least 1, the weight is not from 0
            to below 1, or the decay is not above 0 and up to 1.
    """
    expected = "SIZE:WEIGHT or SIZE:WEIGHT:DECAY, such as 500:0.1:0.99"
    size, weight, *decay = _numbers_of(text, 3 if text.count(":") == 2 else 2, expected)
    return UnigramCache(int(size), weight, *decay)


def parse_temperature(text: str) -> float:
    """Return a temperature, a number above 0.

    Raises:
        InputError: the text is not a finite number above 0.
    """
    [_, temperature] = _numbers_of(f"1:{text}", 2, "a number above 0, such as 0.95")
    if not 0 < temperature < math.inf:
        raise InputError(f"found {text!r}, expected a number above 0, such as 0.95")
    return temperature


def _numbers_of(text: str, count: int, expected: str) -> list[float]:
    parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
        if len(numbers) == count and numbers[0] == int(numbers[0]):
            return numbers
    except (ValueError, OverflowError):
        pass
    raise InputError(f"found {text!r}, expected {expected}")
