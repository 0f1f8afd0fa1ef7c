"""``attlm attention``: what the memory of a model reads, as a picture, a page, numbers or highlighted words."""

from __future__ import annotations

import sys

import click

from attlm_cli.options import FiniteRange, Setup, given_option, lm_options, note, progress, warn_of_oov, worth_counting
from attlm_cli.overwriting import check_outputs
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.text import remarks


@click.command("attention")
@click.argument("sentence", required=False)
@click.option("--file", "path", metavar="TEXT", help="Instead of SENTENCE, a text, a sentence a line (- is standard input).")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FILE",
    help="A file in .png .svg .pdf .html .json or .tsv (- is a table). Repeatable.",
)
@click.option(
    "--highlight",
    "threshold",
    type=FiniteRange(0, 1, min_open=True),
    metavar="THRESHOLD",
    help="Print the text before each prediction and highlight what it reads with this weight or more.",
)
@click.option("--sentences", "examples", default=10, show_default=True, type=click.IntRange(0), help="With --file: heat maps in the .html.")
@lm_options
def attention_command(
    sentence: str | None, path: str | None, outputs: tuple[str, ...], threshold: float | None, examples: int, setup: Setup
) -> None:
    """Show which earlier states the LM reads for each prediction of SENTENCE, and how much of each.

    Inputs are across, predicted words down, as in Salton et al. (2017), Figures 2 and 3. A state is named after the
    word that was read last. <s> is the sentence start, h_0 the LSTM's initial state.

    With --file, the mean over a text by distance (Daniluk et al. 2017, Figure 3b): 1 is the state before the current
    one. A prediction with no state that far back in memory does not count there. Columns: predictions that count,
    their mean weight, the mean had all states in memory been read alike, share of all attention. In .jsonl, the
    weights of every sentence.

    Without -o and --highlight, a table is printed.

    \b
    Examples:
      attlm attention "the cat sat on the mat" --lm checkpoint_best.pt -o plot.png -o plot.html
      attlm attention "the cat sat on the mat" --lm checkpoint_best.pt --highlight 0.3
      attlm attention --file test.txt --lm checkpoint_best.pt -o distance.png
    """
    if (sentence is None) == (path is None) or sentence == "-":
        raise InputError("give one of: a sentence in quotes, or --file TEXT (- is standard input); see `attlm attention --help`")
    if option := given_option("precision", "oov", "memory"):
        raise InputError(
            f"{option} changes nothing here: attention is computed in float32, a block of lines at a time, and unknown words are <unk>"
        )
    check_outputs({"the output": outputs}, {"the input": [path]}, setup.config)
    from attlm_fairseq.attention.show import Shower
    from attlm_fairseq.scoring.text_file import count_lines

    outputs = outputs or (("-",) if threshold is None else ())
    marked = {"marked": click.style("{word}", reverse=True)} if sys.stdout.isatty() else {}
    lm = the_lm(setup.config)
    text = (setup.config.text if lm.text is None else lm.text).load()
    for line in remarks([text]):
        note(line)
    [trained] = lm.load(setup.the_compute()).models
    shower = Shower(trained, text, outputs, threshold, click.echo, note, **marked)
    if path is None:
        warn_of_oov([shower.show_sentence(sentence)])
        return
    with progress("lines", count_lines(path) if worth_counting(path) else None) as bar:
        oov = shower.show_text(path, examples, bar.update)
    warn_of_oov([oov])


def the_lm(config: RunConfig) -> LMSpec:
    """The one neural LM with one checkpoint that was given. Raises InputError."""
    neural = [lm for lm in config.lms if lm.checkpoints]
    if not neural:
        given = f"; an n-gram LM ({config.lms[0].name}) has no attention weights" if config.lms else ""
        raise InputError(f"no neural LM given: use --lm CHECKPOINT{given}")
    checkpoints = [str(checkpoint) for lm in neural for checkpoint in lm.checkpoints]
    if len(checkpoints) > 1:
        raise InputError(
            f"the attention of one model is shown, {len(checkpoints)} are given: choose one with --lm, such as --lm {checkpoints[0]}"
        )
    return neural[0]
