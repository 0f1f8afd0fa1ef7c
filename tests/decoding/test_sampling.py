"""Sentences drawn from a model: the right distribution, cut as asked, the same every time."""

from __future__ import annotations

import collections
import math

import pytest
import torch
from click.testing import CliRunner
from lm_files import write_checkpoint

import attlm_fairseq as attlm
from attlm_cli.main import main
from attlm_fairseq.checkpoints.vocabulary import BOS, PAD, UNK
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.sampling import Sample, SamplingOptions, choose, sample_sentences
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

WORDS = ["the", "cat", "sat", "on", "a", "mat"]


@pytest.fixture
def path(tmp_path):
    return write_checkpoint(tmp_path / "lm.pt", WORDS)


def run(*arguments: object, code: int = 0):
    result = CliRunner().invoke(main, ["sample", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_scorer(tmp_path, family):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, _name=family)
    samples = list(sample_sentences(DecoderLM.load(path), 270, prefix=["a", "zebra"], options=SamplingOptions(max_words=8, unknown=True)))
    assert {sample.ended for sample in samples} == {True, False}
    for sample, score in zip(samples, NeuralScorer.load([path]).score([sample.words for sample in samples]), strict=True):
        assert sample.words[:2] == ("a", "zebra")
        assert len(sample.words) == 8 or sample.ended
        assert sample.log_prob == pytest.approx(math.fsum(score.log_probs[: None if sample.ended else -1]), abs=1e-4)


def test_the_words_are_drawn_from_the_models_distribution(path):
    lm = DecoderLM.load(path)
    drawn = collections.Counter(sample.words for sample in sample_sentences(lm, 4000, options=SamplingOptions(max_words=1, unknown=True)))
    log_probs, _ = lm.step(lm.start(), torch.tensor([lm.eos]))
    expected = log_probs[0].exp()
    expected[[BOS, PAD]] = 0.0
    expected /= expected.sum()
    for token, symbol in enumerate(lm.vocabulary.symbols):
        words = () if token == lm.eos else (symbol,)
        share = drawn[words] / 4000
        assert share == pytest.approx(expected[token].item(), abs=4 * math.sqrt(0.25 / 4000)), symbol


def test_the_smallest_temperature_and_seeds_that_no_generator_takes(path):
    greedy, coldest = (run("--lm", path, "-n", 3, "--temperature", temperature).stdout for temperature in (0, 1e-320))
    assert coldest == greedy
    assert "is not in the range" in run("--lm", path, "--seed", 2**63, code=2).stderr
    assert run("--lm", path, "-n", 1, "--seed", -(2**63)).stdout


def test_temperature_top_k_and_top_p():
    log_probs = torch.tensor([[0.0, 0.0, 0.1, 0.0, 0.4, 0.3, 0.2]]).log()  # </s> 0.1, then three words
    many = torch.linspace(0, 1 - 1e-9, 1001, dtype=torch.float64)

    def drawn(**options: float) -> dict[int, float]:
        counts = collections.Counter(choose(log_probs.repeat(1001, 1), many, SamplingOptions(**options)).tolist())
        return {token: round(count / 1001, 2) for token, count in sorted(counts.items())}

    assert drawn() == {2: 0.1, 4: 0.4, 5: 0.3, 6: 0.2}
    assert drawn(top_k=2) == {4: 0.57, 5: 0.43}
    assert drawn(top_p=0.7) == {4: 0.57, 5: 0.43}
    assert drawn(top_p=0.71) == {4: 0.44, 5: 0.33, 6: 0.22}
    assert drawn(top_p=1e-9) == drawn(temperature=0) == drawn(top_k=1) == {4: 1.0}
    assert drawn(top_k=2, top_p=0.6) == {4: 0.57, 5: 0.43}  # of the two, the first has 0.57 only
    assert drawn(top_k=2, top_p=0.5) == {4: 1.0}
    assert drawn(temperature=0.5) == {2: 0.03, 4: 0.53, 5: 0.3, 6: 0.13}


def test_top_p_takes_no_more_words_than_reach_it():
    four = torch.zeros(101, 7)  # of equal probabilities, whose sums are exact
    drawn = choose(four, torch.linspace(0, 0.99, 101), SamplingOptions(top_p=0.5))
    assert set(drawn.tolist()) == {2, 4}


def test_unknown_words_are_drawn_only_on_request(path):
    lm = DecoderLM.load(path)
    assert all("<unk>" not in sample.words for sample in sample_sentences(lm, 200))
    unknown = SamplingOptions(unknown=True)
    assert any("<unk>" in sample.words for sample in sample_sentences(lm, 200, options=unknown))
    log_probs = torch.full((1, 7), -50.0)
    log_probs[0, [BOS, PAD, UNK]] = 0.0
    assert choose(log_probs, torch.tensor([0.5]), SamplingOptions()).item() not in (BOS, PAD, UNK)


def test_the_same_for_a_seed_however_many(path):
    lm = DecoderLM.load(path)
    samples = list(sample_sentences(lm, 600, seed=3))
    assert samples == list(sample_sentences(lm, 600, seed=3))
    assert [drawn.words for drawn in samples[:300]] == [drawn.words for drawn in sample_sentences(lm, 300, seed=3)]
    assert samples != list(sample_sentences(lm, 600, seed=4))
    assert list(sample_sentences(lm, 0)) == []
    assert isinstance(samples[0], Sample)
    of_file = [drawn.words for drawn in attlm.sample(path, 3, "the", seed=3)]
    path.unlink()
    assert [drawn.words for drawn in attlm.sample(lm, 3, "the", seed=3)] == of_file  # an LM that is loaded needs no file


def test_the_command(path):
    plain = run("--lm", path, "-n", 5, "--seed", 2).stdout
    assert plain == run("--lm", path, "-n", 5, "--seed", 2).stdout
    assert len(plain.splitlines()) == 5
    scored = [line.split("\t") for line in run("--lm", path, "-n", 5, "--seed", 2, "--scores").stdout.splitlines()]
    assert [text for *_, text in scored] == plain.splitlines()
    for score, words, ended, text in scored:
        assert int(words) == len(text.split())
        expected = NeuralScorer.load([path]).score([text.split()])[0]
        assert ended == "0" or float(score) == pytest.approx(expected.total, abs=1e-4)
    result = run("--lm", path, "-n", 3, "--prefix", "the zebra", "--temperature", 0)
    assert result.stderr == "unknown to the LM, which reads <unk> in their place: zebra\n"
    assert len(set(result.stdout.splitlines())) == 1
    assert result.stdout.startswith("the zebra")


@pytest.mark.parametrize("options", [["--temperature", -1], ["--temperature", "inf"], ["--top-k", -1], ["--top-p", 0], ["--top-p", 1.5]])
def test_options_that_make_no_sense(path, options):
    result = run("--lm", path, *options, code=2)
    assert result.stderr.startswith("attlm: error: cannot sample with")


def test_a_prefix_that_is_not_utf8_is_refused(path):
    assert run("--lm", path, "--prefix", "the caf\udce9", code=2).stderr == "attlm: error: --prefix is not UTF-8 (character 8)\n"


def test_a_missing_model_is_one_line(tmp_path):
    assert run("--lm", tmp_path / "nosuch.pt", code=2).stderr.count("\n") == 1
