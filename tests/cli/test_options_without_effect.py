"""An option that the other options leave without effect is refused in one line, or told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import refused, run


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rescore dev.json --weight am_score=1 --mbr wer --bleu-tokenize zh", "--bleu-tokenize is for --mbr bleu"),
        ("rescore dev.json --weight am_score=1 --context all", "--context is for LMs, and there are none"),
        ("rescore dev.json --weight am_score=1 --source-by number", "--source-by is for --source: give it, or leave --source-by out"),
        ("eval dev.json --max", "--max is for rescored lists: give --config, LMs or --weight, or leave --max out"),
        ("export lm.pt new --text lowercase", "--text is for --ppl: give it a text, or leave --text out"),
        ("export lm.pt new --device cpu", "--device is for --ppl"),
        (
            "attention --file text --lm lm.pt --sentences 3 -o out.png",
            "--sentences is for an .html and for --against, none of which is given",
        ),
        (
            "tune dev.json --kenlm lm.arpa --feature kenlm_tokens --without kenlm_tokens",
            "--feature kenlm_tokens: --without kenlm_tokens leaves it out",
        ),
        (
            "tune dev.json --kenlm p=lm.arpa --kenlm q=lm.arpa --feature p_minus_q --without p_*",
            "--feature p_minus_q: --without p_* leaves it out; leave one of the two out, or narrow the pattern",
        ),
        ("cloze asked --kenlm lm.arpa --weight kenlm=0", "all weights are 0: give an LM another weight"),
    ],
)
def test_it_is_refused(folder, command, message):
    Path("asked").write_text("1 the cat sat\n2 a XXXXX ran\tdog\t\tcat|dog\n")
    assert message in refused(*command.split())
    assert not Path("new").exists()


def test_folds_are_not_needed_for_a_table_of_other_lists(folder):
    other = [{"input": ["a mad", "a mat"], "output": "a mat"}] * 3
    Path("other.json").write_text(json.dumps(other))
    run("corrections", "learn", "other.json", "-o", "table.tsv", "--kenlm", "lm.arpa")
    told = run("corrections", "eval", "dev.json", "--table", "table.tsv", "--folds", 3).stderr
    assert "note: --folds and --folds-by have no effect: table.tsv was not learned from these lists" in told
    assert "no effect" not in run("corrections", "eval", "dev.json", "--table", "table.tsv").stderr


def test_a_rule_whose_weights_are_all_0_says_that_the_order_decides(folder):
    same = [{"input": [f"{word} mat", f"{word} mad", f"{word} cat"], "output": f"{word} dog"} for word in "abcdefgh"]
    Path("same.json").write_text(json.dumps(same))
    told = run("tune", "same.json", "--consensus", "--folds", 0, "--without", "rank", "--restarts", 0, "-o", "out.toml").stderr
    assert ("all weights are 0, so --consensus decides by the order of the hypotheses" in told) == (
        "rank = -1" in Path("out.toml").read_text()
    )
