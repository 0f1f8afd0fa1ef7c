"""The language models in flashlight-text's own decoders."""

from __future__ import annotations

import gc
import math
import random
from pathlib import Path

import numpy as np
import pytest
from flashlight.lib.text.decoder import (
    CriterionType,
    LexiconDecoder,
    LexiconDecoderOptions,
    LexiconFreeDecoder,
    LexiconFreeDecoderOptions,
    SmearingMode,
    Trie,
    ZeroLM,
)
from flashlight.lib.text.decoder.kenlm import KenLM as FlashlightKenLM
from flashlight.lib.text.dictionary import Dictionary
from lm_files import write_checkpoint
from toy_lms import biased_lm, random_lm, write_arpa, zero_lm

from attlm_fairseq.decoding.flashlight import FlashlightLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.decoding.token_texts import token_texts
from attlm_fairseq.scoring.ngrams.kenlm import KenLM

LN_10 = math.log(10.0)
TOKENS = ["<blank>", "|", *"abcde"]
BLANK, SILENCE = 0, 1
WORDS = ["a", "ab", "abe", "bad", "bed", "bee", "cab", "dace", "dad", "ebb"]
LEXICON = {word: [TOKENS.index(letter) for letter in word] + [SILENCE] for word in WORDS}
UNKNOWN = len(WORDS)
EVERYTHING = 1e9  # no beam threshold


def emissions(seed: int, frames: int = 14) -> np.ndarray:
    """Log-probabilities (T, N) that leave much to the language model."""
    values = np.random.default_rng(seed).normal(size=(frames, len(TOKENS))) * 1.5
    values -= np.logaddexp.reduce(values, axis=1, keepdims=True)
    return np.ascontiguousarray(values, dtype=np.float32)


def word_dictionary() -> Dictionary:
    return Dictionary([*WORDS, "<unk>"])


def lexicon_decode(lm, frames: np.ndarray, weight: float, beam: int = 300, smearing=SmearingMode.MAX, log_add: bool = False):
    """The decoder as its users build it: every word scored from the start for the trie, then one utterance."""
    trie = Trie(len(TOKENS), SILENCE)
    start = lm.start(False)
    for index, word in enumerate(WORDS):
        _, score = lm.score(start, index)
        trie.insert(LEXICON[word], index, score)
    trie.smear(smearing)
    options = LexiconDecoderOptions(beam, len(TOKENS), EVERYTHING, weight, 0.3, -math.inf, 0.1, log_add, CriterionType.CTC)
    decoder = LexiconDecoder(options, trie, lm, SILENCE, BLANK, UNKNOWN, [], False)
    return decode(decoder, frames)


def free_decode(lm, frames: np.ndarray, weight: float, beam: int = 20, log_add: bool = False):
    options = LexiconFreeDecoderOptions(beam, len(TOKENS), EVERYTHING, weight, 0.1, log_add, CriterionType.CTC)
    return decode(LexiconFreeDecoder(options, lm, SILENCE, BLANK, []), frames)


def decode(decoder, frames: np.ndarray):
    return decoder.decode(frames.ctypes.data, *frames.shape)


def results(hypotheses, scale: float = 1.0):
    """Everything of the n-best list in its order; LM scores times a scale."""
    return [(hyp.words, hyp.tokens, pytest.approx(hyp.score, abs=1e-3), pytest.approx(hyp.lmScore * scale, abs=1e-3)) for hyp in hypotheses]


def plain(hypotheses):
    return [(hyp.words, hyp.tokens, hyp.score, hyp.lmScore) for hyp in hypotheses]


def acoustic(hypotheses):
    return [(hyp.words, hyp.tokens, pytest.approx(hyp.score, abs=1e-4)) for hyp in hypotheses]


def letters(tokens: list[int]) -> str:
    """What a CTC path writes."""
    merged = [token for place, token in enumerate(tokens) if place == 0 or token != tokens[place - 1]]
    return "".join(TOKENS[token] for token in merged if token != BLANK).replace("|", " ")


@pytest.fixture(scope="module")
def arpa(tmp_path_factory):
    return write_arpa(tmp_path_factory.mktemp("arpa") / "lm.arpa", WORDS[:-1])


@pytest.fixture(scope="module")
def letter_arpa(tmp_path_factory):
    return write_arpa(tmp_path_factory.mktemp("arpa") / "letters.arpa", TOKENS[1:])


@pytest.fixture(scope="module")
def neural(tmp_path_factory) -> StatefulNeuralLM:
    return StatefulNeuralLM.load(write_checkpoint(tmp_path_factory.mktemp("lm") / "lm.pt", WORDS, attention_score="combined"))


# --- FlashlightKenLM ---


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("smearing", "log_add"), [(SmearingMode.NONE, False), (SmearingMode.MAX, False), (SmearingMode.MAX, True)])
def test_kenlm_is_the_decoders_own_with_a_lexicon(arpa, seed, smearing, log_add):
    frames = emissions(seed)
    dictionary = word_dictionary()
    # not smearing by LOGADD, which sums exp(score): of log10 scores that is another sum
    own = lexicon_decode(FlashlightKenLM(str(arpa), dictionary), frames, 1.5 * LN_10, smearing=smearing, log_add=log_add)
    ours = lexicon_decode(FlashlightLM.of_words(LogLinearLM([KenLM(arpa)]), dictionary), frames, 1.5, smearing=smearing, log_add=log_add)
    assert len(own) > 5
    assert plain(ours) == results(own, LN_10)


@pytest.mark.parametrize("seed", range(4))
def test_kenlm_is_the_decoders_own_without_a_lexicon(letter_arpa, seed):
    frames = emissions(seed)
    dictionary = Dictionary(TOKENS)
    own = free_decode(FlashlightKenLM(str(letter_arpa), dictionary), frames, 0.7 * LN_10)
    ours = free_decode(FlashlightLM.of_tokens(LogLinearLM([KenLM(letter_arpa)]), dictionary), frames, 0.7)
    assert len(own) > 5
    assert plain(ours) == results(own, LN_10)


# --- no LM ---


@pytest.mark.parametrize("seed", range(3))
def test_no_lm_weight_zero_and_a_zero_lm_are_the_same(neural, seed):
    frames, words, tokens = emissions(seed), word_dictionary(), Dictionary(TOKENS)
    spelled = token_texts(TOKENS, special=[BLANK])
    none = lexicon_decode(ZeroLM(), frames, 1.0)
    same = [
        (lexicon_decode, FlashlightLM.of_words(LogLinearLM([zero_lm(WORDS)]), words), 1.0),
        (lexicon_decode, FlashlightLM.of_words(LogLinearLM([neural], [0.0]), words), 1.0),
        (lexicon_decode, FlashlightLM.of_words(LogLinearLM([neural, neural], [0.5, -0.5]), words), 1.0),
    ]
    for decoder, lm, weight in same:
        assert plain(decoder(lm, frames, weight)) == results(none)
    assert acoustic(
        lexicon_decode(FlashlightLM.of_words(LogLinearLM([neural]), words), frames, 0.0, smearing=SmearingMode.NONE)
    ) == acoustic(lexicon_decode(ZeroLM(), frames, 0.0, smearing=SmearingMode.NONE))
    none = free_decode(ZeroLM(), frames, 1.0)
    for lm in (
        FlashlightLM.of_tokens(LogLinearLM([zero_lm(TOKENS)]), tokens),
        FlashlightLM.of_tokens(LogLinearLM([neural], [0.0]), tokens),
        FlashlightLM.of_spelling(LogLinearLM([neural], [0.0]), spelled),
        FlashlightLM.of_spelling(LogLinearLM([neural, neural], [0.5, -0.5]), spelled),
    ):
        assert plain(free_decode(lm, frames, 1.0)) == results(none)
    one = free_decode(FlashlightLM.of_spelling(LogLinearLM([neural]), spelled), frames, 0.0)
    assert acoustic(one) == acoustic(none)


# --- an LM that knows what it wants ---


@pytest.mark.parametrize("sentence", [["bad", "cab"], ["ebb"], ["a", "dad", "a"]])
def test_a_biased_lm_forces_its_words(sentence):
    lms = LogLinearLM([biased_lm(WORDS, sentence, -100.0)])
    for seed in range(2):
        frames = emissions(seed, 20)
        best = lexicon_decode(FlashlightLM.of_words(lms, word_dictionary()), frames, 1.0, beam=200)[0]
        assert [WORDS[word] for word in best.words if word >= 0] == sentence
        lm = FlashlightLM.of_spelling(lms, token_texts(TOKENS, special=[BLANK]))
        assert letters(free_decode(lm, frames, 1.0, beam=200)[0].tokens).split() == sentence


# --- neural LMs ---


def rescored(lms: LogLinearLM, words: list[str], unk_offset: float = 0.0) -> float:
    total, state = 0.0, lms.start()
    for word in words:
        score, state = lms.score(state, word, unk_offset)
        total += score
    return total + lms.end(state)


@pytest.mark.parametrize("seed", range(3))
def test_lm_scores_of_hypotheses_are_those_of_their_words(neural, arpa, seed):
    frames = emissions(seed)
    lms = LogLinearLM([neural, KenLM(arpa), random_lm(WORDS)], [0.8, 0.5, -0.4])
    hypotheses = lexicon_decode(FlashlightLM.of_words(lms, word_dictionary()), frames, 1.0)
    assert len(hypotheses) > 5
    for hyp in hypotheses:
        assert hyp.lmScore == pytest.approx(rescored(lms, [WORDS[word] for word in hyp.words if word >= 0]), abs=1e-4)
    for look_ahead in (True, False):
        spelled = FlashlightLM.of_spelling(lms, token_texts(TOKENS, special=[BLANK]), unk_offset=-4.0, look_ahead=look_ahead)
        hypotheses = free_decode(spelled, frames, 1.0)
        assert len(hypotheses) > 5
        for hyp in hypotheses:
            assert hyp.lmScore == pytest.approx(rescored(lms, letters(hyp.tokens).split(), -4.0), abs=1e-4)


def test_words_that_no_lm_knows_cost_the_offset():
    lms = LogLinearLM([random_lm(WORDS[1:])], [0.8])
    hypotheses = lexicon_decode(FlashlightLM.of_words(lms, word_dictionary(), unk_offset=-2.0), emissions(0), 1.0)
    texts = [[WORDS[word] for word in hyp.words if word >= 0] for hyp in hypotheses]
    assert any(WORDS[0] in words for words in texts)
    for hyp, words in zip(hypotheses, texts, strict=True):
        assert hyp.lmScore == pytest.approx(rescored(lms, words, -2.0), abs=1e-4)


@pytest.mark.parametrize("smearing", [SmearingMode.NONE, SmearingMode.MAX, SmearingMode.LOGADD])
@pytest.mark.parametrize("log_add", [False, True])
def test_forbidden_words_take_no_other_hypothesis_with_them(smearing, log_add):
    """-inf and -inf, added up by flashlight, would be nan: in the trie of the lexicon, and where hypotheses meet."""
    lms = LogLinearLM([random_lm(WORDS[1:])])
    words = word_dictionary()
    forbidden, costly = (FlashlightLM.of_words(lms, words, unk_offset=offset) for offset in (-math.inf, -1000.0))
    for seed in range(3):
        found, expected = (
            [
                (hyp.words, hyp.score)
                for hyp in lexicon_decode(lm, emissions(seed), 1.0, smearing=smearing, log_add=log_add)
                if 0 not in hyp.words
            ]
            for lm in (forbidden, costly)
        )
        assert found == expected
        assert len(found) > 5
        assert all(math.isfinite(score) for _, score in found)
    assert forbidden.score(forbidden.start(False), 0)[1] == -10_000


def test_nothing_follows_the_sentence_end(neural):
    lm = FlashlightLM.of_words(LogLinearLM([neural]), word_dictionary())
    end, _ = lm.finish(lm.start(False))
    for read_on in (lambda: lm.score(end, 0), lambda: lm.finish(end)):
        with pytest.raises(RuntimeError, match=r"after the sentence end: decode_begin\(\) starts the next utterance"):
            read_on()


@pytest.mark.parametrize("words", ["words.txt", Path("words.txt"), {"a": 0}, {"a"}, b"words.txt"])
def test_what_is_no_dictionary_is_refused(neural, words):
    with pytest.raises(TypeError, match="expected a list of them, or a Dictionary such as create_word_dict returns"):
        FlashlightLM.of_words(LogLinearLM([neural]), words)


def test_two_halves_of_an_lm_are_the_lm(neural):
    frames, words = emissions(1), word_dictionary()
    one = lexicon_decode(FlashlightLM.of_words(LogLinearLM([neural]), words), frames, 0.6)
    halves = lexicon_decode(FlashlightLM.of_words(LogLinearLM([neural, neural], [0.5, 0.5]), words), frames, 0.6)
    assert plain(halves) == results(one)


def test_a_cache_of_no_size_changes_nothing(neural):
    frames = emissions(2)
    spelled = token_texts(TOKENS, special=[BLANK])
    small = LogLinearLM([StatefulNeuralLM(neural.lm, cache_bytes=0)])
    expected = free_decode(FlashlightLM.of_spelling(LogLinearLM([neural]), spelled), frames, 1.0)
    lm = FlashlightLM(LookAheadWordLM(small, spelled, cache_bytes=0))
    assert plain(free_decode(lm, frames, 1.0)) == results(expected)


def test_utterances_share_the_sentence_start_and_nothing_else(neural):
    neural = StatefulNeuralLM(neural.lm)
    lm = FlashlightLM.of_words(LogLinearLM([neural]), word_dictionary())
    first = plain(lexicon_decode(lm, emissions(1), 1.0))
    assert len(lm._scored) > len(lm._read) >= neural.computed > 10  # most successors are never gone on from, and have no state
    for seed in (2, 3, 1):
        lexicon_decode(lm, emissions(seed), 1.0)
    assert plain(lexicon_decode(lm, emissions(1), 1.0)) == first
    lm.start(False)
    gc.collect()
    assert (len(lm._scored), len(lm._read), len(neural.cache)) == (0, 1, 0)
    before = neural.computed
    for word in range(len(WORDS)):
        lm.score(lm.start(False), word)
    assert neural.computed == before


def test_decoders_side_by_side_need_an_lm_each(neural):
    lms, frames = LogLinearLM([neural]), emissions(1, 20)
    options = LexiconFreeDecoderOptions(20, len(TOKENS), EVERYTHING, 1.0, 0.1, False, CriterionType.CTC)
    spelled = token_texts(TOKENS, special=[BLANK])

    def side_by_side(*fusions: FlashlightLM):
        first, second = (LexiconFreeDecoder(options, lm, SILENCE, BLANK, []) for lm in fusions)
        for decoder in (first, second):
            decoder.decode_begin()
            decoder.decode_step(frames.ctypes.data, 10, len(TOKENS))
        for decoder in (first, second):
            decoder.decode_step(frames[10:].ctypes.data, 10, len(TOKENS))
            decoder.decode_end()
        return [plain(decoder.get_all_final_hypothesis()) for decoder in (first, second)]

    own = [FlashlightLM.of_spelling(lms, spelled) for _ in range(2)]
    alone = plain(free_decode(FlashlightLM.of_spelling(lms, spelled), frames, 1.0))
    assert side_by_side(*own) == [alone, alone]
    with pytest.raises(RuntimeError, match="give each decoder a FlashlightLM of its own"):
        side_by_side(own[0], own[0])


@pytest.mark.parametrize("token", [-1, UNKNOWN + 1])
def test_what_is_not_a_token_has_no_score(neural, token):
    lm = FlashlightLM.of_words(LogLinearLM([neural]), word_dictionary())
    with pytest.raises(IndexError, match=rf"token {token}: expected 0 to {UNKNOWN}; the sentence end is scored by finish"):
        lm.score(lm.start(False), token)


def test_language_models_alone_are_not_a_fusion(neural):
    with pytest.raises(TypeError, match="not a StatefulNeuralLM"):
        FlashlightLM(neural)


def test_a_sentence_cannot_begin_with_nothing(neural):
    with pytest.raises(ValueError, match="start_with_nothing"):
        FlashlightLM.of_words(LogLinearLM([neural]), word_dictionary()).start(True)


def test_scores_do_not_depend_on_the_order_in_which_they_are_asked_for(neural):
    lm = FlashlightLM.of_words(LogLinearLM([neural]), word_dictionary())
    random_ = random.Random(5)
    start = lm.start(False)
    known = {(): start}
    for _ in range(200):
        words = random_.choice(list(known))
        word = random_.randrange(len(WORDS))
        state, score = lm.score(known[words], word)
        assert known.setdefault((*words, word), state) is state
        expected = neural.score(extend(neural, words), neural.token(WORDS[word]))[0]
        assert score == pytest.approx(expected, abs=1e-5)


def extend(lm, words):
    history = lm.start()
    for word in words:
        history = lm.score(history, lm.token(WORDS[word]))[1]
    return history


def test_one_silent_token_may_be_given_as_it_is(arpa):
    lms = LogLinearLM([KenLM(arpa)])
    symbols = Dictionary(["s", "i", "l", "a", "<sil>"])
    for silent in ("<sil>", ["<sil>"]):
        assert FlashlightLM.of_tokens(lms, symbols, silent=silent).fusion.tokens == ["s", "i", "l", "a", None]
