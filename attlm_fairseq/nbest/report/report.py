"""The report in one HTML file: the gain, the weights, and the utterances that changed for better or worse, word by word.

The file is self-contained: no script, font, picture or link. Its size is bounded; what is left out is counted and
stated.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attlm_fairseq.nbest.decision.decision import compared_text
from attlm_fairseq.nbest.decision.mbr import sentence_losses
from attlm_fairseq.nbest.features.combination import COMPUTED
from attlm_fairseq.nbest.metrics.external import source_of, with_source
from attlm_fairseq.nbest.metrics.metric import ErrorRate, Metric
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.report.scatter import Scatter, plot
from attlm_fairseq.nbest.report.text_differences import confusions, differences
from attlm_fairseq.nbest.statistics.calibration import Calibration
from attlm_fairseq.nbest.statistics.evaluation import Row, of_holm, signed
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.templates import load_template
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.text.symbols import END

UTTERANCES_PER_SECTION = 50  # utterances of each kind
COMMONEST = 20  # unknown words, confusions
MAX_CONFUSIONS = 100_000  # different ones that are counted; beyond it the rarest half is forgotten


@dataclass(frozen=True, slots=True)
class Change:
    """An utterance whose answer differs from its input 1-best. Losses are in the metric's units; lower is better."""

    id: str
    number: int
    reference: str
    first: str
    answer: str
    loss_before: float
    loss_after: float
    values_before: Mapping[str, float]
    values_after: Mapping[str, float] | None  # None: the answer is in no hypothesis


@dataclass(frozen=True)
class Report:
    """What a report shows besides the changes that its builder has seen.

    ``rows`` are the systems, compared ``against`` the first; ``influence`` is the share of each weight in the decisions;
    ``texts`` are the text steps of the LMs ``scorers``; ``facts`` say what is needed to reproduce the result. ``ablation`` are
    systems without a score each, compared ``against_all`` scores. ``in_context``: whether the lists were scored in a context.
    """

    title: str
    rows: Sequence[Row]
    against: str
    weights: Mapping[str, float] = field(default_factory=dict)
    decision: str = "max"
    influence: Mapping[str, float] | None = None
    scorers: Sequence[Scorer] = ()
    texts: Sequence[TextPipeline] = ()
    oov: Sequence[OOVCount] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    calibration: Calibration | None = None
    ablation: Sequence[Row] = ()
    against_all: str = ""
    in_context: bool = False


class ReportBuilder:
    """Sees each list once, with its answer; keeps the largest changes and what the plots need."""

    def __init__(self, metric: Metric, lm_names: Sequence[str]) -> None:
        self.metric = metric
        self._compared = compared_text(metric)
        self.lists = self.changed = self.better = self.worse = self.new = 0
        # Sums over lists, in errors of the metric; for error rates only.
        self.errors_before = self.errors_after = self.errors_of_oracle = 0.0
        self._confusions: Counter[tuple[str, str]] = Counter()
        self._heaps: tuple[list, list] = ([], [])
        self._scatters = {name: Scatter() for name in lm_names}

    def add(self, nbest: NbestList, statistics: np.ndarray, answer: str, answer_statistics: np.ndarray) -> None:
        """Add a scored list with references in input order, the statistics (n, S) of its hypotheses, its answer and its statistics (S,)."""
        texts = [hypothesis.text for hypothesis in nbest.hypotheses]
        losses, loss = sentence_losses(statistics, self.metric), float(sentence_losses(answer_statistics, self.metric))
        first, row = nbest.hypotheses[0], self._row(texts, answer)
        for name, scatter in self._scatters.items():
            for place, hypothesis in enumerate(nbest.hypotheses[1:], start=1):
                if hypothesis.text != first.text and name in hypothesis.lm_scores:
                    difference = hypothesis.lm_scores[name] - first.lm_scores[name]
                    scatter.add(difference, float(losses[place] - losses[0]), place == row)
        self.lists += 1
        self._count_errors(losses, loss, nbest.references, answer)
        if row is not None and texts[row] == first.text:
            return
        self.changed += 1
        self.new += row is None
        gain = float(losses[0]) - loss
        if not gain:
            return
        self.better += gain > 0
        self.worse += gain < 0
        change = Change(
            nbest.id,
            self.lists,
            _closest(answer, nbest.references, self.metric),
            first.text,
            answer,
            float(losses[0]),
            loss,
            _values(first),
            None if row is None else _values(nbest.hypotheses[row]),
        )
        heap = self._heaps[gain < 0]
        heapq.heappush(heap, (abs(gain), -self.lists, change))
        if len(heap) > UTTERANCES_PER_SECTION:
            heapq.heappop(heap)

    def _count_errors(self, losses: np.ndarray, loss: float, references: Sequence[str], answer: str) -> None:
        if not isinstance(self.metric, ErrorRate):
            return
        self.errors_before += float(losses[0])
        self.errors_after += loss
        self.errors_of_oracle += min(float(losses.min()), loss)
        if loss:
            reference = _closest(answer, references, self.metric)
            self._confusions.update(confusions(self._compared.prepared(reference), self._compared.prepared(answer), self.metric))
            if len(self._confusions) > MAX_CONFUSIONS:
                self._confusions = Counter(dict(self._confusions.most_common(MAX_CONFUSIONS // 2)))

    def _row(self, texts: Sequence[str], answer: str) -> int | None:
        """Return the hypothesis with the answer's text, as read or as the metric sees it (a consensus is written so); None if it is new."""
        if answer in texts:
            return texts.index(answer)
        prepared = list(map(self._compared.prepared, texts))
        return next((prepared.index(text) for text in (answer, self._compared.prepared(answer)) if text in prepared), None)

    def html(self, page: Report) -> str:
        """Return the page; the LMs score the utterances shown again, now word by word."""
        better, worse = ([change for *_, change in sorted(heap, key=lambda item: (-item[0], -item[1]))] for heap in self._heaps)
        words = _word_scores([*better, *worse], page.scorers, page.texts)
        return load_template("attlm_fairseq.nbest.report", "report.html", signed=signed).render(
            title=page.title,
            metric=self.metric,
            unit="errors" if isinstance(self.metric, ErrorRate) else f"points of sentence {self.metric.name} lost",
            rows=page.rows,
            corrected=_corrected(page.rows),
            ablation=page.ablation,
            corrected_ablation=_corrected(page.ablation),
            against_all=page.against_all,
            against=page.against,
            decision=page.decision,
            weights=_weights(page.weights, page.influence),
            shares=bool(page.influence),
            builder=self,
            confusions=sorted(self._confusions.items(), key=lambda item: (-item[1], item[0]))[:COMMONEST],
            groups=[
                ("Better", "better", self.better, [_shown(change, page.weights, words, self.metric, self._compared) for change in better]),
                ("Worse", "worse", self.worse, [_shown(change, page.weights, words, self.metric, self._compared) for change in worse]),
            ],
            scatters=[plot(name, scatter) for name, scatter in self._scatters.items() if scatter.points],
            oov=[(count, sorted(count.unknown.items(), key=lambda item: (-item[1], item[0]))[:COMMONEST]) for count in page.oov],
            texts={scorer.name: str(text) for scorer, text in zip(page.scorers, page.texts, strict=True)},
            notes=page.notes,
            facts=page.facts,
            in_context=page.in_context,
            calibration=page.calibration,
        )


def _corrected(rows: Sequence[Row]) -> str:
    """Return the line on Holm's correction for the rows of a table."""
    return of_holm({row.label: row.comparison.p_value if row.comparison else None for row in rows})


def _values(hypothesis: Hypothesis) -> dict[str, float]:
    return hypothesis.scores | hypothesis.lm_scores | {name: compute(hypothesis) for name, compute in COMPUTED.items()}


def _closest(answer: str, references: Sequence[str], metric: Metric) -> str:
    """Of several references the one to show: with which the answer loses least."""
    if len(references) == 1:
        return references[0]
    source = source_of(references)  # with it, a program has answered already

    def loss(reference: str) -> float:
        return float(sentence_losses(metric.statistics([answer], with_source([reference], source))[0], metric))

    return min(references, key=loss)


def _word_scores(
    changes: Sequence[Change], scorers: Sequence[Scorer], texts: Sequence[TextPipeline]
) -> dict[str, list[tuple[str, list[tuple[str, float, bool]], float]]]:
    """Return, for each text shown and each LM: its name, (word, ln p, unknown) with the sentence end last, and the sum."""
    shown = list(dict.fromkeys(text for change in changes for text in (change.first, change.answer)))
    found: dict[str, list] = {text: [] for text in shown}
    for scorer, pipeline in zip(scorers, texts, strict=True):
        if scorer.uses_source:  # two lists may have the same text
            continue
        sentences = [pipeline.words(text) for text in shown]
        for text, sentence, score in zip(shown, sentences, scorer.score(sentences), strict=True):
            words = list(zip([*sentence, END], score.log_probs, [*score.oov, False], strict=True))
            found[text].append((scorer.name, words, score.total))
    return found


def _weights(weights: Mapping[str, float], influence: Mapping[str, float] | None) -> list[tuple[str, float, float | None]]:
    """(name, weight, share of the decision), the weightiest first."""
    shares = influence or {}
    return sorted(
        ((name, weight, shares.get(name, 0.0) if influence else None) for name, weight in weights.items()),
        key=lambda row: (-(row[2] if row[2] is not None else abs(row[1])), row[0]),
    )


def _shown(change: Change, weights: Mapping[str, float], words: Mapping[str, Any], metric: Metric, text: TextPipeline) -> dict[str, Any]:
    """Return what the page says of one change, its texts compared as after ``text``."""
    parts = []
    if change.values_after is not None:
        for name, weight in weights.items():
            before, after = change.values_before.get(name, 0.0), change.values_after.get(name, 0.0)
            if weight and before != after:
                parts.append((name, before, after, weight * (after - before)))
    whole = isinstance(metric, ErrorRate)
    scored = [*words[change.first], *words[change.answer]]
    classes = {
        "large": abs(change.loss_before - change.loss_after) >= 2,
        "unknown": any(unknown for _, of_words, _ in scored for _, _, unknown in of_words),
        "new": change.values_after is None,
    }
    return {
        "change": change,
        "classes": " ".join(name for name, holds in classes.items() if holds),
        "before": f"{change.loss_before:.0f}" if whole else f"{change.loss_before:.1f}",
        "after": f"{change.loss_after:.0f}" if whole else f"{change.loss_after:.1f}",
        "first": differences(text.prepared(change.reference), text.prepared(change.first), metric),
        "answer": differences(text.prepared(change.reference), text.prepared(change.answer), metric),
        "parts": sorted(parts, key=lambda part: (-abs(part[3]), part[0])),
        "words": list(zip(words[change.first], words[change.answer], strict=True)),
    }
