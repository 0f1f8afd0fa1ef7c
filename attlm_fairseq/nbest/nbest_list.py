"""The n-best list as the program holds it, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.verbatim import HypothesisText, ListText


class WordShare(NamedTuple):
    """A word and a probability between 0 and 1: its posterior in a slot, or the confidence that it is right."""

    word: str
    share: float


DECODER_SCORES = ("decoder", "score", "total")  # how formats call the decoder's own score if it is one of several


@dataclass(frozen=True, slots=True)
class Sausage:
    """The confusion network of a rescored list, and the confidence of each word of its answer.

    ``slots``: the words of each slot with their posteriors, the most probable first, ``""`` for no word; they sum to 1. ``answer``: the
    words of the answer with their confidences. ``times``: start and end of each of these in seconds; empty if the list has no times.
    """

    slots: tuple[tuple[WordShare, ...], ...]
    answer: tuple[WordShare, ...]
    times: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True)
class Hypothesis:
    """One hypothesis of a list.

    ``text`` is exactly as read. ``scores`` are the named scores that came with it: natural logarithm and sums, higher is
    better; the format converts at its door. ``rank`` is its place in the list as read, from 1. ``lm_scores`` and ``total`` are
    what rescoring adds. ``times`` are begin and end of each word in seconds, if the list has them. ``verbatim`` is its text in the
    file, from which the format writes everything else back.
    """

    text: str
    scores: dict[str, float] = field(default_factory=dict)
    rank: int = 0
    lm_scores: dict[str, float] = field(default_factory=dict)
    total: float | None = None
    times: tuple[tuple[float, float], ...] = ()
    verbatim: HypothesisText | None = None


@dataclass(slots=True)
class NbestList:
    """The hypotheses of one utterance or source sentence, in order, at least one.

    ``source`` is the sentence that the hypotheses translate; None if it is not known.
    ``id`` is the list's name as the file gives it (or its number from 0 where the format has none). ``references`` is empty
    unless the file carries them. ``path`` and ``line`` tell where the list begins, for messages. ``verbatim`` is the
    list's text in the file, from which the format writes everything else back. ``sparse`` tells that a score which a hypothesis
    does not name is 0, as Moses has it. ``sausage`` is what rescoring adds if word confidences are asked for.
    """

    id: str
    hypotheses: list[Hypothesis]
    references: tuple[str, ...] = ()
    line: int = 0
    verbatim: ListText | None = None
    sparse: bool = False
    sausage: Sausage | None = None
    path: str = field(default="", compare=False)
    source: str | None = None

    def error(self, message: str) -> InputError:
        """What is wrong with the list, behind its place in the file."""
        return InputError(message, path=self.path or None, line=self.line or None)
