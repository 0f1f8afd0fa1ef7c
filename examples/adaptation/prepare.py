"""Give a general text and a text of a domain one vocabulary: all words of the domain's training text, and the most frequent general words.

usage: prepare.py GENERAL DOMAIN FOLDER WORDS [SENTENCES]

GENERAL holds train and valid, DOMAIN train, valid and test, as .txt or .txt.gz, one sentence per line. FOLDER/general and
FOLDER/domain get the same texts with <unk> for other words. WORDS is the number of general words, SENTENCES that of the
lines of general training text.
"""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from itertools import islice
from pathlib import Path


def lines_of(folder: Path, split: str, most: int | None = None) -> list[list[str]]:
    path = next((path for path in (folder / f"{split}.txt", folder / f"{split}.txt.gz") if path.exists()), None)
    if path is None:
        sys.exit(f"prepare.py: {folder} holds neither {split}.txt nor {split}.txt.gz")
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.split() for line in islice(file, most)]


def main() -> None:
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: prepare.py GENERAL DOMAIN FOLDER WORDS [SENTENCES]")
    general, domain, folder = map(Path, sys.argv[1:4])
    words, *lines = map(int, sys.argv[4:])
    texts = {
        ("general", "train"): lines_of(general, "train", lines[0] if lines else None),
        ("general", "valid"): lines_of(general, "valid"),
    }
    texts |= {("domain", split): lines_of(domain, split) for split in ("train", "valid", "test")}
    counts = Counter(word for line in texts["general", "train"] for word in line)
    known = {word for word, _ in counts.most_common(words)} | {word for line in texts["domain", "train"] for word in line}
    for (name, split), of_split in texts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        text = "".join(" ".join(word if word in known else "<unk>" for word in line) + "\n" for line in of_split)
        (folder / name / f"{split}.txt").write_text(text, encoding="utf-8", newline="\n")
        total, unknown = sum(map(len, of_split)), sum(word not in known for line in of_split for word in line)
        print(f"{name} {split}: {len(of_split)} lines, {total} words, {unknown} of them <unk>", file=sys.stderr)
    part = folder / "joint.txt.part"  # the last file, whole even if this is killed: run.sh takes it as a sign that all are there
    part.write_text("".join((folder / name / "train.txt").read_text(encoding="utf-8") for name in ("general", "domain")), encoding="utf-8")
    part.rename(folder / "joint.txt")


if __name__ == "__main__":
    main()
