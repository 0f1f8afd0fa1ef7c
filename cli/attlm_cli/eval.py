"""``attlm eval``: the first hypotheses of lists, what LMs make of them, and what the lists hold, against references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import click
import numpy as np

from attlm_cli.decision_options import decision_options, warn_of_scale
from attlm_cli.options import (
    GivenReferences,
    Setup,
    complete_weights,
    lm_options,
    metric_options,
    note,
    on_terminal,
    progress,
    reference_options,
    warn_of_oov,
    warn_of_subwords,
    warn_of_unseen,
)
from attlm_cli.overwriting import check_outputs
from attlm_cli.report_option import report_of, report_option, warn_of_repeats, warn_of_same_lists, write_report
from attlm_cli.table import print_table
from attlm_fairseq.errors import InputError, UnknownFormatError
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.formats import FORMATS, open_nbest
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.references import TEXT, read_further, read_texts
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.rescoring import Rescorer
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists, compare, measure_lists
from attlm_fairseq.nbest.tuning.tuned_system import answers_of
from attlm_fairseq.nbest.tuning.tuning import oracle, selection
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE
from attlm_fairseq.scoring.oov import OOVCount


@click.command("eval")
@click.argument("nbest", nargs=-1, required=True)
@reference_options
@click.option(
    "--format",
    "format_name",
    metavar="NAME",
    help=f"Format of every NBEST: {', '.join(sorted(FORMATS))} (nemo:BEAM with its beam size), or {TEXT}, one text a line. "
    "Default: recognised by its content.",
)
@metric_options
@click.option("--weight", multiple=True, metavar="NAME=NUMBER", help="Weight of an LM, a score of the lists, words or rank. Repeatable.")
@decision_options
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the bootstrap.")
@report_option
@partial(lm_options, only_where_given=True)
def eval_command(
    nbest: tuple[str, ...],
    format_name: str | None,
    metric: Metric,
    with_references: GivenReferences,
    weight: tuple[str, ...],
    decide_by: Callable[[Decision, Metric], Decision],
    seed: int,
    report: str | None,
    setup: Setup | None,
) -> None:
    """Score the first hypotheses of one or several NBEST files of the same utterances, with 95 % bootstrap intervals.

    With --config, LMs or weights the first file is also rescored, as `attlm rescore` would, and by each LM alone.
    A file that is no n-best list is read as one text a line, such as `attlm rescore --to 1best` writes, and so is every further file that
    has as many lines as there are lists; lines with the lists' ids go by them (--to 1best-kaldi, 1best-sclite). Further lists
    with the same ids in another order go by the ids.
    Each further row is compared with the first one: difference and p-value (paired bootstrap). The last row is the best that
    the first file's lists hold, for BLEU and chrF at least.

    \b
    Examples:
      attlm eval test.json test.rescored.json --metric wer
      attlm eval test.json --config attlm.toml
    """
    with_references.check_inputs(*nbest)
    decision = decide_by(setup.config.decision if setup else Decision(), metric)
    setup = setup or (Setup(RunConfig(), (DEFAULT_DEVICE,)) if weight or report or decision.rule != "max" else None)
    inputs = {"the input": nbest, "the references": with_references.paths}
    inputs |= {"the configuration": [setup.config.path]} if setup else {}
    check_outputs({"--report": report}, inputs, setup.config if setup else None)
    weights, features = complete_weights(setup, weight) if setup else ({}, [])
    label = f"rescored, {decision}"
    systems: list[tuple[str, np.ndarray]] = []
    oov: list[OOVCount] = []
    measured, notes = None, []
    for path in nbest:
        if measured is not None:
            further = measure_lists(further_lists(path, format_name, measured.lists, nbest[0], with_references), metric)
            warn_of_subwords(further.lists, metric)
            systems.append((path, further.first))
            continue
        lists = with_references(open_lists(path, format_name, with_references))
        if setup is None:
            measured = measure_lists(lists, metric)
            systems.append((path, measured.first))
        else:
            measured, oov, loaded = rescored(list(lists), metric, setup, features)
            answers = answers_of(measured, metric, weights, decision)
            warn_of_scale(decision, setup.config, weights)
            warn_of_unseen({name for name, value in weights.items() if value} - {*measured.names})
            notes = warn_of_same_lists(setup, weights, measured.references)
            found = np.array([statistics for _, statistics in answers])
            systems += [(path, measured.first), (label, found)]
            for lm in setup.config.scored:
                alone = selection(measured.features, measured.statistics, {lm.name: 1.0}, names=measured.names)
                systems.append((f"{lm.name} alone", alone))
        warn_of_subwords(measured.lists, metric)
    systems.append(("oracle", oracle(measured.statistics, metric, [found] if setup else [])))
    # the files that these weights have written answer as they do
    in_sample = [name for name, of_system in systems if name in (label, *nbest[1:]) and np.array_equal(of_system, found)] if notes else []
    utterances = measured.utterances(metric)
    notes += warn_of_repeats(utterances)
    rows = compare(systems, metric, seed=seed, in_sample=in_sample, groups=utterances)
    if report:  # before the table, whose reader may not wait for all of it
        write_report(
            report,
            report_of(measured, metric, [lm.name for lm in setup.config.scored], weights, decision),
            setup,
            loaded,
            measured.references,
            title=f"Evaluation on {nbest[0]}",
            rows=rows,
            against="against the first",
            weights=weights,
            decision=str(decision),
            oov=oov,
            notes=notes,
        )
    print_table(rows, metric, "against the first")
    click.echo(f"{len(measured.references)} lists; {metric.signature(measured.references)}")


def open_lists(path: str, format_name: str | None, references: GivenReferences) -> Iterable[NbestList]:
    """The lists of the first file, or the texts of one that is in no format."""
    if format_name != TEXT:
        try:
            return open_nbest(path, format_name)[1]
        except UnknownFormatError:
            if path == "-":
                raise
        note(f"note: {path} is not an n-best list: read as one text per line")
    return read_texts(path, references.by, note)


def further_lists(
    path: str, format_name: str | None, first: Sequence[NbestList], first_path: str, references: GivenReferences
) -> list[NbestList]:
    """The lists or texts of a further file, in the order of the first and with its references. Raises InputError for others."""
    further, told = read_further(path, format_name, first, first_path, references.by)
    if told:
        note(told)
    lists = []
    for own, nbest in zip(further, first, strict=True):
        if own.references and not references.paths and own.references != nbest.references:
            message = (
                f"the reference of list {own.id!r} is not that of {first_path}; compare lists of the same utterances in the same order"
            )
            raise InputError(message, path=path, line=own.line)
        lists.append(replace(own, references=nbest.references))
    return lists


def rescored(
    lists: list[NbestList], metric: Metric, setup: Setup, features: list[str]
) -> tuple[MeasuredLists, list[OOVCount], BlockScorer | None]:
    """The lists with LM scores, the unknown words, and the LMs if this process has them."""
    total = sum(len(found.hypotheses) for found in lists) if on_terminal() else None
    with setup.workers(features, needed=False) as workers, progress("hypotheses", total) as bar:
        rescorer = Rescorer(workers, bar.update)
        measured = measure_lists(rescorer.score(lists), metric)
        warn_of_oov(rescorer.oov.values(), workers.advise)
    for line in rescorer.notes.values():
        note(line)
    return measured, list(rescorer.oov.values()), workers.scorer
