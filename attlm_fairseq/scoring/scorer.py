"""The Scorer contract: what every language model, neural or n-gram, gives to the rest of the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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


@runtime_checkable
class Scorer(Protocol):
    """A language model that scores whole sentences independently of each other.

    Order in = order out. A sentence's score does not depend on its neighbours, on how many there are, or on the device
    beyond rounding. Words are given as they are to be looked up: text is normalised before, never here.
    """

    name: str

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score each sentence, a sequence of words without start and end symbols. An empty sentence is legal."""
        ...

    def signature(self) -> dict[str, object]:
        """What is needed to get the same scores again: kind, files with their SHA-256, vocabulary size, OOV policy."""
        ...
