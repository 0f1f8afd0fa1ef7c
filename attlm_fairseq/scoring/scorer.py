"""The Scorer contract: what every language model, neural or n-gram, gives to the rest of the program."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attlm_fairseq.errors import InputError

if TYPE_CHECKING:
    import numpy as np

Sentence = Sequence[str]


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """The scored events of one sentence ``w_1 .. w_n``: its n words and its end.

    ``log_probs`` has n + 1 values, ``ln p(w_1 | <s>), .., ln p(w_n | ..), ln p(</s> | ..)``: natural logarithm, one value
    an event, nothing left out. ``oov`` has n values: True where the LM scored the word as its unknown word.
    """

    log_probs: tuple[float, ...]
    oov: tuple[bool, ...]

    @property
    def total(self) -> float:
        """Natural-log probability of the sentence: the sum over its words and its end."""
        return math.fsum(self.log_probs)

    @property
    def words(self) -> int:
        """How many words the sentence has; its end is not counted."""
        return len(self.oov)

    @property
    def oov_count(self) -> int:
        """How many of the words the LM does not know."""
        return sum(self.oov)


class Scorer(ABC):
    """A language model that scores whole sentences independently of each other.

    What every implementation promises, and the shared tests in ``tests/scoring/test_scorer_contract.py`` check:

    - Order in = order out, one ``SentenceScore`` per sentence.
    - A sentence's score depends neither on the other sentences nor, beyond rounding, on the device.
    - The events are the words and the sentence end. An LM without a sentence end says so in its signature and scores the end 0.
    - Words are looked up as given: text is normalised before. An LM over pieces of words sums the pieces' log-probabilities.

    Attributes:
        name: the name of the LM's score in lists, weights and reports.
        members: the scorers that this one is made of; empty for an LM of its own.
        left_to_right: whether a word's value is its log-probability given the words before it (and a source sentence). Only such
            LMs can be mixed.
    """

    name: str
    members: tuple[Scorer, ...] = ()
    left_to_right: bool = True

    @abstractmethod
    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Score each sentence, a sequence of words without start and end symbols. An empty sentence is legal."""

    @property
    def uses_source(self) -> bool:
        """Whether the scores depend on what a sentence translates: ``score`` refuses, ``score_translations`` scores."""
        return any(member.uses_source for member in self.members)

    def score_translations(self, sentences: Sequence[Sequence[str]], sources: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score each sentence as a translation of the source sentence in its place; an LM ignores the sources."""
        return self.score(sentences)

    @abstractmethod
    def signature(self) -> dict[str, object]:
        """Return what is needed to get the same scores again: kind, files with their SHA-256, vocabulary size, OOV policy."""

    def after(self, history: Sequence[Sentence]) -> Scorer:
        """Return the same LM with the sentences of ``history`` before each sentence that it scores.

        ``lm.after(a).after(b)`` equals ``lm.after([*a, *b])``. An LM whose sentences are independent of each other, such as an n-gram
        model, returns itself: that is its probability given the history, too. ``lm.after(history) is lm`` tells such an LM.

        Args:
            history: the sentences before, the oldest first, each a sequence of words as ``score`` takes them.

        Returns:
            A scorer of the same name. This scorer does not change.
        """
        return self

    def score_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        """Score sentences after several histories together, which is faster than one history at a time.

        Args:
            requests: scorers that ``after`` or ``after_many`` of this scorer have returned, or itself, each with sentences.

        Returns:
            For each request what ``scorer.score(sentences)`` returns, to rounding.
        """
        if any(scorer is not self for scorer, _ in requests):
            return [scorer.score(sentences) for scorer, sentences in requests]
        scores = iter(self.score([words for _, sentences in requests for words in sentences]))
        return [[next(scores) for _ in sentences] for _, sentences in requests]

    def with_temperature(self, temperature: float) -> Scorer:
        """Return the LM with its logits divided by ``temperature``. Raises InputError for an LM that has none."""
        raise InputError(f"{self.name}: a temperature is for this package's neural LMs, whose logits it divides")

    def score_with_features(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[SentenceScore, np.ndarray]]]:
        """As ``score_many``, each score with the features (T, F) from which the LM predicts the sentence's T events.

        Raises InputError for an LM that has none.
        """
        raise InputError(f"{self.name}: a neural cache compares the states of this package's neural LMs, which this LM does not have")

    def after_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[Scorer]:
        """Return ``scorer.after(history)`` for each request, computed together. Requests as of ``score_many``."""
        return [scorer.after(history) for scorer, history in requests]

    def notes(self) -> list[str]:
        """Return what the user should know about the scores so far, such as the deviation of a lower precision: one line each."""
        return [note for member in self.members for note in member.notes()]

    def oov_notes(self) -> list[str]:
        """Return those of ``notes`` that are about the probability of unknown words. A policy with a fixed price leaves them out."""
        return [note for member in self.members for note in member.oov_notes()]


class ComposedScorer(Scorer):
    """A scorer made of other scorers, its ``members``: their scores become its own, and their histories are its own."""

    @abstractmethod
    def combined(self, columns: Sequence[Sequence[SentenceScore]], sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Return the scores of the sentences, given what each member says of them: one column per member."""

    @abstractmethod
    def with_members(self, members: Sequence[Scorer]) -> Scorer:
        """Return the same scorer made of these members."""

    def seen(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        """Return the sentences as the members are to see them."""
        return sentences

    def score_translations(self, sentences: Sequence[Sentence], sources: Sequence[Sentence]) -> list[SentenceScore]:
        return self.combined([member.score_translations(self.seen(sentences), sources) for member in self.members], sentences)

    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        return self.combined([member.score(self.seen(sentences)) for member in self.members], sentences)

    def score_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        columns = [member.score_many(of_member) for member, of_member in zip(self.members, self._of_members(requests), strict=True)]
        return [self.combined(of_request, sentences) for (_, sentences), *of_request in zip(requests, *columns, strict=True)]

    def after(self, history: Sequence[Sentence]) -> Scorer:
        return self._with_later([member.after(self.seen(history)) for member in self.members])

    def after_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[Scorer]:
        later = [member.after_many(of_member) for member, of_member in zip(self.members, self._of_members(requests), strict=True)]
        return [self._with_later(members) for members in zip(*later, strict=True)]

    def _of_members(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[Scorer, Sequence[Sentence]]]]:
        """The requests as each of the members gets them."""
        seen = [(scorer.members, self.seen(sentences)) for scorer, sentences in requests]
        return [[(members[place], sentences) for members, sentences in seen] for place in range(len(self.members))]

    def _with_later(self, members: Sequence[Scorer]) -> Scorer:
        alike = all(one is other for one, other in zip(members, self.members, strict=True))
        return self if alike else self.with_members(members)
