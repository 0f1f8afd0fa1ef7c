"""``attlm sample``: draw sentences from a neural language model."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from attlm_cli.option_groups import grouped
from attlm_cli.options import device_option, dictionary_option
from attlm_cli.printing import echo_fields
from attlm_fairseq.decoding.sampling_options import SamplingOptions

sampling_options = grouped(
    "Sampling",
    "options",
    SamplingOptions,
    cloup.option(
        "--temperature",
        default=SamplingOptions.temperature,
        show_default=True,
        help="Softmax temperature. Below 1, sentences are more probable; 0 always takes the most probable word.",
    ),
    cloup.option(
        "--top-k", default=SamplingOptions.top_k, show_default=True, help="Draw only from the K most probable words; 0: from all."
    ),
    cloup.option(
        "--top-p",
        default=SamplingOptions.top_p,
        show_default=True,
        help="Draw only from the smallest set of most probable words that have at least this share of what --top-k leaves.",
    ),
    cloup.option(
        "--max-words", default=SamplingOptions.max_words, show_default=True, help="Maximum number of words; longer sentences are cut."
    ),
    cloup.option("--unknown/--no-unknown", default=SamplingOptions.unknown, show_default=True, help="Whether <unk> may be drawn."),
)


@cloup.command("sample")
@cloup.option(
    "--lm",
    required=True,
    type=click.Path(path_type=Path),
    metavar="CHECKPOINT",
    help="A checkpoint of fairseq-train or a folder of attlm export.",
)
@cloup.option("-n", "--number", default=10, show_default=True, type=click.IntRange(min=0), help="Number of sentences.")
@cloup.option("--prefix", default="", metavar="TEXT", help="Words that each sentence begins with.")
@sampling_options
@cloup.option(
    "--seed",
    default=1,
    show_default=True,
    type=click.IntRange(-(2**63), 2**63 - 1),
    help="Random seed. The same seed gives the same sentences; a larger --number only adds more.",
)
@cloup.option(
    "--scores",
    is_flag=True,
    help="Print tab-separated columns: natural-log probability, number of words, 1 if the sentence ended or 0 if it was cut, sentence.",
)
@dictionary_option
@device_option
def sample_command(
    lm: Path, number: int, prefix: str, options: SamplingOptions, seed: int, scores: bool, dictionary: Path | None, device: str
) -> None:
    """Draw sentences from a neural LM, one per line.

    --scores prints each sentence's log-probability as `attlm score` computes it, whatever the --temperature. For a
    sentence that was cut, it covers the words without the sentence end.

    \b
    Example:
      attlm sample --lm checkpoint_best.pt -n 5 --temperature 0.8 --top-p 0.95 --prefix "the old"
    """
    from attlm_fairseq.verbs.sample import sample

    for drawn in sample(lm, number, prefix, options=options, seed=seed, dictionary=dictionary, device=device):
        measures = (f"{drawn.log_prob:.6f}", len(drawn.words), int(drawn.ended)) if scores else ()
        echo_fields(*measures, " ".join(drawn.words))
