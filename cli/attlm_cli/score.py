"""``attlm score``: log-probabilities of raw text, line by line or word by word."""

from __future__ import annotations

import click

from attlm_cli.options import Setup, echo_fields, lm_options, progress, say_notes, warn_of_oov, worth_counting
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.scoring.text_file import count_lines, score_text


@click.command("score")
@click.argument("text")
@click.option("--words", "each_word", is_flag=True, help="One line for each word and sentence end instead of one for each sentence.")
@click.option("--header/--no-header", default=True, show_default=True, help="Name the columns in a first line.")
@lm_options
def score_command(text: str, each_word: bool, header: bool, setup: Setup) -> None:
    """Natural-log probability of each line of TEXT (- is standard input), a sentence a line, blank ones included.

    Tab-separated columns: line number, number of words, and for each LM its score (summed over the words and the
    sentence end) and the number of words it does not know. With --words: line number, word, and for each LM the
    word's score and whether it is unknown (1 or 0). Where LMs see different words, each has its own number of words
    in a third column, and the common one counts the words as read.

    \b
    Examples:
      attlm score text.txt --lm checkpoint_best.pt --kenlm lm.arpa
      echo "a sentence" | attlm score - --kenlm lm.arpa --words
    """
    scorers = setup.load()
    names = [scorer.name for scorer in scorers]
    differ = len(set(setup.texts)) > 1
    if each_word and differ:
        raise InputError(f"--words needs LMs that see the same words; {', '.join(names)} do not: run it for each alone")
    if header:
        columns = [column for name in names for column in (name, f"{name}_oov", *([f"{name}_tokens"] if differ else []))]
        echo_fields("line", "word" if each_word else "words", *columns)
    with progress("lines", count_lines(text) if worth_counting(text) else None) as bar:
        result = score_text(text, scorers, setup.texts, bar.update)
        for number, line in enumerate(result.lines, 1):
            if not each_word:
                values = [
                    value
                    for score in line.scores
                    for value in (f"{score.total:.6f}", str(score.oov_count), *([str(score.words)] if differ else []))
                ]
                echo_fields(str(number), str(len(line.text.split() if differ else line.words[0])), *values)
                continue
            for place, word in enumerate([*line.words[0], "</s>"]):
                values = [
                    value for score in line.scores for value in (f"{score.log_probs[place]:.6f}", str(int((*score.oov, False)[place])))
                ]
                echo_fields(str(number), word, *values)
    say_notes(scorers)
    warn_of_oov(result.oov, BlockScorer(scorers, setup.texts).advise)
