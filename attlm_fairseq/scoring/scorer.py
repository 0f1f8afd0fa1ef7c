"""The Scorer contract: what every language model, neural or n-gram, provides to the rest of the program."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import isfunction
from typing import Any, cast

import numpy as np

from attlm_fairseq.errors import InputError, require_words
from attlm_fairseq.scoring.compute import DeviceConfig

Sentence = Sequence[str]


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """The scored events of one sentence ``w_1 .. w_n``: its n words and its end.

    Attributes:
        log_probs: n + 1 natural logarithms, one per event: ``ln p(w_1 | <s>), .., ln p(w_n | ..), ln p(</s> | ..)``.
            No event is left out. The last is 0 for an LM without a sentence end (``Scorer.scores_end``). A masked LM has
            ``ln p(w_i | all other words)``; those of a reverse translation model belong to no single word.
        oov: n values, one per word: True if the LM scored the word as its unknown word.
    """

    log_probs: tuple[float, ...]
    oov: tuple[bool, ...]

    @property
    def total(self) -> float:
        """Return the sum of ``log_probs``: the natural-log probability of the sentence, of a masked LM a pseudo-log-likelihood."""
        return math.fsum(self.log_probs)

    @property
    def words(self) -> int:
        """Return the number of words, without ``</s>``."""
        return len(self.oov)

    @property
    def oov_count(self) -> int:
        """Return the number of words that the LM does not know."""
        return sum(self.oov)


def note_lines(told: Sequence[str]) -> list[str]:
    """Return the ``notes`` of a scorer as at most two lines, of which the second has its warnings."""
    warnings = [one for one in told if one.startswith("WARNING")]
    others = [one for one in told if one not in warnings]
    return ["; ".join(kind) for kind in (others, warnings) if kind]


def without_features(scores: Sequence[Sequence[SentenceScore]]) -> list[list[tuple[SentenceScore, np.ndarray]]]:
    """Return the scores of ``score_many`` in the form of ``score_with_features``, with features (T, 0)."""
    return [[(score, np.empty((len(score.log_probs), 0), dtype=np.float32)) for score in of_request] for of_request in scores]


@dataclass(slots=True)
class Walked:
    """The sentences of a conversation, scored one after another.

    Attributes:
        scores: of each sentence after those before it.
        features: the features (T, F) of each, see ``Scorer.score_with_features``; (T, 0) if they were not requested.
        later: the LM after all of them.
    """

    scores: list[SentenceScore]
    features: list[np.ndarray]
    later: Scorer


class Scorer(ABC):
    """A language model that scores whole sentences independently of each other.

    Every implementation keeps these promises; ``tests/scoring/test_scorer_contract.py`` checks them:

    - ``score`` returns one ``SentenceScore`` per sentence, in the order of the sentences.
    - A sentence's score does not depend on the other sentences, nor on the device, except for rounding (float32: 5e-6).
    - The events are the words and the sentence end. An LM without a sentence end says so in its signature and gives
      the end a score of 0.
    - Words are looked up as given: the caller normalises the text. A subword LM sums the log-probabilities of a word's pieces.

    Attributes:
        name: the name of the LM's score in n-best lists, weights and reports.
        members: the scorers that this one combines; empty for a single LM.
        spec: the ``LMSpec`` that ``load_lm`` made it from, with its files and options; None for an LM that a program has made itself.
        changed: whether it is a changed copy of the LM that ``spec`` describes: after a history, or with another normaliser.
        loaded_on: the device of a neural LM that ``load_lm`` made; None for any other LM.
    """

    name: str = "lm"
    members: tuple[Scorer, ...] = ()
    spec: object = None
    changed: bool = False
    loaded_on: DeviceConfig | None = None

    def __init_subclass__(cls, **named: Any) -> None:
        """Let the answers of another package's LM be checked, so that a wrong one does not become a wrong figure."""
        super().__init_subclass__(**named)
        if cls.__module__.partition(".")[0] != __package__.partition(".")[0]:
            for method, checked in _CHECKS.items():
                if isfunction(own := cls.__dict__.get(method)):
                    setattr(cls, method, checked(own))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    def __copy__(self) -> Scorer:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, changed=True)  # a copy is made to change it
        return copied

    @abstractmethod
    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Score each sentence: a sequence of words, possibly empty, without start and end symbols."""

    @property
    def left_to_right(self) -> bool:
        """Return whether a word's value is its log-probability given the words before it (and a source sentence).

        Only such LMs can be mixed, and only if they score the sentence end.
        """
        return all(member.left_to_right for member in self.members)

    @property
    def scores_end(self) -> bool:
        """Return whether the sentence end is an event. If not, its value is 0, which is no probability."""
        return all(member.scores_end for member in self.members)

    @property
    def uses_source(self) -> bool:
        """Return whether the scores depend on the source sentence. If so, use ``score_translations``: ``score`` raises an error."""
        return any(member.uses_source for member in self.members)

    @property
    def translates_back(self) -> bool:
        """Return whether it scores the source sentence given the sentence. Then no value belongs to a word."""
        return any(member.translates_back for member in self.members)

    def score_translations(self, sentences: Sequence[Sequence[str]], sources: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score each sentence as a translation of the source sentence at the same index. A plain LM ignores the sources."""
        return self.score(sentences)

    @abstractmethod
    def signature(self) -> dict[str, object]:
        """Return what identifies the scores: the kind of LM, its files with SHA-256, vocabulary size and OOV policy."""

    def after(self, history: Sequence[Sentence]) -> Scorer:
        """Return a scorer that conditions every sentence on the preceding sentences in ``history``.

        ``lm.after(a).after(b)`` equals ``lm.after([*a, *b])``. An LM that scores sentences independently, such as an
        n-gram model, returns itself. So ``lm.after(history) is lm`` tells whether the LM ignores context.

        Args:
            history: the preceding sentences, oldest first, each a sequence of words as in ``score``.

        Returns:
            A scorer of the same name. This scorer does not change.

        Raises:
            InputError: a sentence is a string.
        """
        for sentence in history:
            require_words(sentence)
        return self

    def score_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        """Score sentences after several histories in one batch, which is faster than one history at a time.

        Args:
            requests: pairs of a scorer and the sentences to score with it. The scorer is this one, or was returned by
                its ``after`` or ``after_many``.

        Returns:
            For each request, the result of ``scorer.score(sentences)``, equal except for rounding.
        """
        if any(scorer is not self for scorer, _ in requests):
            return [scorer.score(sentences) for scorer, sentences in requests]
        scores = iter(self.score([words for _, sentences in requests for words in sentences]))
        return [[next(scores) for _ in sentences] for _, sentences in requests]

    def with_temperature(self, temperature: float) -> Scorer:
        """Return the LM with its logits divided by ``temperature``.

        Raises:
            InputError: the LM has no logits, for example an n-gram LM.
        """
        raise InputError(f"{self.name}: a temperature is for this package's neural LMs, whose logits it divides")

    def score_with_features(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[SentenceScore, np.ndarray]]]:
        """Score as ``score_many`` does, and return each score with features (T, F).

        Row t of the features is the input of the output layer for event t of the sentence's T events.

        Raises:
            InputError: the LM has no features, for example an n-gram LM.
        """
        raise InputError(f"{self.name}: a neural cache compares the states of this package's neural LMs, which this LM does not have")

    def after_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[Scorer]:
        """Return ``scorer.after(history)`` for each request ``(scorer, history)``, computed in one batch."""
        return [scorer.after(history) for scorer, history in requests]

    def walk(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]], features: bool = False) -> list[Walked]:
        """Score each sentence of a request after its history and the sentences before it, and read them all.

        Args:
            requests: pairs of a scorer and sentences, see ``score_many``.
            features: return the features too; an LM that has none raises InputError.

        Returns:
            For each request the scores and the LM after its sentences. They equal those of ``score`` and ``after``, sentence by
            sentence, except for rounding.
        """
        found = [Walked([], [], scorer) for scorer, _ in requests]
        for number in range(max((len(sentences) for _, sentences in requests), default=0)):
            places = [place for place, (_, sentences) in enumerate(requests) if number < len(sentences)]
            one_each = [(found[place].later, [requests[place][1][number]]) for place in places]
            read = self.score_with_features(one_each) if features else without_features(self.score_many(one_each))
            for place, [(score, of_events)], later in zip(places, read, self.after_many(one_each), strict=True):
                found[place].scores.append(score)
                found[place].features.append(of_events)
                found[place].later = later
        return found

    def exact(self) -> Scorer:
        """Return the LM with exact normalisers; itself if it has them."""
        return self

    def notes(self) -> list[str]:
        """Return one-line remarks on the scores so far, such as the error that a lower precision has caused."""
        return [note for member in self.members for note in member.notes()]

    def oov_notes(self) -> list[str]:
        """Return the ``notes`` about the probability of unknown words, which do not apply if these get a fixed score."""
        return [note for member in self.members for note in member.oov_notes()]


def _checked_scores(score: Callable[..., Any]) -> Callable[..., list[SentenceScore]]:
    """Let the scores of ``score`` or ``score_translations`` be checked."""

    @wraps(score)
    def checked(self: Scorer, sentences: Sequence[Sentence], *others: Any, **named: Any) -> list[SentenceScore]:
        sentences = list(sentences)
        return _check_scores(self, score.__name__, score(self, sentences, *others, **named), sentences)

    return checked


def _checked_requests(score_many: Callable[..., Any]) -> Callable[..., list[list[SentenceScore]]]:
    @wraps(score_many)
    def checked(self: Scorer, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        found = score_many(self, requests)
        if not isinstance(found, list) or len(found) != len(requests):
            raise InputError(f"{self.name}: `score_many` returns {_told(found)} for {len(requests)} requests: expected a list for each")
        return [_check_scores(self, "score_many", one, sentences) for one, (_, sentences) in zip(found, requests, strict=True)]

    return checked


def _check_scores(scorer: Scorer, method: str, found: Any, sentences: Sequence[Sentence]) -> list[SentenceScore]:
    called = f"{scorer.name}: `{method}` returns"
    if not isinstance(found, list) or len(found) != len(sentences):
        raise InputError(f"{called} {_told(found)} for {len(sentences)} sentences: expected a list of one SentenceScore each")
    for words, one in zip(sentences, found, strict=True):
        if not isinstance(one, SentenceScore) or not all(isinstance(values, tuple) for values in (one.log_probs, one.oov)):
            raise InputError(f"{called} {one!r:.80} for a sentence: expected a SentenceScore of two tuples")
        if len(one.log_probs) != len(words) + 1 or len(one.oov) != len(words):
            raise InputError(
                f"{called} {len(one.log_probs)} log_probs and {len(one.oov)} oov for a sentence of {len(words)} words: "
                f"expected {len(words) + 1}, the last of the sentence end, and {len(words)}"
            )
        if not _has_numbers(one):
            raise InputError(f"{called} {one!r:.200}: expected natural logarithms as log_probs, and True or False for each word as oov")
    return found


def _has_numbers(found: SentenceScore) -> bool:
    """Return whether the log-probabilities are real numbers, infinite ones and nan included, and ``oov`` has truth values."""
    try:
        for value in found.log_probs:
            math.isnan(value)  # raises for what is no real number
        return all(unknown in (0, 1) for unknown in found.oov)
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        return False


def _told(found: Any) -> str:
    return f"a list of {len(found)}" if isinstance(found, list) else f"{found!r:.60}"


def _checked_signature(signature: Callable[..., Any]) -> Callable[..., dict[str, object]]:
    @wraps(signature)
    def checked(self: Scorer, *others: Any, **named: Any) -> dict[str, object]:
        found = signature(self, *others, **named)
        if not isinstance(found, dict):
            raise InputError(f"{self.name}: `signature` returns {found!r:.60}: expected a dictionary of what identifies the LM")
        return found

    return checked


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "score": _checked_scores,
    "score_translations": _checked_scores,
    "score_many": _checked_requests,
    "signature": _checked_signature,
}
"""The methods of another package's LM whose answers are checked."""


class ComposedScorer(Scorer):
    """A scorer that combines the scores of other scorers, its ``members``. All members see the same history."""

    @abstractmethod
    def combined(self, columns: Sequence[Sequence[SentenceScore]], sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Return the combined scores of the sentences. ``columns`` has the scores of each member, in the order of ``members``."""

    @abstractmethod
    def with_members(self, members: Sequence[Scorer]) -> Scorer:
        """Return the same combination with these members instead."""

    def seen(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        """Return the sentences in the form that is passed to the members."""
        return sentences

    def score_translations(self, sentences: Sequence[Sentence], sources: Sequence[Sentence]) -> list[SentenceScore]:
        return self.combined([member.score_translations(self.seen(sentences), sources) for member in self.members], sentences)

    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        return self.combined([member.score(self.seen(sentences)) for member in self.members], sentences)

    def score_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        columns = [member.score_many(of_member) for member, of_member in zip(self.members, self._of_members(requests), strict=True)]
        return [self.combined(of_request, sentences) for (_, sentences), *of_request in zip(requests, *columns, strict=True)]

    def walk(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]], features: bool = False) -> list[Walked]:
        if features:
            return super().walk(requests, features)
        columns = [member.walk(of_member) for member, of_member in zip(self.members, self._of_members(requests), strict=True)]
        found = []
        for (scorer, sentences), *walked in zip(requests, *columns, strict=True):
            [pairs] = without_features([self.combined([one.scores for one in walked], sentences)])
            later = cast(ComposedScorer, scorer)._with_later([one.later for one in walked])
            found.append(Walked([score for score, _ in pairs], [none for _, none in pairs], later))
        return found

    def exact(self) -> Scorer:
        return self._with_later([member.exact() for member in self.members])

    def after(self, history: Sequence[Sentence]) -> Scorer:
        return self._with_later([member.after(self.seen(history)) for member in self.members])

    def after_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[Scorer]:
        later = [member.after_many(of_member) for member, of_member in zip(self.members, self._of_members(requests), strict=True)]
        return [self._with_later(members) for members in zip(*later, strict=True)]

    def _of_members(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[Scorer, Sequence[Sentence]]]]:
        """Return the requests of ``score_many`` or ``after_many`` for each member."""
        seen = [(scorer.members, self.seen(sentences)) for scorer, sentences in requests]
        return [[(members[place], sentences) for members, sentences in seen] for place in range(len(self.members))]

    def _with_later(self, members: Sequence[Scorer]) -> Scorer:
        alike = all(one is other for one, other in zip(members, self.members, strict=True))
        return self if alike else self.with_members(members)
