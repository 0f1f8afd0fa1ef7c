from __future__ import annotations

import json

import pytest
from cli_runs import refused, run

from attlm_fairseq.nbest.clauses import fitting_tokenizer, takes_clauses


@pytest.mark.parametrize(
    ("texts", "tokenizer"),
    [
        (["\u6211\u4f1a\u53bb\u4e0a\u73ed\u4e86\u3002"], "zh"),
        (["\u6211\u4f1a\u53bb\u4e0a\u73ed\u4e86\uff0c\u4ed6 2019 \u5e74\u4e5f\u4f1a\u53bb\u4e0a\u73ed"], "zh"),
        (["\u6211 \u4f1a \u53bb \u4e0a\u73ed \u4e86 \u3002"], None),  # cut into words already
        (["\u79c1\u306f\u660e\u65e5\u6771\u4eac\u306b\u884c\u304d\u307e\u3059"], "ja-mecab"),
        (["\ub098\ub294 \ub0b4\uc77c \uc11c\uc6b8\uc5d0 \uac04\ub2e4"], None),  # Korean is written with spaces
        (["\ub098\ub294\ub0b4\uc77c\uc11c\uc6b8\uc5d0\uac04\ub2e4"], "char"),
        (["\u0e09\u0e31\u0e19\u0e08\u0e30\u0e44\u0e1b\u0e1e\u0e23\u0e38\u0e48\u0e07\u0e19\u0e35\u0e49"], "char"),
        (["I shall go to \u6771\u4eac tomorrow"], None),
        (["donaudampfschifffahrtsgesellschaft"], None),
        (["", " "], None),
        ([], None),
    ],
)
def test_text_without_spaces_is_recognised(texts, tokenizer):
    assert fitting_tokenizer(texts) == tokenizer


def test_command_hints_at_the_tokenizer(folder):
    lists = [
        {
            "input": ["\u6211\u4f1a\u53bb\u4ed6\u4eec\u5bb6", "\u6211\u4f1a\u53bb\u4ed6\u5bb6"],
            "output": "\u6211\u4f1a\u53bb\u4ed6\u4eec\u5bb6",
        }
    ]
    (folder / "zh.json").write_text(json.dumps(lists))
    hint = "--bleu-tokenize zh or char"
    assert run("eval", "zh.json", "--metric", "bleu").stderr.count(hint) == 1
    assert hint not in run("eval", "zh.json", "--metric", "bleu", "--bleu-tokenize", "zh").stderr
    assert hint not in run("eval", "zh.json", "--metric", "cer").stderr


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["\u6211\u4f1a\u53bb\u4e0a\u73ed\u4e86"], True),
        (["\u6211 \u4f1a \u53bb \u4e0a\u73ed \u4e86"], False),
        (["ฉัน กิน ข้าวเหนียว ที่ โรงเรียน กรุงเทพ"], False),  # in words, and more than 5 code points each
        (["\u0e09\u0e31\u0e19\u0e08\u0e30\u0e44\u0e1b\u0e1e\u0e23\u0e38\u0e48"], True),
        (["\ub098\ub294\ub0b4\uc77c\uc11c\uc6b8\uc5d0\uac04\ub2e4"], False),  # the step `characters` leaves Korean as it is
        (["donaudampfschifffahrtsgesellschaft"], False),
        ([], False),
    ],
)
def test_clauses_that_characters_divides(texts, told):
    assert takes_clauses(texts) is told


def zh(reference: str, *texts: str) -> dict:
    return {"id": reference, "ref": reference, "hyps": [{"text": text, "scores": {"am": -float(rank)}} for rank, text in enumerate(texts)]}


def test_chinese_from_lists_to_figures(folder):
    """Corrections, CER without spaces, confidences, an n-gram LM: with the options that the messages name."""
    lists = [
        zh(f"{who}\u53bb\u9999\u6e2f\u5427", f"{who}\u53bb\u76f8\u6e2f\u5427", f"{who} \u53bb\u76f8\u6e2f")
        for who in "\u6211\u4f60\u4ed6\u5979\u8c01\u5b83"
    ]
    (folder / "zh.jsonl").write_text("".join(f"{json.dumps(of_list)}\n" for of_list in lists))
    (folder / "text.txt").write_text("".join(f"{of_list['ref'] * 2}\n" for of_list in lists))
    told = run("corrections", "zh.jsonl", "-o", "none.tsv").stderr
    assert "corrections take clauses for words: learn with --text characters" in told
    assert "clauses" not in run("corrections", "zh.jsonl", "-o", "zh.tsv", "--text", "characters").stderr
    run("rescore", "zh.jsonl", "--corrections", "zh.tsv", "--weight", "search_lm=1", "-o", "best.jsonl")
    best = [json.loads(line)["hyps"][0]["text"] for line in (folder / "best.jsonl").read_text().splitlines()]
    assert best == [of_list["ref"] for of_list in lists]
    wer = run("eval", "zh.jsonl", "--metric", "wer").stderr
    assert "WER takes clauses for words: --metric-text characters counts characters" in wer
    (folder / "hyp.txt").write_text("".join(f"{of_list['ref'][:2]} {of_list['ref'][2:]}\n" for of_list in lists))
    (folder / "ref.txt").write_text("".join(f"{of_list['ref']}\n" for of_list in lists))
    for options, figure in ((), "20.00"), (("--cer-without-spaces",), "0.00"):
        table = run("eval", "hyp.txt", "--refs", "ref.txt", "--metric", "cer", *options).stdout
        assert f"space:{'no' if options else 'yes'}" in table
        assert next(line for line in table.splitlines() if line.startswith("hyp.txt")).split()[1] == figure
    assert "--cer-without-spaces is for --metric cer, not for wer" in refused("eval", "zh.jsonl", "--metric", "wer", "--cer-without-spaces")
    told = refused("tune", "zh.jsonl", "--metric", "cer", "--confidence", "--kenlm", "zh.arpa")
    assert "it goes with --metric wer, not CER; for text without spaces between words, --metric wer --metric-text characters" in told
    told = run("rescore", "zh.jsonl", "--consensus", "--weight", "am=1", "--scale", "1", "-o", "vote.jsonl").stderr
    assert (
        "the hypotheses have no spaces between words, so the vote of --consensus takes clauses for words: --metric-text characters" in told
    )
    voting = ["rescore", "zh.jsonl", "--consensus", "--metric-text", "characters", "--weight", "am=1", "--scale", "1", "-o", "vote2.jsonl"]
    assert "clauses" not in run(*voting).stderr
    told = run("ngram", "text.txt", "-o", "more.arpa", "-n", "2", "--discount-fallback").stderr
    assert "text.txt has no spaces between words, so clauses count as words: `attlm convert text.txt" in told
