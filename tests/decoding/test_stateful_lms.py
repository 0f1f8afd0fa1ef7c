"""Neural models and KenLM over histories: against full passes and sentence scores, with any cache, freeing what is dropped."""

from __future__ import annotations

import gc
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from lm_files import write_checkpoint
from toy_lms import random_lm, write_arpa, zero_lm

from attlm_fairseq.checkpoints.vocabulary import SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.decoding.cache import HistoryCache
from attlm_fairseq.decoding.fairseq_lms import load_lm
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLM, KenLMScorer
from attlm_fairseq.scoring.ngrams.kenlm_files import read_unigrams

WORDS = [f"w{number}" for number in range(12)]
MODELS = [*FAMILIES, "combined"]
EVERYTHING, LITTLE, NOTHING = 1 << 30, 1200, 0  # bytes; a distribution alone is 64


def checkpoint(folder, family: str = "combined", seed: int = 1):
    options = {"_name": "attentive_lstm_lm", "attention_score": "combined"} if family == "combined" else {"_name": family}
    return write_checkpoint(folder / f"{family}{seed}" / "lm.pt", WORDS, seed, **options)


@pytest.fixture
def arpa(tmp_path):
    return write_arpa(tmp_path / "lm.arpa", WORDS)


def full_pass(lm: StatefulNeuralLM, words: list[str]) -> np.ndarray:
    with torch.inference_mode():
        logits, _ = lm.lm.model(torch.tensor([[lm.lm.eos, *lm.vocabulary.ids(words)]]))
    return torch.log_softmax(logits[0, -1], dim=-1).numpy()


def extend(lm, history, words):
    for word in words:
        history = lm.score(history, lm.token(word))[1]
    return history


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("cache_bytes", [EVERYTHING, LITTLE, NOTHING])
def test_cached_is_the_full_prefix_over_random_reorderings(tmp_path, family, cache_bytes):
    lm = StatefulNeuralLM.load(checkpoint(tmp_path, family), cache_bytes=cache_bytes)
    random_ = random.Random(1)
    beam = [((), lm.start())]
    everything = lm.tokens([*WORDS, "unheard-of"])
    for _ in range(12):
        rows = lm.log_probs([history for _, history in beam], everything)
        for (words, _), row in zip(beam, rows, strict=True):
            np.testing.assert_allclose(row, full_pass(lm, list(words))[everything], atol=1e-5)
        assert lm.cache.bytes + lm.states.bytes <= cache_bytes
        beam = [beam[place] for place in random_.choices(range(len(beam)), k=random_.randint(1, 6))]
        # some go on by different words, so that lengths mix; some stay
        beam = [
            ((*words, word), extend(lm, history, [word])) if random_.random() < 0.7 else (words, history)
            for words, history in beam
            for word in random_.choices(WORDS, k=1)
        ]


def test_each_distribution_is_computed_once(tmp_path):
    lm = StatefulNeuralLM.load(checkpoint(tmp_path))
    histories = [extend(lm, lm.start(), words) for words in (["w1", "w2"], ["w1", "w3"], ["w1", "w2"], [])]
    assert histories[0] is histories[2]
    assert histories[3] is lm.start()
    for _ in range(3):
        for history in histories:
            for word in WORDS:
                lm.score(history, lm.token(word))
        lm.log_probs(histories, lm.tokens(WORDS))
    assert lm.computed == 4  # "", "w1", "w1 w2", "w1 w3"


def test_a_distribution_that_has_left_is_one_step_away(tmp_path):
    """With a large vocabulary a distribution is many times as large as the state that it is computed from."""
    words = [f"w{number}" for number in range(2000)]
    path = write_checkpoint(tmp_path / "lm.pt", words)
    lm = StatefulNeuralLM.load(path, cache_bytes=60_000)  # five distributions of 8 kB; states of 200 bytes and more
    histories = [lm.start()]
    for word in words[:30]:
        histories.append(lm.score(histories[-1], lm.token(word))[1])
    assert lm.computed == 30  # all but the last
    for number in range(1, 4):
        for history in reversed(histories):
            lm.score(history, lm.end)
        assert lm.computed <= 30 + 31 * number
    assert len(lm.cache) == 5
    roomy = StatefulNeuralLM.load(path)
    copies = [extend(roomy, roomy.start(), words[:place]) for place in range(31)]
    tokens = lm.tokens(words)
    np.testing.assert_allclose(lm.log_probs(histories, tokens), roomy.log_probs(copies, tokens), atol=1e-5)


@pytest.mark.parametrize("family", ["combined", "amsrn_lm"])
def test_a_state_that_has_left_is_one_pass_away(tmp_path, family):
    """The memories of these grow with every word: of a long sentence the cache holds few states, or none."""
    lm = StatefulNeuralLM.load(checkpoint(tmp_path, family), cache_bytes=LITTLE)
    history = extend(lm, lm.start(), ["w1", "w2", "w3"] * 100)
    assert lm.computed == 300  # every history but the last was asked for, once
    reads = []
    lm.lm.read, read = lambda states, tokens: reads.append(tokens.size(1)) or read(states, tokens), lm.lm.read
    log_probs = lm.log_probs([history], lm.tokens(WORDS))
    assert lm.computed == 301
    assert len(reads) == 1
    np.testing.assert_allclose(log_probs[0], full_pass(lm, ["w1", "w2", "w3"] * 100)[lm.tokens(WORDS)], atol=1e-5)


def test_hypotheses_beyond_the_cache_are_read_from_what_they_share(tmp_path):
    """A beam of 4 whose last 3 words differ, over a cache that comes to hold fewer states than that."""
    lm, roomy = (StatefulNeuralLM.load(checkpoint(tmp_path), cache_bytes=cache_bytes) for cache_bytes in (100_000, EVERYTHING))
    read_words = 0

    def counted(states, tokens):
        nonlocal read_words
        read_words += tokens.size(1)
        return read(states, tokens)

    lm.lm.read, read = counted, lm.lm.read
    beams = {lm: [lm.start()], roomy: [roomy.start()]}
    for step in range(200):
        for each, beam in beams.items():
            grown = [extend(each, history, [word]) for history in beam for word in ("w1", "w2")][:4]
            beams[each] = grown[:1] if step % 4 == 3 else grown
    assert lm.computed == roomy.computed
    assert lm.states.bytes < 5 * 200 * 24 * 4  # five states: the parents and children of a beam are eight
    assert 0 < read_words < 20 * 200
    np.testing.assert_allclose(lm.log_probs(beams[lm], lm.tokens(WORDS)), roomy.log_probs(beams[roomy], lm.tokens(WORDS)), atol=1e-5)


def test_the_cache_can_be_made_larger_or_smaller(tmp_path):
    for cache_bytes, kept in ((EVERYTHING, 12), (NOTHING, 0)):
        lms = LogLinearLM.load({checkpoint(tmp_path): 0.5, checkpoint(tmp_path, seed=2): 0.5}, cache_bytes=cache_bytes)
        state = lms.start()
        for word in WORDS:
            state = lms.score(state, word)[1]
        lms.end(state)
        assert [len(lm.cache) for lm in lms.lms] == [kept, kept]


def test_dropped_histories_take_their_values_along(tmp_path):
    lm = StatefulNeuralLM.load(checkpoint(tmp_path))
    history = extend(lm, lm.start(), ["w1", "w2", "w3"])
    other = extend(lm, lm.start(), ["w1", "w4"])
    lm.log_probs([history, other], lm.tokens(WORDS))
    assert (len(lm.cache), len(lm.states)) == (4, 4)
    del history
    gc.collect()
    assert (len(lm.cache), len(lm.states)) == (2, 2)  # w1, w1 w4
    del other
    gc.collect()
    assert (lm.cache.bytes, lm.states.bytes, len(lm._histories)) == (0, 0, 0)
    before = lm.computed
    lm.score(lm.start(), lm.token("w1"))
    assert lm.computed == before  # the sentence start stays


def test_least_recently_used_values_leave_first():
    class Key:
        pass

    cache, keys = HistoryCache(30), [Key() for _ in range(4)]
    for key in keys[:3]:
        cache.put(key, key, 10)
    assert cache.get(keys[0]) is keys[0]
    cache.put(keys[3], keys[3], 10)
    assert [cache.get(key) is key for key in keys] == [True, False, True, True]
    cache.put(keys[0], keys[0], 31)
    assert [cache.get(key) is key for key in keys] == [False, False, True, True]  # what does not fit makes nothing leave
    assert cache.bytes == 20


def test_no_other_history_gets_a_value_that_an_interruption_kept(monkeypatch):
    """A signal's exception, raised while a history goes, is lost, and so is the call that drops its value."""

    class Key:
        pass

    class Interrupted:
        def __enter__(self) -> None:
            raise KeyboardInterrupt

        def __exit__(self, *error: object) -> None: ...

    lost = []
    monkeypatch.setattr("sys.unraisablehook", lost.append)
    cache, key = HistoryCache(30), Key()
    cache.put(key, "of the one that goes", 10)
    place, lock, cache._lock = id(key), cache._lock, Interrupted()
    del key
    cache._lock = lock
    assert len(lost) == len(cache) == 1
    others = [Key() for _ in range(100)]
    [other] = [other for other in others if id(other) == place]
    assert cache.get(other) is None
    cache.put(other, "its own", 10)
    assert cache.get(other) == "its own"
    assert (len(cache), cache.bytes) == (1, 10)


class OftenSwitching:
    """Has threads take turns as often as the interpreter can."""

    def __enter__(self) -> None:
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)

    def __exit__(self, *error: object) -> None:
        sys.setswitchinterval(self.interval)


def test_threads_may_share_a_cache():
    class Key:
        pass

    cache = HistoryCache(4000)

    def work(seed: int) -> None:
        random_, keys = random.Random(seed), []
        for _ in range(20_000):
            keys.append(Key())
            cache.put(keys[-1], None, 100)
            cache.get(random_.choice(keys))
            if len(keys) > 20:
                keys.pop(random_.randrange(20))

    with OftenSwitching(), ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert (len(cache), cache.bytes) == (0, 0)


def test_threads_may_share_a_language_model(tmp_path):
    path = checkpoint(tmp_path)
    lms = LogLinearLM.load({path: 1.0}, cache_bytes=3000)

    def work(seed: int) -> list[tuple[list[str], float]]:
        random_ = random.Random(seed)
        sentences = [random_.choices(WORDS, k=6) for _ in range(40)]
        return [(words, sentence_score(lms, words)) for words in sentences]

    with OftenSwitching(), ThreadPoolExecutor(4) as pool:
        found = [pair for pairs in pool.map(work, range(4)) for pair in pairs]
    expected = [score.total for score in NeuralScorer.load([path]).score([words for words, _ in found])]
    assert [score for _, score in found] == pytest.approx(expected, abs=1e-4)
    [lm] = lms.lms
    gc.collect()
    assert (lm.cache.bytes, lm.states.bytes) == (0, 0)


def sentence_score(lm: LogLinearLM, words, unk_offset=0.0) -> float:
    total, state = 0.0, lm.start()
    for word in words:
        score, state = lm.score(state, word, unk_offset)
        total += score
    return total + lm.end(state)


SENTENCES = [[], ["w1"], ["w3", "unheard-of", "w1"], ["w0", "w0", "</s>", "w5"], ["w2", "a b", "w1", "<unk>"]]


def test_scores_are_those_of_the_scorers(tmp_path, arpa):
    path = checkpoint(tmp_path)
    sentences = [words for words in SENTENCES if "a b" not in words]  # which KenLMScorer refuses, rightly
    for lm, scorer in (
        (LogLinearLM.load({path: 1.0}), NeuralScorer.load([path])),
        (LogLinearLM.load({arpa: 1.0}), KenLMScorer(arpa)),
    ):
        expected = [score.total for score in scorer.score(sentences)]
        assert [sentence_score(lm, words) for words in sentences] == pytest.approx(expected, abs=1e-4)


def test_weights_add_up(tmp_path, arpa):
    path, other = checkpoint(tmp_path), checkpoint(tmp_path, "averaging_lstm_lm", seed=2)
    for words in SENTENCES:
        one, two, ngram = (
            sentence_score(lm, words) for lm in (LogLinearLM.load({path: 1}), LogLinearLM.load({other: 1}), LogLinearLM.load({arpa: 1}))
        )
        together = LogLinearLM.load({path: 0.5, other: -0.25, arpa: 2})
        assert sentence_score(together, words) == pytest.approx(0.5 * one - 0.25 * two + 2 * ngram, abs=1e-4)
        halves = LogLinearLM([StatefulNeuralLM.load(path), StatefulNeuralLM.load(path)], [0.35, 0.35])
        assert sentence_score(halves, words) == pytest.approx(sentence_score(LogLinearLM.load({path: 0.7}), words), abs=1e-9)


def test_one_file_may_be_named_alone_and_is_recognised(tmp_path, arpa):
    path = checkpoint(tmp_path)
    for given, expected in ((path, {path: 1.0}), (str(path), {path: 1.0}), (str(arpa), {arpa: 1.0})):
        assert sentence_score(LogLinearLM.load(given), ["w1"]) == sentence_score(LogLinearLM.load(expected), ["w1"])
    assert sentence_score(LogLinearLM.load(arpa), ["w1"]) == sentence_score(LogLinearLM.load(str(arpa)), ["w1"])
    with pytest.raises(TypeError, match="a mapping of paths to weights"):
        LogLinearLM.load([path])
    with pytest.raises(ValueError, match="a file is given twice"):
        LogLinearLM.load({path: 0.5, str(path): 0.2})
    with pytest.raises(ValueError, match="finite numbers"):
        LogLinearLM.load({path: "0.3"})
    with pytest.raises(InputError, match=r"absent.pt: there is no such file"):
        LogLinearLM.load("absent.pt")
    with pytest.raises(
        InputError, match=r"a.pt:b.pt: there is no such file, and decoders take no ensembles joined by ':': give each LM a weight"
    ):
        LogLinearLM.load("a.pt:b.pt")


def test_histories_of_an_n_gram_model_have_its_order(tmp_path, arpa):
    neural, ngram = StatefulNeuralLM.load(checkpoint(tmp_path)), KenLM(arpa)
    assert (neural.order, ngram.order) == (None, 2)
    assert LogLinearLM([ngram, ngram]).order == 2
    assert LogLinearLM([ngram, neural]).order is None
    assert LogLinearLM([ngram], segment=[list]).order is None  # of subwords


def test_an_lm_of_weight_zero_is_not_asked():
    asked, silent = random_lm(WORDS), zero_lm(WORDS)
    lm = LogLinearLM([asked, silent], [1.0, 0.0])
    assert sentence_score(lm, ["w1"]) == pytest.approx(sentence_score(LogLinearLM([asked]), ["w1"]))
    assert silent.asked == 0
    assert sentence_score(LogLinearLM([silent], [0.0]), ["w1"]) == 0.0


def test_the_offset_of_unknown_words_counts_for_each_lm_that_does_not_know_one(tmp_path, arpa):
    lm = LogLinearLM([StatefulNeuralLM.load(checkpoint(tmp_path)), KenLM(arpa), random_lm([*WORDS, "new"])], [0.5, 0.25, 2.0])
    words = ["w1", "new", "w2", "newer"]
    assert sentence_score(lm, words, -10.0) == pytest.approx(sentence_score(lm, words) - 10 * (0.75 + 2.75), abs=1e-5)


def test_an_lm_of_subwords_scores_words_by_their_parts():
    parts = random_lm(["a@@", "b", "c"])
    lm = LogLinearLM([parts, random_lm(["ab", "c"], 2)], [1.0, 0.5], [lambda word: ["a@@", "b"] if word == "ab" else [word], None])
    expected = sentence_score(LogLinearLM([parts]), ["a@@", "b", "c"]) + 0.5 * sentence_score(
        LogLinearLM([random_lm(["ab", "c"], 2)]), ["ab", "c"]
    )
    assert sentence_score(lm, ["ab", "c"]) == pytest.approx(expected)
    assert lm.knows("ab")
    assert not lm.knows("d")


def test_distributions_of_kenlm_are_its_scores(arpa):
    lm = KenLM(arpa)
    histories = [extend(lm, lm.start(), words) for words in ([], ["w1"], ["unheard-of"], ["w1", "w1"])]
    assert histories[1] is histories[3]  # a bigram model remembers no more
    rows = lm.log_probs(histories, lm.tokens([*WORDS, "unheard-of"]))
    for history, row in zip(histories, rows, strict=True):
        assert row.tolist() == [lm.score(history, lm.token(word))[0] for word in [*WORDS, "unheard-of"]]
    assert sorted(lm.words()) == sorted(WORDS)


def test_a_binary_file_cannot_list_its_words(tmp_path):
    path = tmp_path / "lm.bin"
    path.write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(100))
    with pytest.raises(InputError, match="binary file"):
        read_unigrams(path)


@pytest.mark.parametrize(("weights", "message"), [([1.0], "as many weights"), ([1.0, float("nan")], "finite")])
def test_unusable_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        LogLinearLM([zero_lm(WORDS), zero_lm(WORDS)], weights)


def test_no_word_gains_from_being_forbidden_or_missing(tmp_path, arpa):
    """To an LM with a negative weight; and one whose file has no ``<unk>`` would reward each such word by hundreds."""
    lm = LogLinearLM([random_lm([*WORDS, "new"]), KenLM(arpa)], [1.0, -0.5])
    assert sentence_score(lm, ["w1", "new"], -1000.0) == sentence_score(lm, ["w1", "new"])
    assert sentence_score(lm, ["w1", "new"], -10.0) == pytest.approx(sentence_score(lm, ["w1", "new"]) + 5)
    lines = [line.replace("ngram 1=", "ngram 1=-") if line.startswith("ngram 1=") else line for line in arpa.read_text().splitlines()]
    lines = [line for line in lines if "<unk>" not in line]
    count = next(line for line in lines if line.startswith("ngram 1=")).partition("-")[2]
    without = tmp_path / "without.arpa"
    without.write_text("\n".join(lines).replace(f"ngram 1=-{count}", f"ngram 1={int(count) - 1}") + "\n")
    assert KenLM(without).lacks_unknown
    assert not KenLM(arpa).lacks_unknown
    with pytest.raises(InputError, match=r"without\.arpa: has no probability for <unk>, and the weight -0\.2"):
        LogLinearLM([KenLM(arpa), KenLM(without)], [0.5, -0.2])
    with pytest.raises(InputError, match="has no probability for <unk>"):
        load_lm(without, Vocabulary([*SPECIAL_SYMBOLS, *WORDS])).weighted(-0.2)


def test_a_word_without_a_probability_is_unknown(tmp_path, arpa):
    """SRILM writes -99. An LM with a negative weight would reward it by hundreds."""
    lines = arpa.read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if line.split("\t")[1:2] == ["w3"])
    lines[place] = "\t".join(["-99", *lines[place].split("\t")[1:]])
    without = tmp_path / "without.arpa"
    without.write_text("\n".join(lines) + "\n")
    lm, unknown = KenLM(without), KenLM(without).token("unheard-of")
    assert not lm.knows("w3")
    assert "w3" not in lm.words()
    assert lm.score(lm.start(), lm.token("w3"))[0] == lm.score(lm.start(), unknown)[0] > -50
    fused = load_lm(without, Vocabulary([*SPECIAL_SYMBOLS, *WORDS]))
    assert fused.missing == 1
    assert LogLinearLM([lm], [1.0]).score((lm.start(),), "w3", -1000.0)[0] < -1000


def test_what_is_no_word_is_not_scored_as_one(arpa):
    lms = LogLinearLM([KenLM(arpa)])
    for word in (3, b"w3", None):
        with pytest.raises(TypeError, match="expected a text, such as 'word'; a DecoderLM takes ids"):
            lms.score(lms.start(), word)
    for offset in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"unk_offset is {offset}"):
            lms.score(lms.start(), "w3", offset)
    nothing = LogLinearLM([KenLM(arpa)], segment=[lambda word: []])
    assert nothing.score(nothing.start(), "w3")[0] == lms.score(lms.start(), "<unk>")[0]
    assert not nothing.knows("w3")
    assert LogLinearLM([KenLM(arpa)], np.array([0.5])).weights == (0.5,)
    for arguments, message in (
        ((KenLM(arpa),), "expected a list of LMs"),
        (([KenLM(arpa)], 0.3), "weights is 0.3: expected a list"),
        (([KenLM(arpa)], [0.3], ["x"]), "expected a function or None for each LM"),
    ):
        with pytest.raises(TypeError, match=message):
            LogLinearLM(*arguments)


def test_a_kenlm_file_that_has_changed_is_not_saved(arpa, tmp_path, monkeypatch):
    monkeypatch.chdir(arpa.parent)
    lm = KenLM(arpa.name)
    monkeypatch.chdir("/")
    assert lm.words()
    lm.save(tmp_path / "saved.arpa")
    write_arpa(arpa, WORDS[:5])
    with pytest.raises(InputError, match="has changed since it was loaded"):
        lm.save(tmp_path / "new.arpa")
