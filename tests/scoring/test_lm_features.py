"""What LMs say besides their log-probabilities: names, values, and LMs that are called like a feature."""

from __future__ import annotations

import pytest

from attlm_fairseq.nbest.features.lm_features import default_features, differing_lms, is_lm_feature, lm_feature
from attlm_fairseq.scoring.scorer import SentenceScore
from attlm_fairseq.text import TextPipeline

SCORES = {
    "a": [SentenceScore((-1.0, -2.0, -4.0), (True, False)), SentenceScore((-1.0,), ())],
    "b": [SentenceScore((-0.5, -1.0), (True,)), SentenceScore((-3.0,), ())],
}


def test_values():
    assert lm_feature("a_oov", SCORES) == [1.0, 0.0]
    assert lm_feature("a_tokens", SCORES) == [2.0, 0.0]
    assert lm_feature("a_minus_b", SCORES) == [-5.5, 2.0]
    assert lm_feature("b_minus_a", SCORES) == [5.5, -2.0]
    with pytest.raises(ValueError, match="'a_minus_a' is not a feature of a, b"):
        lm_feature("a_minus_a", SCORES)


def test_names():
    assert [is_lm_feature(name, ["a", "b"]) for name in ("a_oov", "b_tokens", "a_minus_b", "a", "c_oov", "a_minus_c", "oov")] == [
        *[True] * 3,
        *[False] * 4,
    ]
    assert differing_lms("a_minus_b", ["a", "b"]) == ("a", "b")
    assert differing_lms("a_oov", ["a", "b"]) is None


def test_an_lm_that_is_called_like_a_feature_is_an_lm():
    lms = ["a", "b", "a_oov", "a_minus_b"]
    assert not is_lm_feature("a_oov", lms)
    assert not is_lm_feature("a_minus_b", lms)
    assert differing_lms("a_minus_b", lms) is None
    assert default_features(dict.fromkeys(lms, TextPipeline())) == ["b_oov", "a_oov_oov", "a_minus_b_oov"]
