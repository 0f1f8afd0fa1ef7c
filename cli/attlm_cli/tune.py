"""``attlm tune``: tune the weights of rescoring, and write them to attlm.toml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.checks import check_source, check_standard_output, warn_of_unused
from attlm_cli.decision_options import rule_options
from attlm_cli.metric_options import MetricChoice, metric_options
from attlm_cli.option_groups import given_option, grouped
from attlm_cli.options import (
    Results,
    config_output_option,
    folds_by_option,
    format_option,
    measured_reference_options,
    result_options,
    seed_option,
)
from attlm_cli.printing import echo_json, echo_table, hypotheses_bar, this_command
from attlm_cli.run_options import run_options
from attlm_cli.types import INTERVAL, WEIGHT, FiniteRange
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.metrics.spec import spec_of
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.lists import NbestFile
from attlm_fairseq.verbs.overwriting import check_files, files_of_groups, files_of_steps
from attlm_fairseq.verbs.references import ReferenceFiles
from attlm_fairseq.verbs.tune import tune
from attlm_fairseq.verbs.tune_options import TuneOptions
from attlm_fairseq.verbs.tuned import NoGainError, Tuned


def _search(interval: tuple, fix: tuple, extra: tuple[str, ...], **options: Any) -> dict[str, Any]:
    bounds: dict[str, tuple[float, float]] = {}
    for name, ends in (*interval, *((name, (weight, weight)) for name, weight in fix)):
        if name in bounds:
            raise InputError(f"--interval or --fix {name}=..: {name} has been given an interval or a weight before")
        bounds[name] = ends
    return {"intervals": bounds, "features": extra, **options}


search_options = grouped(
    "Search",
    "search",
    _search,
    cloup.option(
        "--without",
        multiple=True,
        metavar="NAME",
        help="Feature to leave out: a score of the lists, words, rank, or one that an LM adds. A pattern such as pp_* "
        "leaves out all that match. Repeatable.",
    ),
    cloup.option(
        "--feature",
        "extra",
        multiple=True,
        metavar="NAME",
        help="Further feature to tune: LM_tokens (LMs whose text steps end with bpe or sentencepiece have it by default), or "
        "LM_minus_LM, which replaces the two LMs. Repeatable.",
    ),
    cloup.option("--interval", multiple=True, type=INTERVAL, help="Lower and upper bound of a weight; either may be missing. Repeatable."),
    cloup.option(
        "--fix",
        multiple=True,
        type=WEIGHT,
        help="Keep this weight fixed. Bounds of --interval are then on the scale of the fixed weights. Repeatable.",
    ),
    cloup.option(
        "--objective",
        type=click.Choice(["metric", "risk"], case_sensitive=False),
        default=TuneOptions.objective,
        show_default=True,
        help="What to optimise. metric: the metric of the hypotheses with the best totals. risk: the expected loss, which is smooth.",
    ),
    cloup.option(
        "--restarts",
        type=click.IntRange(min=0),
        default=TuneOptions.restarts,
        show_default=True,
        help="Number of random starting points.",
    ),
)
trust_options = grouped(
    "Cross-validation",
    "trust",
    dict,
    cloup.option(
        "--folds",
        type=click.IntRange(min=0),
        default=TuneOptions.folds,
        show_default=True,
        help="Number of cross-validation folds, at least 3; 0: none. They estimate the score on other lists and choose the --strength.",
    ),
    folds_by_option,
    cloup.option(
        "--strength",
        type=FiniteRange(0, 1),
        default=TuneOptions.strength,
        help="How far to trust the weights. 1 uses them as found, lower values give more weight to the rank, 0 "
        "counts the rank alone. Default: the greatest whose cross-validated gain is reliable and near the best.",
    ),
    cloup.option(
        "--no-gain",
        type=click.Choice(["keep", "fail"], case_sensitive=False),
        default=TuneOptions.no_gain,
        show_default=True,
        help="What to do if no strength has a cross-validated gain: keep the input order (all weights 0), or fail and write nothing.",
    ),
)


@cloup.command("tune")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@format_option
@measured_reference_options
@metric_options()
@run_options(several_devices=True, candidates=True, lists=True)
@rule_options
@search_options
@trust_options
@cloup.option(
    "--confidence", is_flag=True, help="Also fit word confidences, for `attlm rescore --to ctm`, sausage and jsonl. Needs --metric wer."
)
@cloup.option(
    "--ablation",
    is_flag=True,
    help="Also tune without each LM and without each score of the lists, and compare the cross-validated answers with those of all. "
    "The search for weights is run again for each.",
)
@seed_option
@result_options
@config_output_option
def tune_command(
    nbest: str,
    format_name: str | None,
    measured: MetricChoice,
    refs: ReferenceFiles,
    search: dict[str, Any],
    trust: dict[str, Any],
    results: Results,
    output: Path,
    run: RunConfig,
    **others: Any,
) -> None:
    """Tune the weights that make the 1-best hypotheses of NBEST (- is standard input) best, and write them to attlm.toml.

    The hypotheses are scored once (with --context twice). Then an exact line search on the corpus metric (Och 2003)
    finds the weights. Tuned are the weight of each LM, of its number of unknown words (NAME_oov), of the scores in the
    lists, of the number of words and of the rank. With --mbr or --consensus these rules are tuned, too. The rule with
    the best cross-validated score is written.

    The table shows the score before and after tuning, the cross-validated score to expect on other lists, each LM
    alone, and the oracle, the best choice from the lists (for BLEU and chrF a lower bound).

    Cross-validation also decides how far to trust the weights, between the weights as found and the input order (see
    --strength). If it shows no reliable gain, all weights written are 0, which keeps the input order. A given --strength
    is kept to.

    \b
    Examples:
      attlm tune dev.json --lm checkpoint_best.pt --kenlm lm.arpa
      attlm tune dev.nbest --refs dev.en --metric bleu --lm news=lm.pt --mbr bleu -o news.toml
      attlm tune dev.json --kenlm lm.arpa --fix am_score=1 --interval kenlm=0:2
    """
    metric = measured.of(run)
    options = TuneOptions(**search, **trust, **others)
    check_source(refs.source, run, metric, options.rules)
    check_standard_output({"--json": "-" if results.as_json else "", "--report": results.report, "the output": output})
    inputs = {
        "the input": [nbest],
        "the references": refs.files,
        "a step of --metric-text": files_of_steps(metric.text),
        "the groups": files_of_groups(options.folds_by),
    }
    check_files(inputs, {"the output": output, "--report": results.report}, run)
    check_files({"the configuration": [run.path]}, {"--report": results.report})
    chosen = given_option("metric", "metric_text", "bleu_tokenize", "ter_case_sensitive", "cer_without_spaces") is not None
    found = ("[weights]", "[decision]", "[confidence]", *(["[metric]"] if chosen else []))
    warn_of_unused(output, replace(run, metric=spec_of(metric)), found)
    with hypotheses_bar(nbest, format_name) as bar:
        try:
            tuned = tune(NbestFile(nbest, format_name), refs, config=run, metric=metric, options=options, on_progress=bar.update)
        except NoGainError as error:
            print_tuned(error.tuned, results, output)
            raise
    if results.report:  # first: if the report cannot be written, no weights are written either
        tuned.write_report(results.report, this_command())
    tuned.save(output, this_command())
    print_tuned(tuned, results, output)  # last: a reader such as `head` may close the pipe before the table ends


def print_tuned(tuned: Tuned, results: Results, output: Path) -> None:
    """Print the table and the weights: as JSON, or as text, on standard error if ``output`` is standard output."""
    if results.as_json:
        echo_json(tuned.as_dict())
        return
    echo_table(tuned, output, results.report)
