"""``attlm mix``: estimate the weights of a linear mixture of LMs by EM on a text, and write them to attlm.toml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cloup

from attlm_cli.checks import warn_of_unused
from attlm_cli.options import config_output_option, source_option
from attlm_cli.printing import echo_table, lines_bar, this_command
from attlm_cli.run_options import run_options
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import context_to_write
from attlm_fairseq.verbs.mixture import estimate_mixture
from attlm_fairseq.verbs.overwriting import check_files


@cloup.command("mix")
@cloup.argument("text", help="A text that no LM was trained on, one sentence per line; - is standard input.")
@cloup.option("--name", default="mix", show_default=True, help="Name of the mixture.")
@config_output_option
@source_option
@run_options()
def mix_command(text: str, name: str, output: Path, source: str | None, run: RunConfig) -> None:
    """Estimate the weights of a linear mixture of LMs, p(w | h) = sum of weight * p_lm(w | h), and write them to attlm.toml.

    The weights make TEXT most probable. TEXT has one sentence per line and must not be training text of the LMs. EM
    runs until no weights can improve the perplexity by more than a millionth. The command prints the perplexity of each
    LM, then perplexity and weights of iterations 0, 1, 2, 4, 8, .. and the last, all on TEXT; measure another text with
    `attlm ppl`. In attlm.toml the mixture then replaces its LMs.

    If an LM has the OOV policy unk, words unknown to all LMs do not count for the weights: one LM may give p(<unk>) to
    all unknown words together and another to each, so these probabilities cannot be compared. The perplexities of the
    iterations leave such words out, too, and therefore never rise. All other perplexities include them.

    \b
    Example:
      attlm mix valid.txt --lm neural=checkpoint_best.pt --kenlm ngram=lm.arpa
    """
    check_files({"the text": [text], "the source": [source]}, {"the output": output}, run)
    warn_of_unused(output, replace(run, context=context_to_write(run)), found=(f"[lm.{name}]",))
    with lines_bar(text) as bar:
        mixture = estimate_mixture(text, name=name, config=run, source=source, on_progress=bar.update)
    mixture.save(output, this_command())
    echo_table(mixture, output)  # last: a reader such as `head` may close the pipe before the table ends
