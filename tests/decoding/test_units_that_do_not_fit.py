"""LMs that a decoder's tokens do not fit are warned of; calls that cannot be right are one line."""

from __future__ import annotations

import re

import pytest
import torch
from lm_files import write_checkpoint
from toy_lms import write_arpa

import attlm_fairseq as attlm
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.flashlight import FlashlightLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.pyctcdecode import PyctcdecodeLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.decoding.token_texts import token_texts
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.modules.state import LanguageModelState

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "house", "tree", "bird", "sky"]
PIECES = ["th@@", "e", "c@@", "at", "s@@", "d@@", "og", "m@@", "on", "r@@", "an", "h@@", "ouse"]
LETTERS = ["|", *"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture
def words(tmp_path) -> LogLinearLM:
    return LogLinearLM.load(write_checkpoint(tmp_path / "words" / "lm.pt", WORDS))


@pytest.fixture
def pieces(tmp_path) -> LogLinearLM:
    return LogLinearLM.load(write_checkpoint(tmp_path / "pieces" / "lm.pt", PIECES))


class Unlisted(StatefulNeuralLM):
    """An LM of one's own that cannot list its words."""

    def words(self):
        raise InputError("cannot list its words")


def ngrams(folder, words: list[str]) -> LogLinearLM:
    return LogLinearLM.load(write_arpa(folder / "lm.arpa", words))


def upper(symbols):
    return [symbol.upper() for symbol in symbols]


MISFITS = [
    (lambda words, pieces: FlashlightLM.of_words(words, upper(WORDS)), "knows 0 of the decoder's 12 entries, and not 'THE', 'CAT'"),
    (lambda words, pieces: FlashlightLM.of_words(words, ["|", *"bcdefgh"]), "knows 0 of the decoder's 8 entries"),
    (lambda words, pieces: FlashlightLM.of_tokens(pieces, LETTERS[6:]), "entries, and not 'f', 'g'"),
    (
        lambda words, pieces: LookAheadWordLM(words, token_texts(upper(LETTERS), "characters")),
        "the decoder's tokens can spell 0 of the 12 words of",
    ),
    (lambda words, pieces: LookAheadWordLM(pieces, token_texts(LETTERS, "characters")), "its words are subwords, such as 'c@@'"),
    (lambda words, pieces: PyctcdecodeLM(pieces), "its words are subwords, such as 'th@@'"),
    (lambda words, pieces: PyctcdecodeLM(words, unigrams=upper(WORDS)), "knows 0 of the decoder's 12 entries"),
]
FITTING = [
    lambda words, pieces: FlashlightLM.of_words(words, WORDS),
    lambda words, pieces: FlashlightLM.of_words(words, [*WORDS, *(f"rare{number}" for number in range(1000))]),  # a large lexicon
    lambda words, pieces: FlashlightLM.of_words(words, WORDS[:2]),
    lambda words, pieces: LookAheadWordLM(words, token_texts(LETTERS, "characters")),
    lambda words, pieces: LookAheadWordLM(words, token_texts(upper(LETTERS), "characters", lowercase=True)),
    lambda words, pieces: FlashlightLM.of_tokens(pieces, PIECES),
    lambda words, pieces: PyctcdecodeLM(LogLinearLM(pieces.lms, segment=[list]), unigrams=WORDS),
    lambda words, pieces: PyctcdecodeLM(words),
]


@pytest.mark.parametrize(("adapter", "warning"), MISFITS)
def test_other_units_and_another_case_are_warned_of(words, pieces, adapter, warning):
    with collected() as notes:
        adapter(words, pieces)
    [line] = [note for note in notes if note.startswith("WARNING")]
    assert warning in line
    assert "lm.pt" in line


@pytest.mark.parametrize("adapter", FITTING)
def test_lms_that_fit_are_not_warned_of(words, pieces, adapter):
    with collected() as notes:
        adapter(words, pieces)
    assert notes == []


def test_n_gram_lms_of_other_units_are_warned_of(tmp_path):
    with collected() as notes:
        TokenFusion(ngrams(tmp_path, WORDS), upper(WORDS))
    assert "lm.arpa knows 0 of the decoder's 12 entries" in notes[0]
    with collected() as notes:
        TokenFusion(ngrams(tmp_path, WORDS), [*WORDS, *(f"rare{number}" for number in range(1000))])
    assert notes == []


def test_an_lm_that_cannot_list_its_words_can_be_used(tmp_path):
    lms = LogLinearLM([Unlisted.load(write_checkpoint(tmp_path / "lm.pt", WORDS))])
    with collected() as notes:
        TokenFusion(lms, [*WORDS[:2], *(f"rare{number}" for number in range(100))])
        PyctcdecodeLM(lms, unigrams=WORDS)
    assert notes == []


def test_calls_of_a_batch_that_cannot_be_right_are_one_line(tmp_path):
    plain, attentive = (
        DecoderLM.load(write_checkpoint(tmp_path / name / "lm.pt", WORDS, _name=name)) for name in ("plain_lstm_lm", "attentive_lstm_lm")
    )
    two = torch.tensor([2, 4])
    for lm in (plain, attentive):
        states = lm.start(2)
        for tokens, error, message in (
            (torch.tensor([2, 4, 5]), ValueError, "found tokens of shape 3 for 2 hypotheses"),
            (two[:1], ValueError, "found tokens of shape 1 for 2 hypotheses"),
            (two[:, None], ValueError, "found tokens of shape 2x1 for 2 hypotheses"),
            ([2, 4], TypeError, "the tokens are a list: expected a tensor of ids"),
            (two.float(), TypeError, "the tokens are a tensor of torch.float32"),
            (torch.tensor([2, 99]), IndexError, "token 99: expected 0 to 15"),
            (torch.tensor([-1, 2]), IndexError, "token -1: expected 0 to 15"),
        ):
            with pytest.raises(error, match=re.escape(message)):
                lm.step(states, tokens)
        with pytest.raises(TypeError, match=r"the rows are a tensor of torch\.bool"):
            lm.select(states, torch.tensor([True, False]))
        with pytest.raises(TypeError, match="the states are a list"):
            lm.step([states], two)
    for lm, other in ((plain, attentive), (attentive, plain)):
        with pytest.raises(ValueError, match="the states have other sizes than those of this LM"):
            lm.step(other.start(2), two)


def test_states_of_other_sizes_are_refused(tmp_path):
    """Any number of words may have been read, which is not a size of the model."""
    lms = [
        DecoderLM.load(write_checkpoint(tmp_path / str(number) / "lm.pt", WORDS, **options))
        for number, options in enumerate(
            (
                {},
                {"attention_score": "combined"},
                {"_name": "kvp_lstm_lm", "decoder_hidden_size": 12, "attention_window": 3},
                {"_name": "lstmn_lm"},
                {"_name": "hornn_lm"},
            )
        )
    ]
    for lm in lms:
        states = lm.start(2)
        for _ in range(3):
            _, states = lm.step(states, torch.tensor([2, 4]))
            for other in lms:
                if other is not lm:
                    with pytest.raises(ValueError, match="the states have other sizes than those of this LM"):
                        other.step(states, torch.tensor([2, 4]))


def test_what_is_no_stateful_lm_is_refused(tmp_path, words):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    write_arpa(tmp_path / "lm.arpa", WORDS)
    for wrong in ("lm.arpa", DecoderLM.load(path), attlm.load_lm(tmp_path / "lm.arpa")):
        with pytest.raises(TypeError, match=r"expected a StatefulNeuralLM or KenLM; LogLinearLM.load takes files"):
            LogLinearLM([wrong])
    with pytest.raises(TypeError, match="segment is a function: expected a list with one for each LM"):
        LogLinearLM([StatefulNeuralLM.load(path)], segment=str.split)
    fusion = TokenFusion(words, WORDS)
    for token in (-1, len(WORDS)):
        with pytest.raises(IndexError, match=f"token {token}: expected 0 to 11"):
            fusion.score(fusion.start(), token)


def test_states_may_grow_without_a_mask():
    """Those of a reader of another package may: what they share is not their number of words."""
    short, long, other = (
        LanguageModelState((torch.zeros(2, 1, 4),), (torch.zeros(2, words, size),)) for words, size in ((1, 3), (2, 3), (1, 5))
    )
    assert short.layout == long.layout != other.layout
