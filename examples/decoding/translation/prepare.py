#!/usr/bin/env python3
"""Make a translation task out of English text: a cipher language, and the little of it that a translation model gets to see.

A sentence of the cipher language is made from an English one so that something is lost that only knowledge of English brings back:

- articles (a, an, the) are left out;
- the words are swapped in pairs: w1 w2 w3 w4 w5 -> w2 w1 w4 w3 w5;
- every word is replaced by a made-up one, and several English words by the same: the n-th commonest word and those 500, 1000 and
  more places behind it.

Only sentences of 4 to 16 words are translated, and only those of the commonest 1,500 words. The parallel text is some of them, the text
for the language model is all English there is.

    python prepare.py FOLDER     # has train.txt, dev.txt and test.txt of ../../quickstart/corpus.py; writes parallel.*, valid.*, test.*
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ARTICLES = {"a", "an", "the"}
WORDS = 1500  # the commonest, of which translated sentences consist
CIPHER_WORDS = 500  # several English words share one of these
SHORTEST, LONGEST = 4, 16
PARALLEL, VALID, TEST = 2500, 190, 300  # sentences at most
ONSETS, NUCLEI, CODAS = "b d g k l m n p r s t v z".split(), "a e i o u".split(), " n l s r k t m".split(" ")  # noqa: SIM905


def cipher_word(number: int) -> str:
    """Return the made-up words, each number another: ba, de, gin, .."""
    onset, rest = number % len(ONSETS), number // len(ONSETS)
    return ONSETS[onset] + NUCLEI[(rest + onset) % len(NUCLEI)] + CODAS[rest // len(NUCLEI) % len(CODAS)]


def encipher(words: Sequence[str], ranks: dict[str, int]) -> list[str]:
    """Return an English sentence in the cipher language."""
    kept = [word for word in words if word not in ARTICLES]
    for place in range(0, len(kept) - 1, 2):
        kept[place], kept[place + 1] = kept[place + 1], kept[place]
    return [cipher_word(ranks[word] % CIPHER_WORDS) for word in kept]


def read_sentences(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text("utf-8").splitlines()]


def main(folder: Path) -> None:
    splits = {
        name: [line.split() for line in (folder / f"{name}.txt").read_text("utf-8").splitlines()] for name in ("train", "dev", "test")
    }
    counts = Counter(word for sentence in splits["train"] for word in sentence)
    commonest = sorted(counts, key=lambda word: (-counts[word], word))[:WORDS]
    ranks = {word: rank for rank, word in enumerate(commonest)}
    for split, name, size in (("train", "parallel", PARALLEL), ("dev", "valid", VALID), ("test", "test", TEST)):
        usable = [words for words in splits[split] if SHORTEST <= len(words) <= LONGEST and all(word in ranks for word in words)]
        chosen = [usable[place * len(usable) // size] for place in range(min(size, len(usable)))]  # from all over the text
        for language, lines in (("en", chosen), ("cipher", [encipher(words, ranks) for words in chosen])):
            (folder / f"{name}.{language}").write_text("".join(f"{' '.join(words)}\n" for words in lines), "utf-8")
        print(f"{name}: {len(chosen)} of {len(splits[split])} sentences")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
