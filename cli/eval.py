"""``attlm eval``: the first hypotheses of lists, what LMs make of them, and what the lists hold, against references."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click
import numpy as np

from attlm_cli.decision_options import decision_options
from attlm_cli.options import (
    AddReferences,
    Setup,
    complete_weights,
    format_option,
    lm_options,
    metric_options,
    note,
    on_terminal,
    progress,
    reference_options,
    warn_of_oov,
)
from attlm_cli.table import print_table
from attlm_fairseq.compute import DEFAULT_COMPUTE
from attlm_fairseq.config import Config
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision import Decision
from attlm_fairseq.nbest.evaluation import MeasuredLists, compare, measure_lists
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.rescoring import Rescorer
from attlm_fairseq.nbest.tuned_system import answers_of
from attlm_fairseq.nbest.tuning import oracle, selection


@click.command("eval")
@click.argument("nbest", nargs=-1, required=True)
@reference_options
@format_option
@metric_options
@click.option("--weight", multiple=True, metavar="NAME=NUMBER", help="Weight of an LM, a score of the lists, words or rank. Repeatable.")
@decision_options
@click.option("--seed", default=1, show_default=True, help="Of the bootstrap.")
@partial(lm_options, only_where_given=True)
def eval_command(
    nbest: tuple[str, ...],
    format_name: str | None,
    metric: Metric,
    with_references: AddReferences,
    weight: tuple[str, ...],
    decide_by: Callable[[Decision], Decision],
    seed: int,
    setup: Setup | None,
) -> None:
    """Score the first hypotheses of one or several NBEST files of the same utterances, with 95 % bootstrap intervals.

    With --config, LMs or weights the first file is also rescored, as `attlm rescore` would, and by each LM alone.
    Each further row is compared with the first one: difference and p-value (paired bootstrap). The last row is the best that
    the first file's lists hold.

    \b
    Examples:
      attlm eval test.json test.rescored.json --metric wer
      attlm eval test.json --config attlm.toml
    """
    decision = decide_by(setup.config.decision if setup else Decision())
    setup = setup or (Setup(Config(), (DEFAULT_COMPUTE,)) if weight or decision.rule != "max" else None)
    systems: list[tuple[str, np.ndarray]] = []
    measured = None
    for path in nbest:
        lists = with_references(open_nbest(path, format_name)[1])
        if measured is None:
            measured, rescored = rescore(list(lists), metric, setup, weight, decision) if setup else (measure_lists(lists, metric), [])
            systems += [(path, measured.first), *rescored]
            continue
        further = measure_lists(lists, metric)
        if further.references != measured.references:
            raise InputError(
                f"the references are not those of {nbest[0]}; compare lists of the same utterances in the same order", path=path
            )
        systems.append((path, further.first))
    systems.append(("oracle", oracle(measured.statistics, metric)))
    print_table(compare(systems, metric, seed=seed), metric, "against the first")
    click.echo(f"{len(measured.references)} lists; {metric.signature(measured.references)}")


def rescore(
    lists: list, metric: Metric, setup: Setup, weight: tuple[str, ...], decision: Decision
) -> tuple[MeasuredLists, list[tuple[str, np.ndarray]]]:
    """The lists with LM scores, and the systems that these make: weights and rule, and each LM alone."""
    weights, features = complete_weights(setup, weight)
    total = sum(len(found.hypotheses) for found in lists) if on_terminal() else None
    with setup.workers(features, needed=False) as workers, progress("hypotheses", total) as bar:
        rescorer = Rescorer(workers, bar.update)
        measured = measure_lists(rescorer.score(lists), metric)
        warn_of_oov(rescorer.oov.values(), workers.advise)
    for line in rescorer.notes.values():
        note(line)
    systems = [(f"rescored, {decision}", answers_of(measured, metric, weights, decision))]
    for lm in setup.config.scored:
        systems.append((f"{lm.name} alone", selection(measured.features, measured.statistics, {lm.name: 1.0}, names=measured.names)))
    return measured, systems
