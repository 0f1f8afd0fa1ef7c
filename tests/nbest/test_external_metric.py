"""``--metric external:COMMAND``: a program that answers scores, and programs that crash, hang or answer too little."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.metrics.external import ExternalMetric, with_source
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import corpus_score

PROGRAM = """
import sys
lines = sys.stdin.read().splitlines()
open("runs", "a").write(f"{len(lines)}\\n")
for line in lines:
    source, hypothesis, reference = line.split("\\t")
    shared = set(hypothesis.split()) & set(reference.split())
    print(len(shared) - (source == "bad"))
"""
LISTS = [
    {"id": "u1", "ref": "a b c", "hyps": [{"text": "a", "scores": {"am": -1.0}}, {"text": "a b c", "scores": {"am": -1.5}}]},
    {"id": "u2", "ref": "b d", "hyps": [{"text": "b d", "scores": {"am": -1.0}}, {"text": "x", "scores": {"am": -2.0}}]},
]


@pytest.fixture
def program(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    Path("dev.jsonl").write_text("".join(json.dumps(nbest) + "\n" for nbest in LISTS))
    return f"{sys.executable} program.py"


def runs() -> list[int]:
    return list(map(int, Path("runs").read_text().split()))


def test_answers_are_averaged_and_kept(program):
    metric = make_metric(f"external:{program}")
    statistics = metric.statistics(["a", "a b c", "a"], ["a b c", "b c d e"])
    assert statistics.tolist() == [[1.0, 1.0], [3.0, 1.0], [1.0, 1.0]]  # the better of two references
    assert corpus_score(metric, statistics) == pytest.approx(5 / 3)
    metric.statistics(["a"], ["a b c"])
    assert runs() == [4]
    assert metric.statistics(["a"], with_source(["a b c"], "bad")).tolist() == [[0.0, 1.0]]
    assert metric.statistics(["a\tb"], ["b"]).tolist() == [[1.0, 1.0]]


def test_commands_compare_all_hypotheses_in_one_run(program):
    result = run("eval", "dev.jsonl", "--metric", f"external:{program}")
    assert "1.5" in result.stdout  # (1 + 2) / 2 of the hypotheses that stand first
    assert runs()[0] == 4
    run("tune", "dev.jsonl", "--metric", f"external:{program}", "-o", "attlm.toml", "--folds", "0", code=0)


def test_source_sentences_come_from_a_file(program):
    Path("in_order").write_text("good\nbad\n")
    Path("by_id").write_text("u2 bad\nu1 good\n")
    for name, command in (("in_order", "eval"), ("by_id", "eval"), ("in_order", "tune")):
        result = run(
            command, "dev.jsonl", "--metric", f"external:{program}", "--source", name, "--json", *(["--folds", "0"] * (command == "tune"))
        )
        assert json.loads(result.stdout)["systems"][0]["score"] == pytest.approx(1.0)  # (1 + (2 - 1)) / 2
    Path("short").write_text("good\n")
    assert "short: 1 lines, but there are 2 lists" in refused("eval", "dev.jsonl", "--metric", f"external:{program}", "--source", "short")
    assert "--source is for translation models (--mt) and for --metric and --mbr external:COMMAND, and there is none" in refused(
        "eval", "dev.jsonl", "--source", "in_order"
    )


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('no memory')", "ended with exit code 1: no memory"),
        ("print(1)", "answered 1 lines to 2, expected one number per line"),
        ("print('1\\nnan')", "answered 'nan' in line 2, expected a finite number"),
        ("import time; time.sleep(60)", "did not answer 2 lines within 0.5 seconds"),
    ],
)
def test_a_program_that_fails_is_one_line(program, message):
    metric = ExternalMetric(f'{sys.executable} -c "{program}"', timeout=0.5 if "sleep" in program else 60)
    with pytest.raises(InputError) as refusal:
        metric.statistics(["a", "b"], ["a"])
    assert message in str(refusal.value)


def test_commands_that_cannot_be(program):
    with pytest.raises(InputError, match="cannot be started"):
        ExternalMetric("./no-such-program").statistics(["a"], ["a"])
    assert "names no command" in refused("eval", "dev.jsonl", "--metric", "external:")
    assert "is for --metric ter" in refused("eval", "dev.jsonl", "--metric", "external:x", "--ter-case-sensitive")


LOSS = """
import pathlib, sys
lines = sys.stdin.read().splitlines()
with pathlib.Path("mbr_runs").open("a") as file:
    file.write(f"{len(lines)}\\n")
for line in lines:
    source, hypothesis, reference = line.split("\\t")
    common = len(set(hypothesis.split()) & set(reference.split()))
    print(common / max(1, len(set(hypothesis.split()) | set(reference.split()))) - (source == "worse"))
"""


def overlap(one: str, other: str) -> float:
    return len({*one.split()} & {*other.split()}) / max(1, len({*one.split()} | {*other.split()}))


def test_mbr_expects_the_losses_of_a_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loss.py").write_text(LOSS)
    random_ = random.Random(4)
    lists = [
        {"id": f"u{number}", "hyps": [{"text": " ".join(random_.choices("abcd", k=4)), "scores": {"am": -place}} for place in range(5)]}
        for number in range(8)
    ]
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    rule = ["--mbr", f"external:{sys.executable} loss.py"]
    run("rescore", "lists", "--weight", "am=0.3", "--scale", "1", *rule, "-o", "out")
    assert len(Path("mbr_runs").read_text().split()) == 1  # all lists in one run
    for nbest, line in zip(lists, Path("out").read_text().splitlines(), strict=True):
        texts = [hypothesis["text"] for hypothesis in nbest["hyps"]]
        shares = [math.exp(-0.3 * place) for place in range(5)]
        risks = [-sum(share * overlap(text, truth) for share, truth in zip(shares, texts, strict=True)) / sum(shares) for text in texts]
        found = json.loads(line)["hyps"]
        assert found[0]["total"] == pytest.approx(-min(risks))
        assert found[0]["text"] in [text for text, risk in zip(texts, risks, strict=True) if risk == pytest.approx(min(risks))]


def test_sources_from_a_file_reach_the_program_that_decides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loss.py").write_text(LOSS + "    pathlib.Path('sources').open('a').write(source + '\\n')\n")
    Path("lists").write_text("".join(json.dumps(nbest | {"id": f"{nbest['id']}{n}"}) + "\n" for n in range(3) for nbest in LISTS))
    Path("src").write_text("".join(f"s{n}\n" for n in range(6)))
    rule = ["--mbr", f"external:{sys.executable} loss.py", "--source", "src"]
    for command in (["rescore", "lists", "--weight", "am=1", "-o", "out"], ["eval", "lists", "--weight", "am=1"], ["tune", "lists"]):
        assert "no source sentences" not in run(*command, *rule).stderr
        assert set(Path("sources").read_text().split()) == {f"s{n}" for n in range(6)}
        Path("sources").unlink()


def test_reports_and_votes_start_the_program_once(program):
    Path("ref").write_text("b c\nb\n")
    Path("src").write_text("good\nbad\n")
    run("eval", "dev.jsonl", "--refs", "ref", "--refs", "ref", "--source", "src", "--metric", f"external:{program}", "--report", "p.html")
    assert len(runs()) == 1
    hyps = [{"text": text, "scores": {"am": 0.0}} for text in ("a x c", "a b y", "z b c")]
    Path("dev.jsonl").write_text("".join(json.dumps({"id": f"u{n}", "ref": f"a b c d{n}", "hyps": hyps}) + "\n" for n in range(4)))
    Path("runs").unlink()
    run("eval", "dev.jsonl", "--weight", "am=1", "--consensus", "--metric", f"external:{program}")
    assert runs() == [12, 4]


def test_a_file_never_says_which_program_decides(program):
    rule = f"external:{sys.executable} loss.py"
    Path("loss.py").write_text(LOSS)
    tuned = run("tune", "dev.jsonl", "--mbr", rule, "--folds", "0", "-o", "attlm.toml")
    assert f"mbr-{rule}" in tuned.stdout
    assert f'rule = "mbr-{rule}' not in Path("attlm.toml").read_text()
    run("rescore", "dev.jsonl", "--mbr", rule, "--weight", "am=1", "-o", "out")
    Path("attlm.toml").write_text(f"[decision]\nrule = 'mbr-{rule}'\n")
    assert "a file never says what to run; give --mbr external:" in refused("rescore", "dev.jsonl", "--weight", "am=1")
    assert "--mbr external: names no command" in refused("rescore", "dev.jsonl", "--mbr", "external:")


SOURCED = {"id": "a", "source": "▁der ▁Hu nd", "ref": "the dog", "hyps": [{"text": "▁the ▁do g", "score": -1.5}]}


@pytest.mark.parametrize("shape", ["jsonl", "json", "array", "rows", "csv"])
def test_sources_within_the_lists_reach_the_program(shape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nbest = SOURCED | {"hyps": [{"text": "▁the ▁do g", "scores": {"score": -1.5}}]} if shape == "jsonl" else SOURCED
    row = {"id": "a", "src": SOURCED["source"], "ref": "the dog", "hyp": "▁the ▁do g", "score": -1.5}
    texts = {"array": json.dumps([nbest]), "rows": json.dumps(row), "csv": f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"}
    Path("lists").write_text(texts.get(shape, json.dumps(nbest) + "\n"))
    program = ["import sys", "lines = sys.stdin.readlines()", "open('seen', 'w').writelines(lines)", "print('1\\n' * len(lines), end='')"]
    Path("program.py").write_text("\n".join(program))
    assert attlm.read_nbest("lists")[0].source == SOURCED["source"]
    said = run("eval", "lists", "--metric", f"external:{sys.executable} program.py", "--metric-text", "join-subwords:sentencepiece")
    assert Path("seen").read_text() == "der Hund\tthe dog\tthe dog\n"
    assert "no source sentences" not in said.stderr
    run("convert", "lists", "-o", "again.jsonl")
    assert attlm.read_nbest("again.jsonl")[0].source == SOURCED["source"]


def test_rows_of_several_sources_have_none(tmp_path):
    """The column is something else, such as the system that a hypothesis comes from; it is kept as what is not read."""
    rows = [{"id": "a", "source": system, "hyp": text, "score": -1.0} for system, text in (("mt1", "x"), ("mt2", "y"))]
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    later = "".join(f"{n},the source,{text}\n" for n in range(20) for text in "xy")
    (tmp_path / "later.csv").write_text(f"id,source,hyp\n{later}a,mt1,x\na,mt2,y\n")
    first, *_, last = attlm.read_nbest(tmp_path / "later.csv")
    assert (first.source, first.verbatim.extras, last.source, last.verbatim.extras) == ("the source", (), None, ("source",))
    (tmp_path / "rows.csv").write_text("id,source,hyp\n" + "".join(f"a,{row['source']},{row['hyp']}\n" for row in rows))
    for name in ("rows.json", "rows.csv"):
        [nbest] = attlm.read_nbest(tmp_path / name)
        assert nbest.source is None
        assert "source" in nbest.verbatim.extras


def test_no_sources_are_told_once_and_small_differences_are_shown(program):
    result = run("eval", "dev.jsonl", "--metric", f"external:{program}")
    assert result.stderr.count("no source sentences are known") == 1
    assert "1.5000" in result.stdout
