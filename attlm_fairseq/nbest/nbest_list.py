"""The n-best list as the program holds it, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass, field

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.verbatim import HypothesisText, ListText


@dataclass(slots=True)
class Hypothesis:
    """One hypothesis of a list.

    ``text`` is exactly as read. ``scores`` are the named scores that came with it: natural logarithm and sums, higher is
    better; the format converts at its door. ``rank`` is its place in the list as read, from 1. ``lm_scores`` and ``total`` are
    what rescoring adds. ``verbatim`` is its text in the file, from which the format writes everything else back.
    """

    text: str
    scores: dict[str, float] = field(default_factory=dict)
    rank: int = 0
    lm_scores: dict[str, float] = field(default_factory=dict)
    total: float | None = None
    verbatim: HypothesisText | None = None


@dataclass(slots=True)
class NbestList:
    """The hypotheses of one utterance or source sentence, in order, at least one.

    ``id`` is the list's name as the file gives it (or its number from 0 where the format has none). ``references`` is empty
    unless the file carries them. ``path`` and ``line`` tell where the list begins, for messages. ``verbatim`` is the
    list's text in the file, from which the format writes everything else back. ``sparse`` tells that a score which a hypothesis
    does not name is 0, as Moses has it.
    """

    id: str
    hypotheses: list[Hypothesis]
    references: tuple[str, ...] = ()
    line: int = 0
    verbatim: ListText | None = None
    sparse: bool = False
    path: str = field(default="", compare=False)

    def error(self, message: str) -> InputError:
        """What is wrong with the list, behind its place in the file."""
        return InputError(message, path=self.path or None, line=self.line or None)
