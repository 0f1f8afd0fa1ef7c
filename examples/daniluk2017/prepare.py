"""Mark where the articles of a WikiText file begin: a line ``<document>`` before each title ``= Title =`` that stands between blank lines.

usage: prepare.py wiki.train.tokens > train.txt      (.gz is read too)
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

MARKER = "<document>"
TITLE = re.compile(r"^= [^=]+ =$")


def marked(lines: list[str]) -> list[str]:
    """Return the lines with a marker before each article's title; nothing else is changed, added or left out."""
    words = [" ".join(line.split()) for line in lines]
    result = []
    for number, line in enumerate(words):
        blank_around = not (number and words[number - 1]) and not (number + 1 < len(words) and words[number + 1])
        if TITLE.match(line) and blank_around:
            result.append(MARKER)
        result.append(line)
    return result


def main() -> None:
    path = Path(sys.argv[1])
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = file.read().removesuffix("\n").split("\n")
    result = marked(lines)
    print(f"{path.name}: {len(lines)} lines, {result.count(MARKER)} articles", file=sys.stderr)
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    print("\n".join(result))


if __name__ == "__main__":
    main()
