"""What unknown words cost: the same rule for neural and n-gram LMs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lm_files import write_checkpoint

from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, PAD
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.unknown_words.oov_policy import UNK, OOVPolicy, parse_policy, with_policy

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "ran"]
SENTENCES = [["the", "zebra", "sat"], [], ["gnu", "gnu"], ["a", "cat"], ["the", "</s>", "ran"]]


@pytest.fixture(scope="module", params=["neural", "kenlm"])
def scorer(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "neural":
        return NeuralScorer.load([write_checkpoint(folder / "lm.pt", WORDS)])
    (folder / "text").write_text("the cat sat on the mat\na dog ran\nthe dog sat\n" * 3)
    estimate_ngram(folder / "text", folder / "lm.arpa", 2, NgramOptions(discount_fallback=True))
    return KenLMScorer(folder / "lm.arpa")


def test_only_unknown_words_change(scorer):
    plain = scorer.score(SENTENCES)
    for policy, expected in [
        (OOVPolicy("penalty", -7.5), lambda value: -7.5),
        (OOVPolicy("spread", 1000.0), lambda value: value - math.log(1000)),
    ]:
        changed = with_policy(scorer, policy)
        assert isinstance(changed, Scorer)
        for before, after in zip(plain, changed.score(SENTENCES), strict=True):
            assert after.oov == before.oov
            flags = (*before.oov, False)
            assert after.log_probs == tuple(expected(v) if oov else v for v, oov in zip(before.log_probs, flags, strict=True))
    assert [score.oov_count for score in plain] == [1, 0, 2, 0, 1]
    assert with_policy(scorer, UNK) is scorer


def test_spread_probabilities_sum_to_one(scorer):
    """Over the known words, the sentence end and each of the unseen types: what makes LMs comparable."""
    types = 50
    spread = with_policy(scorer, OOVPolicy("spread", types))
    prefix = ["the", "cat"]
    scores = spread.score([[*prefix, word] for word in [*WORDS, "unseen1", "unseen2"]])
    values = [math.exp(score.log_probs[2]) for score in scores]
    assert values[-1] == values[-2]
    mass = sum(values[:-2]) + types * values[-1] + math.exp(spread.score([prefix])[0].log_probs[2])
    if isinstance(scorer, NeuralScorer):  # fairseq's vocabulary has <s> and <pad> too, which get a little
        logits = scorer.models[0].model(torch.tensor([[EOS, *scorer.vocabulary.ids(prefix)]]))[0][0, -1]
        mass += torch.softmax(logits, dim=-1)[[BOS, PAD]].sum().item()
    assert mass == pytest.approx(1.0, abs=1e-5)


def test_the_signature_names_the_policy(scorer):
    assert with_policy(scorer, OOVPolicy("spread", 1e6)).signature()["OOV policy"] == "spread:1000000"
    assert with_policy(scorer, OOVPolicy("penalty", -3.25)).signature()["OOV policy"] == "penalty:-3.25"


policies = (
    st.just(UNK)
    | st.builds(OOVPolicy, st.just("penalty"), st.floats(-1e6, 0))
    | st.builds(OOVPolicy, st.just("spread"), st.integers(1, 10**15).map(float))
)


@given(policies)
def test_a_policy_is_read_as_written(policy):
    assert parse_policy(str(policy)) == policy


@pytest.mark.parametrize(
    "text", ["", "unk:1", "penalty", "penalty:x", "penalty:1", "penalty:-inf", "spread:0", "spread:1.5", "spread:-1", "UNK"]
)
def test_what_is_no_policy_is_refused(text):
    with pytest.raises(InputError, match=r"is not an OOV policy; expected unk, penalty:LOGPROB"):
        parse_policy(text)


@given(policies, st.lists(st.tuples(st.floats(-50, 0), st.booleans()), max_size=6), st.floats(-50, 0))
def test_every_event_stays(policy, words, end):
    score = SentenceScore((*(value for value, _ in words), end), tuple(oov for _, oov in words))
    after = policy.apply(score)
    assert len(after.log_probs) == len(score.log_probs)
    assert after.log_probs[-1] == end
    assert after.oov == score.oov
