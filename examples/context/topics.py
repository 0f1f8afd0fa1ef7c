"""Split the quickstart's texts into documents: one per help topic or module.

usage: topics.py QUICKSTART_WORK OUTPUT      (the folder that examples/quickstart/run.sh fills, and another one)

Writes train.txt, dev.txt and test.txt with a blank line between documents. dev.documents and test.documents name the
document of each list, for `--context file:`.
"""

from __future__ import annotations

import sys
import sysconfig
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quickstart"))
import corpus


def document_of_sentence() -> dict[str, dict[str, str]]:
    """Return, for each split, the name of the first document that has a sentence."""
    found: dict[str, dict[str, str]] = {split: {} for split in corpus.SPLITS}
    for name, texts in corpus.documents(Path(sysconfig.get_path("stdlib"))):
        for text in texts:
            for sentence in corpus.sentences(text):
                found[corpus.split_of(name)].setdefault(sentence, name)
    return found


def main(quickstart: Path, folder: Path) -> None:
    if not (quickstart / "train.txt").is_file():
        sys.exit(f"topics.py: {quickstart} has no train.txt: expected the folder that examples/quickstart/run.sh fills")
    folder.mkdir(parents=True, exist_ok=True)
    if folder.samefile(quickstart):
        sys.exit("topics.py: OUTPUT is the folder of the quickstart, whose texts would be replaced: name another folder")
    names = document_of_sentence()
    for split in corpus.SPLITS:
        sentences = (quickstart / f"{split}.txt").read_text(encoding="ascii").splitlines()
        if lacking := next((sentence for sentence in sentences if sentence not in names[split]), None):
            sys.exit(
                f"topics.py: {quickstart / split}.txt has a sentence that is not in this Python's library, {lacking!r}: make the "
                "quickstart again with this Python, by examples/quickstart/run.sh --fresh"
            )
        of = [names[split][sentence] for sentence in sentences]
        documents = [[sentence for _, sentence in group] for _, group in groupby(zip(of, sentences, strict=True), key=lambda pair: pair[0])]
        (folder / f"{split}.txt").write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="ascii")
        if split != "train":
            lines = [f"{split}-{number} {name.replace(' ', ':')}\n" for number, name in enumerate(of)]
            (folder / f"{split}.documents").write_text("".join(lines), encoding="ascii")
        print(f"{split}: {len(sentences)} sentences in {len(documents)} documents")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: topics.py QUICKSTART_WORK OUTPUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
