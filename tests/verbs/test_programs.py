"""What programs do with the library: LMs loaded once, values of other libraries, wrong arguments."""

from __future__ import annotations

import shutil
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
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

LISTS = [[("sat the cat", -0.2), ("the cat sat", -0.3)], [("mat a", -0.2), ("a mat", -0.3)]]
REFERENCES = ["the cat sat", "a mat"]
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


def test_the_hash_is_that_of_the_file_that_was_loaded(folder):
    shutil.copy("lm.arpa", "moving.arpa")
    lm = attlm.load_lm("moving.arpa")
    Path("moving.arpa").write_text(Path("moving.arpa").read_text() + "\n")
    with pytest.raises(attlm.InputError, match=r"moving\.arpa: has changed since it was loaded"):
        lm.signature()
    lm = attlm.load_lm("moving.arpa")
    known = lm.signature()["sha256"]
    Path("moving.arpa").unlink()
    assert lm.signature()["sha256"] == known


def test_scores_of_other_libraries(folder):
    for number in (np.float32(-1.5), np.float64(-1.5), np.int64(-1), torch.tensor(-1.5)):
        [nbest] = attlm.rescore([[("the cat", number), ("a cat", {"am": number, "score": number})]], weights={"score": 1.0}).lists
        assert nbest.hypotheses[0].scores["score"] == float(number)
    for wrong in ("-1", None, np.zeros(2), {"am": "-1"}):
        with pytest.raises(attlm.InputError, match="list 0 has the hypothesis"):
            attlm.rescore([[("the cat", wrong)]], weights={"score": 1.0})


@pytest.mark.parametrize("file", ["lm.arpa", "lm.pt"])
def test_a_sentence_is_a_list_of_words(folder, file):
    lm = attlm.load_lm(file)
    for wrong in (["the cat"], "the cat", [[1, 2]]):
        with pytest.raises(attlm.InputError, match=r"expected a list of words, such as \['a', 'sentence'\]"):
            lm.score(wrong)
    assert lm.score([(), ("the", "cat")])[1].words == 2


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
    DecoderLM.load("exported").save("copied")
    assert {path.name for path in Path("copied").iterdir()} == {path.name for path in Path("exported").iterdir()}


def test_results_print_as_the_commands_do(folder):
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 0)
    tuned = attlm.tune("dev.json", lms={"kenlm": "lm.arpa"}, options=QUICK)
    printed = run("tune", "dev.json", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 0).stdout
    assert str(tuned).split("weights")[0] == printed.split("weights")[0]
    assert "kenlm" in str(tuned).split("weights")[1]
    assert str(attlm.evaluate("dev.json")) + "\n" == run("eval", "dev.json").stdout
