"""The language models in pyctcdecode's own decoder."""

from __future__ import annotations

import os

import kenlm
import numpy as np
import pytest
import torch
from lm_files import write_arpa as write_trigrams
from lm_files import write_checkpoint
from pyctcdecode import Alphabet, BeamSearchDecoderCTC, LanguageModel
from toy_lms import biased_lm, write_arpa, zero_lm

from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.pyctcdecode import PyctcdecodeLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.ngrams.kenlm import KenLM

LABELS = ["", " ", *"abcde"]
SUBWORDS = ["", "▁⁇▁", "▁a", "▁b", "▁ca", "▁da", "b", "e", "ed", "d", "ce", "bb"]
WORDS = ["a", "ab", "abe", "bad", "bed", "bee", "cab", "dace", "dad", "ebb"]


def emissions(seed: int, labels: list[str] = LABELS, frames: int = 14, last: str | None = None) -> np.ndarray:
    """Log-probabilities (T, N); with ``last``, the last frame is that label for certain."""
    values = np.random.default_rng(seed).normal(size=(frames, len(labels))) * 1.5
    if last is not None:
        values[-1] = np.where(np.array(labels) == last, 0.0, -100.0)
    return values - np.logaddexp.reduce(values, axis=1, keepdims=True)


def decode(lm, frames: np.ndarray, labels: list[str] = LABELS, prune_history: bool = False, token_min_logp: float = -1e6):
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(labels), lm)
    try:
        beams = decoder.decode_beams(
            frames, beam_width=60, beam_prune_logp=-1e6, token_min_logp=token_min_logp, prune_history=prune_history
        )
    finally:
        decoder.cleanup()
    return [(beam[0], beam[-2], beam[-1]) for beam in beams]


def close(beams):
    return [(text, pytest.approx(logit, abs=1e-4), pytest.approx(score, abs=1e-4)) for text, logit, score in beams]


@pytest.fixture(scope="module")
def arpa(tmp_path_factory):
    return write_arpa(tmp_path_factory.mktemp("arpa") / "lm.arpa", WORDS)


@pytest.fixture(scope="module")
def neural(tmp_path_factory) -> StatefulNeuralLM:
    return StatefulNeuralLM.load(write_checkpoint(tmp_path_factory.mktemp("lm") / "lm.pt", WORDS, attention_score="combined"))


# --- KenLM ---

PARAMETERS = [
    {},
    {"alpha": 1.2, "beta": -0.5, "unk_score_offset": -2.0},
    {"alpha": 0.0, "beta": 0.0, "unk_score_offset": 0.0},
]


@pytest.mark.parametrize("parameters", PARAMETERS)
@pytest.mark.parametrize("labels", [LABELS, SUBWORDS])
@pytest.mark.parametrize("unigrams", [WORDS, WORDS[:5], ()])
@pytest.mark.parametrize("seed", range(2))
def test_kenlm_is_pyctcdecodes_own(arpa, parameters, labels, unigrams, seed):
    """Every beam, also those that end in a space, whose empty last word is then scored as pyctcdecode does."""
    frames = emissions(seed, labels)
    own = decode(LanguageModel(kenlm.Model(str(arpa)), unigrams, **parameters), frames, labels)
    ours = decode(PyctcdecodeLM(LogLinearLM([KenLM(arpa)]), unigrams, score_empty_word=True, **parameters), frames, labels)
    assert len(own) > 20
    assert ours == close(own)


@pytest.mark.parametrize("seed", range(3))
def test_kenlm_is_pyctcdecodes_own_by_default_where_the_text_ends_in_a_word(arpa, seed):
    frames = emissions(seed, last="b")
    own = decode(LanguageModel(kenlm.Model(str(arpa)), WORDS), frames, token_min_logp=-5.0)
    ours = decode(PyctcdecodeLM(LogLinearLM([KenLM(arpa)])), frames, token_min_logp=-5.0)
    assert len(own) > 20
    assert ours == close(own)


def test_a_space_at_the_end_is_no_word(arpa):
    """The same hypothesis, with and without it, has the same score."""
    lm = PyctcdecodeLM(LogLinearLM([KenLM(arpa)]))
    start = lm.get_start_state()
    score, state = lm.score(start, "bed")
    last, _ = lm.score(start, "bed", is_last_word=True)
    assert score + lm.score(state, "", is_last_word=True)[0] == pytest.approx(last)
    assert lm.score(start, "") == (0.0, start)
    lm.reset_params(score_boundary=False)
    assert lm.score(state, "", is_last_word=True) == (0.0, state)
    assert lm.score(start, "bed", is_last_word=True) == (score, state)
    lm.reset_params(score_boundary=True)
    own = LanguageModel(kenlm.Model(str(arpa)), WORDS)
    before, between = own.score(own.get_start_state(), "bed")
    assert before + own.score(between, "", is_last_word=True)[0] < own.score(own.get_start_state(), "bed", is_last_word=True)[0] - 10


@pytest.mark.parametrize("partial", ["a", "ab", "abe", "abed", "x", "abedabed", "ebb", "ebc"])
def test_partial_words_score_as_pyctcdecodes(arpa, partial):
    model = kenlm.Model(str(arpa))
    for unigrams in (WORDS, ()):
        own = LanguageModel(model, unigrams, unk_score_offset=-3.0).score_partial_token(partial)
        assert PyctcdecodeLM(LogLinearLM([KenLM(arpa)]), unigrams, unk_score_offset=-3.0).score_partial_token(partial) == own


# --- no LM ---


def test_no_lm_weight_zero_and_a_zero_lm_are_the_same(neural):
    for seed in range(3):
        frames = emissions(seed)
        none = decode(None, frames)
        nothing = {"beta": 0.0, "unk_score_offset": 0.0}
        for lm in (
            PyctcdecodeLM(LogLinearLM([neural]), alpha=0.0, **nothing),
            PyctcdecodeLM(LogLinearLM([neural], [0.0]), beta=0.0),
            PyctcdecodeLM(LogLinearLM([zero_lm(WORDS)]), **nothing),
            PyctcdecodeLM(LogLinearLM([neural, neural], [0.5, -0.5]), **nothing),
        ):
            assert decode(lm, frames) == close(none)


# --- an LM that knows what it wants ---


@pytest.mark.parametrize("sentence", [["bad", "cab"], ["ebb"], ["a", "dad", "a"]])
def test_a_biased_lm_forces_its_words(sentence):
    lm = PyctcdecodeLM(LogLinearLM([biased_lm(WORDS, sentence, -100.0)]), alpha=1.0, beta=0.0)
    for seed in range(2):
        assert decode(lm, emissions(seed, frames=20))[0][0] == " ".join(sentence)


# --- neural LMs ---


def rescored(lms: LogLinearLM, words: list[str], alpha: float, beta: float, unk: float) -> float:
    total, state = 0.0, lms.start()
    for word in words:
        score, state = lms.score(state, word)
        total += alpha * (score + (0.0 if lms.knows(word) else unk * np.log(10))) + beta
    return total + alpha * lms.end(state)


@pytest.mark.parametrize("labels", [LABELS, SUBWORDS])
def test_scores_are_those_of_the_words(neural, arpa, labels):
    lms = LogLinearLM([neural, KenLM(arpa), neural], [0.8, 0.4, -0.1])
    for seed in range(2):
        frames = emissions(seed, labels)
        for text, logit, score in decode(PyctcdecodeLM(lms, alpha=0.7, beta=1.1, unk_score_offset=-2.0), frames, labels):
            assert score - logit == pytest.approx(rescored(lms, text.split(), 0.7, 1.1, -2.0), abs=1e-4)


def test_two_halves_of_an_lm_are_the_lm_whatever_the_cache(neural):
    frames = emissions(1)
    one = decode(PyctcdecodeLM(LogLinearLM([neural])), frames)
    assert decode(PyctcdecodeLM(LogLinearLM([neural, neural], [0.5, 0.5])), frames) == close(one)
    uncached = StatefulNeuralLM(neural.lm, cache_bytes=0)
    assert decode(PyctcdecodeLM(LogLinearLM([uncached])), frames) == close(one)


def test_each_distribution_is_computed_once_and_goes_with_the_utterance(neural):
    neural = StatefulNeuralLM(neural.lm)
    lm = PyctcdecodeLM(LogLinearLM([neural]))
    words = {tuple(text.split()[:length]) for text, *_ in decode(lm, emissions(1)) for length in range(9)}
    assert neural.computed >= 0.2 * len(words)
    assert len(neural.cache) == 0
    computed = neural.computed
    decode(lm, emissions(1))
    assert neural.computed == 2 * computed - 1  # the sentence start stays


def test_pruning_by_history_keeps_hypotheses_apart_that_differ_anywhere(neural):
    lm = PyctcdecodeLM(LogLinearLM([neural]))
    frames = emissions(3)
    assert decode(lm, frames, prune_history=True) == close(decode(lm, frames))


def test_an_lm_of_subwords_scores_words(tmp_path):
    pieces = ["a", "b", "e", "d", "c"]
    lm = StatefulNeuralLM.load(write_checkpoint(tmp_path / "lm.pt", pieces))
    adapter = PyctcdecodeLM(LogLinearLM([lm], segment=[list]), unigrams=WORDS, alpha=1.0, beta=0.0)
    expected, state = 0.0, lm.start()
    for piece in "cab":
        score, state = lm.score(state, lm.token(piece))
        expected += score
    assert adapter.score(adapter.get_start_state(), "cab")[0] == pytest.approx(expected)
    assert decode(adapter, emissions(1))


def texts_of(lm, seeds) -> list[str]:
    """What ``decode`` writes, which prunes by history, of frames that leave much to choose."""
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(LABELS), lm)
    try:
        return [decoder.decode(emissions(seed, frames=30, last="b"), beam_width=20) for seed in seeds]
    finally:
        decoder.cleanup()


def test_decode_prunes_by_the_history_that_kenlm_has(arpa, tmp_path):
    """A hypothesis that differs in no word that KenLM still remembers is dropped for a better one, as pyctcdecode does."""
    trigram = write_trigrams(tmp_path / "trigram.arpa", WORDS)
    for path, order in ((arpa, 2), (trigram, 3)):
        lms = LogLinearLM([KenLM(path)])
        own = texts_of(LanguageModel(kenlm.Model(str(path)), WORDS), range(80))
        assert PyctcdecodeLM(lms).order == order
        assert texts_of(PyctcdecodeLM(lms), range(80)) == own
        assert texts_of(PyctcdecodeLM(lms, order=1 << 30), range(80)) != own
    assert PyctcdecodeLM(LogLinearLM([KenLM(arpa), KenLM(trigram)], [0.7, 0.3])).order == 3
    assert PyctcdecodeLM(LogLinearLM([])).order == 1


def test_the_order_of_other_lms_is_an_option(neural, arpa):
    mixed = LogLinearLM([neural, KenLM(arpa)])
    assert PyctcdecodeLM(mixed).order == PyctcdecodeLM(LogLinearLM([KenLM(arpa)], segment=[list]), WORDS).order == 1 << 30
    for order in (1, 4):
        assert PyctcdecodeLM(mixed, order=order).order == order
    for order in (0, -1, 2.0):
        with pytest.raises(ValueError, match="order is the number of words"):
            PyctcdecodeLM(mixed, order=order)


def test_states_can_be_asked_for_what_a_pool_sends_back(arpa):
    """pyctcdecode after 0.5.0 asks the state of each beam; its own says None, too."""
    lm = PyctcdecodeLM(LogLinearLM([KenLM(arpa)]))
    assert lm.get_start_state().get_mp_safe_state() is None
    assert lm.score(lm.get_start_state(), "bed")[1].get_mp_safe_state() is None


def test_a_folder_brings_the_language_models_back(neural, arpa, tmp_path):
    lms = LogLinearLM([neural, KenLM(arpa)], [0.7, 0.3])
    lm = PyctcdecodeLM(lms, WORDS[:7], alpha=0.4, beta=0.3, unk_score_offset=-3.0, score_boundary=False, order=5)
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(LABELS), lm)
    (tmp_path / "new").mkdir()
    decoder.save_to_dir(str(tmp_path / "new"))
    decoder.cleanup()
    back = PyctcdecodeLM.load_from_dir(tmp_path / "new" / "language_model")
    assert (back.params, back.order) == (lm.params, 5)
    frames = emissions(1)
    assert decode(back, frames) == close(decode(lm, frames))
    with pytest.raises(InputError, match="is not empty"):
        lm.save_to_dir(tmp_path / "new" / "language_model")
    rounded = StatefulNeuralLM.load(write_checkpoint(tmp_path / "lm.pt", WORDS), precision="int8")
    PyctcdecodeLM(LogLinearLM([rounded, KenLM(arpa)])).save_to_dir(tmp_path / "rounded")
    assert PyctcdecodeLM.load_from_dir(tmp_path / "rounded").lms.lms[0].lm.precision == "int8"
    changed = write_trigrams(tmp_path / "changed.arpa", WORDS)
    pair = PyctcdecodeLM(LogLinearLM([neural, KenLM(changed)]))
    content = changed.read_text()
    changed.write_text(content + "\n")
    for _ in range(2):  # nothing stays of a failed call
        with pytest.raises(InputError, match="has changed"):
            pair.save_to_dir(tmp_path / "pair")
    with pytest.raises(InputError, match="LMs of subwords"):
        PyctcdecodeLM(LogLinearLM([neural], segment=[list])).save_to_dir(tmp_path / "other")
    with pytest.raises(InputError, match="cannot hold the sentences before"):
        PyctcdecodeLM(LogLinearLM([neural]).after([["w1"]])).save_to_dir(tmp_path / "other")
    (tmp_path / "new" / "language_model" / "attrs.json").write_text("{}")
    with pytest.raises(InputError, match="does not hold what save_to_dir wrote"):
        PyctcdecodeLM.load_from_dir(tmp_path / "new" / "language_model")


@pytest.mark.parametrize(("name", "value"), [("alpha", "x"), ("beta", True), ("unk_score_offset", float("nan")), ("score_boundary", 1)])
def test_parameters_of_another_kind_are_refused_at_once(arpa, name, value):
    lm = PyctcdecodeLM(LogLinearLM([KenLM(arpa)]))
    before = lm.params
    with pytest.raises(ValueError, match=f"{name} is "):
        lm.reset_params(**{"beta": 0.1} | {name: value})
    assert lm.params == before
    with pytest.raises(ValueError, match=f"{name} is "):
        PyctcdecodeLM(LogLinearLM([KenLM(arpa)]), **{name: value})


def test_parameters_can_be_changed_as_the_decoder_does(arpa):
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(LABELS), lm := PyctcdecodeLM(LogLinearLM([KenLM(arpa)])))
    decoder.reset_params(alpha=0.3, beta=0.2, unk_score_offset=-1.0, lm_score_boundary=False)
    assert (lm.alpha, lm.beta, lm.unk_score_offset, lm.score_boundary) == (0.3, 0.2, -1.0, False)
    with pytest.raises(ValueError, match="gamma"):
        lm.reset_params(gamma=1.0)
    decoder.cleanup()


def test_the_pieces_of_a_subword_lm_are_no_unigrams(tmp_path):
    lm = StatefulNeuralLM.load(write_checkpoint(tmp_path / "lm.pt", ["a", "b"]))
    listed, unlisted = (PyctcdecodeLM(LogLinearLM([lm], segment=[list]), unigrams=words) for words in (["ab"], None))
    assert unlisted.score(unlisted.get_start_state(), "ab")[0] == listed.score(listed.get_start_state(), "ab")[0]


def test_processes_that_a_pool_forks_compute_with_one_thread(arpa):
    """The threads of OpenMP are not in a forked process, which would wait for them for ever."""
    PyctcdecodeLM(LogLinearLM([KenLM(arpa)]))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        child = os.fork()
        if child == 0:
            os._exit(torch.get_num_threads())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    finally:
        torch.set_num_threads(before)


def test_one_language_model_is_not_a_combination(arpa):
    with pytest.raises(TypeError, match="LogLinearLM"):
        PyctcdecodeLM(KenLM(arpa))


def test_a_text_is_no_collection_of_words(arpa):
    with pytest.raises(ValueError, match="expected a collection of words"):
        PyctcdecodeLM(LogLinearLM([KenLM(arpa)]), "ab")
