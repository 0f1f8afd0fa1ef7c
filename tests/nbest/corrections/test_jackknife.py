"""Folds, what is learned without each, LMs that have seen the references, and how rules do on lists that they were not learned from."""

from __future__ import annotations

from pathlib import Path

import kenlm
import numpy as np
import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.corrections import learn_corrections
from attlm_fairseq.nbest.corrections.alignment import MAX_WORDS
from attlm_fairseq.nbest.corrections.exposure import held_share, warning_of_exposure
from attlm_fairseq.nbest.corrections.jackknife import by_folds, folds_of, splits
from attlm_fairseq.nbest.corrections.search_lm import estimate_search_lm
from attlm_fairseq.nbest.corrections.spec import CandidateSpec, expand_for_tuning
from attlm_fairseq.nbest.corrections.usage import Usage
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.text.pipeline import NO_STEPS, text_pipeline
from attlm_fairseq.verbs.corrections import JackknifeOptions, jackknife

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
CITIES = ["boston", "denver", "dallas", "oakland", "newark"]


def list_of(place: int, text: str, reference: str) -> NbestList:
    return NbestList(str(place), [Hypothesis(text, {"am": -1.0}, 1), Hypothesis(f"{text} now", {"am": -2.0}, 2)], (reference,))


@pytest.fixture(scope="module")
def lists() -> list[NbestList]:
    made = []
    for place in range(60):
        start, end, number = CITIES[place % 5], CITIES[place // 5 % 5], WORDS[place % 10]
        made.append(list_of(place, f"fly {start} to {end} at {number}pm", f"fly {start} to {end} at {number} p m"))
    return made


def test_folds_keep_repeated_utterances_together(lists: list[NbestList]) -> None:
    folds = folds_of([*lists, lists[3], lists[3]], 4)
    assert folds[3] == folds[-1] == folds[-2]
    assert sorted(set(folds)) == [0, 1, 2, 3]
    assert max(np.bincount(folds)) - min(np.bincount(folds)) <= 2
    for _, others, held_out in splits(folds):
        assert not {*others} & {*held_out}
        assert len(others) + len(held_out) == len(folds)
    with pytest.raises(InputError, match="cannot be divided into 3 folds"):
        folds_of([lists[0], lists[0], lists[0]], 3)
    assert sorted(folds_of(lists[:3], 3)) == [0, 1, 2]


def test_folds_keep_together_what_is_one_utterance_after_the_text_steps(lists: list[NbestList]) -> None:
    """What is learned without punctuation has seen an utterance that only has other punctuation."""
    other = list_of(98, "Fly!", f"{lists[3].references[0].capitalize()}!")
    steps = text_pipeline("remove-punctuation,lowercase")
    for text, together in ((steps, True), (NO_STEPS, False)):
        same = [folds[3] == folds[-1] for count in range(5, 15) for folds in [folds_of([*lists, other], count, text=text)]]
        assert all(same) == together


def test_each_list_goes_through_what_the_others_taught(lists: list[NbestList]) -> None:
    folds = folds_of(lists, 5)
    seen = []

    def learn(others: list[NbestList]):
        ids = {nbest.id for nbest in others}
        seen.append(ids)
        return lambda held_out: [pytest.fail("learned from itself") if nbest.id in ids else nbest for nbest in held_out]

    assert [nbest.id for nbest in by_folds(lists, folds, learn)] == [nbest.id for nbest in lists]
    assert len(seen) == 5


def test_a_table_is_jackknifed_only_for_the_lists_that_taught_it(lists: list[NbestList], tmp_path: Path) -> None:
    rare = list_of(99, "fly boston to lhasa", "fly boston to la sierra")
    learn_corrections([*lists, rare, rare]).save(tmp_path / "c.tsv")
    spec = CandidateSpec(tmp_path / "c.tsv", candidates=5)
    with collected() as notes:
        expanded = expand_for_tuning(spec, [*lists, rare], folds=3)
    assert any("jack-knifing" in line for line in notes)
    assert "fly boston to la sierra" not in [hypothesis.text for hypothesis in expanded[-1].hypotheses]
    assert all(nbest.references[0] in [hypothesis.text for hypothesis in nbest.hypotheses] for nbest in expanded[:-1])
    others = [list_of(i, "fly boston to lhasa", f"fly boston to lhasa {word}") for i, word in enumerate(WORDS)]
    with collected() as notes:
        expanded = expand_for_tuning(spec, others)
    assert notes == []
    assert "fly boston to la sierra" in [hypothesis.text for hypothesis in expanded[0].hypotheses]


def test_a_given_lm_guides_every_fold_as_in_rescoring(lists: list[NbestList], tmp_path: Path) -> None:
    lm = tmp_path / "given.arpa"
    estimate_search_lm(["fly boston to denver at one p m", "fly to dallas"], lm)
    learn_corrections(lists, lm=lm).save(tmp_path / "c.tsv")
    spec = CandidateSpec(tmp_path / "c.tsv", candidates=5)
    jackknifed = expand_for_tuning(spec, lists, folds=3)
    for expanded, nbest in zip(jackknifed, lists, strict=True):
        rescored = {hypothesis.text: hypothesis.scores for hypothesis in spec.load().expand(nbest, 5).hypotheses}
        assert {hypothesis.text for hypothesis in nbest.hypotheses} <= rescored.keys()
        for hypothesis in expanded.hypotheses:
            if hypothesis.text in rescored:
                assert hypothesis.scores["search_lm"] == pytest.approx(rescored[hypothesis.text]["search_lm"])


def test_an_lm_that_has_seen_the_references_is_told(lists: list[NbestList], tmp_path: Path) -> None:
    references = [f"{a} {b} {c} to {a} {c}" for a in WORDS for b in WORDS[:3] for c in WORDS[3:5]]
    estimate_search_lm(references, tmp_path / "seen.arpa")
    estimate_search_lm(references[::2], tmp_path / "half.arpa")
    seen, half = (held_share(kenlm.Model(str(tmp_path / name)), references) for name in ("seen.arpa", "half.arpa"))
    assert seen == 1.0
    assert half < 0.9
    assert "has seen the references" in warning_of_exposure("ngram", seen)
    assert warning_of_exposure("ngram", half) is None
    assert held_share(kenlm.Model(str(tmp_path / "seen.arpa")), ["too short", *references[:3]]) is None


def test_rules_are_judged_one_by_one(lists: list[NbestList]) -> None:
    corrections = learn_corrections(lists)
    held_out = [
        list_of(100, "fly boston to dallas at fourpm", "fly boston to dallas at four p m"),
        list_of(101, "fly boston to dallas at fivepm", "fly boston to dallas at fivepm"),
    ]
    found = Usage()
    for nbest in held_out:
        found.add(nbest, corrections)
    assert (found.lists, found.words, found.errors_before, found.errors_after) == (2, 14, 3, 3)
    assert [(use.right, use.wrong) for use in found.most_used(9) if "fourpm" in use.source] == [(1, 0)]
    assert [(use.right, use.wrong) for use in found.most_used(9) if "fivepm" in use.source] == [(0, 1)]
    for nbest in held_out:  # of another fold
        found.add(nbest, corrections)
    assert (found.lists, found.errors_before, sum(use.fired for use in found.rules.values())) == (4, 6, 4)


def test_corrections_that_change_no_error_are_neutral(lists: list[NbestList]) -> None:
    found = Usage()
    found.add(list_of(100, "fly boston to dallas at fourpm", "fly boston to dallas at x y z"), learn_corrections(lists))
    assert [(use.right, use.wrong, use.neutral) for use in found.most_used() if "fourpm" in use.source] == [(0, 0, 1)]
    assert found.errors_before == found.errors_after == 3


def test_a_text_too_long_to_correct_stays_as_it_is(lists: list[NbestList]) -> None:
    found = Usage()
    found.add(list_of(100, "fourpm " * MAX_WORDS, "four p m " * MAX_WORDS), learn_corrections(lists))
    assert (found.lists, found.errors_before, found.rules) == (1, found.errors_after, {})


def test_an_empty_name_estimates_no_ngram_model() -> None:
    options = JackknifeOptions(folds=2, ngram="", corrections=1)
    found = jackknife([[f"{name} b", f"{name} c"] for name in "vwxyz"], [f"{name} b" for name in "vwxyz"], options=options)
    assert not {"", "_oov", "_tokens", "ngram"} & {name for nbest in found for name in nbest.hypotheses[0].scores}


def test_nothing_to_learn_is_refused() -> None:
    for ngram in (None, ""):
        with pytest.raises(InputError, match="there is nothing to learn: give --ngram a name"):
            jackknife([["a", "b"]], ["a"], options=JackknifeOptions(ngram=ngram))
