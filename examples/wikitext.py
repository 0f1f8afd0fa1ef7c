"""Mark where the articles of a WikiText file begin: before each title ``= Title =`` between blank lines.

usage: wikitext.py --marker wiki.train.tokens > train.txt    a line ``<document>`` before each title, nothing else changed
       wikitext.py --blank wiki.train.tokens > train.txt     a blank line between articles, and no other blank lines

.gz files are read too. A text without titles is one document. White space within lines is normalised.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

MARKER = "<document>"
TITLE = re.compile(r"^= [^=]+ =$")


def is_title(lines: list[str], number: int) -> bool:
    """Whether an article's title stands there: the same form within a paragraph is text."""
    return bool(TITLE.match(lines[number])) and not any(lines[max(number - 1, 0) : number] + lines[number + 1 : number + 2])


def marked(lines: list[str]) -> list[str]:
    """Return all lines with MARKER before each title."""
    return [line for number in range(len(lines)) for line in ([MARKER] if is_title(lines, number) else []) + [lines[number]]]


def separated(lines: list[str]) -> list[str]:
    """Return the lines that are not blank, with one blank line before each title but the first line."""
    result: list[str] = []
    for line in marked(lines):
        if line and not (line == MARKER and not result):
            result.append("" if line == MARKER else line)
    return result


def main(form: str, path: Path) -> None:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = [" ".join(line.split()) for line in file.read().removesuffix("\n").split("\n")]
    result = {"--marker": marked, "--blank": separated}[form](lines)
    print(f"{path.name}: {len(lines)} lines, {marked(lines).count(MARKER)} articles", file=sys.stderr)
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    print("\n".join(result))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("--marker", "--blank"):
        sys.exit("usage: wikitext.py --marker|--blank FILE")
    if not Path(sys.argv[2]).is_file():
        sys.exit(f"wikitext.py: there is no file {sys.argv[2]}")
    main(sys.argv[1], Path(sys.argv[2]))
