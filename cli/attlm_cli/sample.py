"""``attlm sample``: sentences drawn from a neural language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.options import device_option, dictionary_option, grouped
from attlm_cli.printing import echo_fields


def _sampling(**options: Any) -> Any:
    from attlm_fairseq.decoding.sampling import SamplingOptions  # here: torch takes seconds

    return SamplingOptions(**options)


sampling_options = grouped(
    "Which words",
    "options",
    _sampling,
    cloup.option("--temperature", default=1.0, show_default=True, help="Below 1: likelier sentences; 0: always the likeliest word."),
    cloup.option("--top-k", default=0, show_default=True, help="Choose among the K likeliest words; 0: all."),
    cloup.option("--top-p", default=1.0, show_default=True, help="Choose among the fewest likeliest words with this probability together."),
    cloup.option("--max-words", default=100, show_default=True, help="Cut sentences after so many words."),
    cloup.option("--unknown/--no-unknown", default=False, show_default=True, help="Whether <unk> may be drawn."),
)


@cloup.command("sample")
@cloup.option("--lm", required=True, type=click.Path(path_type=Path), metavar="CHECKPOINT", help="Or a folder of attlm export.")
@cloup.option("-n", "--number", default=10, show_default=True, type=click.IntRange(min=0), help="How many sentences.")
@cloup.option("--prefix", default="", metavar="TEXT", help="The words that each sentence begins with.")
@sampling_options
@cloup.option("--seed", default=1, show_default=True, help="Same seed, same sentences; more of them begin with the same.")
@cloup.option("--scores", is_flag=True, help="Tab-separated: natural-log probability, number of words, 1 if the sentence ended, sentence.")
@dictionary_option
@device_option
def sample_command(lm: Path, number: int, prefix: str, options: Any, seed: int, scores: bool, dictionary: Path | None, device: str) -> None:
    """Draw sentences from a neural LM, one per line.

    With --scores each comes with the LM's own log-probability, whatever the temperature: that of `attlm score` for the line, or, if
    the sentence was cut, that of its words without the end.

    \b
    Example:
      attlm sample --lm checkpoint_best.pt -n 5 --temperature 0.8 --top-p 0.95 --prefix "the old"
    """
    from attlm_fairseq.verbs.sample import sample

    for drawn in sample(lm, number, prefix, options=options, seed=seed, dictionary=dictionary, device=device):
        measures = (f"{drawn.log_prob:.6f}", len(drawn.words), int(drawn.ended)) if scores else ()
        echo_fields(*measures, " ".join(drawn.words))
