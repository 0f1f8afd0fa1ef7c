"""How a list's answer is decided once its totals are known: by the maximum, by the least expected loss, or by a vote over words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from attlm_fairseq.nbest.decision.mbr import LOSSES, loss_metric, pairwise_losses
from attlm_fairseq.nbest.decision.rules import LeastRisk, Maximum, Rule, Vote
from attlm_fairseq.nbest.external_metric import PREFIX, ExternalMetric, source_of
from attlm_fairseq.nbest.features.combination import combine
from attlm_fairseq.nbest.metrics import BLEU, Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.text import Step, TextPipeline

RULES = ("max", *(f"mbr-{loss}" for loss in LOSSES), "consensus")
EXTERNAL_RULE = f"mbr-{PREFIX}"  # and a command, which answers how good each hypothesis is if another one is right
STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0)  # scales tried, in units of the totals' spread


@dataclass(frozen=True)
class Decision:
    """A rule and, for all but the maximum, the scale of the posteriors: ``softmax(scale * total)``.

    The rule is one of RULES, or EXTERNAL_RULE and a command.

    ``text`` are the steps before the losses of mbr and the votes of a consensus, those of the metric (see ``compared_text``):
    subwords are no words. ``tokenize`` is sacreBLEU's tokenizer in the loss of ``mbr-bleu``. ``scales`` are those of other rules with
    the same weights, for tuning tries several, and another than the best may be asked for.
    """

    rule: str = "max"
    scale: float = 1.0
    text: TextPipeline = field(default_factory=TextPipeline)
    scales: Mapping[str, float] = field(default_factory=dict, hash=False)
    tokenize: str = "none"

    def __post_init__(self) -> None:
        if not is_rule(self.rule):
            raise ValueError(f"rule {self.rule!r}, expected one of {', '.join(RULES)}, {EXTERNAL_RULE}COMMAND")
        if not 0 <= self.scale < math.inf:
            raise ValueError(f"scale is {self.scale}, expected a finite number that is not negative")

    def scale_of(self, rule: str) -> float | None:
        """The scale of this or another rule; None where there is none."""
        return self.scale if rule == self.rule else self.scales.get(rule)

    @cached_property
    def loss(self) -> Metric:
        """The metric whose losses a rule of minimum Bayes risk expects; an external one keeps the answers of its program."""
        return loss_metric(self.rule.removeprefix("mbr-"), self.tokenize)

    @property
    def asks_program(self) -> bool:
        """Whether another program computes the losses."""
        return self.rule.startswith(EXTERNAL_RULE)

    def prepare(self, lists: Sequence[NbestList]) -> None:
        """Let the program, if there is one, compare the hypotheses of all these lists in one run. Raises InputError."""
        if isinstance(self.loss, ExternalMetric):
            self.loss.compare_within(
                ([self.text.prepared(hypothesis.text) for hypothesis in nbest.hypotheses] for nbest in lists),
                (nbest.source or "" for nbest in lists),
            )

    @property
    def makes_text(self) -> bool:
        """Whether the answer may be a text that is not in the list."""
        return self.rule == "consensus"

    def __str__(self) -> str:
        if self.rule == "max":
            return self.rule
        tokenized = f", tokenized {self.tokenize}" if self.rule == "mbr-bleu" and self.tokenize != "none" else ""
        return f"{self.rule} at {self.scale:g}{' over ' if self.text.steps else ''}{','.join(map(str, self.text.steps))}{tokenized}"


def is_rule(name: str) -> bool:
    """Whether a rule has this name: one of RULES, or ``mbr-external:COMMAND``."""
    return name in RULES or (name.startswith(EXTERNAL_RULE) and len(name) > len(EXTERNAL_RULE))


def compared_text(metric: Metric, text: TextPipeline | None = None) -> TextPipeline:
    """The text steps of the metric (or others, ``text``), and ``lowercase`` where the metric ignores case.

    Texts that are the same to the metric must not split the posterior between them.
    """
    text = metric.text if text is None else text
    if not metric.ignores_case or any(step.name == "lowercase" for step in text.steps):
        return text
    segmentation = (text.segmentation,) if text.segmentation else ()  # which comes last
    return TextPipeline((*text.of_words().steps, Step("lowercase"), *segmentation))


def loss_tokenizer(metric: Metric, default: str = "none") -> str:
    """The tokenizer of BLEU's loss: that of the metric if this is BLEU, for in unspaced text a white-space word is a whole sentence."""
    return metric.tokenize if isinstance(metric, BLEU) else default


def written_text(text: TextPipeline) -> TextPipeline:
    """The steps after which a new text is written: a last ``lowercase`` is for comparing alone, and leaves the words their number."""
    return TextPipeline(text.steps[:-1]) if text.steps and text.steps[-1].name == "lowercase" else text


def posterior_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights by which posteriors go: where all are 0, which leaves lists as they are, ``rank`` alone, which says the same."""
    return dict(weights) if any(weights.values()) else {**weights, "rank": -1.0}


def scale_in_units(step: float, unit: float) -> float:
    """Return ``step / unit``, ``unit`` being the totals' standard deviation within lists; 1 if totals never differ, or for step 0."""
    return float(f"{step / unit:.3g}") if step and unit else 1.0


def decide(nbest: NbestList, weights: Mapping[str, float], decision: Decision) -> NbestList:
    """Return the list with its answer under these weights first.

    ``max``: as ``combination.combine`` leaves it. ``mbr-..``: sorted by risk, and ``total`` is minus the risk. ``consensus``: one
    hypothesis, the new text, with rank 0, or that of the hypothesis whose text it is, and without scores; where the decision has text
    steps, the text is as after them but for a last ``lowercase``: of equal words, that of the earliest hypothesis is written.
    """
    if decision.rule == "max":
        return combine(nbest, weights)
    as_read = sorted(combine(nbest, posterior_weights(weights)).hypotheses, key=lambda hypothesis: hypothesis.rank)
    rule = _rule_over_texts(decision, [[hypothesis.text for hypothesis in as_read]], [nbest.source or ""])
    totals = np.array([hypothesis.total for hypothesis in as_read])
    return replace(nbest, hypotheses=rule.decided(as_read, totals, decision.scale))


def _rule_over_texts(decision: Decision, texts: Sequence[Sequence[str]], sources: Sequence[str]) -> LeastRisk | Vote:
    """Prepare the rule of a decision, any but the maximum, for lists of hypotheses in input order, and what each list translates."""
    compared = [[decision.text.prepared(text) for text in of_list] for of_list in texts]
    if decision.rule != "consensus":
        if isinstance(decision.loss, ExternalMetric):
            return LeastRisk(texts, decision.loss.losses_within(compared, sources))
        return LeastRisk(texts, [pairwise_losses(of_list, decision.loss) for of_list in compared])
    written = written_text(decision.text)
    return Vote(compared, [[written.prepared(text) for text in of_list] for of_list in texts])


class Decider:
    """A decision's rule over many lists with references, prepared so that any totals and scales are cheap to try.

    ``texts[i]`` are the hypotheses of list i in input order, ``statistics[i]`` (n_i, S) those of the metric. The scale of the
    decision is not used: each call gives its own.
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
        """Return what the named lists answer, text and statistics (S,), under the ``totals`` of all lists: as ``decide`` would."""
        by_size: dict[int, list[int]] = {}
        for i in lists:
            by_size.setdefault(len(self.texts[i]), []).append(i)
        answers: dict[int, str] = {}
        for group in by_size.values():
            answers |= zip(group, self._rule.answers(group, np.stack([totals[i] for i in group]), scale), strict=True)
        return [(answers[i], self._statistics(i, answers[i])) for i in lists]

    def statistics_of(self, lists: Sequence[int], totals: Sequence[np.ndarray], scale: float) -> np.ndarray:
        """Return the statistics (len(lists), S) of their answers."""
        return np.array([statistics for _, statistics in self.answers(lists, totals, scale)])

    def _statistics(self, i: int, text: str) -> np.ndarray:
        measured = self._measured[i]
        if text not in measured:  # a new text, made by a vote
            measured[text] = self.metric.statistics([text], self.references[i])[0]
        return measured[text]
