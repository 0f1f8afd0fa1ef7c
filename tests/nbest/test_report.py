"""The report: what it counts and shows, that it is one whole file, and that nothing in the data can become markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from cli_runs import run

from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.report import report
from attlm_fairseq.nbest.report.report import Report, ReportBuilder
from attlm_fairseq.nbest.report.scatter import POINTS
from attlm_fairseq.nbest.report.text_differences import confusions, differences
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.statistics.evaluation import compare
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text import TextPipeline

WER = make_metric("wer")


class Page(HTMLParser):
    """Every tag with its attributes and all text; fails where tags do not nest."""

    VOID = ("meta", "circle", "line", "br", "link", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, text):
        self.texts.append(text)

    def count(self, tag: str, css: str | None = None) -> int:
        return sum(name == tag and (css is None or attributes.get("class") == css) for name, attributes in self.tags)


class Lengths(Scorer):
    """An LM whose words have their length as cost; words with a q are unknown."""

    name = "lengths"

    def score(self, sentences):
        return [SentenceScore((*(-float(len(word)) for word in words), -1.0), tuple("q" in word for word in words)) for words in sentences]

    def signature(self):
        return {"kind": "lengths"}


def make_lists(count: int, seed: int = 1) -> list[NbestList]:
    generator = np.random.default_rng(seed)
    lists = []
    for number in range(count):
        reference = " ".join(generator.choice(["ab", "cde", "f", "ghij"], size=6))
        texts = [" ".join(word for word in reference.split() if generator.random() < 0.8) for _ in range(4)]
        hypotheses = [
            Hypothesis(text, {"am": float(generator.normal())}, rank, {"lengths": -float(len(text))})
            for rank, text in enumerate(texts, start=1)
        ]
        lists.append(NbestList(f"utt{number}", hypotheses, (reference,)))
    return lists


def build(lists, answers, metric=WER) -> ReportBuilder:
    builder = ReportBuilder(metric, ["lengths"])
    for nbest, answer in zip(lists, answers, strict=True):
        texts = [hypothesis.text for hypothesis in nbest.hypotheses]
        builder.add(nbest, metric.statistics(texts, nbest.references), answer, metric.statistics([answer], nbest.references)[0])
    return builder


def page_of(builder: ReportBuilder, lists, **more) -> str:
    first = np.array([builder.metric.statistics([nbest.hypotheses[0].text], nbest.references)[0] for nbest in lists])
    options = {"title": "A report", "weights": {"am": 1.0, "lengths": 0.25}, "decision": "max", "scorers": [Lengths()]}
    rows = compare([("input 1-best", first), ("again", first)], builder.metric)
    return builder.html(Report(rows=rows, against="against", texts=[TextPipeline()], **(options | more)))


@pytest.mark.parametrize(
    ("metric", "options", "reference", "text", "expected"),  # right (wrong|reference) +extra+ [missing]
    [
        ("wer", {}, "a b c", "a  x c d", "a (x|b) c +d+"),
        ("wer", {}, "a b", "b", "[a] b"),
        ("wer", {}, "a b", "x y", "(x|a) (y|b)"),
        ("wer", {}, "", "", ""),
        ("cer", {}, "我喜欢 NLP", "我喜次 NLP", "我喜(次|欢) NLP"),
        ("cer", {}, "abcd", "axyd", "a(xy|bc)d"),
        ("cer", {}, "the cat", "thecat s", "the[␣]cat+␣s+"),
        ("cer", {"spaces": False}, "the cat", "thecat s", "thecat +s+"),
        ("cer", {"lowercase": True}, "Ab", "aB", "ab"),
        ("bleu", {}, "a cat.", "a cat", "a cat[.]"),
        ("bleu", {}, "cat & dog", "cat &amp; hog", "cat & (hog|dog)"),
        ("bleu", {"tokenize": "zh"}, "我喜欢 NLP 好", "我喜次 NLP", "我喜(次|欢) NLP [好]"),
        ("chrf", {}, "我喜欢 it", "我喜次 at", "我喜(次|欢) (at|it)"),
        ("ter", {}, "a Cat.", "a cat .", "a (cat|cat.) +.+"),
    ],
)
def test_differences_are_marked_in_the_units_of_the_metric(metric, options, reference, text, expected):
    metric = make_metric(metric, **options)
    prepared = report.compared_text(metric).prepared
    form = {"right": "{0.text}", "wrong": "({0.text}|{0.other})", "extra": "+{0.text}+", "missing": "[{0.other}]"}
    parts = differences(prepared(reference), prepared(text), metric)
    assert "".join(part.space + form[part.kind].format(part) for part in parts) == expected


@pytest.mark.parametrize("metric", ["wer", "bleu"])
def test_counts_and_cases(metric, monkeypatch):
    metric = make_metric(metric)
    lists = make_lists(60)
    losses = [
        [float(report.sentence_losses(row, metric)) for row in metric.statistics([h.text for h in n.hypotheses], n.references)]
        for n in lists
    ]
    answers = [nbest.hypotheses[3].text for nbest in lists]
    builder = build(lists, answers, metric)
    changes = [
        after[3] - after[0] for after, nbest in zip(losses, lists, strict=True) if nbest.hypotheses[3].text != nbest.hypotheses[0].text
    ]
    better, worse = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    assert (builder.lists, builder.changed, builder.better, builder.worse, builder.new) == (60, len(changes), better, worse, 0)
    assert min(better, worse) > 5
    assert Page(page_of(builder, lists)).count("article") == better + worse
    monkeypatch.setattr(report, "UTTERANCES_PER_SECTION", 3)
    few = build(lists, answers, metric)
    page = page_of(few, lists)
    assert Page(page).count("article") == 6
    assert f"The 3 largest differences are shown, {better - 3} are left out." in page
    shown = sorted((change.loss_before - change.loss_after for _, _, change in few._heaps[0]), reverse=True)
    assert shown == pytest.approx(sorted((-change for change in changes), reverse=True)[:3])


def test_words_are_marked_and_scored():
    hypotheses = [
        Hypothesis("a big qat sat", {"am": -1.0}, 1, {"lengths": -9.0}),
        Hypothesis("a cat sat", {"am": -3.0}, 2, {"lengths": -7.0}),
    ]
    lists = [NbestList("one", hypotheses, ("a cat sat",))]
    count = OOVCount("lengths")
    count.add([["a", "big", "qat", "sat"]], [[False, False, True, False]])
    text = page_of(build(lists, ["a cat sat"]), lists, oov=[count])
    page = Page(text)
    assert "2 → 0 errors" in page.texts
    assert page.count("span", "extra") == page.count("span", "wrong") + 0 == 2  # one each, and one each in the legend
    assert page.count("span", "oov") == 1
    cells = re.findall(
        r"<tr><td>(\w+)</td><td class=\"number\">(\S+)</td><td class=\"number\">(\S+)</td><td class=\"number\">(\S+)</td></tr>", text
    )
    assert cells == [("am", "-1.00", "-3.00", "-2.00"), ("lengths", "-9.00", "-7.00", "+0.50")]
    assert "1-best -11.00, answer -8.00" in text  # 1 + 3 + 3 + 3 and 1, 1 + 3 + 3 and 1
    assert "25.00 %" in text


def test_the_features_shown_are_those_weighed():
    """A list's own ``words`` and ``rank`` are no features."""
    own = [{"am": -1.0, "words": -50.0, "rank": 7.0}, {"am": -1.5, "words": -90.0, "rank": 3.0}]
    hypotheses = [Hypothesis("a b x y", own[0], 1), Hypothesis("a b c", own[1], 2)]
    lists = [NbestList("one", hypotheses, ("a b c",))]
    weights = {"words": -2.0, "rank": -0.1, "am": 1.0}
    text = page_of(build(lists, ["a b c"]), lists, weights=weights)
    cells = re.findall(r"<tr><td>(\w+)</td>" + r"<td class=\"number\">(\S+)</td>" * 3 + "</tr>", text)
    assert cells == [
        ("words", "4.00", "3.00", "+2.00"),
        ("am", "-1.00", "-1.50", "-0.50"),
        ("rank", "0.00", "1.00", "-0.10"),
    ]


def test_how_often_an_lm_judges_rightly():
    texts, scores = ["a x", "a b", "x x", "a y"], [-2.0, -1.0, -3.0, -9.0]
    hypotheses = [Hypothesis(text, {}, rank, {"lengths": score}) for rank, (text, score) in enumerate(zip(texts, scores, strict=True), 1)]
    lists = [NbestList("one", hypotheses, ("a b",))]
    page = page_of(build(lists, ["a x"]), lists)  # the better one is preferred and the worse one is not; the fourth is as good
    assert "Of 2 hypotheses that are better or worse than the input 1-best, lengths ranks 100.0 % correctly" in page
    hypotheses[1].lm_scores["lengths"] = -4.0
    assert "lengths ranks 50.0 % correctly" in page_of(build(lists, ["a x"]), lists)


def test_the_closest_reference_is_shown():
    lists = [NbestList("one", [Hypothesis("a x", {}, 1), Hypothesis("a b", {}, 2)], ("c d e f", "a b", "q"))]
    builder = build(lists, ["a b"])
    assert [change.reference for _, _, change in builder._heaps[0]] == ["a b"]


def test_unspaced_text_and_text_from_right_to_left():
    """What browsers make of these attributes was looked at; <bdi> inside of running text would hide it from dir="auto"."""
    reference, first = "أحب NLP في 2024.", "أحب في 2023."
    hypotheses = [Hypothesis(first, {"am": -1.0}, 1, {"lengths": -9.0}), Hypothesis(reference, {"am": -3.0}, 2, {"lengths": -7.0})]
    lists = [NbestList("ملف 1", hypotheses, (reference,))]
    count = OOVCount("lengths")
    count.add([["NLP", "في"]], [[True, True]])
    text = page_of(build(lists, [reference], make_metric("cer")), lists, oov=[count])
    page = Page(text)
    assert sum(attributes.get("dir") == "auto" for name, attributes in page.tags if name == "span") == 3
    assert sum(attributes.get("dir") == "auto" for name, attributes in page.tags if name == "div") == 2
    assert f'<span dir="auto">{reference}</span>' in text
    wrong = '<span class="wrong" title="reference: 4">3</span>'
    assert f'أحب <span class="missing" title="missing">[NLP␣]</span>في 202{wrong}.</span>' in text
    assert "<bdi>ملف 1</bdi></a>" in text
    assert "<bdi>في</bdi>&nbsp;" in text
    assert text.count('<bdi>&lt;/s&gt;</bdi><small dir="ltr">-1.0</small>') == 2


def test_nothing_in_the_data_becomes_markup():
    evil = "<script>alert(1)</script> </div> &amp; \" onload='x' {{ 7 * 7 }} {% if %}"
    hypotheses = [Hypothesis(f"{evil} a", {evil: 1.0}, 1, {"lengths": 1.0}), Hypothesis(evil, {evil: 2.0}, 2, {"lengths": 2.0})]
    lists = [NbestList(evil, hypotheses, (evil,))]
    count = OOVCount("lengths")
    count.add([[evil]], [[True]])
    text = page_of(
        build(lists, [evil]), lists, title=evil, weights={evil: 1.0}, oov=[count], notes=[evil], facts={evil: evil}, decision=evil
    )
    page = Page(text)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "iframe", "link", "object"})
    assert "alert(1)" in text
    assert "{{ 7 * 7 }}" in text
    assert "49" not in re.sub(r"<svg.*?</svg>|<style>.*?</style>", "", text, flags=re.DOTALL)


def test_the_page_needs_nothing_else_and_is_bounded(monkeypatch):
    lists = make_lists(700)
    builder = build(lists, [nbest.hypotheses[1].text for nbest in lists])
    text = page_of(builder, lists)
    page = Page(text)
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "action", "data"} & attributes.keys(), tag
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import|http", text)
    assert page.count("article") <= 2 * report.UTTERANCES_PER_SECTION
    assert 500 <= page.count("circle") + page.count("circle", "chosen") <= 2 * POINTS
    assert re.search(r"\d of [\d,]+ hypotheses are shown", text)
    assert text == page_of(build(lists, [nbest.hypotheses[1].text for nbest in lists]), lists)


def test_no_change_and_empty_texts():
    lists = [NbestList("one", [Hypothesis("", {}, 1), Hypothesis("a", {}, 2)], ("",))]
    Page(page_of(build(lists, [""]), lists))
    text = page_of(build(lists, ["b"]), lists)
    assert "in no list" in text
    assert "(empty)" in text


def test_lms_are_loaded_once(folder, monkeypatch):
    loaded = []
    load = RunConfig.load
    monkeypatch.setattr(RunConfig, "load", lambda config, compute: loaded.append(config) or load(config, compute))
    lms = ["--lm", "neural=lm.pt", "--kenlm", "lm.arpa"]
    for command in (["tune", *lms, "--strength", "1"], ["eval", "--config", "attlm.toml"]):
        loaded.clear()
        run(command[0], "dev.json", *command[1:], "--report", "page.html")
        assert len(loaded) == 1
        assert "kenlm: ln p against the input 1-best" in (folder / "page.html").read_text()


def test_repeated_lists_count_as_one(folder):
    lists = json.loads((folder / "dev.json").read_text())
    (folder / "thrice.json").write_text(json.dumps(lists * 3))
    own = ["--kenlm", "lm.arpa", "--weight", "kenlm=1"]
    result = run("eval", "thrice.json", *own, "--report", "page.html")
    assert "6 of 9 lists repeat" in result.stderr
    assert "6 of 9 lists repeat" in (folder / "page.html").read_text()


def test_commands_write_it(folder):
    run("tune", "dev.json", "--lm", "neural=lm.pt", "--kenlm", "lm.arpa", "--strength", "1", "--report", "tune.html")
    run("eval", "dev.json", "--config", "attlm.toml", "--report", "eval.html")
    run("eval", "dev.json", "--config", "attlm.toml", "--report", "mbr.html", "--mbr", "wer")
    (folder / "texts").write_text("the cat sad\nthe cat sat\n\na mad\na mat\n")
    (folder / "refs").write_text("the cat sat\na mat\n")
    own = ["--kenlm", "lm.arpa", "--weight", "kenlm=1"]
    run("eval", "texts", *own, "--report", "plain.html", "--refs", "refs", "--metric", "bleu")
    for name, label in (("tune", "tuned"), ("eval", "rescored, max"), ("mbr", "rescored, mbr-wer at 1"), ("plain", "rescored, max")):
        page = (folder / f"{name}.html").read_text()
        Page(page)
        assert f"<td>{label}</td>" in page
        assert ("in-sample" in page) is (name != "plain")
        assert "kenlm: ln p against the input 1-best" in page
    result = run("eval", "texts", *own, "--report", "no.html", code=2)
    assert "has no reference" in result.stderr
    assert not (folder / "no.html").exists()


def test_two_files_are_compared_without_weights(folder):
    (folder / "other.json").write_text((folder / "dev.json").read_text())
    run("eval", "dev.json", "other.json", "--report", "two.html")
    page = (folder / "two.html").read_text()
    Page(page)
    assert "Weights" not in page
    assert "Decision" not in page
    run("eval", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--report", "one.html")
    assert "Decision: max" in (folder / "one.html").read_text()


def test_confusions_pair_the_units_of_reference_and_text():
    wer = make_metric("wer")
    assert confusions("a b c", "a x c", wer) == [("b", "x")]
    assert confusions("a b c", "a c", wer) == [("b", "")]
    assert confusions("a c", "a b c", wer) == [("", "b")]
    assert confusions("a b", "a b", wer) == []


def test_errors_that_no_hypothesis_could_mend_are_told():
    hypotheses = [Hypothesis(text) for text in ("x y c", "a y c", "x y")]  # 2, 1 and 3 errors
    builder = build([NbestList("u", hypotheses, references=("a b c",))], ["x y c"])
    assert (builder.errors_before, builder.errors_after, builder.errors_of_oracle) == (2, 2, 1)
