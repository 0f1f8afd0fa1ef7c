"""KenLMScorer against probabilities worked out by hand and against KenLM's own sentence scores."""

from __future__ import annotations

import bz2
import gc
import gzip
import hashlib
import lzma
import math
import os
import pickle
import shutil
import subprocess
import weakref
from functools import cache
from pathlib import Path

import kenlm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attlm_fairseq import magic
from attlm_fairseq.checkpoints.vocabulary import EOS, SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.decoding.ngram_tokens import NgramTokens
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.mixture import MixtureScorer
from attlm_fairseq.scoring.ngrams import kenlm_files
from attlm_fairseq.scoring.ngrams.kenlm import KenLM, KenLMScorer
from attlm_fairseq.scoring.ngrams.kenlm_files import BINARY_ORDER, read_ngram_counts, read_unigrams
from attlm_fairseq.scoring.ngrams.kenlm_programs import find_program
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicy, with_policy

LN_10 = math.log(10.0)

ARPA = """\\data\\
ngram 1=6
ngram 2=5

\\1-grams:
-2.0\t<unk>
-99\t<s>\t-0.3
-1.0\t</s>
-0.5\ta\t-0.2
-0.7\tb\t-0.1
-0.9\ta\u00a0b\t-0.4

\\2-grams:
-0.25\t<s> a
-0.35\ta b
-0.45\tb </s>
-0.55\tb a
-0.15\ta\u00a0b a

\\end\\
"""
WORDS = ["a", "b", "a\u00a0b", "unseen", "<unk>"]


@pytest.fixture(scope="module")
def arpa(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("kenlm") / "lm.arpa"
    path.write_text(ARPA, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def scorer(arpa) -> KenLMScorer:
    return KenLMScorer(arpa)


@pytest.fixture(scope="module")
def binary(arpa) -> Path:
    try:
        program = find_program("build_binary")
    except InputError as error:
        pytest.skip(str(error))
    path = arpa.with_suffix(".bin")
    subprocess.run([program, arpa, path], check=True, capture_output=True)
    return path


@pytest.mark.parametrize(
    ("words", "log10"),
    [
        ([], [-0.3 - 1.0]),
        (["a"], [-0.25, -0.2 - 1.0]),
        (["a", "b"], [-0.25, -0.35, -0.45]),
        (["b", "b", "a"], [-0.3 - 0.7, -0.1 - 0.7, -0.55, -0.2 - 1.0]),
        (["a", "unseen", "a"], [-0.25, -0.2 - 2.0, -0.5, -0.2 - 1.0]),
        (["a\u00a0b", "a"], [-0.3 - 0.9, -0.15, -0.2 - 1.0]),
    ],
)
def test_events_by_hand(scorer, words, log10):
    assert scorer.score([words])[0].log_probs == pytest.approx([value * LN_10 for value in log10], abs=1e-6)


@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=12))
def test_equals_kenlms_own_sentence_score(arpa, scorer, words):
    [score] = scorer.score([words])
    assert score.total == pytest.approx(_kenlm_model(arpa).score(" ".join(words)) * LN_10, abs=1e-4)
    assert score.total == math.fsum(score.log_probs)
    assert len(score.log_probs) == score.words + 1 == len(words) + 1


@cache
def _kenlm_model(path: Path) -> kenlm.Model:
    return kenlm.Model(str(path))


@settings(max_examples=50, deadline=None)
@given(sentences=st.lists(st.lists(st.sampled_from(WORDS), max_size=6), max_size=8), random=st.randoms(use_true_random=False))
def test_a_score_does_not_depend_on_the_neighbours(scorer, sentences, random):
    alone = [scorer.score([words])[0] for words in sentences]
    assert scorer.score(sentences) == alone
    order = list(range(len(sentences)))
    random.shuffle(order)
    assert scorer.score([sentences[i] for i in order]) == [alone[i] for i in order]


def test_it_is_a_scorer(scorer):
    assert isinstance(scorer, Scorer)
    assert scorer.score([]) == []


def test_unknown_words_are_flagged_one_by_one(scorer):
    [score] = scorer.score([["a", "unseen", "b", "<unk>"]])
    assert score.oov == (False, True, False, True)
    assert score.oov_count == 2


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<unk>", "a\0b", "\ud800"])
def test_what_is_no_word_of_the_model_is_an_unknown_word(scorer, symbol):
    assert scorer.score([["a", symbol, "b"]]) == scorer.score([["a", "unseen", "b"]])


@pytest.mark.parametrize("word", ["a\u00a0b", "a\u2028b", "a\u3000b", "\u00a0", "a\x1cb", "a\x85b"])
def test_white_space_that_kenlm_does_not_know_does_not_split_a_word(scorer, word):
    [score] = scorer.score([["a", word, "b"]])
    assert len(score.log_probs) == 4
    assert score.oov == (False, word != "a\u00a0b", False)


@pytest.mark.parametrize("word", ["", " ", "a b", "a\tb", "a\n", "\r"])
def test_what_is_no_word_is_refused(scorer, word):
    with pytest.raises(InputError, match=r"found the word .*expected a string that is not empty"):
        scorer.score([["a", word]])


def test_a_pickled_model_is_the_one_that_was_loaded(arpa, tmp_path, monkeypatch):
    """Its file is read again, from the folder where it was named, and not if it has changed."""
    shutil.copy(arpa, tmp_path / "lm.arpa")
    monkeypatch.chdir(tmp_path)
    scorer = KenLMScorer(Path("lm.arpa"))
    pickled = pickle.dumps(scorer)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickled).score([["a", "b"]]) == scorer.score([["a", "b"]])
    assert pickle.loads(pickled).signature() == scorer.signature()
    (tmp_path / "lm.arpa").write_text(arpa.read_text().replace("-0.5", "-0.6") + "\n")
    with pytest.raises(InputError, match=r"lm\.arpa: has changed since it was loaded"):
        pickle.loads(pickled)


def test_signature_identifies_the_model(arpa, scorer):
    signature = scorer.signature()
    assert signature["sha256"] == hashlib.sha256(arpa.read_bytes()).hexdigest()
    assert signature["order"] == 2
    assert signature["vocabulary"] == 6
    assert signature["ngrams"] == [6, 5]
    assert signature["ln p(<unk>)"] == pytest.approx(-2.0 * LN_10)
    assert "<unk>" in signature["OOV policy"]


def test_compressed_and_binary_models_score_the_same(arpa, binary, scorer, tmp_path):
    compressed = tmp_path / "lm.arpa.gz"
    compressed.write_bytes(gzip.compress(arpa.read_bytes(), mtime=0))
    sentences = [["a", "b"], [], ["b", "unseen", "a\u00a0b", "a"]]
    for path in (binary, compressed):
        assert KenLMScorer(path).score(sentences) == scorer.score(sentences)
        assert read_ngram_counts(path) == (6, 5)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_kenlm_without_zlib_reads_compressed_models_too(pack, arpa, scorer, tmp_path, monkeypatch):
    def without_zlib(path, config, model=kenlm.Model):
        if Path(os.fsdecode(path)).read_bytes().startswith((magic.GZIP, magic.BZIP2, magic.XZ)):
            raise OSError("This looks like a gzip file but gzip support was not compiled in.")
        return model(path, config)

    monkeypatch.setattr(kenlm, "Model", without_zlib)
    packed = tmp_path / "lm.arpa.packed"
    packed.write_bytes(pack(arpa.read_bytes()))
    sentences = [["a", "b"], [], ["b", "unseen", "a\u00a0b", "a"]]
    assert KenLMScorer(packed).score(sentences) == scorer.score(sentences)
    packed.write_bytes(pack(b"hello\n"))
    with pytest.raises(InputError, match=r"lm.arpa.packed: cannot be loaded as an ARPA file or a KenLM binary file: .*hello"):
        KenLMScorer(packed)
    damaged = bytearray(pack(arpa.read_bytes()))
    damaged[60:100] = bytes(byte ^ 0x5A for byte in damaged[60:100])
    packed.write_bytes(damaged)
    for read in (KenLMScorer, read_ngram_counts, read_unigrams):
        with pytest.raises(InputError, match=r"lm.arpa.packed: "):
            read(packed)
    packed.write_bytes(pack(arpa.read_bytes())[:-10])
    with pytest.raises(InputError, match=r"lm.arpa.packed: cannot be loaded as an ARPA file or a KenLM binary file: "):
        KenLMScorer(packed)


def test_loading_says_nothing(arpa, capfd):
    KenLMScorer(arpa)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "End of file"),
        (b"hello\n", "hello"),
        (b"\xff\xfehello\n", "xff"),
        (ARPA.encode()[:150], "End of file"),
        (ARPA.replace("ngram 2=5", "ngram 2=4").encode(), "Expected \\end\\"),
        (ARPA.replace("-0.35", "0.35").encode(), "ositive"),
        (ARPA.replace("ngram 1=6", "ngram 1=x").encode(), "Bad count x"),
        (gzip.compress(ARPA.encode(), mtime=0)[:60], ""),
    ],
)
def test_a_broken_model_is_one_clear_line(tmp_path, content, found):
    path = tmp_path / "lm.arpa"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        KenLMScorer(path)
    message = str(error.value)
    assert message.startswith(f"{path}: cannot be loaded as an ARPA file or a KenLM binary file: ")
    assert found in message
    assert "\n" not in message
    assert " threw " not in message


def test_a_truncated_binary_model_is_one_clear_line(binary, tmp_path):
    path = Path(shutil.copy(binary, tmp_path))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"cannot be loaded.*size 200"):
        KenLMScorer(path)


def test_a_missing_model_is_named(tmp_path):
    for path in (tmp_path / "absent.arpa", tmp_path):
        with pytest.raises(InputError, match="is not a file"):
            KenLMScorer(path)


def test_a_header_without_end_is_refused(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text("\\data\\\nngram 1=3\n")
    with pytest.raises(InputError, match="no readable header"):
        read_ngram_counts(path)


@pytest.mark.parametrize(("place", "value", "how"), [(BINARY_ORDER, 0, "Segmentation fault"), (95, 255, "Floating point exception")])
def test_a_binary_that_ends_its_process_is_one_clear_line(binary, tmp_path, place, value, how):
    """An order of 0, and a table of as many places as no number says: KenLM does not check them."""
    damaged = bytearray(binary.read_bytes())
    damaged[place] = value
    (tmp_path / "lm.bin").write_bytes(damaged)
    with pytest.raises(InputError, match=rf"lm.bin: is a damaged KenLM binary file: KenLM ends with it \({how}\)"):
        KenLMScorer(tmp_path / "lm.bin")


def test_a_binary_on_which_kenlm_never_ends_is_one_clear_line(binary, monkeypatch):
    """The trial ends at its limit of CPU time, however long the machine let it wait."""
    monkeypatch.setattr(kenlm_files, "_TRIAL", kenlm_files._TRIAL + "\nwhile True: pass")
    monkeypatch.setattr(kenlm_files, "TRIAL_CPU_SECONDS", 0.05)
    with pytest.raises(InputError, match=r"is a damaged KenLM binary file: KenLM ends with it \(no answer in 0.05 seconds of CPU time\)"):
        KenLMScorer(binary)


def test_probabilities_above_one_are_refused(tmp_path):
    (tmp_path / "lm.arpa").write_text(ARPA.replace("-0.5\ta\t-0.2", "-0.5\ta\t99999999"))
    with pytest.raises(InputError, match=r"lm.arpa: gives ln p = 4.605e\+08 to a sentence of 2 words, expected at most 0: .* damaged"):
        KenLMScorer(tmp_path / "lm.arpa").score([["b"], ["a", "a"]])


def test_decoders_refuse_probabilities_above_one_too(tmp_path):
    """However they ask: for a word, for the words after several histories, and for a token of a fairseq decoder."""
    (tmp_path / "lm.arpa").write_text(ARPA.replace("-0.5\ta\t-0.2", "-0.5\ta\t99999999"))
    lm = KenLM(tmp_path / "lm.arpa")
    start = lm.start()
    after_a = lm.score(start, "a")[1]
    tokens = NgramTokens(lm, Vocabulary([*SPECIAL_SYMBOLS, "a", "b"]))
    assert np.isfinite(lm.log_probs([start], ["a", "b"])).all()  # what is not damaged is answered
    for ask in (
        lambda: lm.score(after_a, "a"),
        lambda: lm.log_probs([start, after_a], ["b", "a"]),
        lambda: tokens.score(tokens.context([EOS, len(SPECIAL_SYMBOLS)]), len(SPECIAL_SYMBOLS)),
    ):
        with pytest.raises(InputError, match=r"lm.arpa: gives ln p = 2.303e\+08 to a word, expected at most 0: .* damaged"):
            ask()


@pytest.mark.parametrize("unk", ["", "-99\t<unk>\n"])
def test_a_model_without_unk_says_so_once_an_unknown_word_was_scored(tmp_path, unk):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA.replace("-2.0\t<unk>\n", unk).replace("ngram 1=6", f"ngram 1={6 if unk else 5}"))
    plain = KenLMScorer(path, "news")
    spread = with_policy(KenLMScorer(path, "news"), OOVPolicy("spread", 100.0))
    priced = with_policy(KenLMScorer(path, "news"), OOVPolicy("penalty", -12.0))
    mixed = with_policy(MixtureScorer([KenLMScorer(path, "a"), KenLMScorer(path, "b")], [1.0, 2.0], "mix"), OOVPolicy("penalty", -9.0))
    for scorer in (plain, spread, priced, mixed):
        scorer.score([["a", "b"]])
        assert scorer.notes() == []
        scorer.score([["a", "unseen"]])
    [line] = plain.notes()
    assert line.startswith("WARNING: news: lm.arpa has no probability for <unk>, so each unknown word gets ln p = -2")
    assert "`--oov news=penalty:-12` (SRILM leaves such words out, as penalty:0 does)" in line
    plain.score([["a", "b"]])
    assert plain.notes() == []  # the next text has no unknown word
    assert plain.score([["unseen"]])[0].log_probs[0] < -227  # what the line says is what it does
    assert spread.notes() == [line]
    assert priced.notes() == mixed.notes() == []


def test_a_model_with_unk_has_no_notes(arpa):
    scorer = KenLMScorer(arpa)
    scorer.score([["unseen"]])
    assert scorer.notes() == []


def test_words_without_probability_are_unknown(tmp_path):
    """SRILM writes -99 for them, and leaves them out of its perplexity."""
    (tmp_path / "lm.arpa").write_text(ARPA.replace("-0.7\tb\t-0.1", "-99\tb\t-0.1"))
    [score] = KenLMScorer(tmp_path / "lm.arpa").score([["a", "a", "b"]])
    assert score.oov == (False, False, False)  # a bigram has a probability for it
    [score] = KenLMScorer(tmp_path / "lm.arpa").score([["b", "a"]])
    assert score.oov == (True, False)
    assert score.log_probs[0] == pytest.approx((-99 - 0.3) * LN_10)
    (tmp_path / "lm.arpa").write_text(ARPA.replace("-0.7\tb\t-0.1", "-99\tb\t-0.1").replace("-99\t<s>\t-0.3", "-99\t<s>\t0.3"))
    [score] = KenLMScorer(tmp_path / "lm.arpa").score([["b", "a"]])
    assert score.oov == (True, False)  # after a back-off above 0, too


def test_a_model_without_a_sentence_end_is_refused(tmp_path):
    """KenLM would take each end for an unknown word."""
    (tmp_path / "lm.arpa").write_text(ARPA.replace("</s>", "</S>"))
    subprocess.run([find_program("build_binary"), "-s", tmp_path / "lm.arpa", tmp_path / "lm.bin"], check=True, capture_output=True)
    with pytest.raises(InputError, match=r"lm\.bin: has no </s>, so it cannot score the end of a sentence"):
        KenLMScorer(tmp_path / "lm.bin")


def test_a_model_is_freed_with_the_last_use_of_it(arpa):
    """Not when Python next looks for cycles: programs that load large models in a loop would hold several."""
    model = KenLM(arpa)
    model.score(model.start(), model.token("a"))
    seen = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert seen() is None
    finally:
        gc.enable()
