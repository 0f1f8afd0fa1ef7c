"""Choose the answer of a list from its totals: by the maximum, the least expected loss, or a vote over words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.nbest.decision.mbr import LOSSES, loss_metric, pairwise_losses
from attlm_fairseq.nbest.decision.rules import LeastRisk, Maximum, Rule, Vote
from attlm_fairseq.nbest.features.combination import combine, is_incomplete
from attlm_fairseq.nbest.metrics.edit_rates import CER
from attlm_fairseq.nbest.metrics.external import PREFIX, ExternalMetric, source_of
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.metrics.ngram_metrics import BLEU
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.numeric import NOT_NEGATIVE
from attlm_fairseq.text import Step, TextPipeline

RULES = ("max", *(f"mbr-{loss}" for loss in LOSSES), "consensus")
EXTERNAL_RULE = f"mbr-{PREFIX}"  # followed by a command that rates each hypothesis as if another one were right
WITHOUT_CASE = frozenset({"unicode", "normalize-punctuation", "remove-punctuation"})  # steps that do the same to letters of any case
# scales tried, in units of 1 / standard deviation of the totals within lists
STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0)


@dataclass(frozen=True)
class Decision:
    """A decision rule and, except for the maximum, the scale of the posteriors ``softmax(scale * total)``.

    Attributes:
        rule: one of RULES, or EXTERNAL_RULE followed by a command.
        scale: scale of the posteriors; totals are on the natural-log scale.
        text: text steps before losses and votes, normally the metric's (see ``compared_text``): subwords are not words.
        scales: scales of other rules tuned with the same weights, so that another rule can be chosen later.
        tokenize: sacreBLEU tokenizer for the loss of ``mbr-bleu``.
        spaces: whether spaces count in the loss of ``mbr-cer``.
        keep_incomplete: leave a list in input order, without totals, if a hypothesis lacks a score that has a weight; else such a list
            is an error.
    """

    rule: str = "max"
    scale: float = 1.0
    text: TextPipeline = field(default_factory=TextPipeline)
    scales: Mapping[str, float] = field(default_factory=dict, hash=False)
    tokenize: str = "none"
    spaces: bool = True
    keep_incomplete: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.rule, str) and is_rule(self.rule)):
            raise InputError(f"rule {self.rule!r}: expected one of {', '.join(RULES)}, {EXTERNAL_RULE}COMMAND")
        require_type(
            "text of a decision", self.text, TextPipeline, "a TextPipeline, as attlm_fairseq.text.text_pipeline('lowercase') makes it"
        )
        if not NOT_NEGATIVE.is_right(self.scale):
            raise InputError(f"scale is {self.scale}: expected {NOT_NEGATIVE.expected}")

    def scale_of(self, rule: str) -> float | None:
        """Return the scale of this or another rule; None if it has none."""
        return self.scale if rule == self.rule else self.scales.get(rule)

    @cached_property
    def loss(self) -> Metric:
        """Return the metric that gives the losses of minimum Bayes risk. An external one keeps its program's answers."""
        return loss_metric(self.rule.removeprefix("mbr-"), self.tokenize, self.spaces)

    @property
    def asks_program(self) -> bool:
        return self.rule.startswith(EXTERNAL_RULE)

    def prepare(self, lists: Sequence[NbestList]) -> None:
        """Let an external program, if there is one, compare the hypotheses of all these lists in one run.

        Raises:
            InputError: the program cannot be started, fails, is too slow or does not answer one finite number per
                line, or the file of a text step cannot be read.
        """
        if isinstance(self.loss, ExternalMetric):
            self.loss.compare_within(
                ([self.text.prepared(hypothesis.text) for hypothesis in nbest.hypotheses] for nbest in lists),
                (nbest.source or "" for nbest in lists),
            )

    @property
    def makes_text(self) -> bool:
        return self.rule == "consensus"

    def __str__(self) -> str:
        if self.rule == "max":
            return self.rule
        tokenized = f", tokenized {self.tokenize}" if self.rule == "mbr-bleu" and self.tokenize != "none" else ""
        spaces = ", without spaces" if self.rule == "mbr-cer" and not self.spaces else ""
        return f"{self.rule} at {self.scale:g}{' over ' if self.text.steps else ''}{','.join(map(str, self.text.steps))}{tokenized}{spaces}"


def is_rule(name: str) -> bool:
    """Return whether a rule has this name: one of RULES, or ``mbr-external:COMMAND``."""
    return name in RULES or (name.startswith(EXTERNAL_RULE) and len(name) > len(EXTERNAL_RULE))


def option_of(rule: str) -> str:
    """Return the option of the command line for a rule."""
    return "--max" if rule == "max" else "--consensus" if rule == "consensus" else f"--mbr {rule.removeprefix('mbr-')}"


def compared_text(metric: Metric, text: TextPipeline | None = None) -> TextPipeline:
    """Return the text steps before losses and votes: ``text`` or the metric's, plus ``lowercase`` if the metric ignores case.

    Texts that are equal under the metric must not split the posterior between them.
    """
    text = metric.text if text is None else text
    if not metric.ignores_case or any(step.name == "lowercase" for step in text.steps):
        return text
    segmentation = (text.segmentation,) if text.segmentation else ()  # which comes last
    return TextPipeline((*text.of_words().steps, Step("lowercase"), *segmentation))


def loss_tokenizer(metric: Metric, default: str = "none") -> str:
    """Return the tokenizer for BLEU's loss: the metric's if that is BLEU, else ``default``.

    In text without spaces, white-space words would be whole sentences.
    """
    return metric.tokenize if isinstance(metric, BLEU) else default


def loss_spaces(metric: Metric, default: bool = True) -> bool:
    """Return whether spaces count in CER's loss: as in the metric if that is CER, else ``default``."""
    return metric.spaces if isinstance(metric, CER) else default


def written_text(text: TextPipeline) -> TextPipeline:
    """Return the steps applied to a new text when it is written: all except ``lowercase``, which is only for comparing.

    It stays if a step after it may depend on case.
    """
    names = [step.name for step in text.steps]
    last = len(names) - names[::-1].index("lowercase") - 1 if "lowercase" in names else len(names)
    return TextPipeline((*text.steps[:last], *text.steps[last + 1 :])) if WITHOUT_CASE.issuperset(names[last + 1 :]) else text


def posterior_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weights for the posteriors. If all are 0, ``rank`` alone counts, which keeps the input order in the same way."""
    return dict(weights) if any(weights.values()) else {**weights, "rank": -1.0}


def scale_in_units(step: float, unit: float) -> float:
    """Return ``step / unit``, where ``unit`` is the totals' standard deviation within lists; 1 if ``unit`` or ``step`` is 0."""
    return float(f"{step / unit:.3g}") if step and unit else 1.0


def decide(nbest: NbestList, weights: Mapping[str, float], decision: Decision) -> NbestList:
    """Return the list with its answer under these weights first.

    - ``max``: sorted by total, as by ``combination.combine``.
    - ``mbr-..``: sorted by risk; ``total`` is minus the risk.
    - ``consensus``: only the answer, without scores. Its rank is that of the hypothesis with the same text, or 0 for a new
      text. With text steps, the text is written as after them, but without ``lowercase`` (``written_text``) and subwords.
      Words that differ only in case take the form of the earliest hypothesis. Characters that were divided to vote are
      joined if the list has them so.
    """
    if decision.keep_incomplete and is_incomplete(nbest, weights):
        return replace(nbest, hypotheses=sorted(nbest.hypotheses, key=lambda hypothesis: hypothesis.rank))
    if decision.rule == "max":
        return combine(nbest, weights)
    in_input_order = sorted(combine(nbest, posterior_weights(weights)).hypotheses, key=lambda hypothesis: hypothesis.rank)
    rule = _rule_over_texts(decision, [[hypothesis.text for hypothesis in in_input_order]], [nbest.source or ""])
    totals = np.array([hypothesis.total for hypothesis in in_input_order])
    return replace(nbest, hypotheses=rule.decided(in_input_order, totals, decision.scale))


def _rule_over_texts(decision: Decision, texts: Sequence[Sequence[str]], sources: Sequence[str]) -> LeastRisk | Vote:
    """Prepare the rule of a decision, any but the maximum, for lists of hypotheses in input order, and what each list translates."""
    if decision.rule != "consensus":
        compared = [[decision.text.prepared(text) for text in of_list] for of_list in texts]
        if isinstance(decision.loss, ExternalMetric):
            return LeastRisk(texts, decision.loss.losses_within(compared, sources))
        return LeastRisk(texts, [pairwise_losses(of_list, decision.loss) for of_list in compared])
    of_words = decision.text.of_words()  # pieces of words would be written as words
    compared = [[of_words.prepared(text) for text in of_list] for of_list in texts]
    written = written_text(of_words)
    divides = any(step.name == "characters" for step in written.steps)
    return Vote(compared, [[written.prepared(text) for text in of_list] for of_list in texts], texts if divides else None)


class Decider:
    """Applies a decision rule to many lists with references, prepared so that trying other totals and scales is cheap.

    ``texts[i]`` are the hypotheses of list i in input order, ``statistics[i]`` (n_i, S) their metric statistics. The
    scale of the decision is not used: each call gives its own.
    """

    def __init__(
        self,
        decision: Decision,
        texts: Sequence[Sequence[str]],
        references: Sequence[Sequence[str]],
        statistics: Sequence[np.ndarray],
        metric: Metric,
    ) -> None:
        self.decision, self.texts, self.references, self.metric = decision, texts, references, metric
        self._rule: Rule = Maximum(texts) if decision.rule == "max" else _rule_over_texts(decision, texts, list(map(source_of, references)))
        self._measured = [dict(zip(of_list, rows, strict=True)) for of_list, rows in zip(texts, statistics, strict=True)]

    def answers(self, lists: Sequence[int], totals: Sequence[np.ndarray], scale: float) -> list[tuple[str, np.ndarray]]:
        """Return text and statistics (S,) of the answers to the named lists, as ``decide`` would choose them under ``totals``."""
        by_size: dict[int, list[int]] = {}
        for i in lists:
            by_size.setdefault(len(self.texts[i]), []).append(i)
        answers: dict[int, str] = {}
        for group in by_size.values():
            answers |= zip(group, self._rule.answers(group, np.stack([totals[i] for i in group]), scale), strict=True)
        new = [(text, cast("tuple[str, ...]", self.references[i])) for i, text in answers.items() if text not in self._measured[i]]
        self.metric.compare_all(NbestList("", [Hypothesis(text, {}, 0)], references) for text, references in new)  # one run of a program
        return [(answers[i], self._statistics(i, answers[i])) for i in lists]

    def statistics_of(self, lists: Sequence[int], totals: Sequence[np.ndarray], scale: float) -> np.ndarray:
        """Return the statistics (len(lists), S) of the answers."""
        return np.array([statistics for _, statistics in self.answers(lists, totals, scale)])

    def _statistics(self, i: int, text: str) -> np.ndarray:
        measured = self._measured[i]
        if text not in measured:  # a new text, made by a vote
            measured[text] = self.metric.statistics([text], self.references[i])[0]
        return measured[text]
