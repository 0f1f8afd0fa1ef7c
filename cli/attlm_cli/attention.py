"""``attlm attention``: show what the memory of a model reads, as a picture, a page, numbers or highlighted words."""

from __future__ import annotations

import os
import sys

import click
import cloup

from attlm_cli.option_groups import given_option
from attlm_cli.printing import lines_bar
from attlm_cli.run_options import run_options
from attlm_cli.types import FILES, FiniteRange
from attlm_fairseq.attention.output import AttentionOutput
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.overwriting import check_files


@cloup.command("attention")
@cloup.argument("sentence", required=False, help="A sentence in quotes.")
@cloup.option("--file", "path", metavar="TEXT", help="A text to analyse instead of SENTENCE, one sentence per line (- is standard input).")
@cloup.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FILE",
    help="File to write: .png, .svg, .pdf, .html, .json or .tsv, with --file also .jsonl (- prints a table). Repeatable.",
)
@cloup.option(
    "--highlight",
    "threshold",
    type=FiniteRange(0, 1, min_open=True),
    metavar="THRESHOLD",
    help="Print the text read before each prediction, with the words highlighted whose weight is at least THRESHOLD. Predictions "
    "without such words are left out.",
)
@cloup.option(
    "--against",
    type=FILES,
    help="Another LM of the same words. Print the sentences of --file that improved most over it.",
)
@cloup.option(
    "--sentences",
    "--top",
    "examples",
    default=AttentionOutput.examples,
    show_default=True,
    type=click.IntRange(0),
    help="Number of sentences of --file that get a heat map in the .html: the first, or those that --against prints.",
)
@cloup.option("--contributions", is_flag=True, help="Also show the share of each input in the cell of the LSTM's last layer.")
@run_options(scores=False)
def attention_command(
    sentence: str | None,
    path: str | None,
    outputs: tuple[str, ...],
    threshold: float | None,
    against: tuple[str, ...] | None,
    examples: int,
    contributions: bool,
    run: RunConfig,
) -> None:
    """Show which earlier states the LM reads for each prediction of SENTENCE, and with what weight.

    Pictures show the inputs across and the predicted words down, as in Salton et al. (2017), Figures 2 and 3. A state
    has the name of the last word read before it. <s> is the sentence start, h_0 the initial state of the LSTM.

    With --file, the weights are averaged over a text by distance (Daniluk et al. 2017, Figure 3b). Distance 1 is the
    state before the current one. A prediction counts for a distance only if a state that far back is in memory.
    Columns: number of predictions that count, their mean weight, the mean weight under uniform attention, share of all
    attention.
    A .jsonl file holds the weights of every sentence.

    With --against, the sentences are printed whose perplexity is lowest relative to that of the other LM, as Liu et al.
    (2016) chose those of their Figure 2. Columns: line, gain (natural log per word and sentence end), the two
    perplexities, sentence. Sentences with words that only one LM knows are left out.

    With --contributions, each input's share of the LSTM's cell (Salton and Kelleher 2018, Eq. 7) is written next to the
    weights; not into pictures of a sentence. With --file, it is printed whether attended inputs have larger shares than
    the average input at their place and distance.

    Without -o, --highlight and --against, the command prints a table.

    \b
    Examples:
      attlm attention "the cat sat on the mat" --lm checkpoint_best.pt -o plot.png -o plot.html
      attlm attention "the cat sat on the mat" --lm checkpoint_best.pt --highlight 0.3
      attlm attention --file test.txt --lm checkpoint_best.pt -o distance.png
      attlm attention --file test.txt --lm checkpoint_best.pt --against plain.pt --top 10 --highlight 0.3
    """
    if (sentence is None) == (path is None) or sentence == "-":
        raise InputError("give one of: a sentence in quotes, or --file TEXT (- is standard input); see `attlm attention --help`")
    if sentence is not None and len(sentence.split()) == 1 and os.path.isfile(sentence):  # noqa: PTH113 - the other way raises for a long sentence
        raise InputError(f"{sentence!r} is the name of a file: --file {sentence} shows its text, a space behind it the word")
    if sentence is not None and (option := given_option("examples")):
        raise InputError(f"{option} is for the sentences of --file TEXT, not for one sentence")
    if not (against or any(output.lower().endswith(".html") for output in outputs)) and (option := given_option("examples")):
        raise InputError(f"{option} is for an .html and for --against, none of which is given")
    check_files({"the input": [path], "the other LM": against or ()}, {"the output": outputs}, run)
    from attlm_fairseq.verbs.attention import show_attention

    marked = {"marked": click.style("{word}", reverse=True)} if sys.stdout.isatty() else {}
    files = outputs or (("-",) if threshold is None and against is None else ())
    output = AttentionOutput(files, threshold, examples, click.echo, contributions=contributions, **marked)
    with lines_bar("-" if path is None else path) as bar:
        show_attention(sentence, file=path, against=against, config=run, output=output, on_progress=bar.update)
