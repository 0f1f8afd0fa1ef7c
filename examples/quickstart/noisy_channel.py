#!/usr/bin/env python3
"""A noisy channel for typing errors, and the decoder that guesses what was meant: argmax p(typed | intended) p(intended).

The channel corrupts every word by itself, letter by letter: a neighbouring key, a missing letter, a key struck on top, two letters
exchanged. The decoder sees nothing but the typed words. Each one could stand for any training word within two edits, or for itself;
candidates are weighed by the exact probability that the channel turns them into what was typed, summed over every way to do so, and by
how frequent they are. The N best sentences over all combinations are written as n-best lists, best first, with these scores (natural
logarithms, summed over the words):

    channel   ln p(typed | intended)
    unigram   ln p(word) in the training text; for a word never seen there, the probability that a word is new
    spelling  for a new word, ln p(its letters) under a letter n-gram over the training vocabulary; 0 for a known word

    python noisy_channel.py corrupt test.txt --seed 1 > test.typed
    python noisy_channel.py decode test.typed --train train.txt --refs test.txt -n 20 > test.jsonl
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import OSA
from rapidfuzz.process import cdist

from attlm_fairseq.errors import InputError

KEYS = "abcdefghijklmnopqrstuvwxyz'"
ROWS = ((0.0, "qwertyuiop"), (0.25, "asdfghjkl"), (0.75, "zxcvbnm"))  # a QWERTY keyboard: each row's shift in keys, and its letters
MOST_EDITS = 2  # between a typed word and a candidate


def neighbouring_keys() -> dict[str, str]:
    """Return for each of KEYS the letters whose keys touch it. The apostrophe touches none of them."""
    place = {key: (shift + column, row) for row, (shift, keys) in enumerate(ROWS) for column, key in enumerate(keys)}
    touching = {key: [other for other in place if other != key and math.dist(place[key], place[other]) < 1.3] for key in place}
    return {key: "".join(sorted(touching.get(key, ""))) for key in KEYS}


NEIGHBOURS = neighbouring_keys()
CODE = {key: code for code, key in enumerate(KEYS)}


def uniform(choices: dict[str, str]) -> np.ndarray:
    """Return the matrix (K, K) of p(struck key | intended key), each row uniform over its choices or all zero."""
    matrix = np.zeros((len(KEYS), len(KEYS)))
    for key, struck in choices.items():
        matrix[CODE[key], [CODE[other] for other in struck]] = 1 / max(len(struck), 1)
    return matrix


@dataclass(frozen=True)
class Channel:
    """The typist. After each intended letter, and after an exchanged pair, one more key may be struck by a slip.

    A letter is exchanged with the next one (unless they are equal), left out, replaced by a neighbouring key (where it has one), or
    typed as intended; a slip repeats the letter or strikes one of its neighbours, all equally likely. A word is never left out
    whole: the typist would notice and type it again.
    """

    exchange: float = 0.03
    omission: float = 0.05
    substitution: float = 0.07
    slip: float = 0.04

    def type_word(self, word: str, random: Random) -> str:
        """Return one way in which ``word`` comes out, drawn from the model."""
        while True:
            typed = []
            position = 0
            while position < len(word):
                letter = word[position]
                following = word[position + 1 : position + 2]
                event = random.random()
                if following not in ("", letter) and event < self.exchange:
                    typed += [following, letter]
                    letter = following
                    position += 1
                elif self.exchange <= event < self.exchange + self.omission:
                    pass
                elif NEIGHBOURS[letter] and 0 <= event - self.exchange - self.omission < self.substitution:
                    typed.append(random.choice(NEIGHBOURS[letter]))
                else:
                    typed.append(letter)
                position += 1
                if random.random() < self.slip:
                    typed.append(random.choice(letter + NEIGHBOURS[letter]))
            if typed:
                return "".join(typed)

    def log_probability(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return ln p(typed | intended) for each pair (intended, typed) as an array (P,); -inf where there is no way.

        The sum over all ways is taken by dynamic programming, for all pairs of the same two lengths at once.
        """
        result = np.empty(len(pairs))
        of_lengths: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, (intended, typed) in enumerate(pairs):
            of_lengths[len(intended), len(typed)].append(number)
        for numbers in of_lengths.values():
            intended, typed = (np.array([[CODE[key] for key in pairs[number][side]] for number in numbers]) for side in (0, 1))
            result[numbers] = self._log_probability(intended, typed)
        return result

    def _log_probability(self, intended: np.ndarray, typed: np.ndarray) -> np.ndarray:
        """The same for intended (P, I) and typed (P, J) keys. ``ways[i][j]`` (P,) = p(i letters were meant, j keys came out)."""
        replaced = uniform(NEIGHBOURS)
        slipped = uniform({key: key + NEIGHBOURS[key] for key in KEYS})
        replaceable = replaced.sum(1)
        length, keys = intended.shape[1], typed.shape[1]
        nothing = np.zeros(len(intended))
        ways = [[nothing + 1.0] + [nothing] * keys]
        for i in range(length):
            letter = intended[:, i]
            after = intended[:, i + 1] if i + 1 < length else letter
            before = intended[:, i - 1] if i else letter
            kept = 1 - self.omission - self.exchange * (after != letter) - self.substitution * replaceable[letter]
            row: list[np.ndarray] = []
            previous = nothing  # j - 1 keys came out for i + 1 letters, the slip after them not yet decided
            for j in range(keys + 1):
                now = ways[i][j] * self.omission
                if j >= 1:
                    key = typed[:, j - 1]
                    now = now + ways[i][j - 1] * (self.substitution * replaced[letter, key] + kept * (letter == key))
                if j >= 2 and i >= 1:
                    exchanged = (before != letter) & (typed[:, j - 2] == letter) & (typed[:, j - 1] == before)
                    now = now + ways[i - 1][j - 2] * self.exchange * exchanged
                slip = previous * self.slip * slipped[letter, typed[:, j - 1]] if j else nothing
                row.append(now * (1 - self.slip) + slip)
                previous = now
            ways.append(row)
        with np.errstate(divide="ignore"):
            return np.log(ways[length][keys]) - np.log1p(-ways[length][0])  # given that something was typed


class Spelling:
    """A letter n-gram over a vocabulary: the probability that a new word is spelled so. Witten-Bell smoothing, interpolated."""

    ORDER = 4

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word in vocabulary:
            letters = " " * (self.ORDER - 1) + word + " "
            for end in range(self.ORDER - 1, len(letters)):
                for start in range(end - self.ORDER + 1, end + 1):
                    self.counts[letters[start:end]][letters[end]] += 1
        self.totals = {context: counts.total() for context, counts in self.counts.items()}

    def log_probability(self, word: str) -> float:
        """Return the natural-log probability of the letters of ``word`` and of its end."""
        letters = " " * (self.ORDER - 1) + word + " "
        return math.fsum(
            math.log(self._letter(letters[end - self.ORDER + 1 : end], letters[end])) for end in range(self.ORDER - 1, len(letters))
        )

    def _letter(self, context: str, letter: str) -> float:
        shorter = self._letter(context[1:], letter) if context else 1 / (len(KEYS) + 1)
        if context not in self.counts:
            return shorter
        kinds = len(self.counts[context])
        return (self.counts[context][letter] + kinds * shorter) / (self.totals[context] + kinds)


class Candidate(NamedTuple):
    """What one typed word could stand for, with the natural-log scores that speak for it."""

    word: str
    channel: float
    unigram: float
    spelling: float

    @property
    def total(self) -> float:
        """ln p(typed | word) + ln p(word)."""
        return self.channel + self.unigram + self.spelling


class Decoder:
    """Finds the N most probable intended sentences for typed ones, words being independent of each other."""

    def __init__(self, training: Iterable[Sequence[str]], channel: Channel) -> None:
        self.channel = channel
        self.counts = Counter(word for sentence in training for word in sentence)
        self.vocabulary = sorted(self.counts)
        # Witten-Bell: as many new words are expected as there were words that were new when they were first met.
        self.events = self.counts.total() + len(self.vocabulary)
        self.spelling = Spelling(self.vocabulary)

    def near(self, words: Sequence[str]) -> list[list[str]]:
        """Return for each word the vocabulary within MOST_EDITS insertions, deletions, substitutions and exchanges, in order."""
        near = []
        for first in range(0, len(words), 1000):  # bounded memory
            distances = cdist(words[first : first + 1000], self.vocabulary, scorer=OSA.distance, score_cutoff=MOST_EDITS, dtype=np.uint8)
            near += [[self.vocabulary[column] for column in np.flatnonzero(row <= MOST_EDITS)] for row in distances]
        return near

    def candidates(self, typed: Sequence[str], most: int) -> list[list[Candidate]]:
        """Return for each typed word its ``most`` best candidates, best first: known words near it, and the word as typed."""
        intended = [sorted({*near, word}) for word, near in zip(typed, self.near(typed), strict=True)]
        pairs = [(word, as_typed) for as_typed, words in zip(typed, intended, strict=True) for word in words]
        scores = iter(self.channel.log_probability(pairs).tolist())
        result = []
        for words in intended:
            found = [Candidate(word, next(scores), *self.prior(word)) for word in words]
            possible = [candidate for candidate in found if candidate.channel > -math.inf]
            result.append(sorted(possible, key=lambda candidate: (-candidate.total, candidate.word))[:most])
        return result

    def prior(self, word: str) -> tuple[float, float]:
        """Return the unigram and the spelling score of a word."""
        if word in self.counts:
            return math.log(self.counts[word] / self.events), 0.0
        return math.log(len(self.vocabulary) / self.events), self.spelling.log_probability(word)

    def decode(self, sentences: Sequence[Sequence[str]], n: int) -> Iterator[list[list[Candidate]]]:
        """Yield for each typed sentence its ``n`` most probable intended ones (fewer where there are no more), best first."""
        typed = sorted({word for sentence in sentences for word in sentence})
        # n candidates a word are enough: whoever uses a word's (n + 1)-th has n better sentences, those with its first n.
        candidates = dict(zip(typed, self.candidates(typed, n), strict=True))
        for sentence in sentences:
            columns = [candidates[word] for word in sentence]
            best = best_combinations([[candidate.total for candidate in column] for column in columns], n)
            yield [[column[place] for column, place in zip(columns, places, strict=True)] for places in best]


def best_combinations(columns: Sequence[Sequence[float]], n: int) -> list[tuple[int, ...]]:
    """Return the ``n`` combinations of one value a column with the largest sums, best first, as places in the columns.

    Each column is in descending order. The search is exact and lazy: it starts from the best value of every column, and each
    combination it takes leads to those with one more step down in the last column stepped in, or a first step in a later one. So
    every combination has exactly one predecessor, which is not worse, and none is met twice.
    """
    heap = [(0.0, (0,) * len(columns), 0)]  # what is lost against the best combination, the places, the last column stepped in
    best: list[tuple[int, ...]] = []
    while heap and len(best) < n:
        loss, places, last = heapq.heappop(heap)
        best.append(places)
        for stepped in range(last, len(columns)):
            column, place = columns[stepped], places[stepped]
            if place + 1 < len(column):
                following = (*places[:stepped], place + 1, *places[stepped + 1 :])
                heapq.heappush(heap, (loss + (column[place] - column[place + 1]), following, stepped))
    return best


def read_sentences(path: str) -> list[list[str]]:
    """Read one sentence a line. Raises InputError where a line has no words or a word has other characters than KEYS."""
    sentences = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words:
            raise InputError("an empty line; expected the words of one sentence", path=path, line=number)
        if strange := next((word for word in words if not set(word) <= set(KEYS)), None):
            raise InputError(
                f"{strange!r} has other characters than a-z and the apostrophe; normalise the text first", path=path, line=number
            )
        sentences.append(words)
    return sentences


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``corrupt`` or ``decode``; both write to standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    corrupt = commands.add_parser("corrupt", help="type sentences with errors")
    corrupt.add_argument("file", help="one normalised sentence a line")
    corrupt.add_argument("--seed", type=int, default=1, help="of the random errors")
    decode = commands.add_parser("decode", help="write the n-best lists of typed sentences")
    decode.add_argument("file", help="one typed sentence a line")
    decode.add_argument("--train", required=True, help="the text that the vocabulary and the word frequencies are taken from")
    decode.add_argument("--refs", help="what was meant, line by line: copied into the lists for tuning and evaluation, not looked at")
    decode.add_argument("-n", type=int, default=20, help="sentences in a list")
    options = parser.parse_args(arguments)

    channel = Channel()
    sentences = read_sentences(options.file)
    if options.command == "corrupt":
        random = Random(options.seed)
        for sentence in sentences:
            print(" ".join(channel.type_word(word, random) for word in sentence))
        return
    references = read_sentences(options.refs) if options.refs else None
    if references is not None and len(references) != len(sentences):
        raise InputError(f"{len(references)} references for {len(sentences)} typed sentences; expected one each", path=options.refs)
    name = Path(options.file).stem
    for number, nbest in enumerate(Decoder(read_sentences(options.train), channel).decode(sentences, options.n)):
        record: dict[str, object] = {"id": f"{name}-{number}", "typed": " ".join(sentences[number])}
        if references is not None:
            record["ref"] = " ".join(references[number])
        record["hyps"] = [
            {
                "text": " ".join(candidate.word for candidate in hypothesis),
                "scores": {
                    score: round(math.fsum(getattr(candidate, score) for candidate in hypothesis), 4)
                    for score in ("channel", "unigram", "spelling")
                },
            }
            for hypothesis in nbest
        ]
        print(json.dumps(record))


if __name__ == "__main__":
    try:
        main()
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
