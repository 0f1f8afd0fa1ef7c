"""Lists are told again by their references, whatever their order, and others are not taken for them."""

from __future__ import annotations

import random

import pytest

from attlm_fairseq.nbest.references.reference_sketch import DIGITS, SIZE, known_share, reference_sketch


def references(first: int, last: int) -> list[tuple[str, ...]]:
    return [(f"sentence number {number}",) for number in range(first, last)]


@pytest.mark.parametrize("count", [1, SIZE - 1, SIZE, SIZE + 1, 5000])
def test_the_same_lists_in_any_order(count):
    lists = references(0, count)
    sketch = reference_sketch(lists)
    assert len(sketch) == DIGITS * min(count, SIZE)
    again = random.Random(1).sample(lists, count)
    assert reference_sketch(again) == sketch
    assert known_share(again, sketch) == 1
    assert known_share([(f"  {text.replace(' ', '  ')}",) for (text,) in again], sketch) == 1
    assert known_share(references(count, 2 * count), sketch) == 0
    assert known_share([*again, *again], sketch) == 1


def test_shares_are_estimates():
    sketch = reference_sketch(references(0, 3000))
    assert known_share(references(500, 1500), sketch) == 1
    for start in (1000, 1500, 2000, 2500):
        assert known_share(references(start, start + 3000), sketch) == pytest.approx((3000 - start) / 3000, abs=0.15)


def test_few_lists_exactly():
    sketch = reference_sketch(references(0, 10))
    assert known_share(references(7, 11), sketch) == 0.75


def test_several_references_and_none():
    sketch = reference_sketch([("a b", "a c"), ("d", "")])
    assert len(sketch) == 3 * DIGITS
    assert known_share([("a c",), ("",)], sketch) == 1
    assert known_share([("a c", "x")], sketch) == 0.5
    assert known_share([("",)], reference_sketch([("",)])) == 0
    assert known_share([("a",)], "") == 0
