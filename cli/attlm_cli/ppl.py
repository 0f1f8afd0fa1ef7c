"""``attlm ppl``: compute the perplexity of raw text."""

from __future__ import annotations

from dataclasses import astuple, fields

import cloup

from attlm_cli.options import json_option, source_option
from attlm_cli.overwriting import check_files
from attlm_cli.printing import echo_fields, echo_json, lines_bar
from attlm_cli.run_options import run_options
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.text import Perplexity, perplexity


@cloup.command("ppl")
@cloup.argument("text", help="A text, one sentence per line; - is standard input.")
@json_option
@source_option
@run_options()
def ppl_command(text: str, as_json: bool, source: str | None, run: RunConfig) -> None:
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
    Example:
      attlm ppl test.txt --lm checkpoint_best.pt --kenlm lm.arpa
    """
    check_files({"the text": [text], "the source": [source]})
    with lines_bar(text) as bar:
        found = perplexity(text, config=run, source=source, on_progress=bar.update)
    if as_json:
        echo_json([of_lm.as_dict() for of_lm in found])
        return
    echo_fields(*(field.name for field in fields(Perplexity)))
    for of_lm in found:
        echo_fields(*(f"{value:.4f}" if isinstance(value, float) else value for value in astuple(of_lm)))
