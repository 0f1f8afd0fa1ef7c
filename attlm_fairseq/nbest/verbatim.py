"""What a file contains besides texts, scores and references. Lists keep it, so that unchanged parts are written back exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class FileText:
    """The text of a file before its first and after its last list, shared by all its lists.

    ``end`` is known only when all lists are read. ``framing`` tells how the lists are enclosed, for formats with
    several ways. ``size`` is the number of its lists read so far, for formats in which utterances without words have no list.
    """

    format: str
    start: str = ""
    end: str = ""
    framing: str = ""
    size: int = 0


@dataclass(slots=True)
class ListText:
    """The text of a list in the file that it was read from.

    Attributes:
        before: the text between the previous list and this one.
        own: the list's own text, for formats that edit it in place (JSON); else empty.
        size: number of hypotheses as read.
        file_name: for folders, the name of the file that holds the texts.
        extras: names of data that only this format can write back, such as time stamps. Other formats lose it.
        id: the list's id as read.
        references: the references as read; None if the format has no place for them.
        source: the source sentence as read.
        has_source: whether the format has a place for one.
        numbered: the file has no id for the list, which is therefore called by its number.
        unfilled: the list's text as it stands in the file, if ``own`` has an empty hypothesis more.
    """

    file: FileText
    before: str = ""
    own: str = ""
    size: int = 0
    file_name: str = ""
    extras: tuple[str, ...] = ()
    id: str = ""
    references: Sequence[str] | None = None
    source: str | None = None
    has_source: bool = False
    numbered: bool = False
    unfilled: str = ""

    @property
    def as_read(self) -> str:
        """Return the list's text as it stands in the file."""
        return self.unfilled or self.own


@dataclass(slots=True)
class HypothesisText:
    """The text of a hypothesis in the file that it was read from, and what the hypothesis was when it was read.

    Attributes:
        own: its line with the line end, or its lines if the format has several per hypothesis (fairseq); empty if it
            stands in the text of its list (JSON).
        elsewhere: for folders, its line in each other file, by file name; None if there is no other file.
        place: its place among the hypotheses of its list as read, from 0.
        of: the text of its list.
        text: its text.
        names: the names of its scores.
        scores: their values.
        times: the times of its words; None if the format has no place for them.
    """

    own: str = ""
    elsewhere: dict[str, str] | None = None
    place: int = 0
    of: ListText | None = None
    text: str = ""
    names: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    times: tuple[tuple[float, float], ...] | None = None

    def is_of(self, of: ListText, text: str, scores: Mapping[str, float]) -> bool:
        """Return whether this is a hypothesis of that list, with this text and these scores."""
        return self.of is of and self.text == text and self.scores == tuple(scores.values()) and self.names == tuple(scores)

    def is_part_of(self, of: ListText, text: str, scores: Mapping[str, float]) -> bool:
        """Return whether this is a hypothesis of that list, with this text and these scores or some of them."""
        same = all(scores.get(name) == score for name, score in zip(self.names, self.scores, strict=True))
        return self.of is of and self.text == text and same
