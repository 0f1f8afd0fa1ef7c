"""``attlm fit``: the temperature and the caches of LMs, found on a text, written to attlm.toml."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from attlm_cli.options import config_output_option, warn_of_unused
from attlm_cli.overwriting import check_outputs
from attlm_cli.printing import echo_fields, this_command
from attlm_cli.run_options import run_options
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.fit import FINDABLE, fit_context


@cloup.command("fit")
@cloup.argument("text", help="A text that no LM was trained on, one sentence per line; - is standard input.")
@cloup.option(
    "--find",
    multiple=True,
    type=click.Choice(FINDABLE, case_sensitive=False),
    default=("temperature", "neural-cache"),
    show_default=True,
    help="What to find. Repeatable.",
)
@cloup.option("--lines", type=click.IntRange(min=1), help="Use at most so many lines of TEXT. Default: all.")
@config_output_option
@run_options()
def fit_command(text: str, find: tuple[str, ...], lines: int | None, output: Path, run: RunConfig) -> None:
    """Find the softmax temperature and the caches under which TEXT (- is standard input) is most probable, for each LM.

    Caches reach back over sentences as --context says; without it TEXT is one document. Printed are the perplexities
    over all words and sentence ends, without and with each cache. A cache that does not help is not written.

    \b
    Examples:
      attlm fit valid.txt --lm checkpoint_best.pt --context blank
      attlm fit valid.txt --kenlm lm.arpa --find unigram-cache
    """
    check_outputs({"the output": output}, {"the text": [text]}, run)
    warn_of_unused(output, run, found=tuple(f"[lm.{lm.name}]" for lm in run.lms))
    fitted = fit_context(text, config=run, find=find, lines=lines)
    echo_fields("lm", "setting", "ppl")
    for row in fitted.rows:
        echo_fields(row.lm, row.setting, f"{row.ppl:.4f}")
    fitted.save(output, this_command())
