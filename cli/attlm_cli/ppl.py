"""``attlm ppl``: perplexity of raw text."""

from __future__ import annotations

import math

import click

from attlm_cli.options import Setup, lm_options, progress, say_notes, warn_of_oov, warn_of_penalties, worth_counting
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.scoring.perplexity import PerplexityCounter
from attlm_fairseq.scoring.text_file import count_lines, score_text


@click.command("ppl")
@click.argument("text")
@lm_options
def ppl_command(text: str, setup: Setup) -> None:
    """Perplexity of TEXT (- is standard input), a sentence a line, blank ones included, for each LM.

    \b
    ppl              every word and every sentence end is predicted and counted
    ppl_salton2017   the first event of each sentence is counted but not predicted, as in the code
                     behind Salton et al. (2017): lower, and comparable with their figures only
    ppl_without_oov  unknown words are neither predicted nor counted
    ppl_as_read      ppl shared by the white-space words of TEXT as it stands: compares LMs that see other
                     words or subwords, as long as nothing is removed

    A line ends at a line feed alone. A carriage return elsewhere is white space here, but ends a line for fairseq-preprocess: take
    such out of the text, or fairseq counts more sentences.

    \b
    Example:
      attlm ppl test.txt --lm checkpoint_best.pt --kenlm lm.arpa
    """
    scorers = setup.load()
    counters = [PerplexityCounter() for _ in scorers]
    words_read = 0
    with progress("lines", count_lines(text) if worth_counting(text) else None) as bar:
        result = score_text(text, scorers, setup.texts, bar.update)
        for number, line in enumerate(result.lines, 1):
            words_read += len(line.text.split())
            for scorer, counter, score in zip(scorers, counters, line.scores, strict=True):
                if not math.isfinite(score.total):
                    raise InputError(
                        f"score {scorer.name!r} is {score.total}, expected a finite number: an LM that gives a word probability 0 has no "
                        "perplexity; take out the -inf of its ARPA file",
                        path=text,
                        line=number,
                    )
                counter.add(score)
    click.echo("lm\tppl\tppl_salton2017\tppl_without_oov\tsentences\twords\toov\tppl_as_read")
    for scorer, found in zip(scorers, counters, strict=True):
        click.echo(
            f"{scorer.name}\t{found.ppl:.4f}\t{found.ppl_salton2017:.4f}\t{found.ppl_without_oov:.4f}"
            f"\t{found.sentences}\t{found.words}\t{found.oov}\t{found.ppl_as_read(words_read):.4f}"
        )
    say_notes(scorers)
    warn_of_oov(result.oov, BlockScorer(scorers, setup.texts).advise)
    warn_of_penalties(setup)
