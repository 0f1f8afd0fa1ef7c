"""A neural corrector: its candidates join lists, every text has its score, and the pairs that it is trained on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_runs import refused, run
from lm_files import write_checkpoint
from translation_files import SOURCE_WORDS, TARGET_WORDS, write_translation_model

from attlm_fairseq import Hypothesis, NbestList
from attlm_fairseq.checkpoints.vocabulary import EOS
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections import corrections as module
from attlm_fairseq.nbest.corrections.corrections import without_table
from attlm_fairseq.nbest.corrections.corrector import BEAM, CORRECTOR, Corrector
from attlm_fairseq.nbest.corrections.expansion import UNREACHED, expand
from attlm_fairseq.nbest.corrections.search import NoLM
from attlm_fairseq.scoring.translation import translation_scorer
from attlm_fairseq.scoring.translation.translation_scorer import TranslationScorer


def lists(count: int = 9) -> list[NbestList]:
    """The first hypothesis is of words that the model reads; an empty one is among the lists."""
    found = []
    for number in range(count):
        words = [SOURCE_WORDS[(3 * number + place) % len(SOURCE_WORDS)] for place in range(number % 4)]
        texts = [" ".join(words), f"{TARGET_WORDS[number % len(TARGET_WORDS)]} {TARGET_WORDS[0]}"]
        hypotheses = [Hypothesis(text, {"am": -float(rank)}, rank) for rank, text in enumerate(texts, 1)]
        found.append(NbestList(str(number), hypotheses, (texts[1],)))
    return found


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fairseq's LSTM with random weights, as fairseq-train saves it, and its dictionaries next to it."""
    path = write_translation_model(tmp_path_factory.mktemp("corrector") / "corrector.pt", "lstm")
    content = torch.load(path, weights_only=False)
    content["model"]["decoder.fc_out.bias"][EOS] += 2.5  # hypotheses of a few words
    torch.save(content, path)
    return path


def of_fairseq(corrector: Corrector, read: str, written: str) -> float:
    """ln p of a text and its end by the model's full pass: an independent sum."""
    [model] = corrector.scorer.model.models
    source, target = model.encoder.dictionary, model.decoder.dictionary
    tokens = torch.tensor([[*map(source.index, read.split()), source.eos()]])
    words = [*map(target.index, written.split()), target.eos()]
    with torch.no_grad():
        output = model(tokens, torch.tensor([tokens.size(1)]), torch.tensor([[target.eos(), *words[:-1]]]))
        log_probs = torch.log_softmax(output[0][0].double(), dim=-1)
    return float(log_probs[torch.arange(len(words)), words].sum())


def test_candidates_are_fairseqs_and_every_text_has_its_probability(checkpoint: Path) -> None:
    corrections = without_table()
    expanded = list(replace(corrections, corrector=Corrector.load(checkpoint)).expand_all(lists(), 20))
    corrector = Corrector.load(checkpoint)
    for before, after in zip(lists(), expanded, strict=True):
        texts = [hypothesis.text for hypothesis in after.hypotheses]
        assert texts[:2] == [hypothesis.text for hypothesis in before.hypotheses]
        assert len(set(texts)) == len(texts) <= 2 + BEAM
        assert bool(texts[2:]) == bool(texts[0])  # nothing is searched for an empty text
        assert {word for text in texts[2:] for word in text.split()} <= {*TARGET_WORDS}
        found = [hypothesis.scores[CORRECTOR] for hypothesis in after.hypotheses]
        assert found == pytest.approx([of_fairseq(corrector, texts[0], text) for text in texts], abs=1e-4)
        assert all(hypothesis.scores["am"] == -1.0 for hypothesis in after.hypotheses[2:])


def test_lists_without_hypotheses_and_scores_of_the_same_name(checkpoint: Path) -> None:
    corrections = replace(without_table(), corrector=Corrector.load(checkpoint))
    assert corrections.expand(NbestList("none", [])) == NbestList("none", [])
    own = NbestList("7", [Hypothesis(SOURCE_WORDS[0], {CORRECTOR: -3.5}, 1)])
    with pytest.raises(InputError, match="list '7' already has a score 'corrector', which corrections would replace"):
        corrections.expand(own)


def test_a_beam_of_one_list_is_that_of_many(checkpoint: Path) -> None:
    corrector = Corrector.load(checkpoint)
    texts = [nbest.hypotheses[0].text for nbest in lists()]
    assert corrector.candidates(texts) == [corrector.candidates([text])[0] for text in texts]


@pytest.mark.parametrize("words", [3, 60])
def test_what_no_correction_reaches_never_counts_as_more_probable_than_the_1_best(words: int) -> None:
    corrections = without_table()
    nbest = NbestList("0", [Hypothesis(" ".join(f"w{i}" for i in range(words)))])
    first, other = expand(nbest, corrections.channel, NoLM(), 0, ["something else"]).hypotheses
    assert other.text == "something else"
    assert other.scores["corrections"] == pytest.approx(first.scores["corrections"] + UNREACHED)
    assert first.scores["corrections"] == pytest.approx(words * math.log(0.5))


def test_a_text_that_is_too_long_for_the_model_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InputError, match="on the model's source side has 41 tokens with its end, the model takes at most 30"):
        Corrector.load(checkpoint).candidates(["ba", " ".join(["be"] * 40)])


def test_a_correction_that_loses_more_than_three_words_is_left_out(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TranslationScorer, "candidates", lambda self, sentences, *how: [["la le", "la", "la"] for _ in sentences])
    assert Corrector.load(checkpoint).candidates(["ba be bi bo da", "ba", ""]) == [["la le"], ["la le", "la"], []]


def test_languages_and_prefix_reach_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(translation_scorer, "load_translation_models", lambda paths, name, **options: given.append((paths, options)))
    Corrector.load(tmp_path, "deu_Latn", "fix: ")
    assert given == [([tmp_path], {"languages": "deu_Latn", "source_prefix": "fix: "})]


def test_by_the_command_line(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "LISTS_TOGETHER", 4)
    corrector = Corrector.load(checkpoint)
    items = []
    for nbest in lists(40):  # the reference is what the corrector finds
        first = nbest.hypotheses[0].text or "ba"
        items.append({"input": [first, "ba be bi"], "output": corrector.candidates([first])[0][0], "am_score": [-1, -1]})
    (tmp_path / "dev.json").write_text(json.dumps(items))
    told = run("tune", "dev.json", "--corrector", checkpoint, "--restarts", 1, "--folds", 0).stderr
    assert "new hypotheses in 40 lists" in told
    config = (tmp_path / "attlm.toml").read_text()
    assert f'corrector = "{checkpoint}"' in config
    assert "corrector = " in config.split("[weights]")[1]
    outputs = []
    for devices in ("cpu", "cpu:2"):
        run("rescore", "dev.json", "--to", "jsonl", "-o", f"{devices}.jsonl", "--devices", devices)
        outputs.append((tmp_path / f"{devices}.jsonl").read_bytes())
    assert outputs[0] == outputs[1]
    rows = [json.loads(line)["hyps"][0]["text"] for line in outputs[0].splitlines()]
    assert sum(row == item["output"] for row, item in zip(rows, items, strict=True)) >= 36
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04")
    assert "broken.pt" in refused("tune", "dev.json", "--corrector", "broken.pt")
    assert "there is no such file" in refused("tune", "dev.json", "--corrector", "none.pt")
    (tmp_path / "alone.pt").write_bytes(checkpoint.read_bytes())
    assert "no dict.x.txt and dict.y.txt found" in refused("tune", "dev.json", "--corrector", "alone.pt")
    assert "--dict" not in refused("tune", "dev.json", "--corrector", "alone.pt")
    for name in ("dict.x.txt", "dict.y.txt"):
        (tmp_path / name).write_text("ba 1\n")
    told = refused("tune", "dev.json", "--corrector", "alone.pt")
    assert told.startswith("attlm: error: alone.pt: "), told
    for name in ("dict.x.txt", "dict.y.txt"):
        (tmp_path / name).unlink()
    write_checkpoint(tmp_path / "lm.pt", TARGET_WORDS)
    assert "expected a translation model" in refused("tune", "dev.json", "--corrector", "lm.pt")


def test_pairs_for_fairseq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    items = [{"input": [f"a  {number}", f"b {number}", f"a {number}"], "output": f"c {number}"} for number in range(1, 41)]
    (tmp_path / "train.json").write_text(json.dumps(items))
    assert "76 pairs to train on, 2 to stop by" in run("corrections", "pairs", "train.json", "-o", "pairs").stderr
    texts = {path.name: path.read_text().splitlines() for path in (tmp_path / "pairs").iterdir()}
    assert texts["valid.hyp"] == ["a 20", "a 40"]
    assert texts["valid.ref"] == ["c 20", "c 40"]
    assert texts["train.hyp"][:3] == ["a 1", "b 1", "a 2"]
    assert texts["train.ref"][:3] == ["c 1", "c 1", "c 2"]
    assert "already exists" in refused("corrections", "pairs", "train.json", "-o", "pairs")
    (tmp_path / "few.json").write_text(json.dumps(items[:3]))
    (tmp_path / "again.json").write_text(json.dumps(items * 2))  # the lists of an utterance go the same way
    run("corrections", "pairs", "again.json", "-o", "again")
    again = {path.name: path.read_text().splitlines() for path in (tmp_path / "again").iterdir()}
    assert again["valid.ref"] == ["c 20", "c 40"] * 2
    assert not {*again["valid.ref"]} & {*again["train.ref"]}
    assert "20 utterances at least" in refused("corrections", "pairs", "few.json", "-o", "few")
    assert not (tmp_path / "few").exists()
