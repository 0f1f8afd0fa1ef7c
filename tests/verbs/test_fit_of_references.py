"""References that are written otherwise than the lists, or that belong to other lists."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import attlm_fairseq as attlm
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.metrics.edit_rates import WER
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.text.pipeline import parse_steps
from attlm_fairseq.verbs.fit_of_references import foreign, normalisation, warn_of_references

WORDS = [
    "flight",
    "boston",
    "denver",
    "please",
    "show",
    "morning",
    "cheapest",
    "leaving",
    "arriving",
    "ticket",
    "monday",
    "friday",
    "kansas",
    "airport",
    "evening",
]


def made(count: int = 60, seed: int = 1) -> list[NbestList]:
    """Lists whose first hypotheses are cased, punctuated, and wrong in a tenth of the words; references are plain."""
    draw = random.Random(seed)
    lists = []
    for number in range(count):
        reference = draw.choices(WORDS, k=8)
        words = [draw.choice(WORDS) if draw.random() < 0.1 else word for word in reference]
        text = f"{' '.join(words).capitalize()}, {draw.choice(WORDS)}."
        reference += [text.split()[-1].rstrip(".")]
        lists.append(NbestList(str(number), [Hypothesis(text, {}, 1)], (" ".join(reference),)))
    return lists


def told(lists: list[NbestList], metric: str = "wer", steps: str = "") -> list[str]:
    with collected() as lines:
        warn_of_references(lists, wer_after(steps) if steps else make_metric(metric))
    return lines


def wer_after(steps: str) -> WER:
    return WER(text=parse_steps(steps.split(",")))


def test_errors_of_tokenisation_are_told_of_ter():
    lists = [replace(nbest, references=(nbest.hypotheses[0].text.replace(",", " ,").replace(".", " ."),)) for nbest in made()]
    (line,) = told(lists, "ter")
    assert line.startswith(
        "note: 100% of the errors of the first hypotheses of the lists are in tokenisation: with --metric-text tokenize:en"
    )
    assert told([replace(nbest, references=(nbest.hypotheses[0].text[:-3],)) for nbest in made()], "ter") == []


def test_errors_of_case_and_punctuation_are_told():
    lists = made()
    [line] = told(lists)
    assert "errors of the first hypotheses of the lists are in case or punctuation" in line
    assert "--metric-text remove-punctuation,lowercase" in line
    steps, share = normalisation(lists, wer_after("lowercase"))
    assert steps == "lowercase,remove-punctuation"
    before, after = (metric_of(lists, steps) for steps in ("lowercase", "lowercase,remove-punctuation"))
    assert share == pytest.approx(1 - after / before)
    assert told(lists, steps="remove-punctuation,lowercase") == []
    assert told(lists, metric="bleu") == []


def metric_of(lists: list[NbestList], steps: str) -> float:
    metric = wer_after(steps)
    errors = sum(metric.statistics([nbest.hypotheses[0].text], nbest.references)[0] for nbest in lists)
    return errors[0] / errors[1]


@pytest.mark.parametrize(("change", "steps"), [(str.upper, "lowercase"), (lambda text: text.replace(" ", ", "), "remove-punctuation")])
def test_one_step_is_told_where_it_is_enough(change, steps):
    lists = [replace(nbest, hypotheses=[Hypothesis(change(nbest.references[0]), {}, 1)]) for nbest in made()]
    assert normalisation(lists, make_metric("wer")) == (steps, 1.0)
    assert normalisation(lists, make_metric("cer")) == (steps, 1.0)


@pytest.mark.parametrize(
    ("metric", "hypothesis", "reference", "steps", "what"),
    [
        ("wer", "Mu\u0308nchen scho\u0308n nein", "München schön ja", "unicode:nfc", "the Unicode form"),
        ("cer", "mu\u0308nchen", "münchen", "unicode:nfc", "the Unicode form"),
        ("wer", "Mu\u0308nchen", "münchen", "unicode:nfc,lowercase", "the Unicode form and case or punctuation"),
        ("cer", "天 地 人 山", "天地人水", "join-characters", "spaces between characters"),
        ("wer", "天 地 人 山", "天地人水", "characters", "how text without spaces is divided into words"),
        ("wer", "ไป ตลาด นา", "ไปตลาดมา", "characters", "how text without spaces is divided into words"),
        ("wer", "天地人\uff0c山水火", "天 地 人 山 水 火", "remove-punctuation,characters", "case or punctuation and how text without"),
    ],
)
def test_errors_of_the_unicode_form_and_of_spaces_are_told(metric, hypothesis, reference, steps, what):
    lists = [NbestList(str(number), [Hypothesis(hypothesis, {}, 1)], (reference,)) for number in range(5)]
    [line] = told(lists, metric)
    assert f"are in {what}" in line
    assert f"with --metric-text {steps} they do not count" in line
    assert told(lists, steps=steps) == [] or metric == "cer"


def test_references_of_other_lists_are_warned_of():
    lists = made()
    references = [nbest.references for nbest in lists]
    for metric in ("wer", "cer", "bleu"):
        shifted = [replace(nbest, references=own) for nbest, own in zip(lists, references[7:] + references[:7], strict=True)]
        [line] = told(shifted, metric)
        assert line.startswith("WARNING: the references do not seem to belong to the lists:")
    assert not foreign(lists)
    assert not foreign(shifted[:10]), "too few lists"
    assert not foreign([replace(nbest, references=references[0]) for nbest in lists]), "all references are equal"
    chinese = [
        NbestList(str(n), [Hypothesis("".join(random.Random(n).choices("天地人山水火木金土日月", k=9)), {}, 1)], ()) for n in range(40)
    ]
    own = [replace(nbest, references=(nbest.hypotheses[0].text[:-1] + "風",)) for nbest in chinese]
    assert not foreign(own)
    assert foreign([replace(nbest, references=other.references) for nbest, other in zip(own, own[5:] + own[:5], strict=True)])


def test_learning_corrections_says_it():
    lists = made()
    with collected() as lines:
        attlm.learn_corrections(lists)
    assert [line for line in lines if "are in case or punctuation, and corrections learn to change these" in line]
    alike = [replace(nbest, hypotheses=[Hypothesis(nbest.references[0].replace("e", "i"), {}, 1)]) for nbest in lists]
    with collected() as lines:
        attlm.learn_corrections(alike)
    assert lines == []


def test_combine_says_it():
    lists = made()
    texts = [nbest.hypotheses[0].text for nbest in lists]
    shifted = [replace(nbest, hypotheses=[Hypothesis(text, {}, 1)]) for nbest, text in zip(lists, texts[3:] + texts[:3], strict=True)]
    with collected() as lines:
        attlm.combine({"a": lists, "b": shifted, "c": made(seed=1)})
    [line] = [line for line in lines if line.startswith("WARNING")]
    assert line.startswith("WARNING: b does not seem to have the utterances of a in this order")


def test_evaluate_says_it_of_each_system():
    lists = made()
    texts = [nbest.hypotheses[0].text for nbest in lists]
    shifted = [replace(nbest, hypotheses=[Hypothesis(text, {}, 1)]) for nbest, text in zip(lists, texts[3:] + texts[:3], strict=True)]
    with collected() as lines:
        attlm.evaluate(lists, others={"second": shifted}, metric="wer")
    assert [line for line in lines if "of the lists are in case or punctuation" in line]
    assert [line for line in lines if line.startswith("WARNING: the references do not seem to belong to second:")]


@pytest.mark.parametrize("metric", ["bleu", "chrf", "chrf++"])
def test_another_case_is_told_of_metrics_of_translation(metric):
    lists = made()
    upper = [replace(nbest, references=tuple(text.upper() for text in nbest.references)) for nbest in lists]
    [line] = told(upper, metric)
    assert "in lower case: is their case that of the references? --metric-text lowercase" in line
    assert told(lists, metric) == []  # the first letter of a sentence
    with collected() as lines:
        warn_of_references(upper, make_metric(metric, text=parse_steps(["lowercase"])))
    assert lines == []


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_another_unicode_form_is_told_of_metrics_of_translation(metric):
    accented = [
        replace(nbest, hypotheses=[replace(nbest.hypotheses[0], text=nbest.hypotheses[0].text.replace("e", "e\u0301"))], references=own)
        for nbest in made()
        for own in [tuple(text.replace("e", "\u00e9") for text in nbest.references)]
    ]
    [line] = [line for line in told(accented, metric) if "Unicode" in line]
    assert line.endswith(" in one Unicode form: --metric-text unicode:nfc")
    with collected() as lines:
        warn_of_references(accented, make_metric(metric, text=parse_steps(["unicode:nfc"])))
    assert lines == []


def test_words_of_text_without_spaces_are_not_told_to_be_divided_otherwise():
    """One error more or less of whole sentences is none of how they are divided: more errors are of characters."""
    lists = [NbestList(str(number), [Hypothesis("天地人山水火", {}, 1)], ("天地人火水火",)) for number in range(5)]
    assert told(lists) == []


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("wer", ["WER and the vote of --consensus take clauses for words: --metric-text characters", "the loss of --mbr bleu"]),
        ("cer", ["the vote of --consensus takes clauses for words: --metric-text characters", "the loss of --mbr bleu"]),
        ("bleu", ["BLEU takes clauses for words: --bleu-tokenize zh", "the vote of --consensus"]),
        ("chrf", ["the vote of --consensus", "the loss of --mbr bleu takes clauses for words: --mbr chrf does not"]),
        ("ter", ["TER and the vote of --consensus take clauses for words: --metric-text characters", "the loss of --mbr bleu"]),
    ],
)
def test_clauses_that_would_be_taken_for_words_are_told(metric, told):
    letters = random.Random(2)
    lists = []
    for number in range(30):
        reference = "".join(letters.choices("我们今天去北京看朋友吃饭学习中文", k=14))
        lists.append(NbestList(str(number), [Hypothesis(f"{reference[:5]}很{reference[6:]}", {"s": -1.5}, 1)], (reference,)))
    with collected() as lines:
        attlm.tune(lists, metric=metric, options=attlm.TuneOptions(rules=["mbr-bleu", "consensus"], folds=0))
    found = [line for line in lines if "clauses" in line]
    assert len(found) == len(told)
    assert all(part in line for part, line in zip(told, found, strict=True))
