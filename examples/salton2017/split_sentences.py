"""Split a text of paragraphs, such as WikiText, into sentences with NLTK's punkt, as Salton et al. (2017) did.

usage: split_sentences.py FOLDER OUTPUT      (train, valid and test, .txt or .txt.gz; `pip install nltk`)

punkt learns abbreviations and sentence starters from unlabelled text: here from the training text, so that nothing is
downloaded. The paper used NLTK's model for English. The words do not change; blank lines are left out.
"""

from __future__ import annotations

import gzip
import sys
from itertools import pairwise
from pathlib import Path

from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer


def paragraphs(path: Path) -> list[str]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
        return [" ".join(line.split()) for line in file if line.strip()]


def sentences(tokenizer: PunktSentenceTokenizer, paragraph: str) -> list[str]:
    """Return the sentences of a paragraph of words joined by single spaces; an end that punkt sees inside a word is none."""
    starts = [begin for begin, _ in tokenizer.span_tokenize(paragraph) if begin and paragraph[begin - 1] == " "]
    return [paragraph[begin:end].strip() for begin, end in pairwise([0, *starts, len(paragraph)])]


def text_of(folder: Path, split: str) -> Path:
    for path in (folder / f"{split}.txt", folder / f"{split}.txt.gz"):
        if path.is_file():
            return path
    sys.exit(f"split_sentences.py: {folder} has neither {split}.txt nor {split}.txt.gz")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: split_sentences.py FOLDER OUTPUT")
    source, output = map(Path, sys.argv[1:])
    found = {split: text_of(source, split) for split in ("train", "valid", "test")}
    output.mkdir(parents=True, exist_ok=True)
    if output.samefile(source):
        sys.exit("split_sentences.py: OUTPUT is FOLDER, whose texts would be replaced: name another folder")
    trainer = PunktTrainer()
    trainer.train("\n".join(paragraphs(found["train"])), finalize=True)
    tokenizer = PunktSentenceTokenizer(trainer.get_params())
    for split, path in found.items():
        lines = [sentence for paragraph in paragraphs(path) for sentence in sentences(tokenizer, paragraph)]
        (output / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        print(f"{split}: {len(lines)} sentences, {sum(len(line.split()) for line in lines)} words", file=sys.stderr)


if __name__ == "__main__":
    main()
