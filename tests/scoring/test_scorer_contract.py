"""What every Scorer promises, whatever language model is behind it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from scorers import KINDS, make_scorer

import attlm_fairseq as attlm
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

SENTENCES = [
    ["the", "cat", "sat", "on", "the", "mat"],
    ["the", "cat", "ran"],
    [],
    ["a", "zebra", "ran"],
    ["the", "cat", "sat"],
    ["the", "cat", "ran"],
    ["a"],
]
HISTORY = [["the", "dog", "ran"], [], ["a", "zebra", "sat", "on", "a", "mat"]]


@pytest.fixture(scope="module", params=KINDS)
def scorer(request, tmp_path_factory) -> Scorer:
    return make_scorer(request.param, tmp_path_factory.mktemp("lm"))


def test_order_in_is_order_out_and_neighbours_do_not_matter(scorer):
    together = scorer.score(SENTENCES)
    backwards = scorer.score(SENTENCES[::-1])[::-1]
    for words, score, other in zip(SENTENCES, together, backwards, strict=True):
        [alone] = scorer.score([words])
        assert len(score.log_probs) == len(words) + 1
        assert len(score.oov) == len(words)
        assert score.log_probs == pytest.approx(alone.log_probs, abs=1e-5)
        assert score.log_probs == pytest.approx(other.log_probs, abs=1e-5)
        assert score.oov == alone.oov == other.oov
        assert all(math.isfinite(value) and value <= 1e-6 for value in score.log_probs)
    assert scorer.score([]) == []


def test_words_share_the_probability_of_their_prefix(scorer):
    long, short = scorer.score([["the", "cat", "sat", "on"], ["the", "cat", "ran"]])
    assert (long.log_probs[:2] == pytest.approx(short.log_probs[:2], abs=1e-5)) == scorer.left_to_right
    assert long.log_probs[2] != pytest.approx(short.log_probs[2], abs=1e-4)


@contextmanager
def medium() -> Iterator[None]:
    """A CPU with instructions for bfloat16 rounds the factors of products."""
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.mkldnn.matmul.fp32_precision = "none"


@contextmanager
def made_of(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS = {
    "medium": medium,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float64 by default": lambda: made_of(torch.float64),
    "bfloat16 by default": lambda: made_of(torch.bfloat16),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_scores_are_of_float32_whatever_the_program_asks_of_torch(scorer, setting):
    before = scorer.score(SENTENCES), scorer.after(HISTORY).score(SENTENCES)
    with SETTINGS[setting]():
        after = scorer.score(SENTENCES), scorer.after(HISTORY).score(SENTENCES)
    for of_one, of_other in zip(before, after, strict=True):
        for score, other in zip(of_one, of_other, strict=True):
            assert score.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_the_signature_is_plain_data_that_states_kind_and_unknown_words(scorer):
    signature = scorer.signature()
    assert {"kind", "OOV policy"} <= signature.keys()
    assert scorer.signature() == signature


def test_notes_are_lines_and_come_from_the_members_too(scorer):
    scorer.score(SENTENCES[:2])
    assert all(isinstance(line, str) and "\n" not in line for line in scorer.notes())
    for member in scorer.members:
        assert isinstance(member, Scorer)
        assert set(member.notes()) - set(member.oov_notes()) <= set(scorer.notes())
    assert set(scorer.oov_notes()) <= set(scorer.notes())


def test_after_nothing_is_the_same_and_histories_add_up(scorer):
    plain = scorer.score(SENTENCES)
    for same in (scorer.after([]), scorer):
        for score, other in zip(plain, same.score(SENTENCES), strict=True):
            assert score.log_probs == pytest.approx(other.log_probs, abs=1e-5)
    whole = scorer.after(HISTORY)
    assert whole.name == scorer.name
    in_steps = scorer.after(HISTORY[:1]).after(HISTORY[1:])
    for score, other in zip(whole.score(SENTENCES), in_steps.score(SENTENCES), strict=True):
        assert score.log_probs == pytest.approx(other.log_probs, abs=1e-5)
        assert score.oov == other.oov
    for score, other in zip(plain, scorer.score(SENTENCES), strict=True):  # the scorer itself has not changed
        assert score == other


class Uniform(Scorer):
    """An LM of another package. ``wrong`` changes its answers."""

    def __init__(self, wrong=lambda found: found, identity: object = None) -> None:
        self.wrong, self.identity = wrong, {"kind": "uniform"} if identity is None else identity

    def score(self, sentences):
        return self.wrong([SentenceScore((-2.0,) * (len(words) + 1), (False,) * len(words)) for words in sentences])

    def signature(self):
        return self.identity


def test_an_lm_of_another_package_needs_no_more_than_score_and_signature():
    lists = [[("a cat", -1.0), ("a dog ran", -1.2)]]
    assert attlm.perplexity(["a cat"], {"own": Uniform()})[0].ppl == pytest.approx(math.exp(2))
    assert attlm.rescore(lists, {"own": Uniform()}, {"own": 1.0}).lists[0].hypotheses[0].lm_scores == {"own": -6.0}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda found: found[:-1], "sentences: expected a list of one SentenceScore each"),
        (lambda found: iter(found), "own: `score` returns <list_iterator"),
        (lambda found: [one.total for one in found], "own: `score` returns -6.0 for a sentence: expected a SentenceScore"),
        (
            lambda found: [SentenceScore(one.log_probs[:-1], one.oov) for one in found],
            "own: `score` returns 2 log_probs and 2 oov for a sentence of 2 words: expected 3, the last of the sentence end, and 2",
        ),
        (
            lambda found: [SentenceScore(one.log_probs, ()) for one in found],
            "own: `score` returns 3 log_probs and 0 oov for a sentence of 2",
        ),
        (lambda found: [SentenceScore(-2.0, one.oov) for one in found], "own: `score` returns SentenceScore(log_probs=-2.0"),
        (lambda found: [SentenceScore(("-1",) * 3, one.oov) for one in found], "own: `score` returns SentenceScore(log_probs=('-1', '-1',"),
        (lambda found: [SentenceScore((10**400,) * 3, one.oov) for one in found], "expected natural logarithms as log_probs"),
        (lambda found: [SentenceScore(one.log_probs, (np.zeros(2),) * 2) for one in found], "and True or False for each word as oov"),
        (lambda found: [SentenceScore((None,) * 3, one.oov) for one in found], "expected natural logarithms as log_probs"),
        (lambda found: [SentenceScore(one.log_probs, ("no",) * 2) for one in found], "and True or False for each word as oov"),
    ],
)
def test_wrong_answers_of_an_lm_of_another_package_are_refused(wrong, told):
    for use in (
        lambda lm: attlm.perplexity(["a cat", "a dog"], {"own": lm}),
        lambda lm: attlm.rescore([[("a cat", -1.0), ("a dog", -1.2)]], {"own": lm}, {"own": 1.0}),
        lambda lm: attlm.perplexity(["a cat", "a dog"], {"own": lm}, config=attlm.run_config(context="all")),
    ):
        with pytest.raises(attlm.InputError, match=re.escape(told)):
            use(Uniform(wrong))


def test_a_signature_is_a_dictionary():
    with pytest.raises(attlm.InputError, match="own: `signature` returns 'uniform': expected a dictionary of what identifies the LM"):
        attlm.rescore([[("a cat", -1.0), ("a dog", -1.2)]], {"own": Uniform(identity="uniform")}, {"own": 1.0})


class Many(Uniform):
    """An LM of another package with a batch of its own, and a parameter more."""

    def score(self, sentences, batch=None):
        return [SentenceScore((-2.0,) * (len(words) + 1), (False,) * len(words)) for words in sentences]

    def score_many(self, requests):
        return self.wrong([self.score(sentences) for _, sentences in requests])

    def score_translations(self, sentences, sources):
        return self.wrong(self.score(sentences))

    def signature(self, whole=True):
        return super().signature()


def test_other_ways_to_score_are_checked_too():
    assert len(Many().score([["a"]], batch=3)) == 1
    assert Many().signature(whole=False) == {"kind": "uniform"}
    lm, sentences = Many(), [["a"], ["b", "c"]]
    assert lm.score_many([(lm, sentences)]) == [lm.score(sentences)]
    for wrong in (lambda found: found[:-1], lambda found: found + found):
        lm = Many()
        lm.wrong = wrong
        with pytest.raises(attlm.InputError, match=r"lm: `score_translations` returns a list of [14] for 2 sentences"):
            lm.score_translations(sentences, sentences)
    lm = Many()
    lm.wrong = lambda found: [[SentenceScore(one.log_probs[:-1], one.oov) for one in of_request] for of_request in found]
    with pytest.raises(attlm.InputError, match="lm: `score_many` returns 1 log_probs and 1 oov for a sentence of 1 words"):
        lm.score_many([(lm, sentences)])
    lm.wrong = lambda found: found[:-1]
    with pytest.raises(attlm.InputError, match="lm: `score_many` returns a list of 0 for 1 requests: expected a list for each"):
        lm.score_many([(lm, sentences)])
