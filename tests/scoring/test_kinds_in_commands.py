"""Every kind of LM through every command, against the scores of the library that it comes from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import kenlm
import pytest
import torch
from cli_runs import run
from foreign_lms import WORDS, write_bert, write_fairseq_lm, write_gpt2
from lm_files import write_arpa, write_checkpoint

from attlm_fairseq.scoring.foreign_lms.fairseq_lm import load_fairseq_lm
from attlm_fairseq.scoring.foreign_lms.huggingface_lm import load_huggingface_lm
from attlm_fairseq.scoring.foreign_lms.masked_lm import load_masked_lm
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

TEXTS = ["the cat sat on the mat", "a dog ran", "the dog sat", "a cat ran on a mat"]
Exact = Callable[[str], float]


def of_own(folder: Path) -> tuple[Path, Exact]:
    path = write_checkpoint(folder / "own" / "lm.pt", WORDS)
    model = NeuralScorer.load([path]).models[0].model
    ids = NeuralScorer.load([path]).vocabulary.ids

    def exact(text: str) -> float:
        tokens = torch.tensor([[2, *ids(text.split()), 2]])
        with torch.inference_mode():
            states, total = model.initial_state(1), 0.0
            for token, target in zip(tokens[0], tokens[0, 1:], strict=False):
                features, read, states = model.step_features(model.inputs(token[None]), states)
                total += model.output.log_probs(features, read)[0, target].item()
        return total

    return path, exact


def of_fairseq(folder: Path) -> tuple[Path, Exact]:
    path = write_fairseq_lm(folder / "fairseq" / "lm.pt", "transformer_lm")
    lm = load_fairseq_lm(path).lm

    def exact(text: str) -> float:
        tokens = torch.tensor([[2, *lm.vocabulary.ids(text.split())]])
        with torch.inference_mode():
            log_probs = lm.model.get_normalized_probs(lm.model(tokens), log_probs=True)[0]
        return log_probs.gather(1, torch.tensor([*tokens[0, 1:].tolist(), 2])[:, None]).sum().item()

    return path, exact


def of_transformers(folder: Path) -> tuple[Path, Exact]:
    path = write_gpt2(folder / "gpt2")
    lm = load_huggingface_lm(path).lm

    def exact(text: str) -> float:
        ids = torch.tensor([lm.tokenizer(f"<|endoftext|>{text}<|endoftext|>")["input_ids"]])
        with torch.inference_mode():
            return -lm.model(input_ids=ids, labels=ids).loss.item() * (ids.numel() - 1)

    return path, exact


def of_bert(folder: Path) -> tuple[Path, Exact]:
    path = write_bert(folder / "bert")
    lm = load_masked_lm(path)

    def exact(text: str) -> float:
        ids = lm.tokenizer(text)["input_ids"]  # every word is one token
        total = 0.0
        for place in range(1, len(ids) - 1):
            masked = torch.tensor([[*ids[:place], lm.tokenizer.mask_token_id, *ids[place + 1 :]]])
            with torch.inference_mode():
                total += lm.model(input_ids=masked).logits[0, place].log_softmax(-1)[ids[place]].item()
        return total

    return path, exact


def of_kenlm(folder: Path) -> tuple[Path, Exact]:
    path = write_arpa(folder / "lm.arpa", WORDS)
    model = kenlm.Model(str(path))
    return path, lambda text: model.score(text) * math.log(10)


KINDS = {"own": of_own, "fairseq": of_fairseq, "GPT-2": of_transformers, "BERT": of_bert, "KenLM": of_kenlm}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kinds")


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_scores_as_the_library_does(files, tmp_path, monkeypatch, kind):
    path, exact = KINDS[kind](files)
    monkeypatch.chdir(tmp_path)
    expected = {text: exact(text) for text in TEXTS}
    Path("text").write_text("\n".join(TEXTS) + "\n")
    lists = [
        {"id": str(place), "ref": ref, "hyps": [{"text": text, "scores": {"am": -float(k)}} for k, text in enumerate(TEXTS)]}
        for place, ref in enumerate(TEXTS)
    ]
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    lm = ["--lm", f"lm={path}"]

    def rescored(*options: str) -> dict[str, float]:
        found = json.loads(run("rescore", "lists", *lm, "--weight", "lm=1", *options).stdout.splitlines()[0])
        return {hypothesis["text"]: hypothesis["scores"]["lm"] for hypothesis in found["hyps"]}

    assert rescored() == pytest.approx(expected, abs=1e-4)
    assert rescored("--memory", "128M") == pytest.approx(expected, abs=1e-4)
    assert rescored("--precision", "bfloat16") == pytest.approx(expected, abs=0.05 * max(map(abs, expected.values())))
    lines = run("score", "text", *lm, "--no-header").stdout.splitlines()
    assert [float(line.split("\t")[2]) for line in lines] == pytest.approx(list(expected.values()), abs=1e-4)
    [ppl] = json.loads(run("ppl", "text", *lm, "--json").stdout)
    ends = 0 if kind == "BERT" else 1  # masked LMs do not score the sentence end
    events = sum(len(text.split()) + ends for text in TEXTS)
    assert math.log(ppl["ppl"]) == pytest.approx(-sum(expected.values()) / events, abs=1e-4)
    tuned = run("tune", "lists", *lm, "--folds", "0", "--strength", "1", "--json", "-o", "attlm.toml")
    assert "lm" in json.loads(tuned.stdout)["tuned_weights"]
    written = json.loads(run("rescore", "lists").stdout.splitlines()[0])["hyps"]
    assert {hypothesis["text"]: hypothesis["scores"]["lm"] for hypothesis in written} == pytest.approx(expected, abs=1e-4)
    other = write_arpa(tmp_path / "other.arpa", WORDS, seed=9)
    mix = ["mix", "text", *lm, "--lm", f"other={other}", "-o", "mixed.toml"]
    if kind == "BERT":
        assert "lm is a masked LM" in run(*mix, code=2).stderr
    else:
        printed = dict(line.split("\t")[:2] for line in run(*mix).stdout.splitlines()[1:3])
        assert math.log(float(printed["lm"])) == pytest.approx(-sum(expected.values()) / events, abs=1e-4)


def test_several_processes_have_every_kind(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = {kind: KINDS[kind](files) for kind in KINDS}
    Path("lists").write_text(json.dumps({"id": "0", "hyps": [{"text": text} for text in TEXTS]}) + "\n")
    names = {kind: f"lm{place}" for place, kind in enumerate(KINDS)}
    lms = [option for kind, (path, _) in made.items() for option in ("--lm", f"{names[kind]}={path}")]
    weights = [option for name in names.values() for option in ("--weight", f"{name}=1")]
    [line] = run("rescore", "lists", *lms, *weights, "--devices", "cpu:2").stdout.splitlines()
    for hypothesis in json.loads(line)["hyps"]:
        for kind, (_, exact) in made.items():
            assert hypothesis["scores"][names[kind]] == pytest.approx(exact(hypothesis["text"]), abs=1e-4)
