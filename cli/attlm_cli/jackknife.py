"""``attlm jackknife``: lists with the scores of LMs that have not seen their references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.options import format_option, grouped, reference_options
from attlm_cli.overwriting import check_outputs, check_standard_input
from attlm_cli.types import NameValue
from attlm_fairseq.messages import note
from attlm_fairseq.verbs.corrections import CANDIDATES, JackknifeOptions, jackknife
from attlm_fairseq.verbs.inputs import NbestFile, ReferenceFiles
from attlm_fairseq.verbs.nbest_files import write_nbest


def _learning(ngram: str, corrections: bool, candidates: int, **others: Any) -> JackknifeOptions:
    return JackknifeOptions(ngram=ngram or None, corrections=candidates if corrections else None, **others)


learning_options = grouped(
    "What is learned",
    "learning",
    _learning,
    cloup.option(
        "--folds", type=click.IntRange(min=2), default=5, show_default=True, help="Folds; lists of one utterance are in one fold."
    ),
    cloup.option("--ngram", default="ngram", show_default=True, help="Name of the 4-gram estimated for each fold; an empty name: none."),
    cloup.option("--corrections", is_flag=True, help="Learn corrections for each fold, and let their candidates join the lists."),
    cloup.option(
        "--candidates", type=click.IntRange(0, 1000), default=CANDIDATES, show_default=True, help="At most so many for each list."
    ),
    cloup.option("--texts", type=click.Path(path_type=Path), help="A new folder for fold0.txt, ..: the references of the other folds."),
    cloup.option("--language", default="en", show_default=True, help="Language of spelled numbers (num2words' code)."),
)


@cloup.command("jackknife")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@cloup.option("-o", "--output", default="-", metavar="FILE", help="Where the lists go, as JSON lines; - is standard output (default).")
@format_option
@reference_options
@learning_options
@cloup.option(
    "--lm",
    multiple=True,
    type=NameValue("FILE", str),
    help="An LM trained without the references of a fold, see --texts: once for each fold, in their order. Repeatable.",
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

    Weights tuned on the lists that are written can be trusted: no score has seen the references. Each LM gives the
    scores NAME, NAME_oov and NAME_tokens.

    \b
    Examples:
      attlm jackknife train.json --refs train.ref --corrections -o jackknifed.jsonl
      attlm tune jackknifed.jsonl
    """
    check_standard_input(nbest, *refs.paths)
    check_outputs({"the output": output}, {"the input": [nbest], "the references": refs.paths})
    lms: dict[str, list[str]] = {}
    for name, file in lm:
        lms.setdefault(name, []).append(file)
    lists = jackknife(NbestFile(nbest, format_name), refs, lms, learning)
    write_nbest(lists, output)
    note(f"{len(lists)} lists, {sum(len(found.hypotheses) for found in lists)} hypotheses")
