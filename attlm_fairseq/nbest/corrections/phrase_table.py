"""The channel of a noisy-channel model: phrases of hypotheses and their counterparts in references, with probabilities.

    p(target | source) = count(source -> target) / (occurrences of source + DISCOUNT)

All counts are over hypotheses, whose weights sum to 1 in each list. A source phrase is a block of differing words with
at most one common word on either side; sentence boundaries are words. ``p(source | source)`` is the probability of
keeping a word.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from attlm_fairseq.nbest.corrections.alignment import BEGIN, END, AlignedPair, Block

Words = tuple[str, ...]

MAX_PHRASE = 8  # words with context: a number such as "one thousand nine hundred and ninety one" is seven
MAX_VANISHING = 3  # words that a rule may take away
DISCOUNT = 0.5  # occurrences
UNSEEN_KEPT = 0.5  # probability of keeping a word that was never seen
MIN_COUNT = 0.6  # of lists: seen in two lists, or in most hypotheses of one
MIN_PROBABILITY = 0.02
COUNTERS = 32  # for each hypothesis
MAX_EXAMPLES = 2
EXAMPLE_WORDS = 12


class Rule(NamedTuple):
    """``source`` becomes ``target`` with natural-log probability ``log_prob``. ``lists``: how often it was seen, 1 per list."""

    source: Words
    target: Words
    log_prob: float
    lists: float
    examples: Words = ()


@dataclass
class PhraseTable:
    """``rules`` by source phrase; ``kept``: ln p of keeping a word as it is, by word."""

    rules: dict[Words, list[Rule]]
    kept: dict[str, float]

    def __post_init__(self) -> None:
        self._longest: dict[str, int] = {}  # by the first word of the source
        for source in self.rules:
            self._longest[source[0]] = max(len(source), self._longest.get(source[0], 0))

    def matches(self, words: Sequence[str], begin: int) -> Iterator[Rule]:
        """Yield the rules whose source stands in ``words`` from ``begin``."""
        for end in range(begin + 1, min(begin + self._longest.get(words[begin], 0), len(words)) + 1):
            yield from self.rules.get(tuple(words[begin:end]), ())

    def keep(self, word: str) -> float:
        """Return ln p that a word stays as it is."""
        return self.kept.get(word, UNSEEN_LOG_PROB)


UNSEEN_LOG_PROB = math.log(UNSEEN_KEPT)


def learn_phrases(
    pairs: Iterable[AlignedPair], *, min_count: float = MIN_COUNT, min_probability: float = MIN_PROBABILITY, discount: float = DISCOUNT
) -> PhraseTable:
    """Count the phrases of aligned hypotheses and prune those that are seldom or improbable."""
    pairs = list(pairs)
    may_be_kept = _filter(pairs, min_count)
    counts: defaultdict[Words, defaultdict[Words, float]] = defaultdict(lambda: defaultdict(float))
    examples: defaultdict[tuple[Words, Words], list[str]] = defaultdict(list)
    for pair in pairs:
        for source, target in filter(may_be_kept, phrases(pair)):
            counts[source][target] += pair.weight
            shown = examples[source, target]
            if len(shown) < MAX_EXAMPLES:
                shown.append(example(pair, source))
    enough = {source: found for source, targets in counts.items() if (found := {t: n for t, n in targets.items() if n >= min_count})}
    occurrences = count_occurrences(pairs, enough)
    rules: dict[Words, list[Rule]] = {}
    for source, targets in enough.items():
        total = occurrences[source] + discount
        for target, count in sorted(targets.items(), key=lambda item: (-item[1], item[0])):
            if count >= min_probability * total:
                found_in = tuple(dict.fromkeys(examples[source, target]))
                rules.setdefault(source, []).append(Rule(source, target, math.log(count / total), count, found_in))
    return PhraseTable(rules, kept_words(pairs, discount))


def _filter(pairs: Sequence[AlignedPair], min_count: float) -> Callable[[tuple[Words, Words]], bool]:
    """Return a test that every phrase pair with at least ``min_count`` passes, and few others: most are seen once and fill the memory.

    Phrase pairs share counters, a fixed number for each hypothesis, by their hash.
    """
    counters = array("f", bytes(4 * max(1, COUNTERS * len(pairs))))
    size, enough = len(counters), 0.999 * min_count  # float32
    for pair in pairs:
        for found in phrases(pair):
            counters[hash(found) % size] += pair.weight
    return lambda found: counters[hash(found) % size] >= enough


def phrases(pair: AlignedPair) -> Iterator[tuple[Words, Words]]:
    """Yield the phrase pairs of one alignment: each block, and each two blocks with one shared word between, with and without context."""
    blocks = list(pair.blocks)
    joined = [
        Block(one.begin, other.end, one.target_begin, other.target_end) for one, other in pairwise(blocks) if other.begin - one.end == 1
    ]
    for block in blocks + joined:
        if block.end - block.begin - (block.target_end - block.target_begin) > MAX_VANISHING:
            continue
        for left in (0, 1):
            for right in (0, 1):
                source = tuple(pair.hypothesis[block.begin - left : block.end + right])
                target = tuple(pair.reference[block.target_begin - left : block.target_end + right])
                if max(len(source), len(target)) <= MAX_PHRASE and not {*source} <= {BEGIN, END}:
                    yield source, target


def count_occurrences(pairs: Iterable[AlignedPair], sources: Iterable[Words]) -> dict[Words, float]:
    """Return how often each source phrase stands in the hypotheses."""
    wanted = set(sources)
    lengths = sorted({len(source) for source in wanted})
    firsts = {source[0] for source in wanted}
    found: defaultdict[Words, float] = defaultdict(float)
    for pair in pairs:
        words = tuple(pair.hypothesis)
        for begin, word in enumerate(words):
            if word in firsts:
                for length in lengths:
                    if (phrase := words[begin : begin + length]) in wanted and begin + length <= len(words):
                        found[phrase] += pair.weight
    return found


def kept_words(pairs: Iterable[AlignedPair], discount: float) -> dict[str, float]:
    """Return ln p of keeping each word that was seen: ``(kept + discount) / (occurrences + 2 discount)``."""
    kept: defaultdict[str, float] = defaultdict(float)
    changed: defaultdict[str, float] = defaultdict(float)
    for pair in pairs:
        inside = {place for block in pair.blocks for place in range(block.begin, block.end)}
        for place, word in enumerate(pair.hypothesis):
            (changed if place in inside else kept)[word] += pair.weight
    words = sorted({*kept, *changed} - {BEGIN, END})
    return {word: math.log((kept[word] + discount) / (kept[word] + changed[word] + 2 * discount)) for word in words}


def example(pair: AlignedPair, source: Words) -> str:
    """Return the stretch of the hypothesis around the source phrase, for people to read."""
    words = list(pair.hypothesis)
    begin = next(place for place in range(len(words)) if tuple(words[place : place + len(source)]) == source)
    around = max(0, (EXAMPLE_WORDS - len(source)) // 2)
    return " ".join(word for word in words[max(0, begin - around) : begin + len(source) + around] if word not in (BEGIN, END))
