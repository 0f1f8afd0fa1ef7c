"""``attlm sample``: sentences drawn from a neural language model."""

from __future__ import annotations

from pathlib import Path

import click

from attlm_cli.options import echo_fields, note
from attlm_fairseq.checkpoints.vocabulary import UNK
from attlm_fairseq.errors import require_utf8, visible
from attlm_fairseq.scoring.compute import parse_device


@click.command("sample")
@click.option("--lm", required=True, type=click.Path(path_type=Path), metavar="CHECKPOINT", help="Or a folder of attlm export.")
@click.option("-n", "--number", default=10, show_default=True, type=click.IntRange(min=0), help="How many sentences.")
@click.option("--prefix", default="", metavar="TEXT", help="The words that each sentence begins with.")
@click.option("--temperature", default=1.0, show_default=True, help="Below 1: likelier sentences; 0: always the likeliest word.")
@click.option("--top-k", default=0, show_default=True, help="Choose among the K likeliest words; 0: all.")
@click.option("--top-p", default=1.0, show_default=True, help="Choose among the fewest likeliest words with this probability together.")
@click.option("--max-words", default=100, show_default=True, help="Cut sentences after so many words.")
@click.option("--unknown/--no-unknown", default=False, show_default=True, help="Whether <unk> may be drawn.")
@click.option("--seed", default=1, show_default=True, help="Same seed, same sentences; more of them begin with the same.")
@click.option("--scores", is_flag=True, help="Tab-separated: natural-log probability, number of words, 1 if the sentence ended, sentence.")
@click.option(
    "--dict",
    "dictionary",
    type=click.Path(path_type=Path),
    help="dict.txt of the LM. Default: beside the checkpoint, then its data folder.",
)
@click.option("--device", default="cpu", show_default=True, help="Where the LM runs: cpu, cuda, cuda:1.")
def sample_command(
    lm: Path,
    number: int,
    prefix: str,
    temperature: float,
    top_k: int,
    top_p: float,
    max_words: int,
    unknown: bool,
    seed: int,
    scores: bool,
    dictionary: Path | None,
    device: str,
) -> None:
    """Draw sentences from a neural LM, one a line.

    With --scores each comes with the LM's own log-probability, whatever the temperature: that of `attlm score` for the line, or, where
    the sentence was cut, that of its words without the end.

    \b
    Example:
      attlm sample --lm checkpoint_best.pt -n 5 --temperature 0.8 --top-p 0.95 --prefix "the old"
    """
    from attlm_fairseq.decoding.decoder_lm import DecoderLM
    from attlm_fairseq.decoding.sampling import SamplingOptions, sample_sentences

    require_utf8(prefix, "--prefix")
    options = SamplingOptions(temperature, top_k, top_p, max_words, unknown)
    model = DecoderLM.load(lm, dictionary, parse_device(device))
    words = prefix.split()
    if missing := [word for word, token in zip(words, model.vocabulary.ids(words), strict=True) if token == UNK]:
        note(f"unknown to the LM, which reads <unk> in their place: {', '.join(map(visible, missing))}")
    for sample in sample_sentences(model, number, prefix=words, options=options, seed=seed):
        measures = (f"{sample.log_prob:.6f}", str(len(sample.words)), str(int(sample.ended))) if scores else ()
        echo_fields(*measures, " ".join(sample.words))
