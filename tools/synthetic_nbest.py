#!/usr/bin/env python3
"""Write a synthetic Moses n-best list of a given size: words follow Zipf's law, hypotheses share most of their words.

    python tools/synthetic_nbest.py --size 1G > big.nbest
    python tools/synthetic_nbest.py --size 10M --words train.txt > small.nbest      # with the words of a text

The same options give the same bytes.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, count
from pathlib import Path

from attlm_fairseq.scoring.compute import UNITS

DIFFERENT = 5000


def lists(words: list[str], hypotheses: int, generator: random.Random) -> Iterator[str]:
    """Yield the lines of one list after the other, without end: after DIFFERENT lists the same come again, under new numbers."""
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    features = "TM0= %.4f %.4f %.4f %.4f WordPenalty0= -%d Distortion0= 0 LM0= %.4f"
    made: list[list[str]] = []
    for number in count():
        if number >= DIFFERENT:
            yield "".join(f"{number} ||| {line}" for line in made[number % DIFFERENT])
            continue
        best = generator.choices(words, cum_weights=weights, k=generator.randint(3, 40))
        made.append([])
        for _ in range(hypotheses):
            changed = list(best)
            for _ in range(generator.randint(0, 3)):
                changed[generator.randrange(len(best))] = generator.choices(words, cum_weights=weights)[0]
            values = [generator.uniform(-30, 0) for _ in range(4)]
            told = features % (*values, len(best), generator.uniform(-200, 0))
            made[-1].append(f"{' '.join(changed)} ||| {told} ||| {sum(values):.4f}\n")
        yield "".join(f"{number} ||| {line}" for line in made[-1])


def in_bytes(size: str) -> int:
    """Return the number of bytes, for argparse, which makes an error one line."""
    if not (found := re.fullmatch(r"(\d+)([KMGT]?)", size.upper())):
        raise argparse.ArgumentTypeError(f"found {size!r}, expected a number of bytes, such as 100M or 1G")
    return int(found[1]) << UNITS[found[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", default="1G", type=in_bytes, help="bytes, at least: 100M, 1G")
    parser.add_argument("--words", type=Path, help="a text whose words are used, most frequent first (default: w1 .. w20000)")
    parser.add_argument("-n", type=int, default=20, help="hypotheses a list")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    words = [f"w{rank}" for rank in range(1, 20_001)]
    if options.words:
        words = [word for word, _ in Counter(options.words.read_text("utf-8").split()).most_common()]
    written = 0
    for text in lists(words, options.n, random.Random(options.seed)):
        written += sys.stdout.write(text)
        if written >= options.size:
            return


if __name__ == "__main__":
    main()
