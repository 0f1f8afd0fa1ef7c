"""Dynamic evaluation against a loop over its equation."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from cli_runs import folder, refused, run  # noqa: F401 - folder is a fixture
from foreign_lms import WORDS
from lm_files import VARIANTS, write_arpa, write_checkpoint

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.neural.dynamic_evaluation import (
    EPSILON,
    Adaptation,
    AdaptingScorer,
    gradient_scales,
    read_adaptation,
    read_sentence,
    weights_digest,
    write_adaptation,
)
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.verbs.fit import _Fitting

LINES = [["the", "cat", "sat"], ["a", "zebra", "ran"], [], ["the", "cat", "ran"]]


@pytest.mark.parametrize("variant", ["plain_lstm_lm", "combined", "lstmn_lm"])
@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)], ids=["inference", "autocast"])
def test_a_program_may_call_it_in_any_mode(variant, mode, tmp_path):
    def scores(path, scales) -> list[float]:
        scorer = AdaptingScorer(NeuralScorer.load([path]), Adaptation(0.02, 0.3, scales))
        return [score.total for score in scorer.after(LINES[:2]).after(LINES[2:]).score(LINES)]

    path = write_checkpoint(tmp_path / "lm.pt", WORDS, **VARIANTS.get(variant, {"_name": variant}))
    scales = gradient_scales(NeuralScorer.load([path]), [LINES[2:]])
    expected = scores(path, scales)
    with mode():
        found = scores(path, scales)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("variant", ["plain_lstm_lm", "averaging_lstm_lm", "kvp_lstm_lm", "combined", "adaptive"])
def test_each_sentence_is_scored_before_it_is_learned(variant, tmp_path):
    """The loop: gradients of the whole forward pass, of the last sentence's events alone, states before it as constants."""
    options = VARIANTS.get(variant, {"_name": variant})
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, **options)
    lm = NeuralScorer.load([path])
    scales = gradient_scales(lm, [LINES[2:]])
    adaptation = Adaptation(0.02, 0.3, scales)
    scorer = AdaptingScorer(lm, adaptation)
    own = NeuralScorer.load([path]).models[0].model
    trained = {name: parameter.detach().clone() for name, parameter in own.named_parameters()}
    mean = sum(float(scale.sum()) for scale in scales[0].values()) / sum(scale.numel() for scale in scales[0].values())
    state, limited = own.initial_state(1), 0
    for words in LINES:
        ids = lm.vocabulary.ids(words)
        features, read, after = own.read(torch.tensor([[2, *ids]]), state)
        log_probs = own.output.log_probs_of(features[0], torch.tensor([*ids, 2]), read and read.map(lambda part: part[0]))
        assert scorer.score([words])[0].log_probs == pytest.approx(log_probs.tolist(), abs=1e-4)
        own.zero_grad()
        (-log_probs.sum()).backward()
        learned = {name: part for name, part in own.named_parameters() if name in scales[0]}
        gradients = {name: torch.zeros_like(part) if part.grad is None else part.grad for name, part in learned.items()}
        steps = {name: gradient / (scales[0][name] + EPSILON) for name, gradient in gradients.items()}
        rms = torch.cat([step.flatten() for step in steps.values()]).square().mean().sqrt()
        limited += int(rms > 1)
        with torch.no_grad():
            for name, parameter in learned.items():
                pull = (0.3 * scales[0][name] / mean).clamp(max=1) * (trained[name] - parameter)
                parameter += pull - 0.02 * steps[name] / max(1.0, rms)
        state = after.detach()
        scorer = scorer.after([words])
    assert 0 < limited < len(LINES)
    for name, parameter in lm.models[0].model.named_parameters():
        assert torch.equal(parameter, trained[name])  # the trained LM has not changed


@pytest.mark.parametrize(
    "variant", ["attentive_lstm_lm", "combined", "kvp_lstm_lm", "pointer_lstm_lm", "rm_lm", "lstmn_lm", "adaptive", "MoS", "DOC"]
)
def test_a_walk_is_score_and_after_sentence_by_sentence(variant, tmp_path):
    """An ensemble, cooled; with and without the state of the sentences before."""
    options = VARIANTS.get(variant, {"_name": variant})
    paths = [write_checkpoint(tmp_path / f"lm{seed}.pt", WORDS, seed=seed, **options) for seed in (1, 2)]
    lm = NeuralScorer.load(paths, weights=[0.3, 0.7]).with_temperature(1.3)
    adaptation = Adaptation(0.02, 0.1, gradient_scales(lm, [LINES]))
    for carries in (True, False):
        scorer = AdaptingScorer(lm, adaptation, carries)
        begun = scorer.after(LINES[:1])
        for features in (True, False):
            found = scorer.walk([(scorer, LINES), (begun, LINES[:2]), (begun, [])], features)
            assert found[2].later is begun
            for walked, later, sentences in zip(found, (scorer, begun, begun), (LINES, LINES[:2], []), strict=True):
                for score, of_events, words in zip(walked.scores, walked.features, sentences, strict=True):
                    [[(expected, expected_features)]] = scorer.score_with_features([(later, [words])])
                    assert score.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
                    assert score.oov == expected.oov
                    assert of_events.shape == (len(words) + 1, expected_features.shape[1] if features else 0)
                    assert np.allclose(of_events, expected_features[:, : of_events.shape[1]], atol=1e-5)
                    later = later.after([words])
                [[expected], [score]] = later.score(LINES[:1]), walked.later.score(LINES[:1])
                assert score.log_probs == pytest.approx(expected.log_probs, abs=1e-5)


def test_scales_are_root_mean_squares_over_sentences_and_at_least_their_mean(tmp_path):
    lm = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS)])
    [member], [state] = lm.models, lm.states()
    gradients = [read_sentence(member.model, lm.vocabulary.ids(words), state).gradients for words in LINES]
    [scales] = gradient_scales(lm, [LINES[:1], LINES[1:]], carries=False)
    for name, scale in scales.items():
        root = torch.stack([of_sentence[name] for of_sentence in gradients]).square().mean(0).sqrt()
        assert scale.numpy() == pytest.approx(root.clamp(min=root.mean()).numpy(), rel=1e-4, abs=1e-9)


def test_histories_do_not_meet(tmp_path):
    lm = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS)])
    scorer = AdaptingScorer(lm, Adaptation(0.05, 0.01, gradient_scales(lm, [LINES])))
    first, second = scorer.after(LINES[:2]), scorer.after(LINES[2:])
    assert scorer.after([]) is scorer
    found = scorer.score_many([(scorer, LINES), (first, LINES), (second, LINES)])
    assert found == [scorer.score(LINES), scorer.after(LINES[:1]).after(LINES[1:2]).score(LINES), scorer.after(LINES[2:]).score(LINES)]
    alone = AdaptingScorer(lm, Adaptation(0.01, 0.0, scorer.adaptation.scales), carries=False).after([LINES[0]] * 5)
    assert alone.score([LINES[0]])[0].total > lm.score([LINES[0]])[0].total + 0.1  # it has learned


def test_a_rate_that_is_too_large_does_not_grow_without_limit(tmp_path):
    """Errors of one step do not enlarge the next: an LM with any rate stays within what bounded steps reach."""
    lm = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS)])
    scorer = AdaptingScorer(lm, Adaptation(0.5, 0.1, gradient_scales(lm, [LINES])))
    for number in range(30):
        words = [LINES[0], LINES[1], ["ran"] * 9][number % 3]
        assert scorer.score([words])[0].total > -300 * (len(words) + 1)
        scorer = scorer.after([words])


def test_what_was_found_is_read_back_for_the_same_lm_alone(folder, tmp_path):  # noqa: F811
    lm = NeuralScorer.load([folder / "lm.pt"])
    adaptation = Adaptation(0.01, 0.05, gradient_scales(lm, [LINES]), weights_digest(lm))
    write_adaptation(tmp_path / "a", adaptation)
    attlm.export_model(folder / "lm.pt", tmp_path / "exported")
    for again in (read_adaptation(tmp_path / "a", lm), read_adaptation(tmp_path / "a", NeuralScorer.load([tmp_path / "exported"]))):
        assert (again.rate, again.decay) == (0.01, 0.05)
        assert all(torch.equal(again.scales[0][name], scale) for name, scale in adaptation.scales[0].items())
    for other in (NeuralScorer.load([write_checkpoint(tmp_path / "other" / "lm.pt", WORDS, seed=5)]), lm.with_temperature(0.9)):
        with pytest.raises(InputError, match="for other weights or another temperature than those of lm"):
            read_adaptation(tmp_path / "a", other)
    read_adaptation(tmp_path / "a", lm.with_temperature(1.0))
    extra = tuple(dict(scales) | {"reader.weight": torch.ones(2)} for scales in adaptation.scales)
    write_adaptation(tmp_path / "d", replace(adaptation, scales=extra))
    with pytest.raises(InputError, match=r"has scales of 0 reader.weight, which is not in the LM"):
        read_adaptation(tmp_path / "d", lm)
    with pytest.raises(InputError):
        write_adaptation(tmp_path / "none" / "e", adaptation)
    first, *rest = adaptation.scales[0]
    write_adaptation(tmp_path / "f", replace(adaptation, scales=({name: adaptation.scales[0][name] for name in rest},)))
    with pytest.raises(InputError, match=f"has nothing for {re.escape(first)} of the LM lm"):
        read_adaptation(tmp_path / "f", lm)
    (tmp_path / "b").write_bytes(b"something else")
    for path in (tmp_path / "b", tmp_path / "none"):
        with pytest.raises(InputError, match="attlm fit"):
            read_adaptation(path, lm)
    for rate, decay, factor, what in [(float("inf"), 0.1, 1, "rate inf"), (-1, 0.1, 1, "rate -1"), (0.1, float("nan"), 1, "decay nan"),
                                      (0.1, 0.1, -1, "does not fit"), (0.1, 0.1, 0, "are 0")]:  # fmt: skip
        scales = ({name: scale * factor for name, scale in adaptation.scales[0].items()},)
        write_adaptation(tmp_path / "c", replace(adaptation, rate=rate, decay=decay, scales=scales))
        with pytest.raises(InputError, match=what):
            read_adaptation(tmp_path / "c", lm)
    with pytest.raises(InputError, match="--precision float32"):
        AdaptingScorer(NeuralScorer.load([folder / "lm.pt"], compute=DeviceConfig(precision="bfloat16")), adaptation)
    with pytest.raises(InputError, match="neural LMs"):
        AdaptingScorer(KenLMScorer(write_arpa(tmp_path / "lm.arpa", WORDS)), adaptation)


def test_fit_finds_it_and_the_commands_use_it(folder):  # noqa: F811
    (folder / "valid").write_text("the cat sat on the cat\nthe cat cat ran\na dog ran\na dog dog dog\na dog ran\n" * 5)
    run("fit", "valid", "--lm", "lm=lm.pt", "--context", "all", "--find", "adaptation")
    spec = attlm.run_config("attlm.toml").lms[0]
    assert spec.adapt is not None
    adapted = attlm.perplexity("valid", config="attlm.toml")[0].ppl
    assert adapted < attlm.perplexity("valid", {"lm": "lm.pt"}, config=attlm.run_config(context="all"))[0].ppl
    command = ("ppl", "valid", "--lm", "lm=lm.pt", "--context", "all", "--adapt", "attlm.lm.adaptation")
    assert f"\t{adapted:.4f}\t" in run(*command).stdout
    assert run(*command, "--neural-cache", "50:0.3:0.1").stdout != run(*command).stdout
    lists = ("rescore", "dev.json", "--lm", "lm=lm.pt", "--weight", "lm=1", "--context", "all")
    assert run(*lists, "--adapt", "attlm.lm.adaptation").stdout != run(*lists).stdout
    assert "all sentences, or of none" in refused(*command, "--context-sentences", "2")
    for option in (("--adapt", "attlm.lm.adaptation"), ("--context-sentences", "2")):
        assert "no effect without a context" in refused("rescore", "dev.json", "--lm", "lm=lm.pt", "--weight", "lm=1", *option)
        assert "no effect without a context" in refused("ppl", "valid", "--lm", "lm=lm.pt", *option)
    later = attlm.fit_context("valid", config="attlm.toml", find=["neural-cache"])  # for the LM as it adapts
    assert later.config.lms[0].adapt == spec.adapt
    assert [row.setting.split(" ")[0] for row in later.rows] == ["alone", "adaptation,", "adaptation,"]
    cooled = attlm.fit_context("valid", config="attlm.toml", find=["temperature"])
    assert cooled.config.lms[0].adapt is None
    both = attlm.fit_context("valid", {"lm": "lm.pt"}, find=["temperature", "adaptation"])
    both.save("both.toml")
    again = attlm.fit_context("valid", config="both.toml", find=["temperature"])  # finds the same temperature
    assert again.config.lms[0].adapt == attlm.run_config("both.toml").lms[0].adapt
    assert again.config.lms[0].adapt is not None
    (folder / "one").write_text("\n\n\nthe cat sat on the cat\n")
    assert "at least 2 lines" in refused("fit", "one", "--lm", "lm.pt", "--context", "blank", "--find", "adaptation", "-o", "one.toml")


def test_caches_are_fitted_on_the_adapting_lm(folder):  # noqa: F811
    (folder / "valid").write_text("the cat sat on the cat\nthe cat cat ran\na dog ran\na dog dog dog\na dog ran\n" * 5)
    found = attlm.fit_context("valid", {"lm": "lm.pt"}, find=("neural-cache", "adaptation", "unigram-cache"))
    found.save("attlm.toml")
    spec = attlm.run_config("attlm.toml").lms[0]
    assert None not in (spec.adapt, spec.neural_cache)
    alone, _, _, adapted, neural, unigram = found.rows
    assert adapted.setting == "adaptation, on 25 lines"
    assert neural.setting == f"{adapted.setting}, neural cache {spec.neural_cache}"
    assert unigram.setting.startswith(f"{neural.setting}, unigram cache")
    assert neural.ppl < adapted.ppl < alone.ppl
    (folder / "neural.toml").write_text(re.sub("(?m)^unigram_cache.*\n", "", (folder / "attlm.toml").read_text()))
    assert attlm.perplexity("valid", config="neural.toml")[0].ppl == pytest.approx(neural.ppl, rel=1e-4)


def test_it_is_fitted_on_lines_from_everywhere_in_the_text():
    """The first lines may be unlike the others, and in a text of documents a stretch ends a document."""
    lines = [f"{number}" for number in range(1003)]
    fitting = _Fitting(attlm.run_config(context="all"), lines, ())
    assert [int(stretch[0]) // 100 for stretch in fitting.stretches] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert all(stretch == lines[int(stretch[0]) :][:50] for stretch in fitting.stretches)
    assert fitting.sample == list(chain(*fitting.stretches))
    blank = _Fitting(attlm.run_config(context="blank"), lines, ())
    assert blank.joined(blank.stretches[:2]) == [*blank.stretches[0], "", *blank.stretches[1], ""]
    for count in (2, 3, 99, 399, 400):
        fitting = _Fitting(attlm.run_config(context="blank"), lines[:count], ())
        assert list(chain(*fitting.stretches)) == fitting.sample == lines[:count]
        assert len(fitting.stretches) % 2 == 0
        assert all(fitting.stretches)
