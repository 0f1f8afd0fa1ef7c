"""Phrases preferred inside decoders: every token's score, and their sum, which is the number of words inside phrases."""

from __future__ import annotations

import math
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from toy_lms import biased_lm
from translation_models import WORDS, decode, make_model, make_task, texts

from attlm_fairseq.decoding.fusion_lm import FusionLM
from attlm_fairseq.decoding.fusion_sum import FusionSum
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.open_phrases import OpenPhrases, Tail
from attlm_fairseq.decoding.phrase_fusion import PhraseFusion, PhraseState
from attlm_fairseq.decoding.shallow_fusion import ShallowFusion
from attlm_fairseq.decoding.spelling import Spelling
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.decoding.token_texts import token_texts
from attlm_fairseq.errors import InputError
from attlm_fairseq.text.phrases import PhraseList

# of few letters, so that phrases begin, overlap, end within others and are broken off all the time
PIECES = ["a", "b", "ab", "A", "ba", "s", "'s", "'", ",", ".", "(", "\u00e9", '"', "c", "-", "abc", "a,", "(a", "a's", "B.", "a b"]
PHRASE_WORDS = ["a", "ab", "abc", "b", "ba", "c's", "a-b", "'a", ".a", "a.b.", "aa", "\u00e9", "a\u00e9"]
PHRASE_WORDS += ["\u5317\u4eac", "a\u5317", "\u4eac"]
# several words, spaces of other kinds, characters that are words, letters whose case folds to several, and parts of letters
ODD = ["\u5317", "\u4eac", "\u5317\u4eac", "\u6211", "a", " a", " ", "b ", "\u00a0", "\u202f!", "\u300c", "\u017f", "s", "'", "ab"]
ODD += ["\u0130", "\u00df", "\ufb01", "e\u0301", "\u00e9", " a b", "a \u5317 b", "\u6211\u5728", "  ", "\u3000", "-"]
ODD_TEXTS = [*map(str.encode, ODD), b"\xe5", b"\x8c", b"\x97", b"\xc2", b"\xa0", b"\xff", b"\xe5\x8c", b"\xa0 a", b"", None]
STYLES = {
    "sentencepiece": [*PIECES, *(f"\u2581{piece}" for piece in PIECES), "\u2581", "<0xC3>", "<0xA9>", "<0x61>", "<0xFF>"],
    "word-end": [*PIECES, *(f"{piece}</w>" for piece in PIECES)],
    "wordpiece": [*PIECES, *(f"##{piece}" for piece in PIECES)],
    "bpe": [*PIECES, *(f"{piece}@@" for piece in PIECES)],
    "byte-level": [*PIECES, *(f"\u0120{piece}" for piece in PIECES), "\u00c3", "\u00a9", "\u0120"],
    "characters": [*(piece for piece in PIECES if len(piece) == 1), "|"],
}


def phrase_list(folder: Path, seed: int) -> PhraseList:
    random_ = random.Random(seed)
    lines = {" ".join(random_.choices(PHRASE_WORDS, k=random_.randint(1, 3))): random_.choice(["", "\t2", "\t0.5"]) for _ in range(4)}
    path = folder / "phrases.txt"
    path.write_text("".join(f"{phrase}{weight}\n" for phrase, weight in lines.items()), encoding="utf-8")
    return PhraseList.load(path)


@pytest.mark.parametrize("style", [*STYLES, "odd"])
def test_scores_are_those_of_single_tokens_and_sum_to_the_words_inside_phrases(tmp_path, style):
    random_ = random.Random(style)
    inside = 0.0
    for seed in range(12):
        phrases = phrase_list(tmp_path, seed)
        tokens = [*(ODD_TEXTS if style == "odd" else token_texts(STYLES[style], style)), None]
        end = len(tokens) - 1
        fusion = PhraseFusion(phrases, tokens, 1.5, [end])
        for _ in range(3):
            state, total, written = fusion.start(), 0.0, b""
            for _ in range(random_.randint(0, 12)):
                row = fusion.scores([PhraseState(None), state])
                np.testing.assert_allclose(row[1], [fusion.score(state, token)[0] for token in range(fusion.size)], atol=1e-12)
                assert not row[0].any()
                token = int(row[1, :end].argmax()) if random_.random() < 0.5 else random_.randrange(end)
                score, state = fusion.score(state, token)
                total, written = total + score, written + (tokens[token] or b"")
            expected = 1.5 * phrases.count(written.decode("utf-8", "replace").split())
            assert total + fusion.end(state) == pytest.approx(expected, abs=1e-9)
            assert fusion.score(state, end) == (fusion.end(state), PhraseState(None))
            inside += expected
    assert inside > 5


def test_letters_of_a_phrase_get_their_shares_which_are_taken_back(tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_text("New York\nNew York City\t2\n")
    fusion = PhraseFusion.load(path, token_texts(["|", *"newyorkcits"], "characters"), 3.0)

    def total(text: str) -> float:
        state, sums = fusion.start(), 0.0
        for letter in text:
            score, state = fusion.score(state, ["|", *"newyorkcits"].index(letter))
            sums += score
        return sums

    letter = 3.0 * 2 * 3 / len("new york city")
    assert total("n") == pytest.approx(letter)
    assert total("new|y") == pytest.approx(5 * letter)
    assert total("new|york") == pytest.approx(8 * letter)  # more than the 6 of "new york"
    assert total("new|york|") == pytest.approx(9 * letter)
    assert total("new|york|city") == pytest.approx(18)
    assert total("new|yorkc") == pytest.approx(0)
    assert total("new|york|t") == pytest.approx(6)
    assert total("|sewn|") == pytest.approx(0)


def test_the_end_of_a_text_is_all_that_is_kept(tmp_path):
    open_phrases = OpenPhrases(phrase_list(tmp_path, 3))
    assert open_phrases.append(Tail(), "zz") == (0.0, Tail((), None))
    assert open_phrases.close(Tail((), None)) == (0.0, Tail())


def test_decoders_of_letters_prefer_the_phrase(tmp_path):
    """flashlight-text's own: the LM's part of each hypothesis is what its words are worth."""
    from flashlight.lib.text.decoder import (
        CriterionType,
        LexiconDecoder,
        LexiconDecoderOptions,
        LexiconFreeDecoder,
        LexiconFreeDecoderOptions,
        SmearingMode,
        Trie,
    )
    from flashlight.lib.text.dictionary import Dictionary

    from attlm_fairseq.decoding.flashlight import FlashlightLM, word_texts

    letters = ["-", "|", *"abc"]
    (tmp_path / "phrases.txt").write_text("cab bac\nbaa\n")
    phrases = PhraseList.load(tmp_path / "phrases.txt")
    frames = np.random.default_rng(5).normal(size=(16, len(letters))).astype(np.float32)
    lm = FlashlightLM(PhraseFusion(phrases, token_texts(letters, special=[0]), 2.0))
    options = LexiconFreeDecoderOptions(300, len(letters), 1e9, 1.0, 0.0, False, CriterionType.CTC)
    found = LexiconFreeDecoder(options, lm, 1, 0, []).decode(frames.ctypes.data, *frames.shape)
    counts = []
    for hypothesis in found:
        merged = [label for place, label in enumerate(hypothesis.tokens) if place == 0 or label != hypothesis.tokens[place - 1]]
        words = "".join(letters[label] for label in merged if label > 0).replace("|", " ").split()
        counts.append(phrases.count(words))
        assert hypothesis.lmScore == pytest.approx(2 * counts[-1], abs=1e-4)
    assert counts[0] > 0

    words = Dictionary(["cab", "bac", "ab", "ca", "baa", "<unk>"])
    lm = FlashlightLM(PhraseFusion(phrases, word_texts(words), 2.0))
    trie = Trie(len(letters), 1)
    for index in range(5):
        trie.insert([*map(letters.index, words.get_entry(index)), 1], index, 0.0)
    trie.smear(SmearingMode.MAX)
    options = LexiconDecoderOptions(300, len(letters), 1e9, 1.0, 0.0, -math.inf, 0.0, False, CriterionType.CTC)
    found = LexiconDecoder(options, trie, lm, 1, 0, 5, [], False).decode(frames.ctypes.data, *frames.shape)
    counts = [phrases.count([words.get_entry(word) for word in hypothesis.words if word >= 0]) for hypothesis in found]
    assert [hypothesis.lmScore for hypothesis in found] == pytest.approx([2 * count for count in counts], abs=1e-4)
    assert counts[0] > 0


def test_espnet_prefers_the_phrase(tmp_path):
    from attlm_fairseq.decoding.espnet import EspnetLM, token_list_texts

    search = pytest.importorskip("espnet.nets.batch_beam_search", reason="ESPnet is not installed").BatchBeamSearch
    import torch
    from espnet.nets.scorer_interface import BatchScorerInterface

    class Even(BatchScorerInterface):
        def batch_score(self, ys, states, xs):
            return torch.zeros(len(ys), len(letters)), [None] * len(ys)

    letters = ["<blank>", "<unk>", "<space>", *"abc", "<sos/eos>"]
    (tmp_path / "phrases.txt").write_text("cab bac\n")
    lm = EspnetLM.of_phrases(tmp_path / "phrases.txt", letters)
    last = len(letters) - 1
    beams = search({"decoder": Even(), "phrases": lm}, {"decoder": 1.0, "phrases": 2.0}, 4, len(letters), last, last)
    with torch.inference_mode():
        best = beams(torch.zeros(5, 3), maxlenratio=-7)[0]
    spelled = token_list_texts(letters)
    assert b"".join(spelled[token] or b"" for token in best.yseq.tolist()) == b"cab bac"
    assert float(best.score) == pytest.approx(4.0)


def test_generate_prefers_the_phrase(tmp_path):
    from attlm_fairseq.decoding.huggingface import FusionLogitsProcessor  # isort: skip (before transformers, see its imports)
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessorList

    pieces = ["<end>", "\u0120a", "b", "\u0120ca", "\u0120ba", "c"]
    (tmp_path / "phrases.txt").write_text("cab bac\n")
    fusion = PhraseFusion.load(tmp_path / "phrases.txt", token_texts(pieces, "byte-level", special=[0]), 30.0, ends=[0])
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)).eval()
    processor = LogitsProcessorList([FusionLogitsProcessor(fusion, prompt_length=1)])
    rows = model.generate(torch.tensor([[1]]), num_beams=3, max_new_tokens=4, logits_processor=processor, pad_token_id=7)
    assert "".join(pieces[token] for token in rows[0, 1:5].tolist()) == "\u0120cab\u0120bac"


@pytest.mark.parametrize("marked", [True, False], ids=["subwords", "words"])
def test_fairseq_prefers_the_phrases(tmp_path, marked):
    pieces = [*"abcde", "ab", "bc", "cd", "de", "ea"]
    subwords = [f"{piece}@@" for piece in pieces] + pieces + ["aa", "bb", "cc", "dd", "ee"]
    units = subwords if marked else WORDS
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("abc de\nbb ea cd\ncc\n" if marked else f"{WORDS[3]} {WORDS[5]}\n{WORDS[8]}\n")
    found = decode(make_task(units, phrases=f"{phrases}=6"), make_model())
    listed, inside = PhraseList.load(phrases), 0.0
    for hypothesis in (hypothesis for of_sentence in found for hypothesis in of_sentence):
        symbols = [make_task(units).target_dictionary[token] if token > 3 else "\ufffd" for token in hypothesis["tokens"].tolist()[:-1]]
        count = listed.count((" ".join(symbols) + " ").replace("@@ ", "").split() if marked else symbols)
        assert hypothesis["lm_scores"].sum().item() == pytest.approx(count, abs=1e-4)
        inside += count
    assert inside > 10
    assert texts(found) != texts(decode(make_task(units), make_model()))


def test_phrases_are_added_to_language_models(tmp_path):
    tokens = token_texts(["|", *"abc"], "characters")
    lms = LookAheadWordLM(LogLinearLM([biased_lm(["cab", "ba"], ["cab", "ba"], penalty=-3.0)]), tokens)
    phrases = PhraseFusion(phrase_list(tmp_path, 1), tokens, 2.0)
    both = FusionSum(lms, phrases)
    assert isinstance(both, ShallowFusion)
    assert both.size == 4
    states = [both.start(), both.score(both.start(), 3)[1]]
    assert states[1][1] == phrases.score(phrases.start(), 3)[1]
    expected = lms.scores([state for state, _ in states]) + phrases.scores([state for _, state in states])
    np.testing.assert_allclose(both.scores(states), expected)
    assert both.end(states[1]) == pytest.approx(lms.end(states[1][0]) + phrases.end(states[1][1]))
    with pytest.raises(ValueError, match="4 and 3 tokens"):
        FusionSum(lms, PhraseFusion(phrase_list(tmp_path, 1), tokens[:3], 2.0))
    with pytest.raises(ValueError, match=r"with the tokens \[\] and \[0\]"):
        FusionSum(lms, PhraseFusion(phrase_list(tmp_path, 1), tokens, 2.0, ends=[0]))
    with pytest.raises(ValueError, match="at least one"):
        FusionSum()
    with pytest.raises(TypeError, match="a fusion is expected"):
        FusionSum(lms, "phrases.txt")
    copied = pickle.loads(pickle.dumps(phrases))
    np.testing.assert_array_equal(copied.scores([copied.start()]), phrases.scores([phrases.start()]))


@pytest.mark.parametrize(
    ("tokens", "text", "possible"),
    [
        (["the ", "pod ", "go ", "rica "], "podgorica", False),
        (["Podgorica "], "podgorica", True),
        ([" z", " abc"], "zabc", False),
        ([" z", "abc"], "zabc", True),
        ([*"newyork", " "], "new york", True),
        ([" new ", " york "], "new york", True),
        ([" o", " '", " brien"], "o'brien", False),
        (["u", "s"], "u.s.", False),
        (["\u5317\u4eac"], "\u5317 \u4eac", True),
        ([" \u5317\u4eac", " abc"], "\u5317 \u4eac abc", True),
        ([" \u5317", "\u4eac", " New"], "new \u5317 \u4eac", True),
        ([], "a", False),
    ],
)
def test_what_tokens_can_write(tokens, text, possible):
    assert Spelling([token.encode() for token in tokens]).can_write(text) == possible
    assert Spelling([bytes([byte]) for byte in range(256)]).can_write(text)


def test_phrases_that_the_tokens_cannot_spell_are_named(tmp_path, caplog):
    path = tmp_path / "phrases.txt"
    letters = token_texts(["|", *"abc'"], "characters")
    path.write_text("Cab\nB'A\nZ\u00fcrich\nb\u00e9\n")
    fusion = PhraseFusion.load(path, letters, 2.0)
    assert fusion.impossible() == ["b\u00e9", "z\u00fcrich"]
    assert f"WARNING: {path}: the decoder's tokens cannot spell 2 of 4 phrases: b\u00e9, z\u00fcrich" in caplog.text
    every_byte = [bytes([byte]) for byte in range(256)]
    assert PhraseFusion.load(path, every_byte, 2.0).impossible() == []
    path.write_text("Z\u00fcrich\n")
    with pytest.raises(InputError, match=r"phrases.txt.* cannot spell 1 of 1 phrases, so none would ever be preferred: z\u00fcrich"):
        PhraseFusion.load(path, letters, 2.0)
    with pytest.raises(InputError, match=r"phrases.txt.* cannot spell 1 of 1"):
        decode(make_task(WORDS, phrases=f"{path}=2"), make_model())
    with pytest.raises(InputError, match=r"--phrases: found 'names.txt', expected PATH=WEIGHT"):
        decode(make_task(WORDS, phrases="names.txt"), make_model())


WRONG = [(math.nan, [], "finite number"), ("2", [], "finite number"), (1.0, [9], "not tokens")]


@pytest.mark.parametrize(("weight", "ends", "match"), WRONG)
def test_wrong_options_are_refused(tmp_path, weight, ends, match):
    with pytest.raises(ValueError, match=match):
        PhraseFusion(phrase_list(tmp_path, 1), [b"a"], weight, ends)
    with pytest.raises(ValueError, match="the text of token 0 is 'a', expected bytes"):
        PhraseFusion(phrase_list(tmp_path, 1), ["a"], 1.0)
    with pytest.raises(IndexError, match="token 1: expected 0 to 0"):
        PhraseFusion(phrase_list(tmp_path, 1), [b"a"], 1.0).score(PhraseState(), 1)


def test_a_fusion_of_phrases_is_not_one_of_words(tmp_path):
    """Words of a lexicon that the phrases do not have score 0, each as a whole."""
    vocabulary = make_task(WORDS).target_vocabulary()
    (tmp_path / "phrases.txt").write_text(f"{WORDS[0]} {WORDS[1]}\n")
    lm = FusionLM.of_phrases(tmp_path / "phrases.txt", vocabulary)
    rows = lm.fusion.scores([lm.fusion.start()])[0]
    first = vocabulary.ids([WORDS[0]])[0]
    assert np.flatnonzero(rows).tolist() == [first]
    assert not TokenFusion(LogLinearLM([]), list(vocabulary.symbols)).scores([TokenFusion(LogLinearLM([]), ["a"]).start()]).any()
