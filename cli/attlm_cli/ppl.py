"""``attlm ppl``: compute the perplexity of raw text."""

from __future__ import annotations

from dataclasses import astuple, fields

import cloup

from attlm_cli.option_groups import given_option
from attlm_cli.options import json_option, seed_option, source_option
from attlm_cli.printing import echo_fields, echo_json, echo_table, lines_bar
from attlm_cli.run_options import run_options
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.compare_lms import compare_lms
from attlm_fairseq.verbs.overwriting import check_files
from attlm_fairseq.verbs.text import Perplexity, perplexity


@cloup.command("ppl")
@cloup.argument("text", help="A text, one sentence per line; - is standard input.")
@cloup.option(
    "--compare",
    is_flag=True,
    help="Compare the LMs: ppl_as_read with a 95 % bootstrap interval, its change against the first LM (--lm comes before --kenlm) in "
    "percent with an interval, and the p-value of a paired permutation test. Lines that are about the same things are one sample: 20 "
    "documents or more with --context blank, else 20 or more neighbouring lines.",
)
@seed_option
@json_option
@source_option
@run_options()
def ppl_command(text: str, compare: bool, seed: int, as_json: bool, source: str | None, run: RunConfig) -> None:
    """Compute the perplexity of TEXT (- is standard input) for each LM. TEXT has one sentence per line; blank lines count.

    \b
    ppl              every word and every sentence end is predicted and counted
    ppl_salton2017   the first event of each sentence is counted but not predicted, as in the code
                     of Salton et al. (2017): lower, and only comparable with their figures
    ppl_without_oov  unknown words are neither predicted nor counted
    ppl_as_read      as ppl, but divided by the white-space words of TEXT as read. It compares LMs that
                     see other words or subwords, as long as no text step removes anything

    Only a line feed ends a line here. A carriage return is white space, but fairseq-preprocess ends a line at it:
    remove carriage returns from TEXT, or fairseq counts more sentences.

    \b
    Examples:
      attlm ppl test.txt --lm checkpoint_best.pt --kenlm lm.arpa
      attlm ppl test.txt --lm plain=plain.pt --lm attentive=attentive.pt --compare
    """
    check_files({"the text": [text], "the source": [source]})
    if given_option("seed") and not compare:
        raise InputError("--seed has no effect without --compare")
    with lines_bar(text) as bar:
        if compare:
            compared = compare_lms(text, config=run, source=source, seed=seed, on_progress=bar.update)
        else:
            found = perplexity(text, config=run, source=source, on_progress=bar.update)
    if as_json:
        echo_json(compared.as_dict() if compare else [of_lm.as_dict() for of_lm in found])
    elif compare:
        echo_table(compared)
    else:
        echo_fields(*(field.name for field in fields(Perplexity)))
        for of_lm in found:
            echo_fields(*(f"{value:.4f}" if isinstance(value, float) else value for value in astuple(of_lm)))
