"""Linear mixtures of LMs: probabilities, EM weights against a grid, and LMs over subwords mixed with LMs over words."""

from __future__ import annotations

import io
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_files import write_checkpoint
from subword_nmt.learn_bpe import learn_bpe

from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.foreign_lms.segmented import SegmentedScorer, joined
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.mixture import MixtureScorer, em_weights, event_matrix, mix
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicy
from attlm_fairseq.text import parse_steps

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "ran"]
TEXT = ["the cat sat on the mat", "a dog sat on a mat", "the dog ran", "a cat ran", "the mat"] * 3
SENTENCES = [["the", "cat", "ran"], [], ["a", "zebra"], ["the", "dog", "sat", "on", "a", "mat"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    (folder / "text").write_text("\n".join(TEXT) + "\n")
    estimate_ngram(folder / "text", folder / "lm.arpa", 2, NgramOptions(discount_fallback=True))
    write_checkpoint(folder / "lm.pt", WORDS)
    with (folder / "codes").open("w") as codes:
        learn_bpe(io.StringIO("\n".join(TEXT)), codes, 6)
    pieces = parse_steps(["bpe:codes"], folder)
    units = sorted({piece for line in TEXT for piece in pieces.words(line)})
    write_checkpoint(folder / "pieces" / "lm.pt", units, seed=3)
    return folder


def test_a_mixture_averages_probabilities(folder):
    members = [KenLMScorer(folder / "lm.arpa", "ngram"), NeuralScorer.load([folder / "lm.pt"], "neural")]
    one, two = (member.score(SENTENCES) for member in members)
    for weights, share in (([1, 1], 0.5), ([3, 1], 0.75), ([0, 2], 0.0)):
        mixture = MixtureScorer(members, weights, "mix")
        assert isinstance(mixture, Scorer)
        for a, b, both in zip(one, two, mixture.score(SENTENCES), strict=True):
            expected = [math.log(share * math.exp(x) + (1 - share) * math.exp(y)) for x, y in zip(a.log_probs, b.log_probs, strict=True)]
            assert both.log_probs == pytest.approx(expected, abs=1e-12)
            assert both.oov == a.oov
    assert mixture.score([]) == []
    assert mixture.signature()["weights"] == {"ngram": 0.0, "neural": 1.0}
    assert mixture.signature()["lm"]["ngram"]["order"] == 2
    with pytest.raises(ValueError, match="as many weights"):
        MixtureScorer(members, [1.0])


def test_a_word_is_unknown_where_no_lm_knows_it(folder):
    known = KenLMScorer(folder / "lm.arpa")
    other = NeuralScorer.load([write_checkpoint(folder / "other" / "lm.pt", ["the", "zebra"])])
    assert MixtureScorer([known, other], [1, 1]).score([["cat", "zebra", "gnu"]])[0].oov == (False, False, True)


probabilities = st.integers(1, 4).flatmap(
    lambda lms: st.lists(st.lists(st.floats(1e-6, 1), min_size=lms, max_size=lms), min_size=1, max_size=30)
)


@settings(max_examples=60, deadline=None)
@given(probabilities, st.floats(-700, 0))
def test_the_likelihood_never_falls_and_weights_stay_weights(events, shift):
    log_probs = np.log(np.array(events).T) + shift
    path = list(em_weights(log_probs))
    for before, after in itertools.pairwise(path):
        assert after.log_prob >= before.log_prob - 1e-12 * abs(before.log_prob) - 1e-12
    for step in path:
        assert step.weights.sum() == pytest.approx(1.0)
        assert (step.weights >= 0).all()
        assert step.log_prob == pytest.approx(mix(log_probs, step.weights).mean(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_em_finds_what_a_grid_finds(seed):
    generator = np.random.default_rng(seed)
    log_probs = np.log(generator.dirichlet([0.3, 0.5, 1.0, 2.0], size=400)[:, :3].T + 1e-4)
    best = list(em_weights(log_probs, iterations=2000, enough=1e-12))[-1]
    grid = [np.array([i, j, 100 - i - j]) / 100 for i in range(101) for j in range(101 - i)]
    values = [mix(log_probs, weights).mean() for weights in grid]
    assert best.log_prob >= max(values) - 1e-9
    assert np.abs(best.weights - grid[int(np.argmax(values))]).max() < 0.011


@pytest.mark.parametrize("difference", [0.3, 0.03, 0.003])
def test_em_finds_the_best_weights_of_lms_that_are_alike(difference):
    """Plain EM needs 324 iterations, 30,000, and more than 100,000."""
    generator = np.random.default_rng(0)
    log_probs = -generator.gamma(2, 2, 20000) + difference * generator.standard_normal((4, 20000))
    path = list(em_weights(log_probs))
    assert path[-1].gap < 1e-6 <= path[-2].gap
    assert len(path) < 100
    best = list(em_weights(log_probs, enough=1e-11))[-1].log_prob
    for step in path:
        assert step.log_prob <= best + 1e-12
        assert best - step.log_prob <= step.gap + 1e-12


def test_em_that_is_cut_short_says_how_far_it_may_be():
    log_probs = np.log(np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.1]]))
    path = list(em_weights(log_probs, iterations=1))
    assert len(path) == 1
    assert 0.1 < log_probs[0].mean() - path[-1].log_prob <= path[-1].gap < 0.5
    one = list(em_weights(log_probs[:1]))
    assert [(step.weights.tolist(), step.gap) for step in one] == [([1.0], 0.0)]


def test_em_of_one_lm_that_is_always_better_takes_it_alone():
    log_probs = np.log(np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.1]]))
    assert list(em_weights(log_probs))[-1].weights[0] > 0.999
    with pytest.raises(ValueError, match="finite"):
        next(em_weights(np.array([[-math.inf, 0.0]])))
    with pytest.raises(ValueError, match="events"):
        next(em_weights(np.empty((2, 0))))


def test_pieces_become_words(folder):
    pieces = parse_steps(["bpe:codes"], folder)
    inner = NeuralScorer.load([folder / "pieces" / "lm.pt"])
    over_words = SegmentedScorer(inner, pieces.words, "bpe")
    for words, score in zip(SENTENCES, over_words.score(SENTENCES), strict=True):
        whole = inner.score([pieces.words(" ".join(words))])[0]
        assert len(score.log_probs) == len(words) + 1
        assert score.total == pytest.approx(whole.total, abs=1e-5)
        assert score.log_probs[-1] == pytest.approx(whole.log_probs[-1], abs=1e-5)
    assert len(pieces.words("zebra")) > 1
    assert over_words.score([["the", "zebra"]])[0].oov == (False, True)  # z, b and r never occur
    later = over_words
    for _ in range(1100):  # more than Python's stack has room for, if each had a cache around that of the one before
        later = later.after([["the"]])
    assert later.score([["the"]])[0].log_probs == pytest.approx(over_words.after([["the"]] * 1100).score([["the"]])[0].log_probs, abs=1e-5)
    assert joined(SentenceScore((-1.0, -2.0, -4.0, -8.0), (False, True, False)), [2, 0, 1]) == SentenceScore(
        (-3.0, 0.0, -4.0, -8.0), (True, False, False)
    )


def test_members_that_cut_words_alike_are_mixed_piece_by_piece(folder, monkeypatch):
    """Also where the same codes have two names: no member may cut the pieces again."""
    monkeypatch.chdir(folder)
    found = []
    for codes in ("bpe:codes", f"bpe:{folder / 'codes'}"):
        members = [
            LMSpec(name, checkpoints=(folder / "pieces" / "lm.pt",), text=parse_steps([step]))
            for name, step in (("a", "bpe:codes"), ("b", codes))
        ]
        config = RunConfig((*members, LMSpec("mix", mixture=(("a", 1.0), ("b", 1.0)))))
        words = config.texts["mix"].load().words("the zebra sat")
        [mixture] = config.load()
        found.append(mixture.score([words])[0].log_probs)
    assert found[0] == found[1]


def test_a_mixture_of_words_and_pieces_from_a_configuration(folder):
    config = RunConfig(
        (
            LMSpec("ngram", kenlm=folder / "lm.arpa", oov=OOVPolicy("spread", 100.0)),
            LMSpec("neural", checkpoints=(folder / "pieces" / "lm.pt",), text=parse_steps(["lowercase", "bpe:codes"], folder)),
            LMSpec("mix", mixture=(("ngram", 0.25), ("neural", 0.75))),
        ),
        parse_steps(["lowercase"]),
    )
    (scorer,) = config.load()
    assert config.texts == {"mix": parse_steps(["lowercase"])}
    words = ["the", "zebra", "ran"]
    ngram = KenLMScorer(folder / "lm.arpa").score([words])[0].log_probs
    pieces = parse_steps(["bpe:codes"], folder)
    whole = NeuralScorer.load([folder / "pieces" / "lm.pt"]).score([pieces.words(" ".join(words))])[0]
    neural = joined(whole, [len(pieces.words(word)) for word in words]).log_probs
    found = scorer.score([words])[0].log_probs
    spread = (0.0, math.log(100), 0.0, 0.0)
    for value, n, shared, k in zip(found, ngram, spread, neural, strict=True):
        assert value == pytest.approx(math.log(0.25 * math.exp(n - shared) + 0.75 * math.exp(k)), abs=1e-5)


def test_event_matrix_is_all_events_of_each_lm():
    columns = [
        [SentenceScore((-1.0, -2.0), (False,)), SentenceScore((-3.0,), ())],
        [SentenceScore((-4.0, -5.0), (True,)), SentenceScore((-6.0,), ())],
    ]
    assert event_matrix(columns).tolist() == [[-1, -2, -3], [-4, -5, -6]]
