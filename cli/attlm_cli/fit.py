"""``attlm fit``: fit the temperature and the caches of LMs on a text, and write them to attlm.toml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import cloup

from attlm_cli.checks import warn_of_unused
from attlm_cli.options import config_output_option
from attlm_cli.printing import echo_table, this_command
from attlm_cli.run_options import run_options
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import context_to_write
from attlm_fairseq.verbs.fit import FINDABLE, SETTINGS, WHOLE_TEXT, fit_context
from attlm_fairseq.verbs.overwriting import check_files


@cloup.command("fit")
@cloup.argument("text", help="A text that no LM was trained on, one sentence per line; - is standard input.")
@cloup.option(
    "--find",
    multiple=True,
    type=click.Choice(FINDABLE, case_sensitive=False),
    default=("temperature", "neural-cache"),
    show_default=True,
    help="What to fit. Repeatable.",
)
@cloup.option(
    "--lines",
    type=click.IntRange(min=1),
    help="Maximum number of lines of TEXT to use. Default: all. Temperature and "
    "adaptation, and caches of an LM that adapts, use at most 400 of them, from everywhere in TEXT.",
)
@config_output_option
@run_options()
def fit_command(text: str, find: tuple[str, ...], lines: int | None, output: Path, run: RunConfig) -> None:
    """Fit temperature, caches and dynamic evaluation of each LM, so that TEXT (- is standard input) is most probable.

    --context says how far back the caches reach; without it TEXT is one document. The command prints the perplexity
    with each setting found, over the words and sentence ends of TEXT or, where the row says so, of so many of its lines;
    measure another text with `attlm ppl`. A cache or an adaptation that does not help is not written.

    \b
    Examples:
      attlm fit valid.txt --lm checkpoint_best.pt --context blank
      attlm fit valid.txt --kenlm lm.arpa --find unigram-cache
    """
    check_files({"the text": [text]}, {"the output": output}, run)
    warn_of_unused(output, replace(run, context=context_to_write(run) or WHOLE_TEXT), of_lms=tuple(SETTINGS[name] for name in find))
    fitted = fit_context(text, config=run, find=find, lines=lines)
    fitted.save(output, this_command())
    echo_table(fitted, output)  # last: a reader such as `head` may close the pipe before the table ends
