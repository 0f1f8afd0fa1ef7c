"""What a file says beyond texts, scores and references: kept with each list, so that what was not changed is written as it was."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class FileText:
    """The text of a file before its first and after its last list, shared by all its lists (``end`` is known when all are read).

    ``framing`` is how the lists stand in it, for formats with several ways.
    """

    format: str
    start: str = ""
    end: str = ""
    framing: str = ""


@dataclass(slots=True)
class ListText:
    """The text of a list in the file that it was read from.

    Attributes:
        file: what stands around all lists, and the format.
        before: the text between the list before and this one.
        own: the list's own text, for formats that edit it in place (JSON); else empty.
        size: number of hypotheses as read.
        file_name: for folders, the name of the file that holds the texts.
        extras: the names of what only this format writes back, such as time stamps: other formats lose it.
    """

    file: FileText
    before: str = ""
    own: str = ""
    size: int = 0
    file_name: str = ""
    extras: tuple[str, ...] = ()


@dataclass(slots=True)
class HypothesisText:
    """The text of a hypothesis in the file that it was read from.

    Attributes:
        own: its line with the line end; its lines for formats that have several (fairseq).
        elsewhere: for folders, its line in each other file, by the file's name.
    """

    own: str
    elsewhere: dict[str, str] = field(default_factory=dict)
