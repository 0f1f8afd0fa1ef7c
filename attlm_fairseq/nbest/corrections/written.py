"""How a hypothesis is written, apart from its words as corrections compare them: with case and punctuation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.alignment import bounded, unbounded
from attlm_fairseq.nbest.corrections.phrase_list import FROM_LIST
from attlm_fairseq.nbest.corrections.search import Edge
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline

WORD_BY_WORD = ("unicode", "lowercase", "uppercase", "remove-punctuation")  # steps that see no other word


def check_steps(text: TextPipeline) -> TextPipeline:
    """Return the steps. Raises InputError for one that does not treat each word by itself: what was written could not be found again."""
    for step in text.steps:
        if step.name not in WORD_BY_WORD:
            raise InputError(f"text step {step}: corrections compare words one by one, by the steps {', '.join(WORD_BY_WORD)}")
    return text


@dataclass(frozen=True)
class Written:
    """A text and its words after the text steps.

    Attributes:
        words: the words after the steps, between BEGIN and END.
        pieces: what is written between two spaces. Punctuation without a word belongs to the piece before it.
        piece_of: for each of ``words``, the place of its piece; -1 for BEGIN and END. Several words may share one (``well-known``).
        steps: the text steps.
    """

    words: tuple[str, ...]
    pieces: tuple[str, ...]
    piece_of: tuple[int, ...]
    steps: TextPipeline = NO_STEPS

    @staticmethod
    def of(text: str, steps: TextPipeline = NO_STEPS) -> Written:
        pieces: list[str] = []
        piece_of: list[int] = []
        words: list[str] = []
        waiting = ""  # punctuation before the first word
        for token in text.split():
            found = steps.words(token)
            if found:
                piece_of += [len(pieces)] * len(found)
                words += found
                pieces.append(f"{waiting} {token}".lstrip())
                waiting = ""
            elif pieces:
                pieces[-1] += f" {token}"
            else:
                waiting = f"{waiting} {token}".lstrip()
        return Written(tuple(bounded(" ".join(words))), tuple(pieces), (-1, *piece_of, -1), steps)

    def corrected(self, edges: Iterable[Edge]) -> str:
        """Return the text that a derivation makes. ``edges`` lead from BEGIN to END.

        What is kept is written as it was. What replaces words has their punctuation around it, and a capital letter if they begin
        with one; in a text of capitals, it is in capitals.
        """
        written: list[str] = []
        kept: list[int] = []
        for edge in edges:
            if edge.rule is None:
                kept += range(edge.begin, edge.end)
                continue
            first, last = self._context(edge)
            begin, end = edge.begin + first, edge.end - last
            written += self._kept([*kept, *range(edge.begin, begin)])
            if edge.rule[0] == FROM_LIST:
                written += self._with_punctuation(begin, end, edge.rule[2].split(" "))
            else:
                target = unbounded(edge.target[first : len(edge.target) - last]).split()
                written += self._with_punctuation(begin, end, self._with_case(begin, end, target))
            kept = list(range(end, edge.end))
        return " ".join([*written, *self._kept(kept)])

    def _context(self, edge: Edge) -> tuple[int, int]:
        """Return how many words at the beginning and at the end of an edge stay, as the context of a phrase does."""
        source, target = self.words[edge.begin : edge.end], edge.target
        if edge.rule is not None and edge.rule[0] == FROM_LIST:
            return 0, 0
        most = min(len(source), len(target))
        first = next((i for i in range(most) if source[i] != target[i]), most)
        last = next((i for i in range(most - first) if source[-1 - i] != target[-1 - i]), most - first)
        return first, last

    def _kept(self, places: Sequence[int]) -> list[str]:
        """Return how words that stay are written; of a piece that stays in part, only its words."""
        written: list[str] = []
        for piece, of_piece in groupby(places, key=self.piece_of.__getitem__):
            here = list(of_piece)
            if piece >= 0:
                whole = self.piece_of[here[0] - 1] != piece != self.piece_of[here[-1] + 1]
                written += [self.pieces[piece]] if whole else unbounded([self.words[place] for place in here]).split()
        return written

    def _with_punctuation(self, begin: int, end: int, target: Sequence[str]) -> list[str]:
        """Return words with the punctuation that is written around the words from ``begin`` to ``end``."""
        if begin == end or not target:
            return list(target)
        text = " ".join(target)
        if self.piece_of[begin] != self.piece_of[begin - 1]:
            text = self._silent(self.pieces[self.piece_of[begin]]) + text
        if self.piece_of[end - 1] != self.piece_of[end]:
            text += self._silent(self.pieces[self.piece_of[end - 1]][::-1])[::-1]
        return text.split(" ")

    def _silent(self, piece: str) -> str:
        """Return the beginning of a piece of which the steps leave nothing."""
        return piece[: next((i for i, sign in enumerate(piece) if self.steps.words(sign)), 0)]

    def _with_case(self, begin: int, end: int, target: Sequence[str]) -> list[str]:
        """Return words in the case in which the words from ``begin`` to ``end`` are written, where the steps have changed it."""
        written, compared = " ".join(self.pieces), "".join(self.words[1:-1])
        case: Callable[[str], str] = str
        if written.isupper() != compared.isupper():
            case = str.upper if written.isupper() else str.lower
        words = list(map(case, target))
        if words and begin < end:
            piece = self.pieces[self.piece_of[begin]]
            letter = piece[len(self._silent(piece)) :][:1]
            is_first, was_changed = self.piece_of[begin] != self.piece_of[begin - 1], letter != self.words[begin][:1]
            if letter.isupper() and is_first and (was_changed or case is str.lower):
                words[0] = words[0][:1].upper() + words[0][1:]
        return words
