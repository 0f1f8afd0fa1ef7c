"""The n-best list in memory, independent of the file format it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.verbatim import HypothesisText, ListText


class WordShare(NamedTuple):
    """A word with a probability between 0 and 1: its posterior in a slot, or the confidence that it is right."""

    word: str
    share: float


VOTE = "systems_vote"
"""The score by which the systems of joined lists vote."""

DECODER_SCORES = ("decoder", "score", "total", VOTE)
"""Names of the decoder's own score in formats that have several scores."""


@dataclass(frozen=True, slots=True)
class Sausage:
    """The confusion network of a rescored list, with a confidence for each word of the answer.

    Attributes:
        slots: the words of each slot with their posteriors, which sum to 1; most probable first. ``""`` means no word.
        answer: the words of the answer with their confidences.
        times: start and end of each word of the answer in seconds; empty if the list has no times.
    """

    slots: tuple[tuple[WordShare, ...], ...]
    answer: tuple[WordShare, ...]
    times: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True)
class Hypothesis:
    """One hypothesis of a list.

    Attributes:
        text: the text exactly as read.
        scores: the scores read with the hypothesis, by name: natural logs, sums, higher is better. Formats convert when
            they read.
        rank: position in the input list, from 1. 0 for a new text.
        lm_scores: scores added by rescoring, by LM name (natural log, summed over words and sentence end).
        total: the weighted sum of all scores, set by rescoring.
        times: start and end of each word in seconds; empty if unknown.
        confidences: the recogniser's own confidence of each word; empty if unknown.
        verbatim: the hypothesis as it stands in its file, so that unchanged parts can be written back exactly.
    """

    text: str
    scores: dict[str, float] = field(default_factory=dict)
    rank: int = 0
    lm_scores: dict[str, float] = field(default_factory=dict)
    total: float | None = None
    times: tuple[tuple[float, float], ...] = ()
    confidences: tuple[float, ...] = ()
    verbatim: HypothesisText | None = field(default=None, repr=False)

    @property
    def is_timed(self) -> bool:
        """Whether there are words, and each has a time."""
        return 0 < len(self.times) == len(self.text.split())


@dataclass(slots=True)
class NbestList:
    """The hypotheses of one utterance or source sentence, in order; at least one.

    Attributes:
        id: the list's id in the file, or its number from 0 if the format has no ids.
        hypotheses: the hypotheses.
        references: the reference texts; empty unless read or attached.
        line: line at which the list begins in its file, for messages.
        verbatim: the list as it stands in its file, so that unchanged parts can be written back exactly.
        sparse: scores that a hypothesis does not name are 0, as in Moses.
        sausage: the confusion network, added by rescoring if word confidences are requested.
        path: the file, for messages.
        source: the sentence that the hypotheses translate; None if unknown.
        source_of_run: the same, if it was given for a run: a file that the list was read from is written back without it.
        unscored: begin and end in seconds of what the references leave out of scoring.
    """

    id: str
    hypotheses: list[Hypothesis]
    references: tuple[str, ...] = ()
    line: int = field(default=0, repr=False)
    verbatim: ListText | None = field(default=None, repr=False)
    sparse: bool = field(default=False, repr=False)
    sausage: Sausage | None = None
    path: str = field(default="", repr=False, compare=False)
    source: str | None = None
    unscored: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    source_of_run: str | None = field(default=None, repr=False, compare=False)

    @property
    def has_choice(self) -> bool:
        """Whether two of the hypotheses differ."""
        return any(hypothesis.text != self.hypotheses[0].text for hypothesis in self.hypotheses)

    def require_utf8(self) -> None:
        """Raise InputError if a text of the list has half of a surrogate pair: no file in UTF-8 can hold that."""
        texts = [self.id, self.source or "", *self.references]
        for hypothesis in self.hypotheses:
            texts += (hypothesis.text, *map(str, (*hypothesis.scores, *hypothesis.lm_scores)))
        try:
            "\n".join(texts).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise self.error(f"list {self.id!r} has {half!r}, half of a surrogate pair: a file in UTF-8 cannot hold it") from None

    def error(self, message: str) -> InputError:
        """Return an InputError that names the list's file and line."""
        return InputError(message, path=self.path or None, line=self.line or None)


def silence(name: str, like: NbestList) -> NbestList:
    """Return a list of one hypothesis without words, with the scores of another list: sums over no words, 0."""
    return NbestList(name, [Hypothesis("", dict.fromkeys(like.hypotheses[0].scores, 0.0), rank=1)], path=like.path)


def are_alike(first: str, second: str) -> bool | None:
    """Return whether two texts share a fifth of their different words or more, as hypotheses of one utterance do.

    None if one has fewer than three different words: then they may have none in common.
    """
    words, others = {*first.split()}, {*second.split()}
    return None if min(len(words), len(others)) < 3 else 5 * len(words & others) >= len(words | others)
