"""What ``show_attention`` writes. Without torch, so that help is shown at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attlm_fairseq.errors import require_several


@dataclass(frozen=True)
class AttentionOutput:
    """The outputs of ``show_attention``.

    Attributes:
        files: files to write: ``.png``, ``.svg``, ``.pdf``, ``.html``, ``.json`` or ``.tsv``, and ``.jsonl`` for a
            text. ``-`` prints a table on standard output.
        threshold: highlight the states whose weight is at least this, in the text printed before each prediction.
            None prints no text.
        examples: number of sentences of a text that get a heat map in the ``.html``: the first ones, or with ``against``
            those that improved most.
        contributions: also show the share of each input in the cell of the LSTM's last layer (Salton and Kelleher 2018,
            Eq. 7), in all files except pictures of a sentence.
        echo: receives each highlighted line.
        marked: format of a highlighted word.
    """

    files: Sequence[str | os.PathLike[str]] = ()
    threshold: float | None = None
    examples: int = 10
    echo: Callable[[str], None] = print
    marked: str = "[{word} {weight:.2f}]"
    contributions: bool = False

    def __post_init__(self) -> None:
        require_several("files", self.files, "a list of files, such as ['weights.png']")
