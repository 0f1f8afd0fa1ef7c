"""Split HyPoradise's ATIS lists: the references of four fifths train LMs, the lists of the last fifth tune and test.

usage: prepare.py atis-train.json[.gz] FOLDER
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path


def main(source: Path, folder: Path) -> None:
    data = source.read_bytes()
    try:
        items = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        references = [item["output"].strip() for item in items]
    except (ValueError, TypeError, KeyError, AttributeError):
        sys.exit(f"prepare.py: {source}: expected a JSON array of lists with `input` and `output`, as HyPoradise has")
    folder.mkdir(parents=True, exist_ok=True)
    training = [(index, text) for index, text in enumerate(references) if index % 5]
    # what the neural LM stops on is taken from its training part: the tuning fifth stays unseen by every LM
    (folder / "train.txt").write_text("".join(f"{text}\n" for index, text in training if index % 25 != 1), encoding="utf-8")
    (folder / "valid.txt").write_text("".join(f"{text}\n" for index, text in training if index % 25 == 1), encoding="utf-8")
    (folder / "train-all.txt").write_text("".join(f"{text}\n" for _, text in training), encoding="utf-8")
    # for measuring LMs alone: the references of the lists to tune on
    (folder / "test.txt").write_text("".join(f"{text}\n" for text in references[::5]), encoding="utf-8")
    (folder / "train.json").write_text(json.dumps([item for index, item in enumerate(items) if index % 5]), encoding="utf-8")
    (folder / "dev.json").write_text(json.dumps(items[::5]), encoding="utf-8")
    print(f"{len(training)} references for the LMs, {len(items[::5])} lists to tune on, in {folder}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
