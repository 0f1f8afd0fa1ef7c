"""Decoders whose sentences follow others: the scores of ``Scorer.after``, through every adapter."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from flashlight.lib.text.dictionary import Dictionary
from lm_files import write_checkpoint
from toy_lms import write_arpa

from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.espnet import EspnetLM
from attlm_fairseq.decoding.flashlight import FlashlightLM
from attlm_fairseq.decoding.fusion_sum import FusionSum
from attlm_fairseq.decoding.huggingface import FusionLogitsProcessor
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.phrase_fusion import PhraseFusion
from attlm_fairseq.decoding.pyctcdecode import PyctcdecodeLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer

WORDS = [f"w{number}" for number in range(12)]
SAID = [["w1", "w2", "w3", "w4", "w5"], [], ["w7", "unheard-of"]]
SENTENCE = ["w3", "w1", "w1"]
CLOSE = {"abs": 2e-5}


def log_probs(lms: LogLinearLM, words: list[str]) -> list[float]:
    state, found = lms.start(), []
    for word in words:
        score, state = lms.score(state, word)
        found.append(score)
    return [*found, lms.end(state)]


@pytest.mark.parametrize("carried", [{}, {"reset": "memory"}, {"memory_slots": 2}], ids=["everything", "no memory", "two slots"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache_bytes", [1 << 30, 0])
def test_sentences_after_others_score_as_scorers_after_them(tmp_path, family, carried, cache_bytes):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, _name=family, **carried)
    scorer = NeuralScorer.load([path])
    lms = LogLinearLM([StatefulNeuralLM.load(path, cache_bytes=cache_bytes)])
    for history in ([], SAID[:1], SAID):
        expected = scorer.after(history).score([SENTENCE])[0].log_probs
        assert log_probs(lms.after(history), SENTENCE) == pytest.approx(list(expected), **CLOSE)
    chained = lms.after(SAID[:1]).after(SAID[1:])
    assert log_probs(chained, SENTENCE) == pytest.approx(list(expected), **CLOSE)
    assert log_probs(lms, SENTENCE) == pytest.approx(list(scorer.score([SENTENCE])[0].log_probs), **CLOSE)


def test_a_decoder_of_batches_begins_after_sentences(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, _name="attentive_lstm_lm", reset="memory")
    lm = DecoderLM.load(path)
    state = lm.after([lm.vocabulary.ids(words) for words in SAID])
    states, found = lm.select(state, torch.tensor([0, 0])), []
    for token in [lm.eos, *lm.vocabulary.ids(SENTENCE)]:
        distributions, states = lm.step(states, torch.full((2,), token))
        found.append(distributions)
    rows = [float(row[0, word]) for row, word in zip(found, [*lm.vocabulary.ids(SENTENCE), lm.eos], strict=True)]
    assert rows == pytest.approx(list(NeuralScorer.load([path]).after(SAID).score([SENTENCE])[0].log_probs), **CLOSE)
    for sentences in ([4, 5], [["w1"]], ["w1"]):
        with pytest.raises(TypeError, match="expected ids, such as"):
            lm.after(sentences)
    with pytest.raises(ValueError, match="the state is of 3 hypotheses"):
        lm.after([[4]], lm.start(3))


@pytest.fixture
def lms(tmp_path):
    write_arpa(tmp_path / "lm.arpa", WORDS)
    write_checkpoint(tmp_path / "lm.pt", WORDS, _name="attentive_lstm_lm")
    return LogLinearLM.load({tmp_path / "lm.pt": 0.7, tmp_path / "lm.arpa": -0.2})


@pytest.fixture
def expected(lms, tmp_path):
    """The score of SENTENCE and its end, after SAID, of which the n-gram LM sees nothing."""
    neural = NeuralScorer.load([tmp_path / "lm.pt"]).after(SAID).score([SENTENCE])[0].total
    return 0.7 * neural - 0.2 * KenLMScorer(tmp_path / "lm.arpa").score([SENTENCE])[0].total


def test_every_adapter_begins_after_sentences(lms, expected, tmp_path):
    later = lms.after(SAID)
    assert sum(log_probs(later, SENTENCE)) == pytest.approx(expected, **CLOSE)
    (tmp_path / "names").write_text("w9\n")
    letters = [" ", "w", *"0123456789"]
    texts = [letter.encode() for letter in letters]
    spelled = [letters.index(letter) for letter in " ".join(SENTENCE)]
    whole = LookAheadWordLM(lms, texts)
    phrases = PhraseFusion.load(tmp_path / "names", texts, 1.0)
    words = TokenFusion(lms, WORDS)
    for fusion, tokens in (
        (whole, spelled),
        (FusionSum(whole, phrases), spelled),
        (words, [WORDS.index(word) for word in SENTENCE]),
    ):
        after = fusion.after(SAID)
        state, total = after.start(), 0.0
        for token in tokens:
            assert after.scores([state])[0, token] == pytest.approx(after.score(state, token)[0], **CLOSE)
            score, state = after.score(state, token)
            total += score
        assert total + after.end(state) == pytest.approx(expected, **CLOSE)
        assert fusion.start() != after.start()  # the fusion without sentences before is as it was

    other = LookAheadWordLM(lms, texts)
    read_once = FusionSum(whole, other).after(words for words in SAID)
    assert read_once.fusions[1].start() != other.start()

    dictionary = Dictionary()
    for word in WORDS:
        dictionary.add_entry(word)
    flashlight = FlashlightLM(FlashlightLM.of_words(lms, dictionary).fusion.after(SAID))
    state, total = flashlight.start(False), 0.0
    for word in SENTENCE:
        state, score = flashlight.score(state, WORDS.index(word))
        total += score
    assert total + flashlight.finish(state)[1] == pytest.approx(expected, **CLOSE)

    pyctcdecode = PyctcdecodeLM(lms, alpha=1.0, beta=0.0, unk_score_offset=0.0)
    state, total = pyctcdecode.get_start_state(SAID), 0.0
    for place, word in enumerate(SENTENCE, 1):
        score, state = pyctcdecode.score(state, word, is_last_word=place == len(SENTENCE))
        total += score
    assert total == pytest.approx(expected, **CLOSE)

    ends = [len(WORDS)]
    fusion = TokenFusion(lms, [*WORDS, "</s>"], ends=ends).after(SAID)
    processor = FusionLogitsProcessor(fusion, prompt_length=0)
    ids, total = torch.tensor([[WORDS.index(word) for word in SENTENCE]]), 0.0
    for length, token in enumerate([*ids[0].tolist(), *ends]):
        total += float(processor(ids[:, :length], torch.zeros(1, len(WORDS) + 1))[0, token])
    assert total == pytest.approx(expected, **CLOSE)

    espnet = EspnetLM(EspnetLM.of_tokens(lms, ["<blank>", "<unk>", *WORDS, "<sos/eos>"]).fusion.after(SAID))
    state, tokens, total = None, [len(WORDS) + 2], 0.0
    for token in [*(WORDS.index(word) + 2 for word in SENTENCE), len(WORDS) + 2]:
        scores, state = espnet.score(torch.tensor(tokens), state, None)
        tokens.append(token)
        total += float(scores[token])
    assert total == pytest.approx(expected, **CLOSE)


def test_lms_of_subwords_read_the_history_in_subwords(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", ["a@@", "b"], _name="plain_lstm_lm")
    lms = LogLinearLM([StatefulNeuralLM.load(path)], segment=[lambda word: [*(f"{letter}@@" for letter in word[:-1]), word[-1]]])
    found = log_probs(lms.after([["ab", "b"]]), ["b"])
    assert found == pytest.approx(list(NeuralScorer.load([path]).after([["a@@", "b", "b"]]).score([["b"]])[0].log_probs), **CLOSE)


def test_lms_can_be_pickled_and_a_history_is_of_words(lms):
    for before in (lms, lms.after(SAID[:1]).after(words for words in SAID[1:])):
        copied = pickle.loads(pickle.dumps(TokenFusion(before, WORDS))).lms
        assert log_probs(copied, SENTENCE) == pytest.approx(log_probs(before, SENTENCE), **CLOSE)
        assert copy.deepcopy(before) is before
    with pytest.raises(InputError, match="expected a list of words"):
        lms.after(["w1 w2"])
    for word in ("w1 w2", ""):
        with pytest.raises(InputError, match=f"found the word '{word}': expected a string that is not empty and has no space"):
            lms.after([["w1", word]])
