"""``--report``: the page that shows what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from attlm_cli.options import Setup, note, this_command
from attlm_fairseq import __version__
from attlm_fairseq.files import whole_file
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.report.report import ReportBuilder
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.tuned_system import answers_of

report_option = click.option(
    "--report",
    metavar="FILE",
    help="Write a page (HTML, self-contained) with table, weights, and what changed for better and worse, word by word.",
)


def warn_of_same_lists(setup: Setup, weights: Mapping[str, float], references: Iterable[Sequence[str]]) -> list[str]:
    """The line, if there is one to say, to the user and for the page: what is measured on the lists tuned on is worth no p-value."""
    if not setup.config.tuned_on_these(weights, references):
        return []
    line = "the weights were tuned on these lists, which flatters them, so there is no p: elsewhere expect tune's cross-validated row"
    note(f"note: {line}")
    return [f"{line[:1].upper()}{line[1:]}."]


def warn_of_repeats(utterances: Sequence[int], also: str = "") -> list[str]:
    """The line, if there is one to say, to the user and for the page: where ``utterances`` (of :meth:`MeasuredLists.utterances`) repeat."""
    repeats = len(utterances) - len(set(utterances))
    if not repeats:
        return []
    same = f"{repeats} of {len(utterances)} lists repeat the references or the hypotheses of another"
    line = f"{same}: such lists count as one for intervals and p-values{also}"
    note(f"note: {line}")
    return [f"{line}."]


def report_of(
    measured: MeasuredLists, metric: Metric, lm_names: Sequence[str], weights: Mapping[str, float], decision: Decision
) -> ReportBuilder:
    """A report's contents from lists that are all there."""
    builder = ReportBuilder(metric, lm_names)
    answers = answers_of(measured, metric, weights, decision)
    for nbest, statistics, (text, of_answer) in zip(measured.lists, measured.statistics, answers, strict=True):
        builder.add(nbest, statistics, text, of_answer)
    return builder


def write_report(
    path: str, builder: ReportBuilder, setup: Setup, loaded: BlockScorer | None, references: Sequence[Sequence[str]], **parts: Any
) -> None:
    """Write the page; ``parts`` are those of :meth:`ReportBuilder.html`. It appears whole or not at all.

    The words of the utterances shown are scored by the LMs ``loaded``; where other processes had them, they are loaded here.
    """
    lms = loaded or BlockScorer.load(setup.config, setup.compute)
    facts = {
        "command": this_command(),
        "metric": builder.metric.signature(references),
        "attlm": __version__,
        **{f"LM {scorer.name}": ", ".join(f"{key}: {value}" for key, value in scorer.signature().items()) for scorer in lms.scorers},
    }
    page = builder.html(facts=facts, scorers=lms.scorers, texts=lms.texts, **parts)
    with whole_file(path) as out:
        # what file names and the command hold that is not UTF-8 must not cost the page
        out.write(page.encode("utf-8", "backslashreplace").decode())
    note(f"wrote {path}")
