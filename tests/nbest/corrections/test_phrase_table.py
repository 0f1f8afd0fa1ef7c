"""Phrases and their probabilities."""

from __future__ import annotations

import math
import random

import pytest

from attlm_fairseq.nbest.corrections import phrase_table
from attlm_fairseq.nbest.corrections.alignment import AlignedPair, align_list
from attlm_fairseq.nbest.corrections.phrase_table import MAX_VANISHING, MIN_COUNT, _filter, learn_phrases, phrases


def pair_of(hypothesis: str, reference: str) -> AlignedPair:
    return align_list([hypothesis], [reference])[0]


def test_a_block_with_and_without_context() -> None:
    found = {(" ".join(source), " ".join(target)) for source, target in phrases(pair_of("to la now", "to l a now"))}
    assert found == {("la", "l a"), ("to la", "to l a"), ("la now", "l a now"), ("to la now", "to l a now")}


def test_an_insertion_has_context_and_boundaries_are_context() -> None:
    found = {(" ".join(source), " ".join(target)) for source, target in phrases(pair_of("show flights", "show me flights please"))}
    assert ("show flights", "show me flights") in found
    assert ("flights </s>", "flights please </s>") in found
    assert not any(source in ("", "</s>", "<s> </s>") for source, _ in found)
    assert not list(phrases(pair_of("", "yes")))


def test_two_blocks_with_one_word_between_are_a_phrase() -> None:
    found = dict(phrases(pair_of("nine and x", "9 and y")))
    assert found["nine", "and", "x"] == ("9", "and", "y")


def test_no_more_words_vanish_than_allowed() -> None:
    stretch = "q " * (MAX_VANISHING + 1)
    assert not list(phrases(pair_of(f"a {stretch}b", "a b")))
    assert list(phrases(pair_of(f"a {stretch[2:]}b", "a b")))


def test_probabilities_are_counts_over_occurrences() -> None:
    lists = [("to la", "to l a"), ("to la", "to l a"), ("by la", "by la"), ("to x", "to x")]
    pairs = [pair for hypothesis, reference in lists for pair in align_list([hypothesis, hypothesis], [reference])]
    table = learn_phrases(pairs, discount=0.5)
    assert table.rules["la",][0].log_prob == pytest.approx(math.log(2 / 3.5))
    assert table.rules["to", "la"][0].log_prob == pytest.approx(math.log(2 / 2.5))
    assert table.rules["la",][0].lists == 2
    assert table.keep("la") == pytest.approx(math.log(1.5 / 4))
    assert table.keep("to") == pytest.approx(math.log(3.5 / 4))
    assert table.keep("never") == pytest.approx(math.log(0.5))


def test_what_one_hypothesis_of_five_has_once_is_pruned() -> None:
    assert not learn_phrases(align_list(["a b", "a c", "a c", "a c", "a c"], ["a c"])).rules


def test_the_filter_of_what_is_seen_once_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    texts = [" ".join(draw.choices("abcde", k=draw.randint(1, 8))) for _ in range(240)]
    pairs = [pair for begin in range(0, 240, 6) for pair in align_list(texts[begin : begin + 5], texts[begin + 5 : begin + 6])]
    filtered = learn_phrases(pairs)
    assert not all(_filter(pairs, MIN_COUNT)(found) for pair in pairs for found in phrases(pair))
    monkeypatch.setattr(phrase_table, "COUNTERS", 0)  # all share one counter
    assert all(_filter(pairs, MIN_COUNT)(found) for pair in pairs for found in phrases(pair))
    assert learn_phrases(pairs) == filtered
    assert filtered.rules


def test_matches_are_found_where_they_stand() -> None:
    table = learn_phrases(align_list(["to la"], ["to l a"]) * 2)
    words = ["<s>", "by", "to", "la", "</s>"]
    assert {rule.source for rule in table.matches(words, 2)} == {("to", "la"), ("to", "la", "</s>")}
    assert not list(table.matches(words, 1))
