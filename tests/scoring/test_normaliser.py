"""Scoring without, or with estimated, normalisers: values, the measured deviation, and lists that are scored exactly."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from cli_runs import folder, refused, run  # noqa: F401 - folder is a fixture
from lm_files import write_checkpoint

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.kernels import softmax_events as kernel
from attlm_fairseq.modules.kernels.low_precision import rounded
from attlm_fairseq.modules.kernels.softmax_events import ApproximateEvents, SoftmaxEvents, softmax_events
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.decoder_score import total_without_lms
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.nbest.run.workers import OneProcess, Processes
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.context.cache import CacheScorer, UnigramCache
from attlm_fairseq.scoring.context.context_walk import SentenceWindow
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.verbs.configuration import lm_spec

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat"]
TEXTS = [text.split() for text in ("the cat sat on the mat", "a dog ran", "the dog sat", "", "a cat ran on a mat")]


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    return write_checkpoint(tmp_path / "lm.pt", WORDS)


def load(checkpoint: Path, normaliser: str, precision: str = "float32") -> NeuralScorer:
    return NeuralScorer.load([checkpoint], compute=DeviceConfig(normaliser=normaliser, precision=precision))


def self_normalised(checkpoint: Path, spread: float) -> Path:
    """Shift the output biases so that ln Z is near 0, and make it vary by about ``spread`` with the context."""
    content = torch.load(checkpoint, weights_only=False)
    weights = content["model"]
    weights["decoder.model.embedding.weight"] *= spread
    weights["decoder.model.output.weight"] = weights["decoder.model.embedding.weight"]
    weights["decoder.model.output.bias"] -= weights["decoder.model.output.bias"].logsumexp(0)
    torch.save(content, checkpoint)
    return checkpoint


@torch.inference_mode()
def test_none_is_the_logit_and_sampled_sums_over_its_words(monkeypatch):
    monkeypatch.setattr(kernel, "FREQUENT_WORDS", 30)
    monkeypatch.setattr(kernel, "SAMPLED_WORDS", 50)
    random_ = torch.Generator().manual_seed(1)
    weight, bias, features = (torch.randn(shape, generator=random_) for shape in ((400, 8), (400,), (6, 8)))
    contexts, words = torch.arange(6).repeat(20), torch.arange(120)
    logits = features @ weight.t() + bias
    own = logits[contexts, words]
    torch.testing.assert_close(softmax_events(weight, bias, None, "none")(features, contexts, words), own)
    sampled = softmax_events(weight, bias, None, "sampled")
    assert isinstance(sampled, ApproximateEvents)
    estimates = sampled.normalisers(features)
    torch.testing.assert_close(sampled(features, contexts, words), own - estimates[contexts])
    drawn = {word for word in range(30, 400) if any(torch.equal(weight[word], row) for row in sampled.sample.weight[30:])}
    assert len(drawn) == 50
    terms = logits.exp()
    expected = terms[:, :30].sum(1) + terms[:, sorted(drawn)].sum(1) * 370 / 50
    torch.testing.assert_close(estimates, expected.log())
    again = softmax_events(weight, bias, None, "sampled")
    assert torch.equal(again.normalisers(features), estimates)
    low = softmax_events(weight, bias, partial(rounded, dtype=torch.bfloat16), "sampled").normalisers(features)
    assert 1e-5 < (low - estimates).abs().mean() < 0.03
    few = softmax_events(weight[:70], bias[:70], None, "sampled")
    assert type(few) is SoftmaxEvents, "fewer words than the sample would have"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_deviation_is_measured_and_told(checkpoint, precision):
    exact, scorer = load(checkpoint, "exact"), load(checkpoint, "none", precision)
    pairs = list(zip(exact.score(TEXTS), scorer.score(TEXTS), strict=True))
    errors = [abs(math.fsum(one.log_probs) - math.fsum(other.log_probs)) for one, other in pairs]
    assert scorer.deviation.largest == pytest.approx(max(errors), abs=1e-4)
    [note] = scorer.notes()
    assert "with --normaliser none" in note
    assert "not self-normalised: train it with --self-normalisation" in note
    assert scorer.signature()["normaliser"] == "none"
    assert "normaliser" not in exact.signature()
    back = scorer.exact()
    assert back.signature()["precision"] == precision
    tolerance = 1e-6 if precision == "float32" else 0.2
    for one, other in zip(back.score(TEXTS), exact.score(TEXTS), strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=tolerance)
    assert exact.exact() is exact


def test_a_self_normalised_model_has_no_warning(checkpoint):
    scorer = load(self_normalised(checkpoint, 0.01), "none")
    scorer.score(TEXTS)
    [note] = scorer.notes()
    assert "WARNING" not in note
    assert 0 < scorer.deviation.largest < 0.1


def test_after_a_history(checkpoint):
    """Exact scores after approximate ones have the same history."""
    scorer, exact = load(checkpoint, "none").after(TEXTS[:2]), load(checkpoint, "exact").after(TEXTS[:2])
    for one, other in zip(scorer.exact().score(TEXTS), exact.score(TEXTS), strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-6)
    assert scorer.score(TEXTS)[0].log_probs != pytest.approx(exact.score(TEXTS)[0].log_probs, abs=1e-3)


@pytest.mark.parametrize("wrapped", [lambda lm: CacheScorer(lm, UnigramCache(50, 0.1)), lambda lm: SentenceWindow(lm, 1)])
def test_wrappers_have_exact_scores_too(checkpoint, wrapped):
    scorer, exact = wrapped(load(checkpoint, "none")), wrapped(load(checkpoint, "exact"))
    assert exact.exact() is exact
    for one, other in ((scorer.exact(), exact), (scorer.after(TEXTS[:2]).exact(), exact.after(TEXTS[:2]))):
        for found, expected in zip(one.score(TEXTS), other.score(TEXTS), strict=True):
            assert found.log_probs == pytest.approx(expected.log_probs, abs=1e-6)
    assert scorer.score(TEXTS)[0].log_probs != pytest.approx(exact.score(TEXTS)[0].log_probs, abs=1e-3)


@pytest.mark.parametrize("options", [{"softmaxes": "2"}, {"output_layer": "adaptive", "adaptive_cutoffs": "7"}])
def test_layers_without_a_single_normaliser_are_refused(tmp_path, options):
    scorer = load(write_checkpoint(tmp_path / "lm.pt", WORDS, **options), "none")
    with pytest.raises(InputError, match="for LMs with one full softmax"):
        scorer.score(TEXTS)


def test_pointers_take_it(tmp_path):
    scorer = load(write_checkpoint(tmp_path / "lm.pt", WORDS, _name="pointer_lstm_lm"), "none")
    scorer.score(TEXTS)
    assert scorer.deviation.largest > 0


def close_lists(gap: float) -> Block:
    """Two lists of two hypotheses; in the first the totals of the rest differ by ``gap``, in the second by much."""
    texts = ("the cat sat", "the dog sat", "a cat ran", "a dog ran")
    return Block(texts, (2, 2), (None, None), rest=(gap, 0.0, 1000.0, 0.0))


def test_lists_that_are_close_are_scored_exactly(checkpoint):
    scorer, exact = load(self_normalised(checkpoint, 0.3), "none"), load(checkpoint, "exact")
    texts = [TextPipeline().load()]
    block = close_lists(0.0)
    alone = BlockScorer([scorer], texts).score(Block(block.texts, block.sizes, block.sources)).values["lm"]
    right = BlockScorer([exact], texts).score(block).values["lm"]
    assert not any(one == pytest.approx(other, abs=1e-4) for one, other in zip(alone, right, strict=True))
    errors = [abs(alone[row] - right[row] - (alone[row + 1] - right[row + 1])) for row in (0, 2)]
    # the totals of the first list differ by less than what the approximation changes at most in a list, those of the second by more
    nearest = close_lists(alone[1] - alone[0] + 0.9 * max(errors))
    found = BlockScorer([scorer], texts, weights={"lm": 1.0}).score(nearest)
    assert found.values["lm"] == pytest.approx([*right[:2], *alone[2:]], abs=1e-5)
    assert "2 of the first 4 hypotheses" in found.notes["close lists"]
    # further apart, or with a weight that makes the error small, nothing is scored again
    for block, weights in ((close_lists(alone[1] - alone[0] + 1.1 * max(errors)), {"lm": 1.0}), (nearest, {"lm": 0.0})):
        found = BlockScorer([scorer], texts, weights=weights).score(block)
        assert found.values["lm"] == pytest.approx(alone, abs=1e-6)
        assert "close lists" not in found.notes


def test_one_margin_serves_a_run_however_it_is_spread_or_interrupted(checkpoint, tmp_path):
    place, compute = self_normalised(checkpoint, 0.3), DeviceConfig(normaliser="none")
    config = RunConfig((LMSpec("lm", checkpoints=(place,)),), weights={"lm": 1.0})
    lms = BlockScorer.load(config, compute)
    texts, others = ("mat on ran", "a dog", "on mat the", "the cat sat"), ((2, 2), (None, None))
    alone = lms.score(Block(texts, *others)).values["lm"]
    margins = [lms.score(block).margin for block in (close_lists(0.0), Block(texts, *others, rest=(0.0,) * 4))]
    assert margins[0] != margins[1]
    # the first list is close by one of the margins, not by the other
    block = Block(texts, *others, rest=(alone[1] - alone[0] + (margins[0].error + margins[1].error) / 2, 0.0, 1000.0, 0.0))
    blocks = [close_lists(0.0), block, block]
    whole = list(OneProcess(lms).score(blocks))
    assert {scores.margin for scores in whole} == {margins[0]}
    assert whole[1].values == whole[2].values != lms.score(block).values
    with Processes(config, [compute, compute]) as workers:
        assert [scores.values for scores in workers.score(blocks)] == [scores.values for scores in whole]
    for count in range(1, len(blocks)):
        cache = ScoreCache(tmp_path / "out.unfinished")
        stopped = cache.score(OneProcess(lms), blocks)
        assert len([next(stopped) for _ in range(count)]) == count
        stopped.close()
        assert [scores.values for scores in cache.score(OneProcess(lms), blocks)] == [scores.values for scores in whole]
        cache.finish()


def test_longer_lists_are_measured_too(checkpoint):
    """The error grows with length: a block of longer lists has its own, and one of short lists still that of the first block."""
    lms = BlockScorer([load(self_normalised(checkpoint, 0.3), "none")], [TextPipeline().load()], weights={"lm": 1.0})
    short = Block(("the cat", "a dog"), (2,), (None,), rest=(0.0, 0.0))
    long = Block(("the cat sat on a mat and ran", "a dog ran on the mat the dog"), (2,), (None,), rest=(0.0, 0.0))
    margin, own = lms.score(short).margin, lms.score(long).margin
    assert margin.words == 2
    assert own.error > margin.error
    alone = lms.score(Block(long.texts, long.sizes, long.sources)).values["lm"]
    between = replace(long, rest=(alone[1] - alone[0] + (margin.error + own.error) / 2, 0.0))
    assert "close lists" in lms.score(between, margin).notes
    assert lms.score(between, margin).margin == margin  # for other blocks
    assert "close lists" not in lms.score(between, margin._replace(words=8)).notes


def test_hypotheses_far_from_the_best_move_with_it(checkpoint):
    """Only those that may be the best are scored exactly. The others keep their distance to the best of their list."""
    scorer, exact = load(self_normalised(checkpoint, 0.3), "none"), load(checkpoint, "exact")
    texts = [TextPipeline().load()]
    words = ("a cat ran", "the cat sat", "the dog sat on the mat", "a dog ran")
    alone = BlockScorer([scorer], texts).score(Block(words, (1, 3), (None,) * 2)).values["lm"]
    right = BlockScorer([exact], texts).score(Block(words, (1, 3), (None,) * 2)).values["lm"]
    rest = (0.0, -1000.0 - alone[1], -alone[2], -1e-6 - alone[3])
    found = BlockScorer([scorer], texts, weights={"lm": 1.0}).score(Block(words, (1, 3), (None,) * 2, rest=rest))
    assert found.values["lm"][2:] == pytest.approx(right[2:], abs=1e-5)
    assert found.values["lm"][1] == pytest.approx(alone[1] + right[2] - alone[2], abs=1e-5)
    assert found.values["lm"][0] == alone[0]
    assert "2 of the first 4 hypotheses" in found.notes["close lists"]


def test_the_rest_of_a_total_is_without_the_lms():
    hypotheses = [Hypothesis("a b", {"am": -3.0, "lm": 9.0, "lm_oov": 2.0}, 1), Hypothesis("c", {"am": -1.0, "lm": 8.0, "lm_oov": 1.0}, 2)]
    nbest = NbestList("1", hypotheses)
    config = RunConfig(lms=(LMSpec("lm", checkpoints=(Path("lm.pt"),)),), weights={"lm": 1.0, "lm_oov": 5.0, "words": 0.5, "am": 2.0})
    assert total_without_lms(nbest, config) == pytest.approx([-6 + 1, -2 + 0.5])


def test_conversations_are_refused():
    with pytest.raises(InputError, match="--normaliser does not go with --context"):
        RunConfig(devices=(DeviceConfig(normaliser="none"),), context=ContextSpec("all"))


def test_dynamic_evaluation_is_refused(checkpoint):
    with pytest.raises(InputError, match="leave --normaliser or --adapt out"):
        LMSpec("lm", checkpoints=(checkpoint,), adapt=Path("lm.adaptation")).load(DeviceConfig(normaliser="none"))


def test_lms_without_one_refuse_it(folder):  # noqa: F811
    """KenLM has nothing to approximate. With a neural LM next to it, the option has an effect."""
    for command in (["rescore", "dev.json", "--weight", "kenlm=1"], ["tune", "dev.json", "-o", "out.toml"]):
        assert "--normaliser sampled has no effect" in refused(*command, "--kenlm", "lm.arpa", "--normaliser", "sampled")
    assert not Path("out.toml").exists()
    run("rescore", "dev.json", "--kenlm", "lm.arpa", "--lm", "lm.pt", "--weight", "kenlm=1", "--weight", "lm=1", "--normaliser", "none")
    devices = (DeviceConfig(normaliser="none"),)
    for lm in (KenLMScorer(Path("lm.arpa")), NeuralScorer.load([Path("lm.pt")])):  # a loaded LM computes as it was loaded
        with pytest.raises(InputError, match="--normaliser none has no effect"):
            attlm.rescore([["a cat"]], config=RunConfig((lm_spec("lm", lm),), weights={"lm": 1.0}, devices=devices))


def test_rescore_gives_the_answers_of_exact_scores(checkpoint, tmp_path, monkeypatch):
    """With an LM whose ln Z varies much, and with one process or two."""
    monkeypatch.chdir(tmp_path)
    self_normalised(checkpoint, 0.5)
    texts = [" ".join(words) for words in TEXTS]
    lists = [
        {"id": str(number), "hyps": [{"text": text, "scores": {"am": 0.3 * k * number}} for k, text in enumerate(texts)]}
        for number in range(4)
    ]
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    options = ["rescore", "lists", "--lm", f"lm={checkpoint}", "--weight", "lm=1", "--weight", "am=1"]
    answers = []
    for more in ([], ["--normaliser", "none"], ["--normaliser", "none", "--devices", "cpu:2"]):
        result = run(*options, *more)
        answers.append([json.loads(line)["hyps"][0]["text"] for line in result.stdout.splitlines()])
    assert answers[0] == answers[1] == answers[2]
    assert "with --normaliser none" in run(*options, "--normaliser", "none").stderr
    assert "does not go with --context" in run(*options, "--normaliser", "none", "--context", "all", code=2).stderr


def test_the_rest_of_a_total_where_incomplete_lists_are_kept():
    """The scores of the LMs are not there yet, which makes no list incomplete; a score of its own that is missing does."""
    config = RunConfig(
        lms=(LMSpec("lm", checkpoints=(Path("lm.pt"),)),), weights={"lm": 1.0, "am": 2.0}, decision=Decision(keep_incomplete=True)
    )
    hypotheses = [Hypothesis("a b", {"am": -3.0}, 1), Hypothesis("c", {"am": -1.0}, 2)]
    assert total_without_lms(NbestList("1", hypotheses), config) == pytest.approx([-6, -2])
    hypotheses[1].scores.clear()
    assert total_without_lms(NbestList("1", hypotheses), config) == [0.0, 0.0]
