"""Words that occur once tell an LM that has seen a text from one that has not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_runs import run
from lm_files import write_arpa

import attlm_fairseq as attlm
from attlm_fairseq.nbest.corrections.exposure import MIN_RARE, MIN_SCORED, SEEN_COST, rare_word_cost, warning_of_exposure
from attlm_fairseq.nbest.corrections.jackknife import folds_of
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.text import text_pipeline
from attlm_fairseq.verbs.exposure import warn_of_seen_references


class Remembers(Scorer):
    """Words cost their unigram frequency in a large text; those of the sentences that it has seen a part of that."""

    name = "memory"

    def __init__(self, seen=(), part: float = 0.3) -> None:
        self.seen, self.part = {tuple(text.split()) for text in seen}, part

    def score(self, sentences):
        costs = [self.part if tuple(words) in self.seen else 1.0 for words in sentences]
        return [
            SentenceScore((*(-cost * (9.0 if word[0] in "rR" else 2.0) for word in words), -1.0), tuple(word == "r0" for word in words))
            for cost, words in zip(costs, sentences, strict=True)
        ]

    def signature(self):
        return {"kind": "memory"}


def texts(count: int) -> list[str]:
    """Sentences of frequent words, f.., with a word each that occurs once, r..; the LM does not know r0."""
    generator = np.random.default_rng(1)
    return [" ".join([*(f"f{number}" for number in generator.integers(0, 9, 6)), f"r{place}"]) for place in range(count)]


def test_the_cost_of_rare_words_plainly():
    sentences = [text.split() for text in texts(MIN_SCORED)]
    scores = Remembers().score(sentences)
    assert rare_word_cost(zip(sentences, scores, strict=True)) == pytest.approx(9.0 / math.log(7 * MIN_SCORED))
    first = SentenceScore((*scores[0].log_probs[:6], -1.0, *scores[0].log_probs[7:]), scores[0].oov)  # r0, which the LM does not know
    assert rare_word_cost(zip(sentences, [first, *scores[1:]], strict=True)) == pytest.approx(9.0 / math.log(7 * MIN_SCORED))
    again = [*zip(sentences, scores, strict=True)] * 2  # a repeated sentence counts once: its words would not be rare
    assert rare_word_cost(again) == rare_word_cost(again[:MIN_SCORED])
    assert rare_word_cost(again[: MIN_SCORED - 1]) is None
    frequent = [["f1"] * (place + 1) for place in range(MIN_SCORED)]
    assert rare_word_cost(zip(frequent, Remembers().score(frequent), strict=True)) is None
    assert MIN_RARE < MIN_SCORED


@pytest.mark.parametrize("seen", [True, False])
def test_fit_tells_of_an_lm_that_has_seen_the_text(seen, caplog):
    sentences = texts(80)
    attlm.fit_context(sentences, {"memory": Remembers(sentences if seen else [])}, find=["unigram-cache"])
    assert ("memory seems to have seen the text" in caplog.text) == seen
    assert ("What is found is for text that it knows: use other text" in caplog.text) == seen


def test_jackknife_tells_of_lms_in_another_order_than_the_folds(caplog):
    references = texts(240)
    lists = [[text.replace("f1", "f2"), text] for text in references]
    folds = folds_of(attlm.jackknife(lists, references, options=attlm.JackknifeOptions(folds=3)), 3)
    trained = [Remembers(text for text, fold in zip(references, folds, strict=True) if fold != held_out) for held_out in range(3)]
    for lms, told in ((trained, set()), ([trained[1], trained[0], trained[2]], {0, 1})):
        caplog.clear()
        attlm.jackknife(lists, references, {"memory": lms}, attlm.JackknifeOptions(folds=3, ngram=None))
        assert {fold for fold in range(3) if f"memory seems to have seen the references of fold {fold}" in caplog.text} == told
    assert "give the LMs in the order of the folds" in caplog.text


@pytest.mark.parametrize("verb", ["tune", "mix"])
@pytest.mark.parametrize("seen", [True, False])
def test_an_lm_that_has_seen_the_text_is_told(verb, seen, caplog):
    references = texts(80)
    lms = {"memory": Remembers(references if seen else []), "other": Remembers()}
    if verb == "mix":
        attlm.estimate_mixture(references, lms)
    else:
        lists = [[text.replace("f1", "f2"), text] for text in references]
        attlm.tune(lists, references, lms, options=attlm.TuneOptions(folds=0, restarts=0))
    told = [record.getMessage() for record in caplog.records if "seems to have seen" in record.getMessage()]
    assert len(told) == seen
    assert all("memory seems to have seen the " in line and "`attlm jackknife`" in line for line in told)


class Masked(Remembers):
    """Its values know the words on both sides."""

    left_to_right = False


def test_an_lm_that_reads_both_sides_is_not_judged(caplog):
    references = texts(80)
    lists = [[text.replace("f1", "f2"), text] for text in references]
    attlm.tune(lists, references, {"memory": Masked(references)}, options=attlm.TuneOptions(folds=0, restarts=0))
    assert "seems to have seen" not in caplog.text


def test_each_lm_is_judged_by_its_own_text(caplog):
    references = texts(80)
    upper = attlm.LMSpec.of_loaded("upper", Remembers(text.upper() for text in references))
    upper = replace(upper, text=text_pipeline("uppercase"))
    lists = [[text.replace("f1", "f2"), text] for text in references]
    attlm.tune(lists, references, {"upper": upper, "other": Remembers()}, options=attlm.TuneOptions(folds=0, restarts=0))
    assert "upper seems to have seen the references" in caplog.text
    assert "other seems" not in caplog.text


def test_an_lm_next_to_an_ngram_lm_is_judged(tmp_path, caplog):
    references = texts(80)
    lists = [[text.replace("f1", "f2"), text] for text in references]
    lms = {"ngram": write_arpa(tmp_path / "lm.arpa", ["f1", "f2"]), "memory": Remembers(references)}
    attlm.tune(lists, references, lms, options=attlm.TuneOptions(folds=0, restarts=0))
    assert "memory seems to have seen the references" in caplog.text


@pytest.mark.parametrize("seen", [True, False])
def test_lms_of_other_processes_are_loaded_to_be_judged(seen, monkeypatch, caplog):
    references = texts(80)
    monkeypatch.setattr(RunConfig, "load", lambda run, device: [Remembers(references if seen else [])])
    found = SimpleNamespace(lists=SimpleNamespace(references=[[text] for text in references]), loaded=None)
    warn_of_seen_references(found, RunConfig((attlm.LMSpec("memory", checkpoints=(Path("lm.pt"),)),)))
    assert ("memory seems to have seen the references" in caplog.text) == seen


def test_thresholds():
    assert warning_of_exposure("lm", cost=SEEN_COST) is None
    assert "words that occur once cost it 36% of what their frequency says" in warning_of_exposure("lm", cost=0.36)
    assert warning_of_exposure("lm") is warning_of_exposure("lm", share=0.8) is None


def test_an_ngram_lm_that_has_seen_the_text_is_told_by_mix(folder):
    (folder / "seen.txt").write_text("\n".join(texts(80)) + "\n")
    run("ngram", "seen.txt", "-o", "seen.arpa", "--discount-fallback")
    told = run("mix", "seen.txt", "--kenlm", "lm.arpa", "--kenlm", "seen=seen.arpa").stderr
    assert "WARNING: seen has seen the text: all n-grams of 100% of the sentences are in it" in told
    assert "kenlm has seen" not in told


def test_an_lm_of_the_search_that_has_seen_the_lists_is_told(folder, caplog):
    """One that was estimated is estimated again for each fold; one that is given is not."""
    sentences = texts(60)
    lists = [[sentence, sentence.replace("f1", "f2")] for sentence in sentences]
    Path("seen.txt").write_text("\n".join(sentences) + "\n")
    attlm.estimate_ngram("seen.txt", "seen.arpa", 3, attlm.NgramOptions(discount_fallback=True))
    attlm.learn_corrections(lists, sentences).save("own.tsv")
    attlm.learn_corrections(lists, sentences, lm="seen.arpa").save("given.tsv")
    told = {}
    for table in ("own.tsv", "given.tsv"):
        caplog.clear()
        config = attlm.run_config()
        config = replace(config, candidates=CandidateSpec(Path(table)))
        attlm.tune(lists, sentences, config=config, options=attlm.TuneOptions(restarts=0))
        told[table] = "the LM of given.tsv has seen the references" in caplog.text
    assert told == {"own.tsv": False, "given.tsv": True}
