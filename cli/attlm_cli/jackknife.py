"""``attlm jackknife``: score lists with LMs that were trained without their references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.metric_options import once
from attlm_cli.option_groups import given_option, grouped
from attlm_cli.options import folds_by_option, format_option, language_option, reference_options
from attlm_cli.types import NAMED_FILE, STEPS
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.expansion import CANDIDATES
from attlm_fairseq.nbest.corrections.spec import MAX_CANDIDATES
from attlm_fairseq.nbest.corrections.written import WORD_BY_WORD
from attlm_fairseq.nbest.tuning.folds import FOLDS
from attlm_fairseq.verbs.corrections import JackknifeOptions, jackknife
from attlm_fairseq.verbs.lists import NbestFile
from attlm_fairseq.verbs.nbest_files import write_nbest
from attlm_fairseq.verbs.overwriting import check_files, files_of_groups, files_of_steps
from attlm_fairseq.verbs.references import ReferenceFiles


def _learning(ngram: str, corrections: bool, candidates: int, **others: Any) -> JackknifeOptions:
    if not corrections and (option := given_option("candidates", "language")):
        raise InputError(f"{option} is for --corrections: give it, or leave {option} out")
    return JackknifeOptions(ngram=ngram, corrections=candidates if corrections else None, **others)


learning_options = grouped(
    "Learning",
    "learning",
    _learning,
    cloup.option(
        "--folds",
        type=click.IntRange(min=2),
        default=FOLDS,
        show_default=True,
        help="Number of folds.",
    ),
    folds_by_option,
    cloup.option(
        "--ngram", default="ngram", show_default=True, help="Name of the 4-gram LM estimated for each fold; an empty name estimates none."
    ),
    cloup.option("--corrections", is_flag=True, help="Learn corrections for each fold, and add their candidates to the lists."),
    cloup.option(
        "--candidates",
        type=click.IntRange(0, MAX_CANDIDATES),
        default=CANDIDATES,
        show_default=True,
        help="Maximum number of candidates added to each list.",
    ),
    cloup.option(
        "--texts",
        type=click.Path(path_type=Path),
        help="New folder for fold0.txt, fold1.txt, ..: the references of the other folds, for training LMs.",
    ),
    cloup.option(
        "--text",
        type=STEPS,
        multiple=True,
        callback=once,
        help="Text steps of the references that are learned from, and of the texts that LMs score and corrections compare: "
        f"{', '.join(WORD_BY_WORD)}.",
    ),
    language_option,
)


@cloup.command("jackknife")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@cloup.option("-o", "--output", default="-", metavar="FILE", help="File for the lists, as JSON lines; - is standard output (default).")
@format_option
@reference_options
@learning_options
@cloup.option(
    "--lm",
    multiple=True,
    type=NAMED_FILE,
    help="An LM trained without the references of one fold (see --texts). Give it once per fold, in fold order.",
)
def jackknife_command(
    nbest: str,
    output: str,
    format_name: str | None,
    refs: ReferenceFiles,
    lm: tuple[tuple[str, str], ...],
    learning: JackknifeOptions,
) -> None:
    """Score NBEST with LMs and corrections that are learned, for each fold, from the references of the other folds.

    No score has seen the references of its list, so weights tuned on the output carry over to other lists. Each LM adds
    the scores NAME, NAME_oov and NAME_tokens.

    \b
    Examples:
      attlm jackknife train.json --refs train.ref --corrections -o jackknifed.jsonl
      attlm tune jackknifed.jsonl
    """
    inputs: dict[str, list[str | Path | None]] = {
        "the input": [nbest],
        "the references": [*refs.paths],
        "an LM": [file for _, file in lm],
        "a step of --text": files_of_steps(learning.text),
        "the groups": files_of_groups(learning.folds_by),
    }
    check_files(inputs, {"the output": output})  # which is no folder, as --texts is
    check_files(inputs, {"--texts": learning.texts, "the output": output}, folders=True)
    lms: dict[str, list[str]] = {}
    for name, file in lm:
        lms.setdefault(name, []).append(file)
    lists = jackknife(NbestFile(nbest, format_name), refs, lms, learning)
    write_nbest(lists, output)
    note(f"{len(lists)} lists, {sum(len(found.hypotheses) for found in lists)} hypotheses")
