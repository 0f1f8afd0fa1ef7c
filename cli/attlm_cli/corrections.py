"""``attlm corrections``: learn typical errors from lists with references, show them, and measure corrections on other lists."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from attlm_cli.metric_options import once
from attlm_cli.option_groups import given_option
from attlm_cli.options import folds_by_option, format_option, json_option, language_option, reference_options
from attlm_cli.printing import echo_json, echo_table
from attlm_cli.types import STEPS
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections import Corrections
from attlm_fairseq.nbest.corrections.search_lm import lm_next_to
from attlm_fairseq.nbest.corrections.usage import MAX_SHOWN, Usage
from attlm_fairseq.nbest.corrections.written import WORD_BY_WORD
from attlm_fairseq.nbest.tuning.folds import FOLDS
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.verbs.corrections import evaluate_corrections, learn_corrections, write_correction_pairs
from attlm_fairseq.verbs.lists import NbestFile
from attlm_fairseq.verbs.overwriting import check_files, files_of_steps
from attlm_fairseq.verbs.references import ReferenceFiles

count_option = cloup.option(
    "-n", "--count", type=click.IntRange(min=1), default=MAX_SHOWN, show_default=True, help="Number of corrections to show."
)
text_option = cloup.option(
    "--text",
    type=STEPS,
    multiple=True,
    callback=once,
    help="Text steps after which words are compared, such as remove-punctuation,lowercase. Hypotheses keep their case and punctuation. "
    f"Steps: {', '.join(WORD_BY_WORD)}.",
)


class LearnByDefault(cloup.Group):
    """Makes ``attlm corrections LISTS`` mean ``attlm corrections learn LISTS``: any word that names no subcommand is NBEST."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["learn", *args]
        return super().parse_args(ctx, args)


@cloup.group("corrections", cls=LearnByDefault)
def corrections_command() -> None:
    """Learn typical errors of the recogniser from lists with references, to add corrected candidates to other lists.

    `attlm corrections NBEST` is `attlm corrections learn NBEST`, whose --help has the options.

    \b
    Examples:
      attlm corrections train.json --refs train.ref -o corrections.tsv
      attlm corrections eval train.json --refs train.ref
      attlm tune dev.json --refs dev.ref --lm lm.pt --corrections corrections.tsv
    """


@corrections_command.command("learn", short_help="Learn corrections, and write them as a table.")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@cloup.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="Table to write. An LM estimated from the references is written next to it.",
)
@format_option
@reference_options
@cloup.option(
    "--kenlm",
    type=click.Path(path_type=Path),
    help="ARPA or KenLM file that guides the search for candidates. Default: a 4-gram estimated from the references.",
)
@text_option
@language_option
def learn_command(
    nbest: str, output: Path, format_name: str | None, refs: ReferenceFiles, kenlm: Path | None, text: TextPipeline, language: str
) -> None:
    """Learn corrections from NBEST and its references, and write them as a table that people can read and edit.

    \b
    Example:
      attlm corrections learn train.json --refs train.ref -o corrections.tsv
    """
    inputs = {"the input": [nbest], "the references": refs.paths, "--kenlm": [kenlm], "a step of --text": files_of_steps(text)}
    check_files(inputs, {"the output": output})
    if kenlm is None and output.exists():
        lm_next_to(output)  # before the work
    learned = learn_corrections(NbestFile(nbest, format_name), refs, lm=kenlm, language=language, text=text)
    learned.save(output)
    note(f"wrote {output}: {learned}")


@corrections_command.command("pairs", short_help="Write training data for a neural corrector.")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@cloup.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="New folder to write.")
@format_option
@reference_options
def pairs_command(nbest: str, output: Path, format_name: str | None, refs: ReferenceFiles) -> None:
    """Write training data for a neural corrector: train.hyp, train.ref, valid.hyp and valid.ref, for fairseq-preprocess.

    Each distinct hypothesis of NBEST is paired with its reference. One utterance in 20 goes to valid, with its 1-best only.

    \b
    Example:
      attlm corrections pairs train.json --refs train.ref -o pairs
    """
    check_files({"the input": [nbest], "the references": refs.paths}, {"the output": output}, folders=True)
    counts = write_correction_pairs(NbestFile(nbest, format_name), refs, output)
    note(f"wrote {output}: {counts['train']} pairs to train on, {counts['valid']} to stop by")


@corrections_command.command("show", short_help="Show the commonest corrections of a table.")
@cloup.argument("table", help="A table of corrections.")
@count_option
def show_command(table: Path, count: int) -> None:
    """Show the corrections of TABLE that were seen most often, each with an example.

    \b
    Example:
      attlm corrections show corrections.tsv -n 50
    """
    found = Corrections.load(Path(table))
    rules = sorted((rule for rules in found.phrases.rules.values() for rule in rules), key=lambda rule: (-rule.lists, rule.source))
    echo_table(f"{len(rules)} phrases from {found.lists} lists, LM {found.lm}")
    for rule in rules[:count]:
        change = f"{' '.join(rule.source)} -> {' '.join(rule.target)}"
        echo_table(f"{rule.lists:8.1f}  {change}   ln p {rule.log_prob:.2f}   {next(iter(rule.examples), '')}")


@corrections_command.command("eval", short_help="Count how often each correction is right.")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@cloup.option(
    "--table",
    type=click.Path(path_type=Path),
    help="Corrections to measure. Without it, or if they were learned from NBEST, each fold is measured with what is learned from the "
    "other folds.",
)
@format_option
@reference_options
@cloup.option("--folds", type=click.IntRange(min=2), default=FOLDS, show_default=True, help="Number of folds.")
@folds_by_option
@text_option
@language_option
@count_option
@json_option
def eval_command(
    nbest: str,
    table: Path | None,
    format_name: str | None,
    refs: ReferenceFiles,
    folds: int,
    folds_by: ContextSpec | None,
    text: TextPipeline,
    language: str,
    count: int,
    as_json: bool,
) -> None:
    """Show which corrections change the 1-best hypotheses of NBEST, and how often each is right or wrong.

    The search for candidates decides alone, without tuned weights. A correction is right if applying it alone leaves
    fewer word errors, and wrong if it leaves more.

    \b
    Example:
      attlm corrections eval train.json --refs train.ref
    """
    check_files({"the input": [nbest], "the references": refs.paths})
    if table is not None and (option := given_option("language", "text")):
        raise InputError(f"{option}: a table has its own; leave one of the two out")
    found = evaluate_corrections(NbestFile(nbest, format_name), refs, table, folds=folds, folds_by=folds_by, language=language, text=text)
    if as_json:
        echo_json(_as_dict(found, count))
    else:
        echo_table(found.table(count))


def _as_dict(found: Usage, count: int) -> dict[str, object]:
    return {
        "lists": found.lists,
        "words": found.words,
        "errors": found.errors_before,
        "errors_corrected": found.errors_after,
        "corrections": [
            {
                "kind": use.kind,
                "source": use.source,
                "target": use.target,
                "right": use.right,
                "wrong": use.wrong,
                "neutral": use.neutral,
                "examples": use.examples,
            }
            for use in found.most_used(count)
        ],
    }
