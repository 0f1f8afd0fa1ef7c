"""``attlm eval``: measure lists, their rescored versions and the oracle against references."""

from __future__ import annotations

import cloup

from attlm_cli.checks import check_source, check_standard_output
from attlm_cli.decision_options import decision_options
from attlm_cli.metric_options import MetricChoice, metric_options
from attlm_cli.option_groups import given_option
from attlm_cli.options import Results, draw_by_option, format_option, measured_reference_options, result_options, seed_option
from attlm_cli.printing import echo_json, echo_table, hypotheses_bar, this_command
from attlm_cli.run_options import run_options
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.metrics.edit_rates import EditRate
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.verbs.decision_choice import DecisionChoice
from attlm_fairseq.verbs.evaluate import evaluate
from attlm_fairseq.verbs.lists import NbestFile
from attlm_fairseq.verbs.overwriting import check_files, files_of_groups, files_of_steps
from attlm_fairseq.verbs.references import ReferenceFiles


@cloup.command("eval")
@cloup.argument("nbest", nargs=-1, required=True, help="N-best lists or texts of the same utterances; - is standard input.")
@format_option
@measured_reference_options
@metric_options()
@run_options(several_devices=True, only_if_named=True, candidates=True, lists=True)
@decision_options
@cloup.option(
    "--confidence",
    is_flag=True,
    help="Also measure the word confidences: normalised cross entropy (NCE) and expected calibration error "
    "(ECE). Scale and coverage come from attlm.toml if it was tuned on other lists, else from "
    "cross-validation on these.",
)
@cloup.option(
    "--errors",
    metavar="FILE",
    help="Write a tab-separated table of the errors of each list and system: substitutions, deletions, insertions, length of the "
    "reference, reference and answer.",
)
@draw_by_option
@seed_option
@result_options
def eval_command(
    nbest: tuple[str, ...],
    format_name: str | None,
    measured: MetricChoice,
    refs: ReferenceFiles,
    choice: DecisionChoice,
    confidence: bool,
    errors: str | None,
    draw_by: ContextSpec | None,
    seed: int,
    results: Results,
    run: RunConfig | None,
) -> None:
    """Measure the 1-best hypotheses of one or more NBEST files of the same utterances, with 95 % bootstrap intervals.

    With --config, LMs or weights, the first file is also rescored as `attlm rescore` would, and by each LM alone.

    An NBEST file can also be a text with one line per list, such as `attlm rescore --to 1best` writes. If the format of a
    further file can look like plain text, a file with one line per list is read as text. Lines that carry list ids (--to
    1best-kaldi, 1best-sclite) are matched by id. So are further n-best lists with the same ids in another order.

    A second table has the substitutions, deletions and insertions of WER and CER, and how many lists have errors.

    Each row is compared with the first: the difference with a 95 % interval, and the p-value of a paired permutation test. The
    last row is the oracle, the best choice from the first file's lists (for BLEU and chrF a lower bound). Lists that an attlm.toml
    was tuned on get no p-value. Lists of few documents or speakers need --draw-by.

    \b
    Examples:
      attlm eval test.json test.rescored.json --metric wer
      attlm eval test.json --config attlm.toml
      attlm eval test.json test.rescored.json --draw-by id:'^([^-]+)-'
    """
    metric = measured.of(run if run and run.path else measured.of_folder())
    decided = choice.apply(run or RunConfig(), metric, as_metric=given_option("bleu_tokenize", "cer_without_spaces") is not None)
    check_source(refs.source, decided, metric)
    if run is not None or choice.weights or results.report or decided.decision.rule != "max":
        run = decided
    elif given_option("max_"):
        raise InputError("--max is for rescored lists: give --config, LMs or --weight, or leave --max out")
    inputs = {"the input": nbest, "the references": refs.files, "a step of --metric-text": files_of_steps(metric.text)}
    inputs["the groups"] = files_of_groups(draw_by)
    check_files({**inputs, "the configuration": [run.path if run else None]}, {"--report": results.report, "--errors": errors}, run)
    if errors and not isinstance(metric, EditRate):
        raise InputError(f"--errors: {metric.name} counts no single errors; it goes with --metric wer or cer")
    check_standard_output({"--errors": errors, "--report": results.report, "--json": "-" if results.as_json else ""})
    first, *others = (NbestFile(path, format_name) for path in nbest)
    with hypotheses_bar(nbest[0] if run else "-", format_name) as bar:
        found = evaluate(
            *(first, refs, others), config=run, metric=metric, draw_by=draw_by, seed=seed, confidence=confidence, on_progress=bar.update
        )
    if results.report:  # first: a reader such as `head` may close the pipe before the table ends
        found.write_report(results.report, this_command())
    if errors:
        found.write_errors(errors)
    if results.as_json:
        echo_json(found.as_dict())
        return
    echo_table(found, errors, results.report)
