#!/usr/bin/env python3
"""Simulate an acoustic model: CTC emissions from text, by a seeded channel that confuses letters which sound alike.

Each letter is a point in space. Letters that sound alike (b d g k p t, m n, the vowels, ..) are near each other, as are
the blank and the silence between words. The channel sends one or two frames per letter, with blanks between, and adds
Gaussian noise to the point of each frame. The emissions are the exact posteriors of the labels given the noisy point.

    python emissions.py test.txt --sentences 100 --seed 1 -o test.npz
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

LABELS = ["-", "|", *"abcdefghijklmnopqrstuvwxyz'"]  # "-" is CTC's blank, "|" the end of a word
BLANK, SILENCE = 0, 1
ALIKE = ("aeiouy", "bdgkpt", "mn", "ckqx", "szcjx", "fvwh", "lr", "|'", "-")  # a letter may be in two groups, and is then between them
DIMENSIONS = 12
WITHIN = 0.45  # how far from its group's centre a label is; the centres are about 1.4 from each other
FRAME = 0.02  # seconds


class Utterance(NamedTuple):
    text: str
    log_probs: np.ndarray  # (T, labels), float32

    @property
    def seconds(self) -> float:
        return len(self.log_probs) * FRAME


def label_points() -> np.ndarray:
    """Return the place of each label (labels, DIMENSIONS), always the same."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(len(ALIKE), DIMENSIONS))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    points = []
    for label in LABELS:
        offset = random.normal(size=DIMENSIONS)
        own = [centre for centre, group in zip(centres, ALIKE, strict=True) if label in group]
        points.append(np.mean(own, axis=0) + WITHIN * offset / np.linalg.norm(offset))
    return np.array(points)


def alignment(text: str, random: np.random.Generator) -> list[int]:
    """Return the label of each frame: each letter once or twice, then up to two blanks, one at least between equal letters."""
    labels = [LABELS.index(letter) for letter in "|".join(text.split())] + [SILENCE]
    frames = [BLANK] * int(random.integers(1, 4))
    for label, following in zip(labels, [*labels[1:], BLANK], strict=True):
        frames += [label] * int(random.integers(1, 3))
        frames += [BLANK] * int(random.integers(label == following, 3))
    return frames


def emit(text: str, noise: float, random: np.random.Generator) -> Utterance:
    """One utterance of the text; ``noise`` is the standard deviation in each dimension."""
    points = label_points()
    sent = points[alignment(text, random)]
    received = sent + noise * random.normal(size=sent.shape)
    distances = ((received[:, None] - points[None]) ** 2).sum(-1)  # (T, labels)
    scores = -distances / (2 * noise**2)
    scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return Utterance(text, np.ascontiguousarray(scores, dtype=np.float32))


def write(path: Path, utterances: list[Utterance]) -> None:
    np.savez(path, texts=[found.text for found in utterances], lengths=[len(found.log_probs) for found in utterances],
             log_probs=np.concatenate([found.log_probs for found in utterances]))  # fmt: skip


def read(path: Path) -> list[Utterance]:
    with np.load(path) as file:
        ends = np.cumsum(file["lengths"])
        parts = np.split(file["log_probs"], ends[:-1])
        return [Utterance(str(text), np.ascontiguousarray(part)) for text, part in zip(file["texts"], parts, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="one sentence a line: lower-case letters, apostrophes, spaces")
    parser.add_argument("--sentences", type=int, default=100, help="how many, drawn at random (default: 100)")
    parser.add_argument("--noise", type=float, default=0.26, help="of the channel (default: 0.26)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    texts = options.text.read_text("utf-8").splitlines()
    chosen = random.choice(len(texts), size=min(options.sentences, len(texts)), replace=False)
    utterances = [emit(texts[line], options.noise, random) for line in chosen]
    write(options.output, utterances)
    print(f"{len(utterances)} utterances, {sum(found.seconds for found in utterances):.0f} s, {len(LABELS)} labels")


if __name__ == "__main__":
    main()
