"""Blocks of differing words between hypothesis and reference."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attlm_fairseq.nbest.corrections.alignment import align_list, bounded, closest_reference, differing_blocks, unbounded
from attlm_fairseq.nbest.corrections.pairs import VALID_EVERY, write_pairs
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

texts = st.lists(st.sampled_from(["a", "b", "c", "<s>", "</s>", "<s>\0"]), max_size=8).map(" ".join)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts)
def test_text_survives_boundaries(text: str) -> None:
    assert unbounded(bounded(text)[1:-1]) == text


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts, texts)
def test_blocks_turn_hypothesis_into_reference(hypothesis: str, reference: str) -> None:
    source, target = bounded(hypothesis), bounded(reference)
    blocks = differing_blocks(source, target)
    made, place = [], 0
    for block in blocks:
        assert block.begin >= place + (place > 0)  # a shared word between two blocks
        made += source[place : block.begin] + target[block.target_begin : block.target_end]
        place = block.end
    assert made + source[place:] == target


def test_closest_of_several_references() -> None:
    hypothesis = bounded("a b c")
    assert closest_reference(hypothesis, [bounded("x y z"), bounded("a b d"), bounded("a b e")]) == bounded("a b d")


def test_list_counts_each_distinct_hypothesis_by_its_share() -> None:
    pairs = align_list(["a b", "a  b", "a c", "a b"], ["a c"])
    assert [(pair.hypothesis[1:-1], pair.weight) for pair in pairs] == [(["a", "b"], 0.75), (["a", "c"], 0.25)]
    assert pairs[1].blocks == []


def test_texts_beyond_reason_are_left_out() -> None:
    assert align_list(["a " * 2000, "b"], ["b"])[0].hypothesis == ["<s>", "b", "</s>"]
    assert align_list(["b"], ["a " * 2000]) == []


def test_pairs_have_boundaries_that_are_words_as_they_are(tmp_path):
    lists = [NbestList(str(i), [Hypothesis(f"a </s> {i}")], (f"<s> a {i}",)) for i in range(VALID_EVERY)]
    write_pairs(lists, tmp_path / "pairs")
    for split, places in (("train", range(VALID_EVERY - 1)), ("valid", [VALID_EVERY - 1])):
        assert (tmp_path / "pairs" / f"{split}.hyp").read_text() == "".join(f"a </s> {i}\n" for i in places)
        assert (tmp_path / "pairs" / f"{split}.ref").read_text() == "".join(f"<s> a {i}\n" for i in places)
