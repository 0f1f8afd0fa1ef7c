"""ROVER (Fiscus 1997): a confusion network of a list by iterative alignment, and a vote in each of its slots.

As in consensus decoding (Mangu, Brill and Stolcke 2000), what wins is not one of the hypotheses but the
most probable word, or no word, in each slot. Shapes: n hypotheses, K slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import numpy as np

from attlm_fairseq.errors import InputError

FEW_COSTS = 1 << 10  # up to so many, loops are faster than numpy
MAX_COSTS = 1 << 28  # 1 GiB
TIE = 1e-12  # relative: sums that differ by less are equal, for in another order of summation they would be


@dataclass(frozen=True, slots=True)
class ConfusionNetwork:
    """``slots[k][i]`` is the word of hypothesis i in slot k, or ``""`` if it has none; ``texts`` are the hypotheses as read."""

    texts: tuple[str, ...]
    slots: tuple[tuple[str, ...], ...]


def confusion_network(texts: Sequence[str]) -> ConfusionNetwork:
    """Align the hypotheses (at least one) in the given order, each at the least cost with the network of the earlier ones.

    Words are separated by white space. Costs:

    - a word in a slot: the share of earlier hypotheses with another word or none there;
    - an empty slot: the share of earlier hypotheses with a word there;
    - a new slot: 1.

    For two hypotheses the total is Levenshtein's distance. Words that a hypothesis and the network have in common at the beginning
    are matched first. Ties after them are resolved from the end of the text: a slot with a word is preferred to an empty slot, and
    an empty slot to a new one. Every hypothesis can be read from the network.
    """
    rows: dict[str, tuple[str, ...]] = {text: tuple(text.split()) for text in texts}
    first = rows[texts[0]]
    slots: list[list[str]] = [[word] for word in first]
    counts = [Counter(slot) for slot in slots]  # how many of the hypotheses so far have each word there
    aligned: dict[tuple[str, ...], int] = {first: 0}  # a repeated hypothesis goes where the first of them went
    for seen, text in enumerate(texts[1:], start=1):
        words = rows[text]
        if words in aligned:
            placed = [slot[aligned[words]] for slot in slots]
        else:
            aligned[words] = seen
            places = _alignment(counts, words, seen)
            slots = [[""] * seen if slot is None else slots[slot] for slot, _ in places]
            counts = [Counter({"": seen}) if slot is None else counts[slot] for slot, _ in places]
            placed = [word for _, word in places]
        for slot, count, word in zip(slots, counts, placed, strict=True):
            slot.append(word)
            count[word] += 1
    return ConfusionNetwork(tuple(texts), tuple(map(tuple, slots)))


def disputed(network: ConfusionNetwork) -> np.ndarray:
    """Return the slots with different words, (D, n): for each hypothesis, the first hypothesis with the same word there."""
    first: list[dict[str, int]] = [{} for _ in network.slots]
    rows = [[known.setdefault(word, i) for i, word in enumerate(slot)] for known, slot in zip(first, network.slots, strict=True)]
    found = [row for row, known in zip(rows, first, strict=True) if len(known) > 1]
    return np.array(found, dtype=np.int64).reshape(-1, len(network.texts))


def vote(slots: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the winners of disputed slots (D, n), as the first hypotheses that have them, (D,). ``probabilities`` are (n,) or (D, n).

    Of words with equal sums, to a relative TIE, the one counts that the earliest hypothesis has.
    """
    places = slots + slots.shape[1] * np.arange(len(slots))[:, None]
    shares = np.broadcast_to(probabilities, slots.shape)
    sums = np.bincount(places.ravel(), shares.ravel(), slots.size).reshape(slots.shape)
    return (sums >= (1.0 - TIE) * sums.max(axis=-1, keepdims=True)).argmax(axis=-1)


def winner(network: ConfusionNetwork, votes: np.ndarray, written: Sequence[str]) -> str:
    """Return the text that the votes (D,) in the disputed slots make; it may be empty.

    ``written``: the hypotheses as they are to be written, such as with capitals; they have the same number of words
    each. A text that is some hypothesis' (but for white space) is returned as that one is written, any other with
    single spaces.
    """
    words = [iter(text.split()) for text in written]
    left = iter(votes)
    chosen, shown = [], []
    for slot in network.slots:
        row = next(left) if len(set(slot)) > 1 else 0
        of_slot = [next(of_text) if word else "" for word, of_text in zip(slot, words, strict=True)]
        if slot[row]:
            chosen.append(slot[row])
            shown.append(of_slot[row])
    for text, as_written in zip(network.texts, written, strict=True):
        if text.split() == chosen:
            return as_written
    return " ".join(shown)


def _alignment(counts: Sequence[Counter[str]], words: Sequence[str], seen: int) -> list[tuple[int | None, str]]:
    """Return the merged order of slots and words: (slot, word), (slot, "") or (None, word) for a new slot.

    ``counts`` are, for each slot, how many of the hypotheses ``seen`` have each word there.
    """
    # Where all agree at the ends nothing is to be found out: matching there is among the cheapest alignments.
    start, slots_end, words_end = 0, len(counts), len(words)
    while start < min(slots_end, words_end) and counts[start][words[start]] == seen:
        start += 1
    while min(slots_end, words_end) > start and counts[slots_end - 1][words[words_end - 1]] == seen:
        slots_end, words_end = slots_end - 1, words_end - 1
    inner = counts[start:slots_end]
    empty = [seen - count[""] for count in inner]  # costs in hypotheses, so that they are exact
    costs = _costs(inner, words[start:words_end], empty, seen)
    places: list[tuple[int | None, str]] = [(slots_end + i, words[words_end + i]) for i in reversed(range(len(words) - words_end))]
    j, k = words_end - start, slots_end - start
    while j or k:
        if j and k and costs[j][k] == costs[j - 1][k - 1] + seen - inner[k - 1][words[start + j - 1]]:
            j, k = j - 1, k - 1
            places.append((start + k, words[start + j]))
        elif k and costs[j][k] == costs[j][k - 1] + empty[k - 1]:
            k -= 1
            places.append((start + k, ""))
        else:
            j -= 1
            places.append((None, words[start + j]))
    return [*((i, words[i]) for i in range(start)), *reversed(places)]


def _costs(slots: Sequence[Counter[str]], words: Sequence[str], empty: Sequence[int], seen: int) -> Sequence[Sequence[int]]:
    """Return the least cost of aligning the first j words with the first k slots, W + 1 rows of K + 1 numbers.

    Raises InputError if there are too many words and slots.
    """
    skipped = [0, *accumulate(empty)]
    if len(words) * len(slots) > FEW_COSTS:
        return _costs_of_many(slots, words, np.array(skipped, dtype=np.int32), seen)
    costs = [skipped]
    for word in words:
        above = costs[-1]
        row = [above[0] + seen]
        for k, count in enumerate(slots):
            row.append(min(above[k] + seen - count[word], row[k] + empty[k], above[k + 1] + seen))
        costs.append(row)
    return costs


def _costs_of_many(slots: Sequence[Counter[str]], words: Sequence[str], skipped: np.ndarray, seen: int) -> Sequence[Sequence[int]]:
    """Return the same as ``_costs``, a row at a time. ``skipped`` (K + 1,) are the costs of no word."""
    if (len(words) + 1) * (len(slots) + 1) > MAX_COSTS:
        raise InputError(f"{len(words)} words are too many to align with {len(slots)} others: split such texts into sentences")
    found: dict[str, tuple[list[int], list[int]]] = {}
    for slot, count in enumerate(slots):
        for word, number in count.items():
            places, numbers = found.setdefault(word, ([], []))
            places.append(slot)
            numbers.append(number)
    where = {word: (np.array(places), np.array(numbers)) for word, (places, numbers) in found.items()}
    costs = np.empty((len(words) + 1, len(slots) + 1), dtype=np.int32)
    costs[0] = skipped
    for above, row, word in zip(costs, costs[1:], words, strict=False):
        np.add(above, seen, out=row)  # a new slot
        matched = above[:-1] + seen
        if word in where:  # each slot once
            places_of_word, numbers_of_word = where[word]
            matched[places_of_word] -= numbers_of_word
        np.minimum(row[1:], matched, out=row[1:])
        row -= skipped  # then leaving slots empty costs nothing, and the least cost up to each slot is the answer
        np.minimum.accumulate(row, out=row)
        row += skipped
    return cast("Sequence[Sequence[int]]", costs)
