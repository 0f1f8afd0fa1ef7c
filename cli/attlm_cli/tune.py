"""``attlm tune``: find the weights on lists with references and write them to attlm.toml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import click
import numpy as np

from attlm_cli.decision_options import rule_options
from attlm_cli.intervals import parse_intervals
from attlm_cli.options import (
    FiniteRange,
    GivenReferences,
    Setup,
    config_output_option,
    format_option,
    lm_options,
    metric_options,
    note,
    on_terminal,
    parse_weights,
    progress,
    reference_options,
    this_command,
    warn_of_oov,
    warn_of_subwords,
    warn_of_unused,
)
from attlm_cli.overwriting import check_outputs
from attlm_cli.report_option import report_of, report_option, warn_of_repeats, write_report
from attlm_cli.table import print_table
from attlm_fairseq import __version__
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import Decision, compared_text
from attlm_fairseq.nbest.features.lm_features import default_features, differing_lms, is_lm_feature
from attlm_fairseq.nbest.fingerprints import fingerprint
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.run.config_file import SKETCH, write_config
from attlm_fairseq.nbest.run.rescoring import Rescorer
from attlm_fairseq.nbest.statistics.bootstrap import Interval
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists, Row, compare, measure_lists
from attlm_fairseq.nbest.tuning.risk_tuning import tune_by_risk
from attlm_fairseq.nbest.tuning.tuned_system import TunedSystem, tune_system

MANY_FEATURES = 100


@click.command("tune")
@click.argument("nbest")
@reference_options
@format_option
@metric_options
@click.option("--without", multiple=True, metavar="NAME", help="Leave this score, or words or rank, out; pp_* leaves out many. Repeatable.")
@click.option(
    "--feature",
    "extra",
    multiple=True,
    metavar="NAME",
    help="One more feature: LM_tokens (LMs over subwords have it anyway), or LM_minus_LM in place of the two LMs. Repeatable.",
)
@click.option("--interval", multiple=True, metavar="NAME=LOW:HIGH", help="Bounds of a weight; either end may be missing. Repeatable.")
@click.option("--fix", multiple=True, metavar="NAME=NUMBER", help="Keep this weight. Intervals are in units of the weights fixed.")
@click.option(
    "--l2",
    type=FiniteRange(min=0),
    default=0.0,
    show_default=True,
    help="Pull towards the start: percent points for a squared distance of 1 between weights of length 1.",
)
@click.option(
    "--start", multiple=True, metavar="NAME=NUMBER", help="Where the search also starts. Default with --l2: rank=-1, the lists as read."
)
@click.option(
    "--objective",
    type=click.Choice(["metric", "risk"]),
    default="metric",
    show_default=True,
    help="What is optimised: the metric of the best totals, or the expected loss, which is smooth.",
)
@rule_options
@click.option(
    "--folds",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Folds of the cross-validation that tells the score to expect; 0: none.",
)
@click.option(
    "--max-p",
    type=FiniteRange(0, 1),
    default=0.05,
    show_default=True,
    help="A gain counts where its cross-validated p-value is at most this.",
)
@click.option(
    "--no-gain",
    type=click.Choice(["keep", "write", "fail"]),
    default="keep",
    show_default=True,
    help="Without such a gain: keep the lists as read (all weights 0), write the tuned weights nevertheless, or fail and write nothing.",
)
@click.option("--restarts", type=click.IntRange(min=0), default=10, show_default=True, help="Random starting points of the search.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the restarts and of the bootstrap.")
@report_option
@config_output_option
@lm_options
def tune_command(
    nbest: str,
    format_name: str | None,
    metric: Metric,
    with_references: GivenReferences,
    without: tuple[str, ...],
    extra: tuple[str, ...],
    interval: tuple[str, ...],
    fix: tuple[str, ...],
    l2: float,
    start: tuple[str, ...],
    objective: str,
    rules: tuple[str, ...],
    folds: int,
    max_p: float,
    no_gain: str,
    restarts: int,
    seed: int,
    report: str | None,
    output: Path,
    setup: Setup,
) -> None:
    """Find the weights that make the first hypotheses of NBEST (- is standard input) best, and write them to attlm.toml.

    The hypotheses are scored once. Then an exact line search on the corpus metric (Och 2003) looks for the weights of each LM,
    of the number of words that it does not know (NAME_oov), of the scores that came with the lists, of the number of
    words and of the rank. The table shows the score before and after, what to expect on other lists
    (cross-validation), each LM alone, and the best that the lists hold (oracle; for BLEU and chrF they hold at least that).
    With --mbr or --consensus these rules are tuned as well, and the one with the best cross-validated score is written.

    Where cross-validation shows no gain over the lists as read, all weights written are 0, and the lists will stay as they are
    (see --no-gain).

    \b
    Examples:
      attlm tune dev.json --lm checkpoint_best.pt --kenlm lm.arpa
      attlm tune dev.nbest --refs dev.en --metric bleu --lm news=lm.pt --mbr bleu -o news.toml
      attlm tune dev.json --kenlm lm.arpa --fix am_score=1 --interval kenlm=0:2
    """
    if objective == "risk" and (interval or fix or start or l2):
        raise InputError("--interval, --fix, --start and --l2 are of the line search: they do not go with --objective risk")
    with_references.check_inputs(nbest)
    inputs = {"the input": [nbest], "the references": with_references.paths}
    check_outputs({"the output": output, "--report": report}, inputs, setup.config)
    check_outputs({"--report": report}, {"the configuration": [setup.config.path]})
    warn_of_unused(output, setup.config, found=("[weights]", "[decision]"))
    lists = open_nbest(nbest, format_name)[1]
    lists = list(with_references(lists))
    total = sum(len(found.hypotheses) for found in lists) if on_terminal() else None
    lm_features = lm_feature_names(setup, extra)
    # no LM is needed: the lists' own scores can be tuned too
    with setup.workers(lm_features, needed=False) as workers, progress("hypotheses", total) as bar:
        rescorer = Rescorer(workers, bar.update)
        measured = measure_lists(rescorer.score(lists), metric)
        signatures = workers.signatures()
        warn_of_oov(rescorer.oov.values(), workers.advise)
    warn_of_subwords(measured.lists, metric)
    for line in rescorer.notes.values():
        note(line)
    unneeded = {*matching(without, measured), *(lm for name in extra for lm in differing_lms(name, setup.config.texts) or ())}
    asked_for = {*extra, *(option.rpartition("=")[0] for option in (*interval, *fix, *start))}
    unneeded |= set(measured.redundant([name for name in lm_features if name not in asked_for]))
    names = features_left(measured, unneeded)
    warn_of_outliers(measured, names)
    if objective == "risk":
        search = {"tuner": tune_by_risk}
    else:
        search = {"intervals": parse_intervals(interval, fix, names), "start": parse_start(start, names, l2), "l2": l2}
    result = tune_system(
        measured,
        metric,
        names=names,
        lm_names=list(signatures),
        rules=rules,
        folds=folds,
        seed=seed,
        restarts=restarts,
        **search,
    )
    repeated = warn_of_repeats(result.utterances, ", and stay in one fold")
    rows = compare(result.systems, metric, seed=seed, in_sample=result.in_sample, folds=result.folds, groups=result.utterances)
    accepted = result.beats_lists(metric, max_p)
    weights, decision = result.weights, result.decision
    notes = [
        "The changes below are on the lists that the weights were tuned on, and flatter them: elsewhere expect the cross-validated row."
    ]
    if accepted is False:
        if no_gain == "fail":
            say_result(result, rules, rows, metric)
        notes = [say_no_gain(result, metric, max_p, no_gain)]
        if no_gain == "keep":
            weights, decision = dict.fromkeys(names, 0.0), Decision(text=compared_text(metric))
    elif accepted is None:
        note(
            "note: without cross-validation (2 different lists and --folds 2 at least) nothing tells what the weights are worth "
            "on other lists"
        )
    notes += repeated
    if rules and accepted is not False:
        note(f"decision: {decision}")

    record = {
        "command": this_command(),
        "lists": len(lists),
        "hypotheses": sum(map(len, measured.features)),
        "metric": metric.signature(measured.references),
        **{row.label.replace(" ", "_").replace(",", ""): rounded(row.interval) for row in rows},
        **({} if accepted is None else {"p": round(result.gain.p_value, 6), "gain": accepted}),
        **({"tuned_weights": result.weights} if weights != result.weights else {}),
        "seed": seed,
        SKETCH: fingerprint(measured.references),
        "attlm": __version__,
        "lm": signatures,
    }
    if report:  # before the weights: where it cannot be written, nothing is
        write_report(
            report,
            report_of(measured, metric, list(signatures), weights, decision),
            setup,
            workers.scorer,
            measured.references,
            title=f"Tuning on {nbest}",
            rows=rows,
            against="against first as read",
            weights=weights,
            influence=result.result.influence if any(weights.values()) else None,
            decision=str(decision),
            oov=list(rescorer.oov.values()),
            notes=notes,
        )
    write_config(output, replace(setup.config, weights=weights, decision=decision), record)
    say_result(result, rules, rows, metric)  # after the file: the table's reader may not wait for all of it
    note(f"wrote {output}")


def say_result(result: TunedSystem, rules: Sequence[str], rows: Sequence[Row], metric: Metric) -> None:
    """Print the table, the weights, and the scale of each rule tried."""
    print_table(rows, metric, "against first as read")
    click.echo("weights")
    for name, value in result.result.weights.items():
        click.echo(f"  {name:16} {value:10.6g}  {result.result.influence[name]:6.1%} of the decision")
    if rules:
        click.echo("scales of the posteriors")
        for name in rules:
            click.echo(f"  {name:16} {result.decision.scale_of(name):10.6g}")


def lm_feature_names(setup: Setup, extra: tuple[str, ...]) -> list[str]:
    """What the LMs say besides their scores: the usual and what the user asks for. Raises InputError."""
    texts = setup.config.texts
    for name in extra:
        if not is_lm_feature(name, texts):
            raise InputError(f"--feature {name}: expected LM_oov, LM_tokens or LM_minus_LM; the LMs are {', '.join(texts) or 'none'}")
    return list(dict.fromkeys([*default_features(texts), *extra]))


def matching(without: tuple[str, ...], measured: MeasuredLists) -> list[str]:
    """The scores that ``--without`` names, or that match its pattern. Raises InputError where there are none."""
    found = []
    for pattern in without:
        names = [name for name in [*measured.names, *measured.left_out] if fnmatchcase(name, pattern) or name == pattern]
        if not names:
            raise InputError(f"--without {pattern}: the features are {', '.join(measured.names)}")
        found += names
    return found


def features_left(measured: MeasuredLists, unneeded: set[str]) -> list[str]:
    """The features to be tuned, and a word to the user where some cannot be or where they are many."""
    if measured.left_out:
        note(f"note: left out, because some hypotheses lack them: {', '.join(measured.left_out)}")
    names = [name for name in measured.names if name not in unneeded]
    if not names:
        raise InputError(f"no feature is left to tune: --without leaves out all that there are ({', '.join(measured.names)})")
    if len(names) > MANY_FEATURES:
        note(
            f"note: {len(names)} features take long to tune, one line search after the other, and fit these lists rather than others; "
            "--without 'NAME*' leaves sparse ones out"
        )
    return names


def warn_of_outliers(measured: MeasuredLists, names: list[str]) -> None:
    """A line for each feature of which a few lists have values beyond comparison with the others, such as a logarithm of 0."""
    for name in names:
        if found := measured.outliers(name):
            nbest, value, times = found[0]
            more = f", and so in {len(found) - 1} other lists" if len(found) > 1 else ""
            note(
                f"WARNING: list {nbest.id!r}: {name} is {value:g}, and its range {times:.2g} times the spread of the other lists{more}: "
                "a mark, such as for the logarithm of 0? What is usual for this feature is measured without such lists"
            )


def parse_start(texts: tuple[str, ...], names: list[str], l2: float) -> np.ndarray | None:
    """The weights to start from and to pull towards. Raises InputError."""
    if not texts and not l2:
        return None
    weights = parse_weights(texts, "--start")
    if not texts:
        if "rank" not in names:
            raise InputError(
                "--l2 pulls towards the lists as read, which needs rank: leave out `--without rank`, or say --start NAME=NUMBER"
            )
        weights = {"rank": -1.0}
    for name in weights:
        if name not in names:
            raise InputError(f"--start {name}: the features are {', '.join(names)}")
    if l2 and not any(weights.values()):
        raise InputError("--start has no weight but 0: there is nothing to pull towards")
    return np.array([weights.get(name, 0.0) for name in names])


def say_no_gain(result: TunedSystem, metric: Metric, max_p: float, no_gain: str) -> str:
    """Warn that tuning gains nothing that these lists can show, and give the warning. Raises InputError where that is to be refused."""
    found = (
        f"cross-validation shows no gain over the lists as read ({result.label}: {result.gain.difference.score:+.2f} {metric.name}, "
        f"p = {result.gain.p_value:.3f}, --max-p {max_p:g})"
    )
    if no_gain == "fail":
        raise InputError(f"{found}; nothing is written")
    if no_gain == "keep":
        warning = f"{found}: the weights written are 0 and leave the lists as they are; `--no-gain write` would take those above"
    else:
        warning = f"{found}: the weights written may make other lists worse"
    note(f"WARNING: {warning}")
    return warning


def rounded(interval: Interval) -> list[float]:
    """Score and the ends of its interval, as written to the record."""
    return [round(value, 4) for value in (interval.score, interval.low, interval.high)]
