"""Batches of consecutive items, and the small arithmetic around them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import count, pairwise, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attlm_fairseq.batching import batch_by_size, padded_batches
from attlm_fairseq.numeric import ceil_div, is_number


@given(st.lists(st.integers(0, 9)), st.integers(1, 20), st.none() | st.integers(1, 4))
def test_batches_end_with_the_item_that_fills_them(sizes, limit, most):
    batches = list(batch_by_size(sizes, repeat(limit), lambda size: size, most))
    assert [size for batch in batches for size in batch] == sizes
    for number, batch in enumerate(batches):
        assert batch
        assert sum(batch[:-1]) < limit
        assert most is None or len(batch) <= most
        assert number == len(batches) - 1 or sum(batch) >= limit or len(batch) == most


def test_no_item_is_read_before_it_is_needed():
    source = iter(range(10))
    assert next(batch_by_size(source, count(3), lambda _: 1)) == [0, 1, 2]
    assert next(source) == 3


def test_limits_may_grow():
    assert list(map(len, batch_by_size(range(10), count(1), lambda _: 1))) == [1, 2, 3, 4]


@given(st.lists(st.integers(1, 9)), st.none() | st.integers(1, 30), st.none() | st.integers(1, 4))
def test_padded_batches_are_as_full_as_they_can_be(sizes, area, most):
    batches = list(padded_batches(sizes, lambda size: size, area, most))
    assert [size for batch in batches for size in batch] == sizes

    def fits(batch: list[int]) -> bool:
        return (most is None or len(batch) <= most) and (area is None or len(batch) * max(batch) <= area)

    assert all(fits(batch) or len(batch) == 1 for batch in batches)
    assert not any(fits([*batch, following[0]]) for batch, following in pairwise(batches))


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_ceil_div(number, size):
    assert ceil_div(number, size) == math.ceil(Fraction(number, size))


@pytest.mark.parametrize(
    ("value", "expected"), [(1, True), (0.5, True), (math.nan, True), (np.float32(1), True), (True, False), ("1", False)]
)
def test_numbers(value, expected):
    assert is_number(value) is expected
