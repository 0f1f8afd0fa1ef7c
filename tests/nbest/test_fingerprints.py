"""Lists are told again by their references, whatever their order, and others are not taken for them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from attlm_fairseq.nbest.fingerprints import (
    EARLIER_HASHES,
    FINGERPRINT_HASHES,
    HASH_DIGITS,
    LEARNED_SHARE,
    TABLE_HASHES,
    fingerprint,
    known_share,
    same_utterance,
)


def references(first: int, last: int) -> list[tuple[str, ...]]:
    return [(f"sentence number {number}",) for number in range(first, last)]


@pytest.mark.parametrize("count", [1, EARLIER_HASHES, FINGERPRINT_HASHES - 1, FINGERPRINT_HASHES, FINGERPRINT_HASHES + 1, 5000])
def test_the_same_lists_in_any_order(count):
    lists = references(0, count)
    known = fingerprint(lists)
    assert len(known) == HASH_DIGITS * min(count, FINGERPRINT_HASHES)
    again = random.Random(1).sample(lists, count)
    assert fingerprint(again) == known
    assert known_share(again, known) == 1
    assert known_share([(f"  {text.replace(' ', '  ')}",) for (text,) in again], known) == 1
    assert known_share(references(count, 2 * count), known) == 0
    assert known_share([*again, *again], known) == 1


def test_shares_are_estimates():
    known = fingerprint(references(0, 3000))
    assert known_share(references(500, 1500), known) == 1
    for start in (1000, 1500, 2000, 2500):
        assert known_share(references(start, start + 3000), known) == pytest.approx((3000 - start) / 3000, abs=0.15)


def test_a_small_part_is_told_again_and_files_of_earlier_versions_too():
    known = fingerprint(references(0, 50_000))
    assert known_share(references(7000, 7500), known) == 1
    earlier = known[: HASH_DIGITS * EARLIER_HASHES]
    assert known_share(references(0, 50_000), earlier) == 1
    assert known_share(references(50_000, 100_000), earlier) == 0


def test_few_lists_exactly():
    known = fingerprint(references(0, 10))
    assert known_share(references(7, 11), known) == 0.75


def test_several_references_and_none():
    known = fingerprint([("a b", "a c"), ("d", "")])
    assert len(known) == 3 * HASH_DIGITS
    assert known_share([("a c",), ("",)], known) == 1
    assert known_share([("a c", "x")], known) == 0.5
    assert known_share([("",)], fingerprint([("",)])) == 0
    assert known_share([("a",)], "") == 0


def test_lists_of_one_utterance_are_found_over_several_links():
    """0 and 2 share references, 2 and 4 hypotheses, 1 and 3 hypotheses in another order."""
    of_lists = [["a b"], ["c"], ["A  b"], ["d"], ["e"], ["", "f"], ["f", ""]]
    texts = [["x"], ["y", "z"], ["w", "v"], ["z", "y"], ["v", "w"], ["q"], ["r"]]
    assert same_utterance(of_lists, texts, lambda text: text).tolist() == [0, 1, 0, 1, 0, 2, 2]
    assert same_utterance([["a-b"], ["ab"]], [["x"], ["y"]], lambda text: text.replace("-", "")).tolist() == [0, 0]
    assert same_utterance([["x"], ["y"]], [["y"], ["x"]], lambda text: text).tolist() == [0, 1]  # a reference is not a hypothesis
    one_text = same_utterance([["yes"], ["yes sir"], ["yes"]], [["yes"], ["yes"], ["yes", "yes"]], lambda text: text)
    assert one_text.tolist() == [0, 1, 0]
    silence = same_utterance([["a"], ["b"], [""], ["."], ["a"]], [[""], ["", ""], [""], ["x"], ["y"]], lambda text: text.strip("."))
    assert silence.tolist() == [0, 1, 2, 3, 0]


def test_a_table_of_very_many_lists_still_knows_them():
    """100 lists of 100,000, and 100 of which a fifth is among them: 16 hashes of each are in the range of a sample of 16,384."""
    learned = [(f"reference {number}",) for number in range(100_000)]
    table = fingerprint(learned, TABLE_HASHES)
    assert known_share(learned[500:600], table) == 1
    shares = [
        known_share([*learned[of : of + 20], *((f"other {of} {number}",) for number in range(80))], table) for of in range(0, 2000, 100)
    ]
    assert max(shares) < LEARNED_SHARE
    assert np.mean(shares) == pytest.approx(0.2, abs=0.05)
