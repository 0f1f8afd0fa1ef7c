"""Caches against loops over their equations, and the search for their settings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cli_runs import folder, refused, run  # noqa: F401 - folder is a fixture
from foreign_lms import WORDS, write_bert
from lm_files import VARIANTS, write_arpa, write_checkpoint

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.scoring.context.cache import CacheScorer, NeuralCache, UnigramCache, parse_neural_cache, parse_unigram_cache
from attlm_fairseq.scoring.context.context_walk import SentenceWindow
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.context.document_events import Events, cached_in
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer

HISTORY = [["the", "cat", "sat"], [], ["a", "zebra", "ran", "on", "the", "mat"], ["the", "cat"]]
SENTENCES = [["the", "cat", "ran"], ["a", "yak", "the", "the"], [], ["the", "cat"]]


def loop(log_probs, words, features, cache, first):
    """Grave, Joulin and Usunier (2017), event after event: ``words`` and ``features`` of a whole text; results from event ``first`` on."""
    found = []
    for t in range(first, len(words)):
        past = range(max(0, t - cache.size), t)
        if isinstance(cache, NeuralCache):
            a = [math.exp(cache.theta * float(np.dot(features[i], features[t]))) for i in past]
        else:
            a = [cache.decay ** (t - 1 - i) for i in past]
        p = math.exp(log_probs[t])
        if past:
            p_cache = sum(a_i for a_i, i in zip(a, past, strict=True) if words[i] == words[t]) / sum(a)
            p = (1 - cache.weight) * p + cache.weight * p_cache
        found.append(math.log(p))
    return found


@pytest.mark.parametrize("cache", [NeuralCache(500, 0.7, 0.2), NeuralCache(4, 1.5, 0.5), UnigramCache(7, 0.3), UnigramCache(100, 0.3, 0.8)])
@pytest.mark.parametrize("variant", ["plain_lstm_lm", "kvp_lstm_lm", "combined", "adaptive"])
def test_a_cache_is_the_loop_of_its_equation(cache, variant, tmp_path):
    options = VARIANTS.get(variant, {"_name": variant})
    lm = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS, **options)])
    scorer = CacheScorer(lm, cache)
    later = scorer.after(HISTORY[:2]).after(HISTORY[2:])
    for words, score in zip(SENTENCES, later.score(SENTENCES), strict=True):
        ids = [token for line in (*HISTORY, words) for token in (*lm.vocabulary.ids(line), 2)]
        features, _ = lm.models[0].model.extract_features(torch.tensor([[2, *ids[:-1]]]))
        log_probs = lm.models[0].model.output.log_probs_of(features[0], torch.tensor(ids)).tolist()
        expected = loop(log_probs, ids, features[0].detach().double().numpy(), cache, len(ids) - len(words) - 1)
        assert score.log_probs == pytest.approx(expected, abs=1e-5)


def test_the_first_word_has_no_cache_and_all_words_sum_to_one(tmp_path):
    lm = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS)])
    scorer = CacheScorer(lm, NeuralCache(50, 0.5, 0.4))
    assert scorer.score([["the"]])[0].log_probs[0] == pytest.approx(lm.score([["the"]])[0].log_probs[0], abs=1e-6)
    later = scorer.after(HISTORY)
    mass = sum(math.exp(score.log_probs[2]) for score in later.score([["the", "cat", word] for word in [*WORDS, "yak"]]))
    mass += math.exp(later.score([["the", "cat"]])[0].log_probs[2])
    symbols = torch.tensor([0, 1])  # <s> and <pad> have a little mass too, as in fairseq
    ids = [token for line in HISTORY for token in (2, *lm.vocabulary.ids(line))]
    logits, _ = lm.models[0].model(torch.tensor([[*ids, 2, *lm.vocabulary.ids(["the", "cat"])]]))
    mass += 0.6 * torch.softmax(logits[0, -1], -1)[symbols].sum().item()
    assert mass == pytest.approx(1.0, abs=1e-5)


def test_caches_of_many_histories_at_once_and_of_a_window(tmp_path):
    lm = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS, **VARIANTS["combined"])])
    for scorer in (CacheScorer(lm, NeuralCache(6, 0.5, 0.4)), CacheScorer(SentenceWindow(lm, 0), NeuralCache(9, 0.5, 0.4))):
        histories = [HISTORY, [], HISTORY[:1]]
        later = scorer.after_many([(scorer, history) for history in histories])
        together = scorer.score_many([(one, SENTENCES) for one in later])
        for found, history in zip(together, histories, strict=True):
            for score, expected in zip(found, scorer.after(history).score(SENTENCES), strict=True):
                assert score.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
    assert together[0][0].total != pytest.approx(scorer.score(SENTENCES)[0].total, abs=1e-2)  # the window's cache reaches back all the same


def test_a_document_at_once_is_as_sentence_by_sentence():
    generator = np.random.default_rng(1)
    words = generator.integers(0, 9, 400)
    document = Events(np.log(generator.random(400)), words, generator.normal(size=(400, 5)).astype(np.float32), np.zeros(400, dtype=bool))
    for cache in (NeuralCache(150, 0.3, 0.25), UnigramCache(60, 0.25, 0.9)):
        cached = cached_in(document, cache)
        expected = np.exp(loop(document.log_probs, words, document.features.astype(float), cache, 1))
        assert 0.75 * np.exp(document.log_probs[1:]) + 0.25 * cached[1:] == pytest.approx(expected, rel=1e-4)
        assert np.isnan(cached[0])


def test_a_temperature_divides_the_logits(tmp_path):
    for number, options in enumerate(({}, VARIANTS["adaptive"])):
        lm = NeuralScorer.load([write_checkpoint(tmp_path / str(number) / "lm.pt", WORDS, **options)])
        before = lm.score(SENTENCES)
        model = lm.models[0].model
        cooled = lm.with_temperature(0.5)
        features, _ = model.extract_features(torch.tensor([[2, *lm.vocabulary.ids(["the", "cat", "ran"])]]))
        found = cooled.models[0].model.output.log_probs(features[0]).exp()
        assert found.sum(1).tolist() == pytest.approx([1.0] * 4, abs=1e-5)
        if not number:
            expected = torch.log_softmax(model.output(features[0]) / 0.5, -1)
            ids = torch.tensor([*lm.vocabulary.ids(["the", "cat", "ran"]), 2])
            assert cooled.score([["the", "cat", "ran"]])[0].log_probs == pytest.approx(expected[range(4), ids].tolist(), abs=1e-5)
        assert lm.score(SENTENCES) == before
        assert cooled.with_temperature(1.0).score(SENTENCES)[0].total == pytest.approx(before[0].total, abs=1e-4)
        assert cooled.signature()["temperature"] == 0.5
        [expected] = cooled.after([["a", "dog"]]).score([["the", "cat"]])
        [found] = lm.after([["a", "dog"]]).with_temperature(0.5).score([["the", "cat"]])
        assert found.log_probs == pytest.approx(expected.log_probs, abs=1e-5)


def test_fit_finds_what_the_text_is_more_probable_with(folder):  # noqa: F811
    (folder / "valid").write_text("the cat sat on the cat\nthe cat cat ran\n\na dog ran\na dog dog dog\na dog ran\n" * 8)
    options = ("--lm", "lm.pt", "--kenlm", "lm.arpa", "--context", "blank")
    result = run("fit", "valid", "--lm", "lm.pt", "--context", "blank", "--find", "temperature", "--find", "neural-cache")
    ppls = [float(line.split("\t")[2]) for line in result.stdout.splitlines()[1:]]
    assert ppls[1] < ppls[0]
    spec = attlm.run_config("attlm.toml").lms[0]
    assert spec.neural_cache is not None
    assert spec.temperature is not None
    found = attlm.perplexity("valid", config="attlm.toml")
    assert found[0].ppl == pytest.approx(ppls[1], rel=1e-4)  # what fit says is what ppl says
    fitted = attlm.fit_context("valid", config=attlm.run_config(lms={"n": "lm.arpa"}, context="blank"), find=["unigram-cache"])
    assert fitted.rows[1].ppl < fitted.rows[0].ppl
    assert attlm.perplexity("valid", config=fitted.config)[0].ppl == pytest.approx(fitted.rows[1].ppl, rel=1e-4)
    both = run("ppl", "valid", *options, "--unigram-cache", "50:0.2", "--neural-cache", "50:0.5:0.2", "--temperature", "0.9")
    assert len(both.stdout.splitlines()) == 3
    run("mix", "valid", *options, "--unigram-cache", "50:0.2", "-o", "mix.toml")
    assert 'unigram_cache = "50:0.2:1"' in (folder / "mix.toml").read_text()


def test_fit_keeps_what_it_is_not_to_find(folder):  # noqa: F811
    """Found one after the other or in one run, the settings are the same, and what fit says of all is what ppl says."""
    rare = " ".join(["zebra"] * 9)  # unknown words, which the unigram cache remembers best
    (folder / "valid").write_text(f"the cat sat on the cat\n{rare}\n\na dog ran\na dog dog dog\na {rare}\n" * 8)
    lms, config = {"lm": "lm.pt"}, attlm.run_config(context="blank")
    together = attlm.fit_context("valid", lms, config=config, find=["temperature", "neural-cache", "unigram-cache"])
    (spec,) = together.config.lms
    assert None not in (spec.temperature, spec.neural_cache, spec.unigram_cache)
    assert attlm.perplexity("valid", config=together.config)[0].ppl == pytest.approx(together.rows[-1].ppl, rel=1e-4)
    assert together.rows[-1].ppl <= together.rows[-2].ppl
    assert together.rows[-1].setting == f"neural cache {spec.neural_cache}, unigram cache {spec.unigram_cache}"
    found = attlm.fit_context("valid", lms, config=config, find=["temperature"])
    for name in ("neural-cache", "unigram-cache"):
        found.save("attlm.toml")
        found = attlm.fit_context("valid", config="attlm.toml", find=[name])
    assert found.config.lms[0].temperature == spec.temperature
    assert (found.config.lms[0].neural_cache, found.config.lms[0].unigram_cache) == (spec.neural_cache, spec.unigram_cache)
    # the neural cache is fitted again; the configuration has a unigram cache, which stays
    again = attlm.fit_context("valid", config=together.config, find=["neural-cache"])
    assert again.config.lms[0].unigram_cache == spec.unigram_cache
    assert attlm.perplexity("valid", config=again.config)[0].ppl == pytest.approx(again.rows[-1].ppl, rel=1e-4)
    assert again.rows[-1].ppl <= together.rows[-1].ppl + 1e-6


@pytest.mark.parametrize(("lines", "better"), [("the cat sat on the cat\na dog ran\n", True), ("ran ran ran ran\nsat\n", False)])
def test_fit_tells_if_single_sentences_are_better(folder, lines, better):  # noqa: F811
    (folder / "valid").write_text(lines * 8)
    with collected() as notes:
        attlm.fit_context("valid", {"lm": "lm.pt"}, find=["neural-cache"])
    carried = attlm.run_config(lms={"lm": "lm.pt"}, context="all")
    single = replace(carried, lms=tuple(replace(lm, context_sentences=0) for lm in carried.lms))
    assert (attlm.perplexity("valid", config=single)[0].ppl < 0.99 * attlm.perplexity("valid", config=carried)[0].ppl) == better
    assert any("lm is better on each sentence by itself" in line for line in notes) == better
    alone = f"perplexity {attlm.perplexity('valid', config=single)[0].ppl:.2f}, than with"
    assert any(alone in line for line in notes) == better


def test_fit_leaves_lists_apart_unless_what_it_found_reaches_back(folder):  # noqa: F811
    """Otherwise a temperature alone would make one conversation of all lists of every later command."""
    (folder / "valid").write_text("the cat sat on the cat\na dog ran\n" * 8)
    run("fit", "valid", "--lm", "lm.pt", "--find", "temperature")
    assert attlm.run_config("attlm.toml").context is None
    told = run("fit", "valid", "--lm", "lm.pt", "--find", "unigram-cache").stderr
    assert "context: all. Every later command takes its text, or all its lists, as one conversation unless --context says otherwise" in told
    assert attlm.run_config("attlm.toml").context == ContextSpec("all")
    told = run("fit", "valid", "--lm", "lm.pt", "--find", "unigram-cache", "--context", "blank").stderr
    assert "as one conversation" not in told


def test_fit_finds_for_each_lm_what_it_can_have(folder):  # noqa: F811
    (folder / "valid").write_text("the cat sat on the cat\nthe cat cat ran\na dog ran\na dog dog dog\n" * 8)
    result = run("fit", "valid", "--lm", "lm=lm.pt", "--kenlm", "k=lm.arpa", "--find", "temperature", "--find", "unigram-cache")
    assert "k: no temperature, which is for this package's neural LMs" in result.stderr
    lms = {spec.name: spec for spec in attlm.run_config("attlm.toml").lms}
    assert lms["lm"].temperature is not None
    assert lms["k"].temperature is None
    assert lms["k"].unigram_cache is not None
    assert "for this package's neural LMs" in refused("fit", "valid", "--kenlm", "k=lm.arpa", "-o", "k.toml")
    bert = attlm.LMSpec.of_files("bert", write_bert(folder / "bert"))  # whose sentence ends have no score
    fitted = attlm.fit_context("valid", {"lm": "lm.pt", "bert": bert}, find=["temperature", "unigram-cache"])
    assert [row.lm for row in fitted.rows] == ["lm", "lm"]


def test_what_a_cache_cannot_be_is_refused(folder, tmp_path):  # noqa: F811
    for text in ("", "5", "5:1", "5.5:1:0.1", "0:1:0.1", "5:1:1", "5:-1:0.1", "5:x:0.1"):
        with pytest.raises(InputError):
            parse_neural_cache(text)
    for text in ("5", "5:1", "5:0.1:0", "5:0.1:1.5", "a:0.1"):
        with pytest.raises(InputError):
            parse_unigram_cache(text)
    ngram = KenLMScorer(write_arpa(tmp_path / "random.arpa", WORDS))
    with pytest.raises(InputError, match="neural LMs"):
        CacheScorer(ngram, NeuralCache(5, 1.0, 0.1)).score([["the"]])
    with pytest.raises(InputError, match="neural LMs"):
        ngram.with_temperature(0.5)
    assert "there is no LM that it is for" in refused("ppl", "text", "--kenlm", "lm.arpa", "--neural-cache", "5:1:0.1")
    assert "expected a number above 0" in refused("ppl", "text", "--lm", "lm.pt", "--temperature", "0")
    (folder / "attlm.toml").write_text('[lm.a]\nkenlm = "lm.arpa"\nunigram_cache = "many"\n')
    assert "[lm.a] unigram_cache: found 'many'" in refused("ppl", "text")


@pytest.mark.parametrize("oov", ["unk", "penalty:-9", "spread:50"])
def test_caches_are_fitted_under_the_policy_for_unknown_words(folder, oov):  # noqa: F811
    """The table has the perplexities of `attlm ppl`, and no other weight is better."""
    (folder / "valid").write_text("the zebra sat\na zebra ran\nthe zebra sat on the mat\n" * 4)
    lm = attlm.LMSpec.of("lm.arpa", oov=oov)
    fitted = attlm.fit_context("valid", {"n": lm}, find=["unigram-cache"])

    def ppl(cache):
        [row] = attlm.perplexity("valid", {"n": replace(lm, unigram_cache=cache)}, config=attlm.run_config(context="all"))
        return row.ppl

    cache = fitted.config.lms[0].unigram_cache
    assert [row.ppl for row in fitted.rows] == pytest.approx([ppl(None), ppl(cache)], rel=1e-4)
    for weight in (0.02, 0.1, 0.3, 0.6):
        assert ppl(cache) <= ppl(UnigramCache(4000, weight, 0.99)) * (1 + 1e-6)
