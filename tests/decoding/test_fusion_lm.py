"""Language models of words in fairseq's decoder of subwords."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from lm_files import write_arpa, write_checkpoint
from toy_lms import biased_lm
from translation_models import WORDS, decode, make_dictionary, make_model, make_sample, make_task, texts

from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, SPECIAL_SYMBOLS, UNK, Vocabulary
from attlm_fairseq.decoding import fairseq_lms
from attlm_fairseq.decoding.fairseq_generator import FusedGenerator
from attlm_fairseq.decoding.fairseq_lms import FusedLM, LoadOptions, load_word_lm
from attlm_fairseq.decoding.fusion_lm import FusionLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import UNK_OFFSET
from attlm_fairseq.errors import InputError

PIECES = [*"abcde", "ab", "bc", "cd", "de", "ea"]
BPE = [f"{piece}@@" for piece in PIECES] + PIECES + ["aa", "bb", "cc", "dd", "ee"]
SENTENCEPIECE = PIECES + [f"\u2581{piece}" for piece in PIECES] + ["\u2581aa", "\u2581bb", "\u2581cc", "\u2581dd", "\u2581"]
assert len(BPE) == len(SENTENCEPIECE) == len(WORDS)  # as many as the translation model has
LM_WORDS = sorted({"".join(random.Random(seed).choices("abcde", k=1 + seed % 4)) for seed in range(60)})


def text(units: list[str], hypothesis: dict) -> list[str]:
    """The words that a hypothesis spells."""
    written = "".join(
        f"{symbol} ".replace("@@ ", "") if units is BPE else symbol.replace("\u2581", " ")
        for symbol in (make_dictionary(units)[token] if token > 3 else " \ufffd " for token in hypothesis["tokens"].tolist()[:-1])
    )
    return written.split()


@pytest.mark.parametrize("units", [BPE, SENTENCEPIECE], ids=["bpe", "sentencepiece"])
@pytest.mark.parametrize("kind", ["neural", "kenlm"])
def test_hypotheses_have_the_scores_of_their_words(tmp_path, units, kind):
    """Through beams that move and sentences that leave the batch, whether the last word was whole or not."""
    if kind == "neural":
        path = write_checkpoint(tmp_path / "lm.pt", LM_WORDS, _name="attentive_lstm_lm", attention_score="combined")
        lms = LogLinearLM.load({path: 1.0})
    else:
        path = write_arpa(tmp_path / "lm.arpa", LM_WORDS)
        lms = LogLinearLM.load({path: 1.0})
    found = decode(make_task(units, word_lms=f"{path}=0.5"), make_model())
    known = 0
    for of_sentence in found:
        for hypothesis in of_sentence:
            expected, state = 0.0, lms.start()
            for word in text(units, hypothesis):
                score, state = lms.score(state, word, UNK_OFFSET)
                expected += score
                known += lms.knows(word)
            assert hypothesis["lm_scores"].sum().item() == pytest.approx(expected + lms.end(state), abs=1e-3)
    assert known > 20
    assert texts(found) != texts(decode(make_task(units), make_model()))
    forbidden = decode(make_task(units, word_lms=f"{path}=0.5", word_lm_unk_offset=-1000.0), make_model())
    words = [word for of_sentence in forbidden for word in text(units, of_sentence[0])]
    assert sum(map(lms.knows, words)) >= 0.9 * len(words) > 0  # a hypothesis that is cut at the longest length may end within a word


def test_a_forbidden_word_gains_nothing_from_a_negative_weight(tmp_path):
    """Next to a positive one, for which it is forbidden."""
    path = write_arpa(tmp_path / "lm.arpa", LM_WORDS)
    lms = LogLinearLM.load({path: 1.0})
    task = make_task(BPE, word_lms=f"{path}=0.1:{path}=-0.2", word_lm_unk_offset=-1000.0)
    decode(task, make_model())
    unknown = task.target_dictionary.index("ee")
    assert not lms.knows("ee")
    for fused, offset in zip(task.last_generator.lms, (-1000.0, 0.0), strict=True):
        log_probs, _ = fused.lm.step(fused.lm.start(), torch.tensor([EOS]))
        assert log_probs[0, unknown].item() == pytest.approx(lms.score(lms.start(), "ee", offset)[0], abs=1e-3)


def test_the_device_and_the_precision_are_those_of_the_others(tmp_path, monkeypatch):
    given, load = [], fairseq_lms.load_stateful_lm
    monkeypatch.setattr(fairseq_lms, "load_stateful_lm", lambda path, device, **options: given.append((device, options)) or load(path))
    vocabulary = Vocabulary(make_task(BPE).target_dictionary.symbols)
    load_word_lm(write_checkpoint(tmp_path / "lm.pt", LM_WORDS), vocabulary, LoadOptions(device="cuda:1", precision="bfloat16"))
    assert given == [("cuda:1", {"precision": "bfloat16"})]


def test_threads_share_an_lm(tmp_path):
    vocabulary = Vocabulary(make_task(BPE).target_dictionary.symbols)
    lm = FusionLM.of_words(biased_lm(LM_WORDS, LM_WORDS[:3]), vocabulary)
    sequences = [torch.tensor([EOS, *random.Random(seed).choices(range(UNK + 1, len(vocabulary)), k=30)]) for seed in range(4)]

    def read(tokens: torch.Tensor) -> list[list[float]]:
        states, found = lm.start(), []
        for token in tokens:
            scores, states = lm.step(states, token[None])
            found.append(scores[0].tolist())
        return found

    for lm.kept_rows in (0, 2):
        expected = list(map(read, sequences))
        with ThreadPoolExecutor(4) as threads:
            for found, alone in zip(threads.map(read, sequences * 3), expected * 3, strict=True):
                assert found == alone


def test_a_strongly_biased_lm_forces_its_words():
    sentence = ["abc", "de", "a", "eab"]
    task = make_task(BPE)
    fused = FusedLM("toy", FusionLM.of_words(biased_lm(LM_WORDS + sentence, sentence), Vocabulary(task.target_dictionary.symbols)), 1.0)
    generator = FusedGenerator([make_model()], task.target_dictionary, beam_size=4, max_len_b=12, lms=[fused])
    for of_sentence in generator.generate([make_model()], make_sample()):
        assert text(BPE, of_sentence[0]) == sentence


def test_the_unknown_symbol_is_no_word_of_an_lm_that_knows_the_replacement_character(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", ["ab", "\ufffd", "c"])
    lm = load_word_lm(path, Vocabulary([*SPECIAL_SYMBOLS, "a@@", "b", "c"]), LoadOptions(unk_offset=-7.0)).lm
    log_probs, _ = lm.step(lm.start(), torch.tensor([EOS]))
    lms = LogLinearLM.load({path: 1.0})
    assert log_probs[0, [BOS, UNK]].tolist() == pytest.approx([lms.score(lms.start(), "zzz", -7.0)[0]] * 2, abs=1e-5)


def test_a_target_of_words_is_refused(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    with pytest.raises(InputError, match=r"do not show how they mark words.*--lms"):
        decode(make_task(word_lms=f"{path}=0.5"), make_model())
    for offset in (float("-inf"), float("nan")):
        with pytest.raises(InputError, match="expected a finite number"):
            decode(make_task(BPE, word_lms=f"{path}=0.5", word_lm_unk_offset=offset), make_model())
    with pytest.raises(InputError, match=r"--word-lms: found 'lm.pt'"):
        decode(make_task(BPE, word_lms="lm.pt"), make_model())
