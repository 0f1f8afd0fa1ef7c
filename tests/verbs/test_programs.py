"""What programs do with the library: LMs loaded once, values of other libraries, wrong arguments."""

from __future__ import annotations

import gc
import json
import math
import pickle
import re
import shutil
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runs import run

import attlm_fairseq as attlm
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.pyctcdecode import PyctcdecodeLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.messages import collected, note
from attlm_fairseq.nbest.run.config_file import read_config, write_config
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.scoring.unknown_words.oov_policy import parse_policy
from attlm_fairseq.text import parse_steps
from attlm_fairseq.verbs.sources import with_sources

LISTS = [[("sat the cat", -0.2), ("the cat sat", -0.3)], [("mat a", -0.2), ("a mat", -0.3)]]
REFERENCES = ["the cat sat", "a mat"]
SKIPPING = attlm.DeviceConfig(normaliser="none")
QUICK = attlm.TuneOptions(folds=0, restarts=0)


class Nothing(Scorer):
    name = "nothing"

    def score(self, sentences):
        return [SentenceScore((0.0,) * (len(words) + 1), (False,) * len(words)) for words in sentences]

    def signature(self):
        return {"kind": "nothing"}


def test_rescored_lists_are_measured_in_their_new_order(folder):
    best = attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 1.0, "score": 0.0}).lists
    assert [nbest.hypotheses[0].text for nbest in best] == REFERENCES
    attlm.write_nbest(best, "best.jsonl", "jsonl")
    for lists in (best, "best.jsonl"):
        assert attlm.evaluate(LISTS, REFERENCES, {"best": lists}).rows[1].interval.score == 0.0
        assert attlm.evaluate(lists, REFERENCES).rows[0].interval.score == 0.0
        assert attlm.tune(lists, REFERENCES, options=QUICK).rows[0].interval.score == 0.0


@pytest.mark.parametrize("write", ["write_nbest", "rescore"])
def test_lists_of_two_tables_keep_their_scores(tmp_path, write):
    """The columns of the second are in another order."""
    (tmp_path / "a.csv").write_text("id,text,am,lm\nu1,a,-1,-50\nu1,b,-2,-60\n")
    (tmp_path / "b.csv").write_text("id,text,lm,am\nv1,c,-50,-1\nv1,d,-60,-2\n")
    lists, out = attlm.read_nbest(tmp_path / "a.csv") + attlm.read_nbest(tmp_path / "b.csv"), tmp_path / "out.csv"
    if write == "rescore":
        attlm.rescore(lists, weights={"rank": -1.0}, output=attlm.RescoreOutput(out, "csv"))
    else:
        attlm.write_nbest(lists, out)
    assert [nbest.hypotheses[0].scores for nbest in attlm.read_nbest(out)] == [{"am": -1.0, "lm": -50.0}] * 2


@pytest.mark.parametrize("change", ["text", "new"])
@pytest.mark.parametrize("name", ["jsonl", "json", "csv", "moses", "plain"])
def test_lists_of_which_one_is_new_are_rescored_and_written(tmp_path, name, change):
    first = [attlm.NbestList(str(n), [attlm.Hypothesis(text, {"am": -1.0}) for text in ("a", "b")]) for n in range(3)]
    attlm.write_nbest(first, tmp_path / "in", name)
    lists = attlm.read_nbest(tmp_path / "in", format=name)
    if change == "text":
        lists[1].hypotheses[0].text = "c"
    else:
        lists[1] = attlm.NbestList("1", [attlm.Hypothesis("c", {"am": -1.0})])
    attlm.rescore(lists, weights={"rank": -1.0}, output=attlm.RescoreOutput(tmp_path / "out", name))
    assert [nbest.hypotheses[0].text for nbest in attlm.read_nbest(tmp_path / "out", format=name)] == ["a", "c", "a"]


@pytest.mark.parametrize("to", ["jsonl", "json", "moses", "csv", "srilm", "1best", "1best-kaldi", "ctm"])
def test_no_lists_are_written_to_no_file(tmp_path, to):
    """No command reads such a file."""
    for write in (
        lambda out: attlm.rescore([], weights={"rank": -1.0}, output=attlm.RescoreOutput(out, to)),
        *([lambda out: attlm.write_nbest([], out, to)] if to != "ctm" else []),
    ):
        with pytest.raises(InputError, match="there are no lists to write"):
            write(tmp_path / "out")
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["lm.arpa", "lm.pt"])
def test_an_lm_loaded_once_is_saved_by_its_file(folder, file):
    spec = attlm.LMSpec.of(file, text="lowercase", oov="penalty:-7")
    shouted = [[(text.upper(), score) for text, score in nbest] for nbest in LISTS]
    tuned = attlm.tune(shouted, [text.upper() for text in REFERENCES], {"n": attlm.load_lm(spec)}, options=QUICK)
    tuned.save("saved.toml")
    [saved] = read_config(Path("saved.toml")).lms
    assert (saved.name, saved.files, saved.text, saved.oov) == ("n", (Path(file),), spec.text, spec.oov)
    of_files, of_memory = (attlm.rescore(shouted, config=config).lists for config in (attlm.run_config("saved.toml"), tuned.config))
    assert [nbest.hypotheses[0].lm_scores for nbest in of_files] == [nbest.hypotheses[0].lm_scores for nbest in of_memory]


def test_an_lm_loaded_in_another_folder_is_saved_by_its_file(folder, monkeypatch):
    Path("map.tsv").write_text("feline\tcat\n")
    config = attlm.run_config(lms={"n": attlm.LMSpec.of("lm.arpa", text="replace:map.tsv")}, text="replace:map.tsv").in_memory()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    write_config(Path("saved.toml"), config, {})
    saved = read_config(Path("saved.toml"))
    assert saved.lms[0].files == (folder / "lm.arpa",)
    assert saved.text == saved.lms[0].text == parse_steps([f"replace:{folder / 'map.tsv'}"])
    weights = {"n": 1.0, "score": 0.0}
    of_files, of_memory = (attlm.rescore(LISTS, config=of, weights=weights).lists for of in (saved, config))
    assert [nbest.hypotheses for nbest in of_files] == [nbest.hypotheses for nbest in of_memory]


@pytest.mark.parametrize("options", [{}, {"unigram_cache": "500:0.3"}, {"oov": "penalty:-7", "context_sentences": 1}])
def test_an_lm_after_a_history_cannot_be_saved(folder, options):
    later = attlm.load_lm(attlm.LMSpec.of("lm.pt", **options)).after([["the", "cat"]])
    tuned = attlm.tune(LISTS, REFERENCES, {"n": later}, options=QUICK)
    with pytest.raises(attlm.InputError, match=r"n is an object of this program"):
        tuned.save("saved.toml")
    with pytest.raises(attlm.InputError, match=r"n is an object of this program"):
        attlm.fit_context(["the cat sat"] * 3, {"n": later}, find=("unigram-cache",)).save("saved.toml")
    assert attlm.load_lm("lm.arpa").after([["the", "cat"]]).spec is not None  # an n-gram LM has no history


def test_an_lm_without_a_perplexity_is_not_fitted(folder):
    arpa = Path("lm.arpa").read_text()
    Path("zero.arpa").write_text(re.sub(r"(?m)^-[\d.]+\tcat\b", "-inf\tcat", arpa))
    assert Path("zero.arpa").read_text() != arpa
    with pytest.raises(attlm.InputError, match=r"n: its perplexity \(alone\) is inf, expected a finite number above 0"):
        attlm.fit_context(["the cat sat"] * 3, {"n": "zero.arpa"}, find=("unigram-cache",))


@pytest.mark.parametrize("options", [{}, {"unigram_cache": "500:0.3", "temperature": 3.0, "oov": "penalty:-7", "text": "lowercase"}])
def test_a_loaded_lm_is_fitted_as_its_file_is(folder, options):
    lines, spec = ["the cat sat on the mat", "a dog ran", "the dog sat"] * 3, attlm.LMSpec.of("lm.pt", **options)
    find = ("temperature", "unigram-cache")
    of_file, of_memory = (attlm.fit_context(lines, {"a": lm}, find=find) for lm in (spec, attlm.load_lm(spec)))
    assert of_file.rows == of_memory.rows
    for name, fitted in (("file.toml", of_file), ("memory.toml", of_memory)):
        fitted.save(name)
        assert attlm.perplexity(lines, config=name) == attlm.perplexity(lines, config=fitted.config)
    assert Path("file.toml").read_text() == Path("memory.toml").read_text()


def test_an_object_cannot_be_saved(folder):
    tuned = attlm.tune(LISTS, REFERENCES, {"own": Nothing()}, options=QUICK)
    with pytest.raises(attlm.InputError, match=r"own is an object of this program.* give the LM as a file"):
        tuned.save("saved.toml")
    assert not Path("saved.toml").exists()


def test_a_service_loads_its_lms_once(folder, monkeypatch):
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--lm", "lm=lm.pt", "--folds", 0, "--restarts", 0)
    config = attlm.run_config("attlm.toml")
    service = config.in_memory()
    expected = attlm.rescore(LISTS, config=config, weights={"am_score": 0.0, "score": 1.0})
    for file in ("lm.pt", "dict.txt"):
        Path(file).rename(f"{file}.moved")
    found = attlm.rescore(LISTS, config=service, weights={"am_score": 0.0, "score": 1.0})
    assert found.record == expected.record
    assert [nbest.hypotheses for nbest in found.lists] == [nbest.hypotheses for nbest in expected.lists]
    assert service.in_memory() == service


@pytest.mark.parametrize("file", ["lm.arpa", "lm.pt"])
@pytest.mark.parametrize("changed", ["change", "go", "folder"])
def test_files_may_change_or_go_once_they_are_loaded(folder, monkeypatch, file, changed):
    Path("map.tsv").write_text("feline\tcat\n")
    spec = attlm.LMSpec.of(file, text="replace:map.tsv")
    lists = [[("the feline sat", -0.2), ("sat feline", -0.3)]]
    config = attlm.run_config(lms={"n": spec}, text="replace:map.tsv", weights={"n": 1.0, "score": 0.0})
    expected, service = attlm.rescore(lists, config=config), config.in_memory()
    for name in (file, "map.tsv"):
        if changed == "change":
            Path(name).rename(f"{name}.old")
            Path(name).write_text("the\tdog\n")
        elif changed == "go":
            Path(name).unlink()
    if changed == "folder":
        Path("elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
    for _ in range(2):
        found = attlm.rescore(lists, config=service)
        assert [nbest.hypotheses for nbest in found.lists] == [nbest.hypotheses for nbest in expected.lists]
        record = found.record["lm"]["n"]
        assert record["sha256"] == expected.record["lm"]["n"]["sha256"]
        assert record["text"] == [step.replace("map.tsv", str(folder / "map.tsv")) for step in expected.record["lm"]["n"]["text"]]


@pytest.mark.parametrize("output", [None, "out.jsonl"])
def test_files_of_corrections_are_read_once(folder, output):
    attlm.learn_corrections(LISTS * 10, REFERENCES * 10).save("table.tsv")
    Path("names.txt").write_text("cat\n")
    config = attlm.run_config(corrections="table.tsv", phrases="names.txt", weights={"corrections": 1.0, "score": 1.0})
    expected, service = attlm.rescore(LISTS, config=config), config.in_memory()
    measured = attlm.evaluate(LISTS, REFERENCES, config=config)
    for name in ("table.tsv", "table.arpa", "names.txt"):
        Path(name).unlink()
    assert str(attlm.evaluate(LISTS, REFERENCES, config=service)) == str(measured)
    assert service.candidates.read_phrases() is service.candidates.load().phrase_list
    found = attlm.rescore(LISTS, config=attlm.run_config(service, candidates=20), output=output and attlm.RescoreOutput(output, "jsonl"))
    lists = attlm.read_nbest(output) if output else found.lists
    assert any(len(nbest.hypotheses) > len(before) for nbest, before in zip(lists, LISTS, strict=True))
    texts = [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in lists]
    assert texts == [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in expected.lists]
    assert service.in_memory().candidates.loaded is service.candidates.loaded
    with pytest.raises(attlm.InputError, match=r"table\.tsv: cannot be read: there is no such file"):
        attlm.run_config(service, corrections="table.tsv")
    with pytest.raises(attlm.InputError, match=r"the value of corrections is .*: expected the name of a file, which in_memory\(\)"):
        attlm.run_config(corrections=attlm.learn_corrections(LISTS, REFERENCES))


@pytest.mark.parametrize("options", [{}, {"unigram_cache": "500:0.3"}])
def test_a_conversation_may_arrive_sentence_by_sentence(folder, options):
    """Also with a mixture, whose members have text steps, and an n-gram LM, which has no history."""
    lms = {"n": attlm.LMSpec.of("lm.pt", text="lowercase", **options), "kenlm": attlm.LMSpec.of("lm.arpa", text="lowercase")}
    shouted = [[(text.upper(), score) for text, score in nbest] for nbest in LISTS]
    for config in (attlm.run_config(lms=lms, weights={"n": 1.0, "kenlm": 0.5, "score": 0.0}), mixed(lms)):
        service = config.in_memory()
        together = attlm.rescore(shouted, config=attlm.run_config(service, context="all")).lists
        one_by_one = []
        for hypotheses in shouted:
            [nbest] = attlm.rescore([hypotheses], config=service).lists
            one_by_one.append(nbest.hypotheses[0])
            service = service.after([nbest.hypotheses[0].text])
        assert [best.total for best in one_by_one] == pytest.approx([nbest.hypotheses[0].total for nbest in together], abs=1e-5)
        alone = attlm.rescore(shouted, config=config).lists
        assert one_by_one[-1].total != pytest.approx(alone[-1].hypotheses[0].total, abs=1e-4)
        with pytest.raises(attlm.InputError, match=r"n is not loaded, so it can be after no sentence: take .* in_memory\(\)"):
            config.after(["the cat"])


def test_scores_after_other_sentences_are_not_continued_from(folder):
    """The scores so far of an interrupted run are of the sentences that were before it."""
    texts = ("the cat sat", "the dog")
    lists = [attlm.NbestList(str(n), [attlm.Hypothesis(f"{text} {n}", {"am": -1.0}) for text in texts]) for n in range(900)]
    service = attlm.run_config(lms={"n": "lm.pt"}, weights={"n": 1.0}).in_memory()
    once, twice = service.after(["the cat sat"]), service.after(["a dog ran", "the cat sat on"])

    def broken_off():
        yield from lists[:800]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attlm.rescore(broken_off(), config=once, output=attlm.RescoreOutput("out.jsonl", "jsonl"))
    attlm.rescore(lists, config=twice, output=attlm.RescoreOutput("out.jsonl", "jsonl"))
    expected = [nbest.hypotheses[0].lm_scores["n"] for nbest in attlm.rescore(lists, config=twice).lists]
    assert [nbest.hypotheses[0].scores["n"] for nbest in attlm.read_nbest("out.jsonl")] == pytest.approx(expected, abs=1e-5)


def test_phrases_in_memory_reach_other_processes(folder):
    Path("names.txt").write_text("cat\n")
    service = attlm.run_config(phrases="names.txt", weights={"corrections": 1.0, "score": 1.0}).in_memory()
    expected = attlm.rescore(LISTS, config=service).lists
    found = attlm.rescore(LISTS, config=attlm.run_config(service, devices="cpu:2")).lists
    assert [nbest.hypotheses for nbest in found] == [nbest.hypotheses for nbest in expected]


def mixed(lms):
    config = attlm.estimate_mixture(["the cat sat", "a dog ran"], lms).config
    halves = tuple(replace(lm, mixture=lm.mixture and (("n", 0.5), ("kenlm", 0.5))) for lm in config.lms)
    return attlm.run_config(replace(config, lms=halves), weights={"mix": 1.0, "score": 0.0})


def test_the_attention_of_the_one_neural_lm(folder):
    config = attlm.run_config(lms={"kenlm": "lm.arpa", "n": attlm.LMSpec.of("lm.pt", oov="penalty:-7")})
    for name, run_of in (("files.json", config), ("memory.json", config.in_memory())):
        attlm.show_attention("the cat sat", config=run_of, output=attlm.AttentionOutput((name,)))
    assert Path("files.json").read_bytes() == Path("memory.json").read_bytes()
    two = attlm.run_config(config.in_memory(), lms={"m": "lm.pt"})
    with pytest.raises(attlm.InputError, match="the attention of one model is shown, 2 are given"):
        attlm.show_attention("the cat sat", config=two)


def test_the_hash_is_that_of_the_file_that_was_loaded(folder):
    shutil.copy("lm.arpa", "moving.arpa")
    lm, later = attlm.load_lm("moving.arpa"), KenLMScorer(Path("moving.arpa"))
    Path("moving.arpa").write_text(Path("moving.arpa").read_text() + "\n")
    with pytest.raises(attlm.InputError, match=r"moving\.arpa: has changed since it was loaded"):
        later.signature()
    Path("moving.arpa").unlink()
    assert lm.signature()["sha256"] == sha256(Path("lm.arpa"))


def test_nothing_is_written_if_an_lm_changes_while_lists_are_rescored(folder):
    shutil.copy("lm.arpa", "moving.arpa")

    def change(_: int) -> None:
        Path("moving.arpa").write_text(Path("lm.arpa").read_text() + "\n")

    with pytest.raises(attlm.InputError, match=r"moving\.arpa: has changed since it was loaded"):
        attlm.rescore("dev.json", {"lm": "moving.arpa"}, {"lm": 1.0}, output="out", on_progress=change)
    assert not Path("out").exists()


def test_scores_of_other_libraries(folder):
    for number in (np.float32(-1.5), np.float64(-1.5), np.int64(-1), torch.tensor(-1.5)):
        [nbest] = attlm.rescore([[("the cat", number), ("a cat", {"am": number, "score": number})]], weights={"score": 1.0}).lists
        assert nbest.hypotheses[0].scores["score"] == float(number)
    for wrong in ("-1", None, np.zeros(2), {"am": "-1"}):
        with pytest.raises(attlm.InputError, match="list 0 has the hypothesis"):
            attlm.rescore([[("the cat", wrong)]], weights={"score": 1.0})


@pytest.mark.parametrize("number", [np.float32(-1.5), np.float64(-1.5), np.int64(-2), torch.tensor(-1.5), -2])
def test_scores_of_other_libraries_are_written(folder, number):
    best = attlm.rescore([scored(number)], weights={"am": 1.0}).lists
    for lists in (best, [scored(number)]):
        attlm.write_nbest(lists, "np.jsonl", "jsonl")
        [nbest] = attlm.read_nbest("np.jsonl")
        assert nbest.hypotheses[0].scores["am"] == float(number)


def scored(number):
    return attlm.NbestList("u", [attlm.Hypothesis("the cat", {"am": number}, rank=1)])


@pytest.mark.parametrize("number", [2, 2.5, np.float32(2.5), np.int64(2)])
def test_options_of_other_libraries_are_saved(folder, number):
    spec = attlm.LMSpec.of(["lm.pt", "lm.pt"], temperature=number, ensemble_weights=[number, 1], only_close=number)
    write_config(Path("saved.toml"), attlm.run_config(lms={"n": spec}), {})
    [saved] = read_config(Path("saved.toml")).lms
    assert (saved.temperature, saved.ensemble_weights, saved.only_close) == (number, (number, 1.0), number)


WRONG_OPTIONS = [
    ("lm.arpa", {"dictionary": "nofile"}, "dictionary is not for an ARPA or KenLM file"),
    ("lm.arpa", {"source_text": "lowercase"}, "source_text is not for an ARPA or KenLM file"),
    ("lm.arpa", {"translation": "forward"}, "translation is not for an ARPA or KenLM file"),
    ("lm.arpa", {"only_close": -1.0}, "only_close is -1.0, expected a finite number that is not negative"),
    ("lm.pt", {"translation": "backwards"}, "translation is 'backwards', expected one of forward, right-to-left, reverse"),
    ("lm.pt", {"temperature": "2.0"}, "temperature is '2.0', expected a number above 0"),
    ("lm.pt", {"temperature": 0}, "temperature is 0, expected a number above 0"),
    ("lm.pt", {"context_sentences": -1}, "context_sentences is -1, expected a whole number, not negative"),
    ("lm.pt", {"sentence_start": 3}, "sentence_start is 3, expected a token"),
    ("lm.pt", {"oov": None}, "oov is None, expected a policy"),
    ("lm.pt", {"dictionary": 3}, "dictionary is 3, expected a file"),
    ("lm.pt", {"text": [3]}, "found the text step 3"),
    ("lm.pt", {"neural_cache": 500}, "neural_cache is 500, expected SIZE:THETA:WEIGHT"),
    (["lm.pt", "lm.pt"], {"ensemble_weights": [1, 2, 3]}, "ensemble_weights needs 2 numbers"),
    (["lm.pt", "lm.pt"], {"ensemble_weights": [1, -2]}, r"ensemble_weights is \[1, -2\], expected a list of numbers, none negative"),
    ([], {}, "the LM 'lm' names no file"),
    (None, {}, "the LM 'lm' is None: expected a file, a list of checkpoints"),
    (Nothing(), {}, "the LM 'lm' is .*<Nothing: nothing>"),
]


@pytest.mark.parametrize(("files", "options", "message"), WRONG_OPTIONS)
def test_options_of_lms_are_checked(folder, files, options, message):
    with pytest.raises(attlm.InputError, match=f"^{message}"):
        attlm.LMSpec.of(files, **options)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("kenlm = 'a'\nonly_close = -1", r"only_close = -1, expected a finite number that is not negative"),
        ("kenlm = 'a'\ncontext_sentences = 1.5", r"context_sentences = 1.5, expected a whole number, not negative"),
        ("checkpoint = 'a'\ntemperature = 0", r"temperature: found '0', expected a number above 0"),
        ("checkpoint = 'lm.pt'\nensemble_weights = [1, 2]", r"ensemble_weights needs 1 numbers"),
        (
            "mixture = { n = 0.5, m = 0.5 }\ncontext_sentences = 1",
            r"'context_sentences' is not an entry of \[lm.x\]; known are mixture, only_close, oov",
        ),
    ],
)
def test_options_in_files_are_checked_in_the_same_way(tmp_path, entry, message):
    path = tmp_path / "attlm.toml"
    path.write_text(f"[lm.x]\n{entry}\n")
    with pytest.raises(attlm.InputError, match=message) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "[lm.x]" in str(error.value)


def test_text_steps_may_be_a_list(folder):
    steps = ["unicode:nfc", "lowercase"]
    assert attlm.LMSpec.of("lm.arpa", text=steps) == attlm.LMSpec.of("lm.arpa", text=",".join(steps))
    assert attlm.run_config(text=iter(steps)).text == attlm.LMSpec.of("lm.arpa", text=steps).text


def test_metrics_with_text_steps(folder):
    lists, references = [["The cat, sat."], ["A dog!"]], ["the cat sat", "a dog"]
    for steps in ("remove-punctuation,lowercase", ["remove-punctuation", "lowercase"]):
        metric = attlm.make_metric("wer", text=steps)
        assert attlm.evaluate(lists, references, metric=metric).rows[0].interval.score == 0
    assert attlm.evaluate(lists, references, metric=attlm.make_metric("WER")).rows[0].interval.score > 0
    with pytest.raises(attlm.InputError, match="'lower' is not a text step"):
        attlm.make_metric("wer", text="lower")


def test_candidates_of_a_run(folder):
    Path("names").write_text("mats\n")
    config = attlm.run_config(phrases="names", candidates=3, weights={"phrases": 1.0})
    [found] = attlm.rescore([["on the mat"]], config=config).lists
    assert [hypothesis.text for hypothesis in found.hypotheses][:1] == ["on the mats"]
    for wrong in (-1, "5", 1.5):
        with pytest.raises(attlm.InputError, match=f"candidates is {wrong!r}, expected 0 to"):
            attlm.run_config(phrases="names", candidates=wrong)
    with pytest.raises(attlm.InputError, match="corrector_languages is for a corrector, and none is given"):
        attlm.run_config(phrases="names", corrector_languages="en_XX:en_XX")
    with_corrector = attlm.run_config(config, corrector="names", corrector_languages="en_XX:en_XX", corrector_prefix="correct: ")
    assert with_corrector.candidates.corrector_languages == "en_XX:en_XX"
    assert with_corrector.candidates.phrases == Path("names")
    assert attlm.run_config(with_corrector, corrector="names").candidates.corrector_languages is None  # those of another corrector
    with pytest.raises(attlm.InputError, match="names2: cannot be read"):
        attlm.run_config(phrases="names2")


def test_options_of_other_types_are_refused():
    for options, message in (
        (lambda: attlm.JackknifeOptions(folds="5"), "the value of folds is '5'"),
        (lambda: attlm.DeviceConfig(memory=-5), "memory -5: expected a number of bytes"),
        (lambda: attlm.SamplingOptions(temperature="a"), "cannot sample with temperature a"),
        (lambda: attlm.SamplingOptions(top_k=2.5), "top-k 2.5"),
    ):
        with pytest.raises(attlm.InputError, match=message):
            options()


@pytest.mark.parametrize("file", ["lm.arpa", "lm.pt"])
def test_a_sentence_is_a_list_of_words(folder, file):
    lm = attlm.load_lm(file)
    for wrong in (["the cat"], "the cat", [[1, 2]], [(word for word in ["the", "cat"])]):
        with pytest.raises(attlm.InputError, match=r"expected a list of words, such as \['a', 'sentence'\]"):
            lm.score(wrong)
    assert lm.score([(), ("the", "cat")])[1].words == 2
    for word in ("cat", "horse"):
        assert lm.score([np.array(["the", word])]) == lm.score([["the", word]])


def test_devices_of_torch():
    cpu = torch.device("cpu")
    assert attlm.DeviceConfig(cpu) == attlm.DeviceConfig("cpu")
    for devices in (cpu, [cpu], ["cpu"], attlm.DeviceConfig(cpu)):
        assert attlm.run_config(devices=devices).devices == (attlm.DeviceConfig(),)
    assert len(attlm.run_config(devices=["cpu", "cpu:2"]).devices) == 3


def test_lms_are_loaded_to_devices_of_torch(folder):
    sentence = [("the", "cat")]
    assert attlm.load_lm("lm.pt", device=torch.device("cpu")).score(sentence) == attlm.load_lm("lm.pt").score(sentence)
    assert DecoderLM.load("lm.pt", device=torch.device("cpu")).device == torch.device("cpu")


def test_the_device_of_a_loaded_lm_stays(folder):
    config = attlm.run_config(lms={"n": "lm.pt", "kenlm": "lm.arpa"}).in_memory()
    assert attlm.run_config(config, devices="cpu").devices == config.devices
    with pytest.raises(attlm.InputError, match=r"n is loaded already, with DeviceConfig\(device='cpu', precision='float32'"):
        attlm.run_config(config, devices=attlm.DeviceConfig(precision="bfloat16"))
    attlm.run_config(lms={"own": Nothing(), "kenlm": attlm.load_lm("lm.arpa")}, devices=attlm.DeviceConfig(precision="bfloat16"))


def test_devices_are_checked():
    for wrong in ({"precision": "int8"}, {"normaliser": "no"}, {"device": "gpu"}, {"device": "cuda:77"}, {"memory": "1G"}):
        [(name, value)] = wrong.items()
        with pytest.raises(attlm.InputError, match=f"{name} {value!r}"):
            attlm.DeviceConfig(**wrong)


def test_wrong_arguments_are_named(folder):
    tables = attlm.evaluate(LISTS, iter(REFERENCES))
    assert tables.rows[0].interval.score > 0
    cases = {
        "the LMs are 'lm.arpa'": lambda: attlm.rescore(LISTS, "lm.arpa", {"n": 1.0}),
        "the weights are 3": lambda: attlm.rescore(LISTS, {"n": "lm.arpa"}, 3),
        "the weight of n is '0.5'": lambda: attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": "0.5"}),
        "the lists are None": lambda: attlm.rescore(None, {"n": "lm.arpa"}, {"n": 1.0}),
        "the lists are NbestList": lambda: attlm.rescore(attlm.NbestList("a", [attlm.Hypothesis("b")]), weights={"rank": -1.0}),
        "the references are 3": lambda: attlm.evaluate(LISTS, 3),
        "other systems that are not files need names": lambda: attlm.evaluate(LISTS, REFERENCES, [LISTS]),
        "the text is 3": lambda: attlm.perplexity(3, {"n": "lm.arpa"}),
        r"found the line \['a'": lambda: attlm.perplexity([["a", "b"]], {"n": "lm.arpa"}),
        "there is no sentence to measure": lambda: DecoderLM.load("lm.pt").deviation([]),
        "device 'gpu'": lambda: DecoderLM.load("lm.pt", device="gpu"),
        "the decision is 5": lambda: attlm.run_config(decision=5),
        "rule '': expected one of max": lambda: attlm.run_config(decision=""),
        "the value of sentences is 'the cat'": lambda: attlm.run_config().after("the cat"),
        r"the sentence is \['the', 'cat'\]": lambda: attlm.run_config().after([["the", "cat"]]),
        "--normaliser does not go with sentences before": lambda: attlm.run_config(devices=SKIPPING).after(["a"]),
        "the context is 5": lambda: attlm.run_config(context=5),
        "the configuration is {}": lambda: attlm.rescore(LISTS, config={}),
        "found the text step 5": lambda: attlm.run_config(text=5),
        "--devices '4': expected cpu": lambda: attlm.run_config(devices=4),
        "the LM 'n' is None": lambda: attlm.rescore(LISTS, {"n": None}, {"n": 1.0}),
        "1 cannot be the name of an LM": lambda: attlm.rescore(LISTS, {1: "lm.arpa"}, {1: 1.0}),
        "the weight of n is 'x'": lambda: attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": np.str_("x")}),
        "the weight of n is .*1j": lambda: attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": np.complex128(1j)}),
        "the metric is 3": lambda: attlm.evaluate(LISTS, REFERENCES, metric=3),
        "the value of options is {'folds': 0}": lambda: attlm.tune(LISTS, REFERENCES, options={"folds": 0}),
        "list '0': its reference is 3": lambda: attlm.evaluate(LISTS, [3, "a"]),
        "list '0': its reference is 4": lambda: attlm.evaluate(LISTS, [["a", 4], "a"]),
        "list 'u' has the score am = 'x'": lambda: attlm.rescore([scored("x")], weights={"am": 1.0}),
        r"the id of a list is 1 \(int\): expected a text": lambda: attlm.write_nbest([attlm.NbestList(1, [])], "out"),
        "there are no lists to learn corrections from": lambda: attlm.learn_corrections([], []),
        "0 different lists": lambda: attlm.evaluate_corrections([], []),
        "the text of a decision is 'lowercase'": lambda: attlm.Decision("consensus", text="lowercase"),
        "the metric is None": lambda: attlm.make_metric(None),
        "the output is 5": lambda: attlm.rescore(LISTS, weights={"rank": -1.0}, output=5),
        "the file is 5": lambda: attlm.estimate_ngram(["a b"], 5, 2),
        "the value of beams is None": lambda: attlm.from_beams(None),
        "the value of files is 'x.png'": lambda: attlm.AttentionOutput(files="x.png"),
        "the file is <Nothing: nothing>": lambda: attlm.sample(Nothing()),
        "the value of number is -1": lambda: attlm.sample("lm.pt", -1),
        "the value of number is '3'": lambda: attlm.sample("lm.pt", "3"),
        "the value of seed is 'x'": lambda: attlm.sample("lm.pt", seed="x"),
        "the value of options is {'top_k': 5}": lambda: attlm.sample("lm.pt", options={"top_k": 5}),
        "the value of options is {'questions': 5}": lambda: attlm.make_cloze("text", {"questions": 5}),
        "the value of options is {}": lambda: attlm.jackknife(LISTS, REFERENCES, options={}),
        "the value of questions is -1": lambda: attlm.BlankingOptions(questions=-1),
        "the value of context is 0": lambda: attlm.BlankingOptions(context=0),
        "the value of candidates is 1": lambda: attlm.BlankingOptions(candidates=1),
        "the question is 'x'": lambda: attlm.answer_cloze(["x"], {"n": "lm.arpa"}),
        "the value of context is 'a b'": lambda: attlm.ClozeQuestion("a b", "XXXXX", "a", ("a", "b")),
        "the value of candidates is 'ab'": lambda: attlm.ClozeQuestion((), "XXXXX", "a", "ab"),
    }
    for message, call in cases.items():
        with pytest.raises(attlm.InputError, match=message):
            call()


def test_decoders_take_loaded_lms(folder):
    for wrong in (lambda: PyctcdecodeLM("lm.arpa"), lambda: LookAheadWordLM("lm.arpa", []), lambda: TokenFusion("lm.arpa", [])):
        with pytest.raises(TypeError, match=r"LogLinearLM\.load\('lm\.arpa'\) returns, not a str"):
            wrong()
    assert LogLinearLM.load({Path("lm.arpa"): 1.0}).weights == (1.0,)


def test_outputs_may_be_names(folder):
    attlm.rescore("dev.json", {"n": "lm.arpa"}, {"n": 1.0}, output="out.json")
    run("rescore", "dev.json", "--kenlm", "n=lm.arpa", "--weight", "n=1", "-o", "again.json")
    assert Path("out.json").read_bytes() == Path("again.json").read_bytes()
    attlm.estimate_ngram("text", "small.arpa", 2, attlm.NgramOptions(discount_fallback=True))
    attlm.export_model("lm.pt", "exported")
    attlm.learn_corrections(LISTS, REFERENCES, lm=Path("small.arpa")).save("table.tsv")
    attlm.Corrections.load("table.tsv").save("again.tsv")
    assert Path("table.tsv").read_bytes() == Path("again.tsv").read_bytes()
    DecoderLM.load("exported").save("copied")
    assert {path.name for path in Path("copied").iterdir()} == {path.name for path in Path("exported").iterdir()}


def test_results_print_as_the_commands_do(folder):
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 0)
    tuned = attlm.tune("dev.json", lms={"kenlm": "lm.arpa"}, options=QUICK)
    printed = run("tune", "dev.json", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 0).stdout
    assert str(tuned).split("weights")[0] == printed.split("weights")[0]
    assert "kenlm" in str(tuned).split("weights")[1]
    found = {
        ("eval", "dev.json"): attlm.evaluate("dev.json"),
        ("mix", "text", "--lm", "lm.pt", "--kenlm", "lm.arpa"): attlm.estimate_mixture("text", {"lm": "lm.pt", "kenlm": "lm.arpa"}),
        ("fit", "text", "--lm", "lm.pt", "--find", "temperature"): attlm.fit_context("text", {"lm": "lm.pt"}, find=["temperature"]),
        ("corrections", "eval", "dev.json", "--folds", 3): attlm.evaluate_corrections("dev.json", folds=3),
    }
    for command, result in found.items():
        assert f"{result}\n" == run(*command).stdout


def test_rescored_lists_are_told_and_taken_as_lists(folder):
    rescored = attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 1.0, "score": 0.0, "words": -0.5})
    assert str(rescored).splitlines() == [rescored.summary, "decision: max; total = 1 n + -0.5 words"]
    assert attlm.evaluate(LISTS, REFERENCES, {"best": rescored}).rows[1].interval.score == 0.0
    attlm.write_nbest(rescored, "best.jsonl")
    assert [nbest.hypotheses[0].text for nbest in attlm.read_nbest(attlm.NbestFile("best.jsonl", "jsonl"))] == REFERENCES
    written = attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 1.0}, output=attlm.RescoreOutput("best.jsonl", "jsonl"))
    with pytest.raises(InputError, match="were written to the output: read them"):
        attlm.evaluate(LISTS, REFERENCES, {"best": written})


def test_tuning_on_fewer_lists_than_folds_need_is_warned_of(folder):
    for options, begins in ((attlm.TuneOptions(restarts=0), "WARNING"), (QUICK, "note")):
        with collected() as lines:
            attlm.tune(LISTS, REFERENCES, {"n": "lm.arpa"}, options=options)
        assert any(line.startswith(f"{begins}: without cross-validation") for line in lines)


def test_objects_are_shown_without_what_is_large(folder):
    [nbest, *_] = attlm.read_nbest("dev.json")
    assert "Text(" not in repr(nbest)
    corrections = attlm.learn_corrections("dev.json")
    assert re.fullmatch(r"<Corrections: \d+ phrases, \d+ words, from \d+ lists>", repr(corrections))
    assert f"wrote table.tsv: {corrections}\n" in run("corrections", "dev.json", "-o", "table.tsv").stderr
    lm = attlm.load_lm(["lm.pt", "lm.arpa"], "both")
    assert list(map(repr, (lm, *lm.members))) == ["<MixtureScorer: both>", "<NeuralScorer: both[1]>", "<KenLMScorer: both[2]>"]
    assert repr(LogLinearLM.load({"lm.pt": -0.25, "lm.arpa": 1})) == "<LogLinearLM: -0.25 * lm.pt + 1 * lm.arpa>"
    assert repr(attlm.make_metric("cer", lowercase=True)).startswith("<CER: nrefs:var|case:lc|")
    assert repr(attlm.make_metric("external:cat")) == "<ExternalMetric: external>"
    count = OOVCount("lm")
    count.add([["a", "b"]], [[False, True]])
    assert repr(count) == "<OOVCount: 1 of 2 words are unknown to lm>"


def test_a_loaded_lm_is_known_by_its_options(folder):
    """Its policy for unknown words and its kind decide what a mixture, a perplexity and a warning say of it."""
    Path("text").write_text("the cat sat\nthe zebra sat\na mat\n" * 8)
    specs = {name: attlm.LMSpec.of("lm.arpa", oov=f"spread:{types}") for name, types in (("few", 10), ("many", 1_000_000))}
    loaded = {name: attlm.load_lm(spec) for name, spec in specs.items()}
    of_files, of_memory = (attlm.estimate_mixture("text", lms) for lms in (specs, loaded))
    assert of_memory.weights == of_files.weights
    assert of_files.weights["few"] > 0.9
    assert of_memory.ppl == of_files.ppl
    fixed = attlm.load_lm(attlm.LMSpec.of("lm.arpa", oov="penalty:-12"))
    with collected() as notes:
        attlm.perplexity("text", {"fixed": fixed})
    assert any("fixed gives unknown words a fixed penalty" in line for line in notes)


def test_loaded_and_named_lms_with_a_file_of_steps_mix(folder):
    Path("table").write_text("mat\tcat\n")
    spec = attlm.LMSpec.of("lm.arpa", text="replace:table")
    mixed = attlm.LMSpec("mix", mixture={"a": 0.5, "b": 0.5})
    found = attlm.rescore(LISTS, {"a": attlm.load_lm(spec), "b": spec, "mix": mixed}, {"mix": 1.0, "score": 1.0}).lists
    alone = attlm.rescore(LISTS, {"mix": spec}, {"mix": 1.0, "score": 1.0}).lists
    totals, expected = ([hypothesis.total for nbest in lists for hypothesis in nbest.hypotheses] for lists in (found, alone))
    assert totals == pytest.approx(expected, abs=1e-5)


def test_a_score_of_an_earlier_rescoring_has_its_weight(folder):
    once = attlm.rescore(LISTS, {"a": "lm.arpa"}, {"a": 1.0, "score": 0.0}).lists
    with collected() as notes:
        twice = attlm.rescore(once, {"b": "lm.arpa"}, {"b": 0.5, "a": 0.5, "score": 0.0}).lists
    assert not any("no hypothesis has a score" in line for line in notes)
    best = twice[0].hypotheses[0]
    assert best.total == pytest.approx(0.5 * best.lm_scores["a"] + 0.5 * best.lm_scores["b"])


def test_a_loaded_lm_is_not_moved_by_a_configuration(folder):
    low = attlm.run_config(devices=attlm.DeviceConfig(precision="bfloat16"))
    with pytest.raises(InputError, match="n is loaded already"):
        attlm.rescore(LISTS, {"n": attlm.load_lm("lm.pt")}, {"n": 1.0}, config=low)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attlm.load_lm(attlm.LMSpec("lm")), "the LM 'lm' names no file"),
        (lambda: attlm.LMSpec("m", mixture=(("a", 0.5), ("b", -1))), r"mixture is .*, expected \{NAME = WEIGHT"),
        (lambda: attlm.LMSpec("m", mixture=(("a", "x"),)), r"expected \{NAME = WEIGHT"),
        (lambda: attlm.LMSpec("m", mixture=3), r"expected \{NAME = WEIGHT"),
        (lambda: attlm.LMSpec("m", mixture={"a": 1.0}), "names of two or more LMs"),
        (lambda: attlm.LMSpec("m", kenlm=3), "kenlm is 3, expected a file"),
        (lambda: attlm.LMSpec.of("lm.pt", source_text="lowercase"), "source_text is for translation models"),
        (
            lambda: attlm.run_config(
                lms={"a": attlm.LMSpec.of("lm.pt", only_close=1), "b": "lm.arpa", "m": attlm.LMSpec("m", mixture={"a": 1, "b": 1})}
            ),
            "only_close of a has no effect in the mixture m",
        ),
        (lambda: attlm.LMSpec("m", checkpoints="lm.pt"), "expected a list of files"),
        (lambda: attlm.LMSpec.of("lm.arpa", only_close=10**400), "expected a finite number that is not negative"),
        (lambda: attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 10**400}), "the weight of n is .*: expected a finite number"),
        (lambda: attlm.evaluate(LISTS, REFERENCES, "best"), r"expected a list of files, such as \['best'\]"),
        (lambda: attlm.evaluate(LISTS, REFERENCES, 3), "other systems that are not files need names"),
        (lambda: attlm.evaluate(LISTS, REFERENCES, (file for file in ["none", "none"])), "two systems are called 'none'"),
        (lambda: attlm.combine([LISTS, LISTS]), "expected a dictionary by name"),
        (lambda: attlm.read_nbest(3), "the file is 3 .*: expected a path"),
        (lambda: attlm.read_nbest("lists", format=3), "the format is 3 .*: expected a name"),
        (lambda: attlm.write_nbest(LISTS, "out", 3), "the format is 3 .*: expected a name"),
        (lambda: attlm.convert(LISTS, "out", 3), "the format is 3 .*: expected a name"),
        (lambda: attlm.convert(LISTS, 3, "kaldi"), "the file is 3 .*: expected a path"),
        (lambda: attlm.sample("lm.pt", 2, prefix=["the"]), r"--prefix is \['the'\]: expected a string"),
        (lambda: attlm.show_attention(["the cat"], {"lm": "lm.pt"}), r"the sentence is \['the cat'\]: expected a string"),
        (
            lambda: attlm.rescore(LISTS, {"n": "lm.pt", "k": "lm.arpa"}, {"n": 1, "x": 1}),
            "no weight for k .weights are given for n, x; the LMs are n, k",
        ),
    ],
)
def test_what_is_no_lm_system_or_file_is_one_line(folder, call, message):
    with pytest.raises(InputError, match=message):
        call()
    assert not Path("out").exists()


def test_files_of_an_lmspec_may_be_texts(folder):
    for spec in (attlm.LMSpec("lm", kenlm="lm.arpa"), attlm.LMSpec("lm", checkpoints=["lm.pt"])):
        assert attlm.load_lm(spec).score([["the", "cat"]])


@pytest.mark.parametrize("verb", [attlm.perplexity, attlm.fit_context, attlm.estimate_mixture])
def test_a_text_without_a_sentence_is_refused(folder, verb):
    config = attlm.run_config(context="blank")
    (folder / "blank.txt").write_text("\n\n")
    for text in ([], ["", " "], "blank.txt"):
        with pytest.raises(InputError, match=r"^(blank\.txt: )?has no sentence"):
            verb(text, {"a": "lm.pt", "b": "lm.pt"}, config=config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no_gain": "Fail"}, "value of no_gain is 'Fail': expected 'keep' or 'fail'"),
        ({"objective": "Risk"}, "value of objective is 'Risk': expected 'metric' or 'risk'"),
        ({"rules": "mbr-wer"}, r"value of rules is 'mbr-wer' \(str\): expected a list of names"),
        ({"restarts": -1}, "value of restarts is -1: expected a whole number, 0 or more"),
        ({"intervals": {"n": (1, 0)}}, r"interval of n is \(1, 0\): expected the lowest and the highest weight"),
        ({"intervals": {"n": (float("nan"), 1)}}, "interval of n is"),
        ({"strength": "half"}, "value of strength is 'half'"),
    ],
)
def test_options_of_tuning_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        attlm.TuneOptions(**options)


def test_numbers_of_numpy_among_the_options_are_saved(folder):
    options = attlm.TuneOptions(folds=0, restarts=0, seed=np.int64(2), strength=np.float32(0.5))
    tuned = attlm.tune(LISTS, REFERENCES, {"n": "lm.arpa"}, options=options)
    tuned.save("numpy.toml")
    assert '"seed": 2' in json.dumps(tuned.as_dict())


@pytest.mark.parametrize("kind", ["series", "frame", "set"])
def test_references_with_labels_are_not_paired_by_their_order(kind):
    pandas = pytest.importorskip("pandas")
    lists = [attlm.NbestList("utt1", [attlm.Hypothesis("a cat")]), attlm.NbestList("utt2", [attlm.Hypothesis("the dog")])]
    series = pandas.Series({"utt2": "the dog", "utt1": "a cat"})
    given = {"series": series, "frame": series.to_frame(), "set": {"a cat", "the dog"}}[kind]
    with pytest.raises(InputError, match="give texts by id"):
        attlm.evaluate(lists, given)
    assert attlm.evaluate(lists, series.to_dict()).rows[0].interval.score == 0
    assert attlm.evaluate(lists, series[["utt1", "utt2"]].to_numpy()).rows[0].interval.score == 0


def test_names_of_files_are_no_references(tmp_path):
    files = [tmp_path / name for name in ("r0", "r1")]
    for file in files:
        file.write_text("a\nb\n")
    lists = [attlm.NbestList(name, [attlm.Hypothesis("a")]) for name in ("0", "1")]
    with pytest.raises(InputError, match=r"are names of files: give ReferenceFiles\(..\) of them, or Path objects"):
        attlm.evaluate(lists, list(map(str, files)))
    assert attlm.evaluate(lists, files).rows[0].interval.score == 50


def test_results_share_nothing_with_the_lists_of_the_program(folder):
    lists = [attlm.NbestList("u", [attlm.Hypothesis("the cat", {"am": -1.0}), attlm.Hypothesis("a cat", {"am": -2.0})], ("a cat",))]
    found = attlm.rescore(lists, {"n": "lm.arpa"}, {"n": 1, "am": 1})
    for hypothesis in found.lists[0].hypotheses:
        hypothesis.scores.update(hypothesis.lm_scores)
    assert [hypothesis.scores for hypothesis in lists[0].hypotheses] == [{"am": -1.0}, {"am": -2.0}]
    found.weights.clear()
    assert found.record["weights"]


def test_loading_an_lm_leaves_random_numbers_as_they_are(folder):
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    attlm.load_lm("lm.pt")
    assert torch.equal(torch.rand(2), expected)


def test_no_gain_and_corrections_reach_other_processes(folder):
    right = [[(f"text {number}", -0.1), (f"word {number}", -0.2)] for number in range(4)]
    with pytest.raises(attlm.NoGainError) as raised:
        attlm.tune(right, [f"text {number}" for number in range(4)], options=attlm.TuneOptions(restarts=0, no_gain="fail"))
    copied = pickle.loads(pickle.dumps(raised.value))
    assert (str(copied), copied.tuned.weights) == (str(raised.value), raised.value.tuned.weights)
    learned = attlm.learn_corrections(LISTS * 10, REFERENCES * 10)
    nbest = attlm.NbestList("u", [attlm.Hypothesis("sat the cat")])
    expected, pickled = learned.expand(nbest), pickle.dumps(learned)
    del learned
    gc.collect()
    assert pickle.loads(pickled).expand(nbest) == expected


def test_attached_references_are_written(tmp_path):
    attlm.write_nbest([attlm.NbestList("u", [attlm.Hypothesis("a", {"s": -1.0})], ("old",))], tmp_path / "old.jsonl")
    lists = attlm.read_nbest(tmp_path / "old.jsonl", references=["new"])
    attlm.write_nbest(lists, tmp_path / "new.jsonl")
    assert attlm.read_nbest(tmp_path / "new.jsonl")[0].references == ("new",)
    (tmp_path / "a.moses").write_text("0 ||| a ||| s= -1 ||| -1 ||| 0-0\n")  # has no place for references: nothing to be written
    attlm.write_nbest(attlm.read_nbest(tmp_path / "a.moses", references=["new"]), tmp_path / "b.moses", "moses")
    assert (tmp_path / "b.moses").read_text() == (tmp_path / "a.moses").read_text()


@pytest.mark.parametrize("given", ["a cat", attlm.Hypothesis(None), attlm.Hypothesis("a", None)])
def test_what_is_no_hypothesis_is_named(given):
    with pytest.raises(InputError, match=r"expected attlm\.Hypothesis"):
        attlm.evaluate([attlm.NbestList("u", [given])], ["a"])


def test_lines_of_other_threads_are_not_collected(caplog):
    with collected() as told, ThreadPoolExecutor(1) as thread:
        thread.submit(note, "WARNING: of another thread").result()
        note("WARNING: own")
    assert told == ["WARNING: own"]
    assert "WARNING: of another thread" in caplog.text


def test_options_of_lms(folder):
    config = attlm.run_config(lms={"n": "lm.pt", "kenlm": "lm.arpa"}, lm_options={"oov": "penalty:-7", "temperature": {"n": 1.5}})
    assert [lm.oov for lm in config.lms] == [parse_policy("penalty:-7")] * 2
    assert [lm.temperature for lm in config.lms] == [1.5, None]
    assert attlm.run_config(config, lm_options={"temperature": 2.0}).lms[0].temperature == 2.0  # of the LMs that can have one
    as_typed = attlm.LMSpec.of("lm.pt", neural_cache="50:0.5:0.1", oov="penalty:-7", temperature=1.5)
    assert attlm.run_config(config, lm_options={"neural_cache": {"n": "50:0.5:0.1"}}).lms[0] == replace(as_typed, name="n")
    for wrong, told in (
        ({"heat": 1}, "the option 'heat' of LMs: expected one of oov, context_sentences, "),
        ({"temperature": {"m": 1.5}}, "temperature m=..: no LM has this name; there are n, kenlm"),
        ({"source_prefix": "x: "}, "source_prefix: there is no translation model of Hugging Face"),
        ({"temperature": "hot"}, "temperature is 'hot', expected a number"),
        ({"oov": "guess"}, "guess"),
        (["oov"], "the value of lm_options is ['oov']"),
    ):
        with pytest.raises(attlm.InputError, match=re.escape(told)):
            attlm.run_config(config, lm_options=wrong)


def test_hypotheses_of_a_program_have_numbers_of_any_kind_or_are_refused(tmp_path):
    def written(**changes):
        attlm.write_nbest([attlm.NbestList("u", [attlm.Hypothesis("a", **changes)])], tmp_path / "out.jsonl")
        return attlm.read_nbest(tmp_path / "out.jsonl")[0].hypotheses[0]

    assert written(times=np.array([[0, 1]])).times == ((0.0, 1.0),)
    assert written(times=[[np.float32(0.5), torch.tensor(1.5)]]).times == ((0.5, 1.5),)
    assert written(scores=types.MappingProxyType({"s": np.float32(-1.5)})).scores == {"s": -1.5}
    with collected() as notes:
        assert written(times=((0.0, 1.0), (1.0, 2.0))).times == ()
        attlm.write_nbest([attlm.NbestList("u", [attlm.Hypothesis("a", {"s": -1})])], tmp_path / "whole.jsonl")
    assert '"s": -1}' in (tmp_path / "whole.jsonl").read_text()
    assert notes == ["note: 1 hypotheses have times for another number of words than their text has: these times are left out"]
    refused = {
        "the time 'x'": {"times": ((0.0, "x"),)},
        r"the times \(0.0, 1.0\) .*: expected begin and end of each word": {"times": (0.0, 1.0)},
        "the times 5 ": {"times": 5},
        "the time .* of a word: expected its begin and end": {"times": ((0.0, math.nan),)},
        "the score l = None .*: expected a number": {"lm_scores": {"l": None}},
        "the total 'x' .*: expected a number": {"total": "x"},
        "the name of a score in list 'u' is 1 .*: expected a text": {"scores": {1: -1.0}},
        "the score s = 1000+.*: expected a number": {"scores": {"s": 10**400}},
    }
    for message, changes in refused.items():
        with pytest.raises(attlm.InputError, match=message):
            written(**changes)
    hypothesis = attlm.Hypothesis("a", {"s": -1.0})
    for message, nbest in {
        "the value of hypotheses of list 'u' is <generator": attlm.NbestList("u", (one for one in [hypothesis])),
        "has the references None .*: expected a tuple of texts": attlm.NbestList("u", [hypothesis], None),
    }.items():
        with pytest.raises(attlm.InputError, match=message):
            attlm.write_nbest([nbest], tmp_path / "out.jsonl")
    for numbers in ([10**400], np.array(1.0)):
        with pytest.raises(attlm.InputError, match="scores 'q'"):
            attlm.convert([[("a", -1.0)]], tmp_path / "new.jsonl", "jsonl", scores={"q": numbers})
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(attlm.InputError):
            attlm.write_nbest([[("a", -1.0)]], tmp_path / name)


def test_source_sentences_of_a_program_are_by_order_or_by_id(tmp_path):
    lists = [attlm.NbestList(name, [attlm.Hypothesis("a", {"s": -1.0}, 1)]) for name in ("utt1", "utt2")]
    assert [nbest.source for nbest in with_sources(lists, {"utt2": "zwei", "utt1": "eins"})] == ["eins", "zwei"]
    assert [nbest.source for nbest in with_sources(lists, iter(["eins", "zwei"]))] == ["eins", "zwei"]
    assert [nbest.source for nbest in with_sources(lists, [None, "zwei"])] == [None, "zwei"]
    with collected() as notes:
        with_sources(lists, {"utt2": "zwei", "utt1": "eins", "utt3": "drei"})
    assert notes == ["note: 1 source sentences are of no list and left over, the first of id 'utt3'"]
    pandas_like = types.SimpleNamespace(index=["utt1"])
    for message, sources in {
        "list 'utt2': there is no source sentence of this id": {"utt1": "eins"},
        "the source sentences are {'eins'} .*: expected a file, or texts in the order": {"eins"},
        "the source sentence is nan .*: expected a text": ["eins", math.nan],
        "the source sentences are .*: expected a file, or texts": pandas_like,
        "1 source sentences, but there are 2 lists": ["eins"],
    }.items():
        with pytest.raises(attlm.InputError, match=message):
            with_sources(lists, sources)


@pytest.mark.usefixtures("folder")
def test_an_output_of_rescore_does_not_replace_what_it_reads():
    before = {name: Path(name).read_bytes() for name in ("dev.json", "lm.arpa")}
    Path("source").write_text("a\nb\nc\n")
    for output, what in (("dev.json", "the input"), ("lm.arpa", "the LM n"), ("source", "the source")):
        with pytest.raises(InputError, match=f"{output}: the output would overwrite {what}"):
            attlm.rescore("dev.json", {"n": "lm.arpa"}, {"n": 1.0}, source="source", output=output)
    with pytest.raises(InputError, match="the output cannot be written: there is no folder"):
        attlm.rescore("dev.json", {"n": "lm.arpa"}, {"n": 1.0}, output="none/out")
    assert {name: Path(name).read_bytes() for name in before} == before


@pytest.mark.usefixtures("folder")
def test_the_end_of_a_files_name_is_its_format():
    lists = attlm.read_nbest("dev.json")
    for name, form in (("a.csv", "csv"), ("b.moses.gz", "moses"), ("c.out", "jsonl"), ("kaldi.dir/d", "jsonl"), ("e.1best", None)):
        Path(name).parent.mkdir(exist_ok=True)
        attlm.write_nbest(lists, name)
        if form is not None:
            assert attlm.NbestFile(name).open()[0].name == form
    assert Path("e.1best").read_text().splitlines() == [nbest.hypotheses[0].text for nbest in lists]
    attlm.convert("dev.json", "f.tsv")
    attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 1.0, "score": 0.0}, output="g.tsv")
    attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 1.0, "score": 0.0}, output="g.1best")
    attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 1.0, "score": 0.0}, output="g.ctm")
    assert Path("g.1best").read_text().splitlines() == REFERENCES
    assert [one.hypotheses[0].text for one in attlm.read_nbest("g.ctm")] == REFERENCES
    assert {attlm.NbestFile(name).open()[0].name for name in ("f.tsv", "g.tsv")} == {"tsv"}
    with pytest.raises(InputError, match="the output 'lists' does not end in the name of a format"):
        attlm.convert("dev.json", "lists")
    with pytest.raises(InputError, match="ctm cannot hold lists from another format"):
        attlm.convert("dev.json", "h.ctm")


@pytest.mark.usefixtures("folder")
def test_a_request_without_a_score_stays_as_it_is_if_it_is_to():
    config = attlm.run_config(lms={"n": "lm.arpa"}, weights={"n": 1.0, "am": 1.0}, keep_incomplete=True).in_memory()
    whole, bare = [("a dog", {"am": -1.0}), ("the cat sat", {"am": -1.0})], [("a dog", {}), ("the cat sat", {})]
    for lists in ([whole, bare], [bare]):
        with collected() as notes:
            answers = attlm.rescore(lists, config=config).lists
        assert [one.text for one in answers[-1].hypotheses] == ["a dog", "the cat sat"]
        assert any("lack a score that has a weight: they keep their input order" in line for line in notes)


def test_advice_that_nobody_reads_is_not_made(folder, caplog, monkeypatch):
    asked = []
    monkeypatch.setattr("attlm_fairseq.nbest.run.block_scores.advise", lambda *_: asked.append(1))
    strange = [["zzz yyy xxx", "yyy www vvv"]]
    for level, count in (("ERROR", 0), ("WARNING", 1)):
        with caplog.at_level(level, logger="attlm_fairseq"):
            attlm.rescore(strange, {"n": "lm.arpa"}, {"n": 1.0})
        assert len(asked) == count


@pytest.mark.parametrize(
    ("lists", "references", "told"),
    [
        ([["a b"], ["c d"]], [["a", "b"], ["c", "d"]], "WARNING: the references: a list of words is read as that many references"),
        ([["a"], ["c"]], [["a", "b"], ["c", "d"]], ""),
        ([["a b"], ["c d"]], [["a b", "b"], ["c x", "d"]], ""),
        ([["a b"], ["c d"]], ["", ""], "WARNING: the references: all references are blank"),
        ([["a b"], ["c d"]], ["a b", ""], "note: the references: 1 of 2 references are blank"),
        (["x", "x"], {"x": "a b"}, "WARNING: several lists have the id 'x', and the same reference"),
    ],
)
def test_references_that_are_hardly_meant_are_told(lists, references, told):
    given = [attlm.NbestList(one, [attlm.Hypothesis("a b")]) if isinstance(one, str) else one for one in lists]
    with collected() as notes:
        attlm.evaluate(given, references)
    assert any(line.startswith(told) for line in notes) if told else not any("WARNING" in line for line in notes)


def test_references_by_number_are_those_of_lists_in_memory():
    lists = [["a b"], ["c d"]]
    assert attlm.evaluate(lists, {1: "c d", 0: "a x"}).rows[0].interval.score == 25.0


@pytest.mark.usefixtures("folder")
def test_a_configuration_is_saved_from_the_folder_that_its_names_are_relative_to(monkeypatch):
    tuned = attlm.tune(LISTS, REFERENCES, {"n": "lm.arpa"}, options=QUICK)
    Path("other").mkdir()
    monkeypatch.chdir("other")
    with pytest.raises(InputError, match=r"lm.arpa: there is no such file below .*other: save from the folder"):
        tuned.save("attlm.toml")
    assert not Path("attlm.toml").exists()
    monkeypatch.chdir("..")
    tuned.save("other/attlm.toml")
    assert read_config(Path("other/attlm.toml")).lms[0].kenlm == Path("lm.arpa").absolute()


def test_confidences_of_a_programs_hypotheses_are_told_to_be_lost(tmp_path):
    sure = [attlm.NbestList("a", [attlm.Hypothesis("a b", {"am": -1.0}, confidences=(0.5, 0.75))])]
    assert attlm.convert(sure, tmp_path / "out.csv").lost == ("leaves out word confidences",)


@pytest.mark.usefixtures("folder")
def test_an_lm_of_the_name_of_the_decoders_score_is_warned_of():
    with collected() as notes:
        attlm.rescore(LISTS, {"score": "lm.arpa"}, {"score": 1.0})
    assert any(line.startswith("WARNING: the lists have a score 'score' of their own. The LM of that name decides") for line in notes)


@pytest.mark.parametrize("score", [10**400, {"am": 10**400}])
def test_a_score_beyond_all_floats_is_one_line(score):
    with pytest.raises(InputError, match="list 0 has the hypothesis"):
        attlm.rescore([[("a", score), "b"]], weights={"rank": -1.0})


def test_corrections_that_are_not_a_file_are_one_line():
    with pytest.raises(InputError, match=r"the table is .*: expected the path of a table, as Corrections\.save\(\) writes it"):
        attlm.evaluate_corrections(LISTS, REFERENCES, attlm.learn_corrections(LISTS, REFERENCES))


def test_no_lists_are_not_warned_of(folder):
    with collected() as notes:
        assert attlm.rescore([], {"n": "lm.arpa"}, {"n": 1.0, "am": 1.0}).list_count == 0
    assert not any("no hypothesis has a score" in line for line in notes)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "lists",
    [
        {"u1": [("sat the cat", -0.2), ("the cat sat", -0.3)], "u2": [("mat a", -0.2), ("a mat", -0.3)]},
        {"u1": [{"text": "sat the cat", "score": -0.2}, {"text": "the cat sat", "score": np.float32(-0.3)}], "u2": LISTS[1]},
        [
            {"id": "u1", "hyps": [{"text": "sat the cat", "cost": 0.2}, {"text": "the cat sat", "cost": torch.tensor(0.3)}]},
            types.MappingProxyType({"id": "u2", "hyps": ["mat a", "a mat"], "scores": np.array([-0.2, -0.3])}),
        ],
        [
            {"id": "u1", "text": "sat the cat", "score": -0.2},
            {"id": "u1", "text": "the cat sat", "score": -0.3},
            {"id": "u2", "text": "mat a", "score": -0.2},
            {"id": "u2", "text": "a mat", "score": -0.3},
        ],
    ],
)
def test_lists_by_id_and_dictionaries_are_lists(lists):
    found = attlm.rescore(lists, {"n": "lm.arpa"}, {"n": 1.0, "rank": 0.0})
    assert [nbest.id for nbest in found] == ["u1", "u2"]
    assert [nbest.hypotheses[0].text for nbest in found] == REFERENCES
    assert found.lists[0].hypotheses[1].scores in ({"score": -0.2}, {"cost": -0.2})
    assert attlm.evaluate(lists, {"u2": "mat a", "u1": "sat the cat"}).rows[0].interval.score == 0.0
    attlm.write_nbest(lists, "out.jsonl")
    assert [nbest.id for nbest in attlm.read_nbest("out.jsonl")] == ["u1", "u2"]


def test_hypotheses_as_objects_are_a_list():
    ordered = [[attlm.Hypothesis("a b", {"am": -1.0}), attlm.Hypothesis("a c", {"am": -2.0})]]
    [nbest] = attlm.rescore(ordered, weights={"am": -1.0})
    assert [(one.text, one.total) for one in nbest.hypotheses] == [("a c", 2.0), ("a b", 1.0)]


@pytest.mark.parametrize(
    ("lists", "told"),
    [
        ([{"id": "a", "hyps": [{"text": "a", "score": object()}]}], "the lists hold what JSON cannot: <object"),
        ([{"id": "a", "words": 3}], "item 1"),
        ([{"id": "a", "hyps": ["a b"]}, {"id": "a", "hyps": ["a c"]}], "the utterance 'a' is there twice"),
        ([{"id": "a", "hyps": [{"text": "a", "score": float("nan")}]}], "expected a finite number"),
    ],
)
def test_dictionaries_that_are_no_lists_are_one_line(lists, told):
    with pytest.raises(InputError, match=told):
        attlm.rescore(lists, weights={"rank": -1.0})


@pytest.mark.parametrize("named", [False, True])
def test_texts_are_measured_as_lists_of_one(named):
    def given(*texts: str):
        return dict(zip(("u1", "u2"), texts, strict=True)) if named else list(texts)

    found = attlm.evaluate(given("a b", "c x"), given("a b", "c d"), {"other": given("a b", "c d"), "lists": [["a x"], ["c x"]]})
    assert [row.interval.score for row in found.rows] == [25.0, 0.0, 50.0, 25.0]
    joined = attlm.combine({"one": given("a b", "c x"), "two": given("a b", "c d")})
    assert [[one.text for one in nbest.hypotheses] for nbest in joined] == [["a b"], ["c x", "c d"]]


def test_what_rescore_returns_equals_its_copy(folder):
    found = attlm.rescore(LISTS, {"n": "lm.arpa"}, {"n": 1.0})
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_truth_value_is_not_a_number():
    with pytest.raises(InputError, match="the value of corrections is True: expected a whole number, 0 or more"):
        attlm.JackknifeOptions(corrections=True)


@pytest.mark.usefixtures("folder")
def test_times_that_were_made_up_are_not_read():
    attlm.rescore("dev.json", {"n": "lm.arpa"}, {"n": 0.1}, output=attlm.RescoreOutput("out.ctm", to="ctm"))
    text = Path("out.ctm").read_text()
    assert text.startswith(";; no times in the lists")
    assert [one.hypotheses[0].times for one in attlm.read_nbest("out.ctm")] == [()] * 3
    attlm.convert("out.ctm", "again.ctm")
    assert Path("again.ctm").read_text() == text
    Path("real.ctm").write_text(text.split("\n", 1)[1])
    times = attlm.read_nbest("real.ctm")[0].hypotheses[0].times
    assert times[:2] == ((0.0, 1.0), (1.0, 2.0))


def test_the_table_of_tuning_has_the_weights_to_use(folder):
    options = attlm.TuneOptions(strength=0.0, rules=("mbr-wer",))
    tuned = attlm.tune([*LISTS, *LISTS, *LISTS], REFERENCES * 3, {"n": "lm.arpa"}, options=options)
    printed = dict(line.split()[:2] for line in str(tuned).split("\nweights\n")[1].split("scales")[0].splitlines())
    assert {name: float(value) for name, value in printed.items() if float(value)} == {n: w for n, w in tuned.weights.items() if w}


class Labelled(list):
    """Like a pandas.Series: a sequence with labels."""

    index = property(lambda self: ["b", "a"])


@pytest.mark.parametrize("given", [Labelled([["x"], ["y"]]), Labelled(["x", "y"]), {("x",), ("y",)}])
def test_lists_with_labels_are_refused(given):
    told = r"the lists are a (Labelled|set): give lists by id"
    for read in (
        lambda: attlm.rescore(given, weights={"rank": -1.0}),
        lambda: attlm.evaluate([["y"], ["x"]], ["y", "x"], {"s": given}),
        lambda: attlm.combine({"p": {"a": ["y"], "b": ["x"]}, "s": given}),
        lambda: attlm.write_nbest(given, "out.jsonl"),
    ):
        with pytest.raises(InputError, match=told):
            read()


@pytest.mark.parametrize("one", [0, np.int64(0)])
@pytest.mark.parametrize(
    "of_list", [[("a b", -1.0), ("a", -2.0)], [attlm.Hypothesis("a b"), attlm.Hypothesis("a")], [{"text": "a b"}, {"text": "a"}]]
)
def test_ids_of_lists_may_be_numbers(one, of_list, tmp_path):
    lists = {one: of_list, "x": of_list}
    attlm.write_nbest(lists, tmp_path / "out.jsonl")
    assert [nbest.id for nbest in attlm.read_nbest(tmp_path / "out.jsonl")] == ["0", "x"]
    assert attlm.evaluate(lists, {one: "a b", "x": "a b"}).rows[0].interval.score == 0.0
    assert [nbest.id for nbest in attlm.combine({"a": lists, "b": lists})] == ["0", "x"]


@pytest.mark.parametrize("name", [None, True, 1.5, ("a", 1)])
def test_other_ids_are_one_line(name):
    with pytest.raises(InputError, match=r"the lists have the id .*: expected a text or a whole number"):
        attlm.rescore({name: ["a b", "a"]}, weights={"rank": -1.0})
    with pytest.raises(InputError, match="the references have the id"):
        attlm.evaluate([["a b"]], {name: "a b"})


def test_ids_of_a_dictionary_are_not_contradicted():
    with pytest.raises(InputError, match="the lists have the id 1 twice, as a text and as a number"):
        attlm.rescore({1: ["a"], "1": ["b"]}, weights={"rank": -1.0})
    with pytest.raises(InputError, match="the list of the id 'u1' in the dictionary has the id '0': expected one id"):
        attlm.rescore({"u1": attlm.NbestList("0", [attlm.Hypothesis("a")])}, weights={"rank": -1.0})


def test_references_by_id_match_as_those_of_files_do():
    lists = {"/w/u1.wav": ["x"], "/w/u2.wav": ["y"]}
    assert attlm.evaluate(lists, {"u2": "y", "u1": "x"}).rows[0].interval.score == 0.0
    assert attlm.evaluate({"caf\u00e9-1": ["x"]}, {"cafe\u0301-1": "x"}).rows[0].interval.score == 0.0


def test_dictionaries_of_jsonl_are_read_as_its_lines_are(tmp_path):
    hypotheses = '[{"text": "a b", "scores": {"s": -1.0}, "times": [[0, 1], [1, 2.5]]}, {"text": "a"}]'
    line = f'{{"id": "a", "sparse": true, "more": 1, "hyps": {hypotheses}}}\n'
    (tmp_path / "in.jsonl").write_text(line)
    given = [json.loads(line)]
    read, [of_program] = attlm.read_nbest(tmp_path / "in.jsonl")[0], attlm.rescore(given, weights={"rank": -1.0}).lists
    assert [(one.text, one.scores, one.times) for one in of_program.hypotheses] == [
        (one.text, one.scores, one.times) for one in read.hypotheses
    ]
    assert of_program.sparse
    attlm.write_nbest(given, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == line
    assert attlm.convert(given, tmp_path / "out.csv").lost


@pytest.mark.parametrize("in_file", [False, True])
def test_scores_by_name_in_a_pair_are_read(in_file, tmp_path):
    lists = [{"id": "a", "hyps": [["a b", {"am": -1.0, "am_cost": 3.0}], ["a", {"am": -2.0, "am_cost": 4.0}]]}]
    (tmp_path / "in.json").write_text(json.dumps(lists))
    found = attlm.rescore(tmp_path / "in.json" if in_file else lists, weights={"am": -1.0}).lists[0]
    assert [(one.text, one.scores) for one in found.hypotheses] == [
        ("a", {"am": -2.0, "am_cost": -4.0}),
        ("a b", {"am": -1.0, "am_cost": -3.0}),
    ]


@pytest.mark.usefixtures("folder")
def test_the_dictionary_next_to_a_checkpoint_is_not_replaced():
    before = Path("dict.txt").read_text() if Path("dict.txt").exists() else "a 1\n"
    Path("dict.txt").write_text(before)
    with pytest.raises(InputError, match=r"dict.txt: the output would overwrite the dictionary of n"):
        attlm.rescore("dev.json", {"n": "lm.pt"}, {"n": 1.0}, output="dict.txt")
    assert Path("dict.txt").read_text() == before
