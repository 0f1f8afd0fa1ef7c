"""Corrections from the command line: learn, show, eval, tune, rescore, jackknife."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest
from cli_runs import refused, run
from lm_files import write_checkpoint

from attlm_fairseq.nbest.corrections import corrections
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.verbs.shards import ShardRescorer

CITIES = ["boston", "denver", "dallas", "oakland", "newark", "tampa"]
NUMBERS = ["one", "two", "three", "four", "five", "six"]


def item(place: int) -> dict:
    start, end, number = CITIES[place % 6], CITIES[place // 6 % 6], NUMBERS[place // 3 % 6]
    hypotheses = [f"fly {start} to {end} at {number}pm", f"fly {start} too {end} at {number}pm"]
    if place % 4 == 3:
        hypotheses.reverse()
    return {"input": hypotheses, "output": f"fly {start} to {end} at {number} p m", "am_score": [-0.1, -0.2]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    items = [item(place) for place in range(72)]
    (tmp_path / "train.json").write_text(json.dumps([x for i, x in enumerate(items) if i % 3]))
    (tmp_path / "dev.json").write_text(json.dumps(items[::3]))
    write_checkpoint(tmp_path / "lm.pt", [*CITIES, *NUMBERS, "fly", "to", "at", "p", "m"])
    run("corrections", "train.json", "-o", "c.tsv")
    return tmp_path


def test_learn_show_eval(folder: Path) -> None:
    assert "onepm -> one p m" in run("corrections", "show", "c.tsv", "-n", "200").stdout
    for options in ((), ("--table", "c.tsv")):
        found = json.loads(run("corrections", "eval", "dev.json", "--json", *options).stdout)
        assert found["errors_corrected"] < found["errors"]
        assert sum(use["right"] for use in found["corrections"]) > sum(use["wrong"] for use in found["corrections"])
    assert "right wrong neutral" in run("corrections", "eval", "dev.json").stdout


def test_a_table_is_not_judged_on_the_lists_that_taught_it(folder: Path) -> None:
    of_folds, of_table = (run("corrections", "eval", "train.json", *table) for table in ((), ("--table", "c.tsv")))
    assert of_table.stdout == of_folds.stdout
    assert "c.tsv was learned from these lists" in of_table.stderr
    (folder / "edited.tsv").write_text((folder / "c.tsv").read_text())  # whose LM still is of these references
    assert run("corrections", "eval", "train.json", "--table", "edited.tsv").stdout == of_folds.stdout
    (folder / "own.txt").write_text("fly to boston\n" * 3)
    run("ngram", "own.txt", "-o", "own.arpa", "--discount-fallback")  # a given LM guides all folds
    (folder / "edited.tsv").write_text((folder / "c.tsv").read_text().replace("# lm = c.arpa", "# lm = own.arpa"))
    assert run("corrections", "eval", "train.json", "--table", "edited.tsv").stdout != of_folds.stdout


def test_lists_that_taught_the_table_get_no_p(folder: Path) -> None:
    """The weights are tuned on other lists. From a tenth of the lists on there is a warning."""
    run("tune", "dev.json", "--corrections", "c.tsv", "--restarts", 1, "--confidence")
    told = "the corrections were learned from these lists: they look too good, so there is no p"
    assert told in (seen := run("eval", "train.json", "--config", "attlm.toml", "--confidence")).stderr
    assert "as configured; the weights or corrections saw these lists: expect other figures elsewhere)" in seen.stdout
    assert re.search("^rescored, max .*in-sample$", seen.stdout, re.MULTILINE)
    run("tune", "dev.json", "--lm", "lm.pt", "--corrections", "c.tsv", "--restarts", 1, "-o", "lm.toml")
    alone = run("eval", "train.json", "--config", "lm.toml").stdout
    assert re.search("^lm alone .*in-sample$", alone, re.MULTILINE)
    others = run("eval", "dev.json", "--config", "attlm.toml")
    assert "the corrections" not in others.stderr
    given = run("eval", "train.json", "--config", "/dev/null", "--corrections", "c.tsv", "--weight", "corrections=1")
    assert told in given.stderr
    run("rescore", "train.json", "-o", "out.json")
    guess = run("eval", "train.json", "out.json").stderr
    assert "if the other systems were rescored with attlm.toml, they look too good" in guess
    assert "its corrections were learned from these lists" in guess
    train, dev = (json.loads((folder / name).read_text()) for name in ("train.json", "dev.json"))
    (folder / "part.json").write_text(json.dumps([*train[:10], *dev]))
    for command in (
        ("tune", "part.json", "--corrections", "c.tsv", "-o", "part.toml"),
        ("corrections", "eval", "part.json", "--table", "c.tsv"),
    ):
        assert re.search(r"WARNING: c.tsv was learned from about \d\d% of these lists", run(*command).stderr)
    assert "WARNING: c.tsv was learned" in run("eval", "part.json", "--config", "attlm.toml").stderr


def test_fields_stay_or_those_that_are_left_out_are_named(folder: Path) -> None:
    lists = [{**item(place), "speaker": "s"} for place in range(3)]
    lines = [
        {"id": str(n), "ref": x["output"], "speaker": "s", "hyps": [{"text": t, "am": -1, "start": 2} for t in x["input"]]}
        for n, x in enumerate(lists)
    ]
    (folder / "lists.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for devices in ((), ("--devices", "cpu,cpu")):
        result = run("rescore", "lists.jsonl", "--corrections", "c.tsv", "--weight", "corrections=1", *devices, "-o", "out")
        assert "left out" not in result.stderr
        written = [json.loads(line) for line in (folder / "out").read_text().splitlines()]
        assert [line["speaker"] for line in written] == ["s"] * len(lines)
        for line, old in zip(written, lines, strict=True):
            assert sum(hypothesis.get("start") == 2 for hypothesis in line["hyps"]) == len(old["hyps"]) < len(line["hyps"])
    (folder / "rows.json").write_text("".join(json.dumps({"hyp": line["hyps"][0]["text"], "speaker": "s"}) + "\n" for line in lines))
    result = run("rescore", "rows.json", "--corrections", "c.tsv", "--weight", "corrections=1", "-o", "rows.out")
    assert "note: with added candidates only ids, references, texts and scores are written; left out: speaker" in result.stderr


def test_case_and_punctuation_are_left_alone(folder: Path) -> None:
    for name in ("train.json", "dev.json"):
        lists = json.loads((folder / name).read_text())
        for place in lists:
            place["input"] = [f"{text.capitalize()}." for text in place["input"]]
        (folder / f"cased.{name}").write_text(json.dumps(lists))
    steps = "remove-punctuation,lowercase"
    result = run("corrections", "cased.train.json", "--text", steps, "-o", "cased.tsv")
    assert "case or punctuation" not in result.stderr
    assert f"# text = {steps}\n" in (folder / "cased.tsv").read_text()
    run("tune", "cased.dev.json", "--corrections", "cased.tsv", "--metric-text", steps, "--restarts", 1, "-o", "cased.toml")
    run("rescore", "cased.dev.json", "--config", "cased.toml", "--to", "1best", "-o", "cased.txt")
    references = [x["output"] for x in json.loads((folder / "dev.json").read_text())]
    assert (folder / "cased.txt").read_text().splitlines() == [f"{text.capitalize()}." for text in references]
    judged = run("corrections", "eval", "cased.dev.json", "--table", "cased.tsv").stdout
    assert re.search(r"WER \d+\.\d\d of the 1-best hypotheses, 0\.00 corrected", judged)
    assert run("corrections", "eval", "cased.train.json", "--text", steps).stdout
    refused = run("corrections", "eval", "cased.dev.json", "--table", "cased.tsv", "--text", steps, code=2)
    assert "--text: a table has its own; leave one of the two out" in refused.stderr
    run("jackknife", "cased.train.json", "--corrections", "--text", steps, "--texts", "texts", "-o", "jackknifed.jsonl")
    assert (folder / "texts" / "fold0.txt").read_text().islower()
    assert (
        "corrections compare words one by one"
        in run("corrections", "cased.train.json", "--text", "tokenize:en", "-o", "x.tsv", code=2).stderr
    )


def test_tuned_corrections_are_what_rescore_applies(folder: Path) -> None:
    tuned = run("tune", "dev.json", "--corrections", "c.tsv", "--candidates", 7, "--restarts", 1)
    assert "new hypotheses in 24 lists" in tuned.stderr
    assert "jack-knifing" not in tuned.stderr
    written = (folder / "attlm.toml").read_text()
    assert '[corrections]\ntable = "c.tsv"\ncandidates = 7' in written
    references = [x["output"] for x in json.loads((folder / "dev.json").read_text())]
    run("rescore", "dev.json", "--to", "1best", "-o", "out.txt")
    assert (folder / "out.txt").read_text().splitlines() == references
    run("rescore", "dev.json", "--to", "jsonl", "-o", "out.jsonl")
    lists = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [nbest["hyps"][0]["text"] for nbest in lists] == references
    assert {"corrections", "rewrites", "am_score"} <= set(lists[0]["hyps"][0]["scores"])
    printed = run("eval", "dev.json", "--config", "attlm.toml").stdout.splitlines()
    rows = {line.split()[0]: line for line in reversed(printed)}  # of the first table
    assert " 0.00 " in rows["rescored,"]
    assert " 0.00 " in rows["oracle"]


def test_the_lists_that_taught_the_table_are_jackknifed(folder: Path) -> None:
    assert "jack-knifing" in run("tune", "train.json", "--corrections", "c.tsv", "--restarts", 1).stderr


def test_without_a_gain_lists_stay_byte_for_byte(folder: Path) -> None:
    right = [{**x, "input": [x["output"], *x["input"]], "am_score": [0, -1, -2]} for x in json.loads((folder / "dev.json").read_text())]
    (folder / "right.json").write_text(json.dumps(right))
    run("tune", "right.json", "--corrections", "c.tsv", "--restarts", 1)
    assert "[corrections]" not in (folder / "attlm.toml").read_text()
    run("rescore", "right.json", "-o", "same.json")
    assert (folder / "same.json").read_bytes() == (folder / "right.json").read_bytes()


def test_same_bytes_on_any_devices_and_by_an_actor_of_ray(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrections, "LISTS_TOGETHER", 5)
    run("tune", "dev.json", "--corrections", "c.tsv", "--lm", "lm.pt", "--restarts", 1)
    outputs = []
    for devices in ("cpu", "cpu:2"):
        run("rescore", "dev.json", "-o", f"{devices}.jsonl", "--devices", devices)
        outputs.append((folder / f"{devices}.jsonl").read_bytes())
    assert outputs[0] == outputs[1]
    actor = ShardRescorer(read_config(folder / "attlm.toml"), str(folder))
    found = actor({"path": str(folder / "dev.json"), "output": str(folder / "shard.jsonl")})
    assert found["lists"] == 24
    assert (folder / "shard.jsonl").read_bytes() == outputs[0]


def test_phrases_are_tuned_and_those_that_never_match_named(folder: Path) -> None:
    (folder / "names.txt").write_text("oakland\n東京\n", encoding="utf-8")
    lists = [{"input": [x["input"][0].replace("oakland", "okland"), "fly"], "output": x["output"]} for x in map(item, range(0, 72, 3))]
    (folder / "names.json").write_text(json.dumps(lists))
    told = run("tune", "names.json", "--phrases", "names.txt", "--restarts", 1).stderr
    assert "in the references the first hypotheses have 0.0%, the lists 0.0%, with candidates 100.0%" in told
    assert "'東京' (line 2)" in told
    assert 'phrases = "names.txt"' in (folder / "attlm.toml").read_text()
    assert "okland" not in run("rescore", "names.json", "--to", "1best").stdout
    fitted = []
    for options in ([], ["--phrases", "names.txt"]):  # weights of 0 leave the candidates out, also of the confidences
        run("tune", "names.json", *options, "--strength", 0, "--folds", 0, "--restarts", 1, "--confidence", "-o", "as_read.toml")
        fitted.append(read_config(folder / "as_read.toml").confidence)
    assert fitted[0] == fitted[1]


def test_jackknifed_lists_have_scores_that_have_not_seen_them(folder: Path) -> None:
    run("jackknife", "train.json", "-o", "j.jsonl", "--folds", 3, "--corrections", "--texts", "texts", *["--lm", "n=lm.pt"] * 3)
    lists = [json.loads(line) for line in (folder / "j.jsonl").read_text().splitlines()]
    assert len(lists) == 48
    assert {"ngram", "ngram_oov", "ngram_tokens", "n", "n_oov", "corrections"} <= set(lists[0]["hyps"][0]["scores"])
    assert sorted(path.name for path in (folder / "texts").iterdir()) == ["fold0.txt", "fold1.txt", "fold2.txt"]
    run("tune", "j.jsonl", "--restarts", 1)
    assert "expected one for each of the 3 folds" in refused("jackknife", "train.json", "-o", "k.jsonl", "--folds", 3, "--lm", "n=lm.pt")
    again = ("jackknife", "train.json", "-o", "k.jsonl", "--folds", 3, "--ngram", "", "--texts")
    assert "texts: already exists; name a new folder" in refused(*again, "texts", *["--lm", "n=gone.pt"] * 3)
    assert "gone.pt: there is no such file" in refused(*again, "more", *["--lm", "n=gone.pt"] * 3)
    assert not Path("more").exists()


def test_phrases_without_a_weight_are_told(folder: Path) -> None:
    """The weights were tuned without them."""
    (folder / "names.txt").write_text("oakland\n")
    run("tune", "dev.json", "--corrections", "c.tsv", "--restarts", 1)
    assert "WARNING" not in run("rescore", "dev.json", "-o", "out.json").stderr
    assert "WARNING: names.txt adds candidates, but its score has no weight" in run("rescore", "dev.json", "--phrases", "names.txt").stderr


def test_the_lm_of_a_table_is_not_overwritten(folder: Path) -> None:
    run("tune", "dev.json", "--corrections", "c.tsv", "--restarts", 1)
    assert "c.arpa: the output would overwrite the LM of the corrections" in refused("rescore", "dev.json", "-o", "c.arpa")


def test_zero_is_a_weight_for_what_corrections_add(folder: Path) -> None:
    """Tuning may find that the scores of the candidates tell nothing."""
    weights = ("--weight", "am_score=1", "--weight", "corrections=0")
    assert run("rescore", "dev.json", "--corrections", "c.tsv", *weights, "-o", "out.json").exit_code == 0


def test_an_lm_of_folds_has_a_name_of_its_own(folder: Path) -> None:
    lms = [option for _ in range(3) for option in ("--lm", "ngram=lm.pt")]
    told = refused("jackknife", "train.json", "-o", "j.jsonl", "--folds", 3, *lms)
    assert "the LM 'ngram' has the name of the 4-gram that is estimated" in told
    assert "--candidates is for --corrections" in refused("jackknife", "train.json", "-o", "j.jsonl", "--candidates", 3)


def test_an_lm_of_the_references_is_told(folder: Path) -> None:
    texts = [x["output"] for x in json.loads((folder / "train.json").read_text())]
    (folder / "seen.txt").write_text("\n".join(texts))
    run("ngram", "seen.txt", "-o", "seen.arpa", "--discount-fallback")
    assert "has seen the references" in run("tune", "train.json", "--kenlm", "seen.arpa", "--restarts", 1).stderr


def test_a_table_without_its_lm_says_what_to_do(folder: Path) -> None:
    run("tune", "dev.json", "--corrections", "c.tsv", "--restarts", 1)
    (folder / "alone.tsv").write_text((folder / "c.tsv").read_text().replace("= c.arpa", "= none.arpa"))
    for command in (("tune", "dev.json", "-o", "x.toml"), ("rescore", "dev.json", "-o", "x.json"), ("eval", "dev.json")):
        told = refused(*command, "--config", "attlm.toml", "--corrections", "alone.tsv")
        assert "alone.tsv: its LM" in told
        assert "is not there: mend the line '# lm =', or learn again" in told
    assert "alone.tsv: its LM" in refused("corrections", "eval", "dev.json", "--table", "alone.tsv")


def test_refused_in_one_line(folder: Path) -> None:
    (folder / "text.tsv").write_text("a\tb\n")
    (folder / "empty.txt").write_text("")
    assert "not a table" in refused("tune", "dev.json", "--corrections", "text.tsv")
    assert "cannot be read" in refused("tune", "dev.json", "--corrections", "none.tsv")
    assert "empty" in refused("tune", "dev.json", "--phrases", "empty.txt")
    assert "--candidates is for" in refused("tune", "dev.json", "--candidates", 3)
    assert "0 to 1000" in refused("tune", "dev.json", "--corrections", "c.tsv", "--candidates", -1)
    assert "no weight for what corrections add" in refused("rescore", "dev.json", "--corrections", "c.tsv", "--weight", "am_score=1")
    assert "no weight for what corrections add" in refused("eval", "dev.json", "--corrections", "c.tsv")
    assert "would overwrite" in refused("corrections", "train.json", "-o", "train.json")
    (folder / "taken.arpa").write_text("the user's own")
    for output, told in (("taken.tsv", "would be replaced by the LM of the references"), ("new.arpa", "give the table another ending")):
        assert told in refused("corrections", "train.json", "-o", output)
    assert (folder / "taken.arpa").read_text() == "the user's own"
    run("corrections", "train.json", "-o", "whole.tsv")
    whole = (folder / "whole.tsv").read_bytes()
    (folder / "whole.tsv").unlink()  # killed before it wrote the table
    run("corrections", "train.json", "-o", "whole.tsv")
    assert (folder / "whole.tsv").read_bytes() == whole
    assert "num2words does not know it" in refused("corrections", "train.json", "--language", "xx", "-o", "x.tsv")
    assert "--language: a table has its own; leave one" in refused(
        "corrections", "eval", "dev.json", "--table", "c.tsv", "--language", "de"
    )


def test_folds_keep_the_lists_of_a_group_together(folder: Path) -> None:
    """Each document has a name of its own, misspelled throughout: only lists of the same document teach its correction."""
    lists = []
    for place in range(36):
        document, start, number = place % 6, CITIES[place // 6], NUMBERS[place // 2 % 6]
        hypotheses = [{"text": f"fly {start} to new{name}{document} at {number}", "scores": {"am": -1.0}} for name in ("port", "fort")]
        reference = f"fly {start} to lhasa{document} at {number}"
        lists.append({"id": f"document{document}-{place}", "ref": reference, "hyps": hypotheses})
    Path("lists.jsonl").write_text("".join(f"{json.dumps(nbest)}\n" for nbest in lists))
    by_document = ("--folds-by", r"id:^(\w+)-")
    found = [json.loads(run("corrections", "eval", "lists.jsonl", "--json", *options).stdout) for options in ((), by_document)]
    assert [of_way["errors_corrected"] for of_way in found] == [0, found[0]["errors"]]

    run("jackknife", "lists.jsonl", "--texts", "texts", *by_document, "-o", "jackknifed.jsonl")
    texts = [path.read_text() for path in sorted(Path("texts").iterdir())]
    for document in range(6):
        assert sorted(text.count(f"lhasa{document}") for text in texts) == [0, 6, 6, 6, 6]

    run("corrections", "lists.jsonl", "-o", "documents.tsv")
    tuned = run("tune", "lists.jsonl", "--corrections", "documents.tsv", "--restarts", 1, *by_document).stderr
    assert "36 lists are of 6 conversations or groups: such lists count as one for intervals and p-values, and stay in one fold" in tuned
    assert "cross-validation shows no gain" in tuned
    assert "cross-validation shows no gain" not in run("tune", "lists.jsonl", "--corrections", "documents.tsv", "--restarts", 1).stderr
    tune = ("tune", "lists.jsonl", "--kenlm", "documents.arpa", "-o", "other.toml")
    assert "found 'all', expected id:REGEX or file:FILE" in refused(*tune, "--folds-by", "all")
    assert "all lists are in one group, which cannot be divided" in refused(*tune, "--folds-by", "id:^")
    assert "does not match the list id 'document0-0'" in refused(*tune, "--folds-by", "id:^x")
    assert "with --context, folds keep conversations whole" in refused(*tune, *by_document, "--context", "all")


def test_replaced_files_of_candidates_are_told_of(folder: Path) -> None:
    """The weights were tuned with others; and the LM of the search may be another than the table was learned with."""
    run("tune", "dev.json", "--corrections", "c.tsv", "--restarts", 1)
    told = "that the weights of attlm.toml were tuned with: tune again"
    for command in (("rescore", "dev.json", "-o", "out.json"), ("eval", "dev.json", "--config", "attlm.toml")):
        assert "WARNING" not in run(*command).stderr.replace("WARNING: no LM given", "")
    lists = json.loads((folder / "train.json").read_text())
    (folder / "fewer.json").write_text(json.dumps(lists[:30]))
    run("corrections", "fewer.json", "-o", "other.tsv")
    for command in (("rescore", "dev.json", "-o", "out2.json"), ("eval", "dev.json", "--config", "attlm.toml")):
        said = run(*command, "--corrections", "other.tsv").stderr
        assert f"WARNING: other.tsv is not the table {told}" in said
        assert f"WARNING: the LM of other.tsv is not the LM {told}" in said
    (folder / "c.arpa").write_bytes((folder / "other.arpa").read_bytes())
    for devices in ("cpu", "cpu:2"):
        said = run("rescore", "dev.json", "-o", f"{devices}.json", "--devices", devices).stderr
        assert f"WARNING: the LM of c.tsv is not the LM {told}" in said
        assert "c.tsv is not the table" not in said
    replaced = "c.arpa is not the LM that was written with c.tsv: learn again, or name the LM of the search in its line '# lm ='"
    assert replaced in said
    for command in (("tune", "dev.json", "--restarts", 1, "--corrections"), ("corrections", "eval", "dev.json", "--table")):
        assert replaced in run(*command, "c.tsv").stderr
    (folder / "c.tsv").write_text((folder / "c.tsv").read_text().replace("# lm = c.arpa", "# lm = other.arpa"))
    assert replaced not in run("corrections", "eval", "dev.json", "--table", "c.tsv").stderr


def test_folds_that_learn_from_a_part_of_the_lists_are_told_of(folder: Path) -> None:
    train, dev = (json.loads((folder / name).read_text()) for name in ("train.json", "dev.json"))
    (folder / "fewer.json").write_text(json.dumps(train[:30]))
    (folder / "most.json").write_text(json.dumps([*train[:30], *dev[:15]]))
    commands = (("tune", "{}", "--corrections", "c.tsv", "--restarts", 1), ("corrections", "eval", "{}", "--table", "c.tsv"))
    for command in commands:
        few, most, whole = (
            run(*(part if part != "{}" else name for part in command)).stderr for name in ("fewer.json", "most.json", "train.json")
        )
        assert "WARNING: the folds learn from 24 lists, and c.tsv was learned from 48: expect better figures of it" in few
        assert re.search(r"c.tsv was learned from about \d\d% of these lists", most)
        assert "WARNING: c.tsv has not seen the other lists, and is not measured on them" in most
        assert "c.tsv was learned from these lists" in whole
        assert "the folds learn" not in whole
        assert "the other lists" not in whole


def test_what_is_learned_from_is_told(folder: Path) -> None:
    lists = json.loads((folder / "train.json").read_text())
    long = " ".join(["la"] * 999)
    (folder / "long.json").write_text(json.dumps([{**lists[0], "output": long}, *lists[1:]]))
    assert "note: 1 texts are too long to learn from" in run("corrections", "long.json", "-o", "long.tsv").stderr
    (folder / "again.json").write_text(json.dumps([{**nbest, "corrections_score": [-1, -2]} for nbest in lists]))
    assert "candidates that corrections have added (score 'corrections')" in run("corrections", "again.json", "-o", "again.tsv").stderr
    run("jackknife", "train.json", "--corrections", "-o", "jackknifed.jsonl")
    run("tune", "jackknifed.jsonl", "--restarts", 1, "-o", "jackknifed.toml")
    assert "give the LM or the --corrections of then" in refused("rescore", "dev.json", "--config", "jackknifed.toml")
    (folder / "train.txt").write_text("".join(f"{nbest['output']}\n" for nbest in lists))
    run("ngram", "train.txt", "-o", "ngram.arpa", "--discount-fallback")
    run(
        "rescore",
        "dev.json",
        "--config",
        "jackknifed.toml",
        "--corrections",
        "c.tsv",
        "--kenlm",
        "ngram=ngram.arpa",
        "--to",
        "1best",
        "-o",
        "o",
    )
    assert (folder / "o").read_text().splitlines() == [nbest["output"] for nbest in json.loads((folder / "dev.json").read_text())]


def test_a_large_group_leaves_its_fold_little_to_learn_from(folder: Path) -> None:
    lists = json.loads((folder / "train.json").read_text())
    lines = [
        {
            "id": f"{'a' if place < 40 else place}-{place}",
            "ref": x["output"],
            "hyps": [{"text": t, "scores": {"am": -1}} for t in x["input"]],
        }
        for place, x in enumerate(lists)
    ]
    (folder / "groups.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    told = run("corrections", "eval", "groups.jsonl", "--table", "c.tsv", "--folds-by", r"id:^(\w+)-").stderr
    assert re.search(r"WARNING: the folds learn from 1\d lists, and c.tsv was learned from 48", told)


def test_a_table_on_a_stream(folder: Path) -> None:
    """It names its LM from the root, and is read once."""
    written = run("corrections", "train.json", "--kenlm", "c.arpa", "-o", "-").stdout
    assert f"# lm = {folder / 'c.arpa'}\n" in written
    run("tune", "dev.json", "--corrections", "c.tsv", "--restarts", 1)
    expected = run("rescore", "dev.json", "--corrections", "c.tsv", "-o", "-").stdout
    for command in (
        ("tune", "dev.json", "--restarts", 1, "-o", "x.toml", "--corrections"),
        ("tune", "train.json", "--restarts", 1, "-o", "x.toml", "--corrections"),
        ("corrections", "eval", "dev.json", "--table"),
        ("rescore", "dev.json", "-o", "-", "--corrections"),
    ):
        read, write = os.pipe()
        with os.fdopen(write, "wb") as out:
            out.write((folder / "c.tsv").read_bytes().replace(b"= c.arpa", f"= {folder / 'c.arpa'}".encode()))
        shown = run(*command, f"/dev/fd/{read}").stdout
        os.close(read)
    assert shown == expected


def test_a_machine_without_a_temporary_folder_is_told_how_to_name_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.mkdtemp", gone)
    assert refused("corrections", "train.json", "-o", "d.tsv").endswith("; set TMPDIR to a folder that can be written")
