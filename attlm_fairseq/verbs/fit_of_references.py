"""Notice references that are written otherwise than the lists, or that belong to other lists: every figure would be wrong."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.clauses import takes_clauses
from attlm_fairseq.nbest.corrections.expansion import CHANNEL
from attlm_fairseq.nbest.metrics.edit_rates import CER, WER, EditRate
from attlm_fairseq.nbest.metrics.metric import Metric, corpus_score
from attlm_fairseq.nbest.metrics.ngram_metrics import NgramMetric
from attlm_fairseq.nbest.metrics.sacrebleu_metric import TER
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline, parse_steps
from attlm_fairseq.text.subword_marks import SubwordMarks
from attlm_fairseq.text.unspaced import has_unspaced

AMetric = TypeVar("AMetric", bound=Metric)

SAMPLE_LISTS = 1000  # lists looked at
SAMPLE_OF_TER = 200  # which is slow
CASE_AND_PUNCTUATION = (["remove-punctuation"], ["lowercase"], ["remove-punctuation", "lowercase"])
FORM = "unicode:nfc"
TOKENS = "tokenize:en"  # its rules for punctuation are those of most languages
DIVISIONS = {WER: "characters", CER: "join-characters"}  # of text whose words need no spaces
WHAT = {
    "remove-punctuation": "case or punctuation",
    "lowercase": "case or punctuation",
    FORM: "the Unicode form",
    TOKENS: "tokenisation",
    "characters": "how text without spaces is divided into words",
    "join-characters": "spaces between characters",
}
EXPLAINED_RATIO = 0.75  # of the errors are left: the others are in what normalisation removes
NEARLY_EQUAL_RATIO = 1.05  # times the errors that the longest normalisation leaves are as good
CASE_RATIO = 1.5  # of BLEU or chrF without case to that with it: more than the first words of sentences and names explain
LOWER_CASE = "in lower case: is their case that of the references? --metric-text lowercase leaves case out"
ONE_FORM = f"in one Unicode form: --metric-text {FORM}"
MIN_LISTS = 20
UNRELATED_RATIO = 0.9  # of the errors against the references of other lists
FOREIGN = (
    "WARNING: the references do not seem to belong to {}: the first hypotheses are nearly as far from them as from the references of "
    "other lists. Check files, order and ids (--refs-by)"
)


def warn_of_references(lists: Sequence[NbestList], metric: Metric, system: str = "the lists") -> None:
    """Log if many errors of the first hypotheses are in spelling alone (``WHAT``), or if the references seem to be those of other lists."""
    some = lists[: SAMPLE_OF_TER if isinstance(metric, TER) else SAMPLE_LISTS]
    if foreign(some):
        note(FOREIGN.format(system))
    elif isinstance(metric, EditRate | TER) and (found := normalisation(some, metric)):
        steps, share = found
        note(
            f"note: {share:.0%} of the errors of the first hypotheses of {system} are in {_what(steps)}: with --metric-text "
            f"{steps} they do not count"
        )
    elif isinstance(metric, NgramMetric):
        for scores, how in ((other_case(some, metric), LOWER_CASE), (other_form(some, metric), ONE_FORM)):
            if scores:
                before, after = scores
                note(f"WARNING: {metric.name} of the first hypotheses of {system} is {before:.2f}, and {after:.2f} {how}")


def warn_before_learning(lists: Sequence[NbestList], text: TextPipeline = NO_STEPS) -> None:
    """Log if corrections would learn spelling above all (``WHAT``), or from references that seem to be those of other lists.

    ``text``: the steps after which they compare words.
    """
    if not lists:
        return
    if any({CHANNEL, f"{CHANNEL}_score"} & hypothesis.scores.keys() for nbest in lists for hypothesis in nbest.hypotheses):
        note(
            f"WARNING: these lists have candidates that corrections have added (score {CHANNEL!r}): what is learned from them are the "
            "errors of these corrections; learn from the lists of the recogniser"
        )
    some, marks = lists[:SAMPLE_LISTS], SubwordMarks(text)
    for nbest in some:
        marks.add(nbest.hypotheses[0].text)
    if warning := marks.warning_of_corrections():
        note(warning)
    elif takes_clauses(text.prepared(reference) for nbest in some for reference in nbest.references):
        note("note: the references have no spaces between words, so corrections take clauses for words: learn with --text characters")
    elif foreign(some):
        note(FOREIGN.format("the lists"))
    elif found := normalisation(some, WER(text=text)):
        note(
            f"note: {found[1]:.0%} of the errors of the first hypotheses are in {_what(found[0])}, and corrections learn to change "
            f"these. If they do not matter, learn with --text {found[0]}"
        )


def warn_of_other_utterances(lists: Sequence[NbestList], first: Sequence[NbestList], system: str, first_system: str) -> None:
    """Log if two systems' lists, joined in this order, seem to be of different utterances."""
    pairs = zip(lists[:SAMPLE_LISTS], first, strict=False)
    if foreign([replace(nbest, references=(other.hypotheses[0].text,)) for nbest, other in pairs]):
        note(
            f"WARNING: {system} does not seem to have the utterances of {first_system} in this order: first hypotheses are nearly as far "
            "from each other as from those of other lists. Check files, order and ids"
        )


def normalisation(lists: Sequence[NbestList], metric: EditRate | TER) -> tuple[str, float] | None:
    """Return the text steps with which many errors vanish, and their share; None if most are left with all that are tried."""
    before = _errors(lists, metric)
    after = {}
    for names in _tried(lists, metric):
        steps = tuple(step for step in parse_steps(names).steps if step not in metric.text.steps)
        if steps and metric.text.segmentation is None:
            longer = TextPipeline((*metric.text.steps, *steps))
            after[longer.steps] = _errors(lists, _with_text(metric, longer))
    if not before or not after or min(after.values()) > EXPLAINED_RATIO * before:
        return None
    enough = next(steps for steps, errors in after.items() if errors <= NEARLY_EQUAL_RATIO * min(after.values()))
    return ",".join(map(str, enough)), 1 - after[enough] / before


def other_case(lists: Sequence[NbestList], metric: NgramMetric) -> tuple[float, float] | None:
    """Return the metric of the first hypotheses, and that in lower case, if it is much better; else None."""
    if metric.ignores_case:
        return None
    return _much_better(lists, metric, "lowercase", CASE_RATIO)


def other_form(lists: Sequence[NbestList], metric: NgramMetric) -> tuple[float, float] | None:
    """Return the metric of the first hypotheses, and that in one Unicode form, if it is better; else None."""
    if all(unicodedata.is_normalized("NFC", text) for text in _texts(lists)):
        return None
    return _much_better(lists, metric, FORM, NEARLY_EQUAL_RATIO)


def _much_better(lists: Sequence[NbestList], metric: NgramMetric, step: str, ratio: float) -> tuple[float, float] | None:
    """Return the metric of the first hypotheses, and that with one more text step, if it is ``ratio`` times as good; else None."""
    if metric.text.segmentation is not None:
        return None
    before, after = _score(lists, metric), _score(lists, _with_text(metric, TextPipeline((*metric.text.steps, *parse_steps([step]).steps))))
    return (before, after) if after > ratio * before else None


def _texts(lists: Sequence[NbestList]) -> list[str]:
    return [text for nbest in lists for text in (nbest.hypotheses[0].text, *nbest.references)]


def _tried(lists: Sequence[NbestList], metric: EditRate | TER) -> list[list[str]]:
    """Return the normalisations that may matter for these lists, those with few steps first. TER is of text with its punctuation."""
    if isinstance(metric, TER):
        return [[TOKENS]]
    texts = _texts(lists)
    forms = [[]] if all(map(partial(unicodedata.is_normalized, "NFC"), texts)) else [[], [FORM]]
    division = DIVISIONS.get(type(metric))
    divisions = [[], [division]] if division and any(map(has_unspaced, texts)) else [[]]
    tried = [[*form, *names, *divided] for names in ([], *CASE_AND_PUNCTUATION) for form in forms for divided in divisions]
    return sorted(filter(None, tried), key=len)


def _what(steps: str) -> str:
    """Return what the errors are in that vanish with these steps."""
    return " and ".join(dict.fromkeys(WHAT[step] for step in steps.split(",") if step in WHAT))


def foreign(lists: Sequence[NbestList]) -> bool:
    """Return whether the first hypotheses are nearly as far from their references as from those of the next lists.

    Letters are compared, without case and punctuation. Lists that cannot tell do not count: without words, or with the
    reference of the next list. False if fewer than MIN_LISTS count.
    """
    metric = CER(text=parse_steps(CASE_AND_PUNCTUATION[-1]), spaces=False)
    own, others = [], []
    for nbest, following in zip(lists, [*lists[1:], *lists[:1]], strict=True):
        text = nbest.hypotheses[0].text
        if metric.prepared(text) and not {*map(metric.prepared, nbest.references)} & {*map(metric.prepared, following.references)}:
            own.append(metric.statistics([text], nbest.references)[0])
            others.append(metric.statistics([text], following.references)[0])
    if len(own) < MIN_LISTS:
        return False
    return corpus_score(metric, np.array(own)) >= UNRELATED_RATIO * corpus_score(metric, np.array(others))


def _errors(lists: Sequence[NbestList], metric: EditRate | TER) -> float:
    """Return the number of errors of the first hypotheses; a rate would change with the number of words alone."""
    return float(sum(metric.statistics([nbest.hypotheses[0].text], nbest.references)[0][0] for nbest in lists))


def _score(lists: Sequence[NbestList], metric: Metric) -> float:
    """Return the metric of the first hypotheses."""
    return corpus_score(metric, np.array([metric.statistics([nbest.hypotheses[0].text], nbest.references)[0] for nbest in lists]))


def _with_text(metric: AMetric, text: TextPipeline) -> AMetric:
    other = copy.copy(metric)
    other.text = text
    return other
