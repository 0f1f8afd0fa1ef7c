"""``attlm score``: score raw text, line by line or word by word."""

from __future__ import annotations

from collections.abc import Iterator

import cloup

from attlm_cli.options import source_option
from attlm_cli.printing import echo_fields, lines_bar
from attlm_cli.run_options import run_options
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.text_file import ScoredLine
from attlm_fairseq.text.symbols import END
from attlm_fairseq.verbs.overwriting import check_files
from attlm_fairseq.verbs.text import score_text


@cloup.command("score")
@cloup.argument("text", help="A text, one sentence per line; - is standard input.")
@cloup.option("--words", "each_word", is_flag=True, help="Print one line per word and sentence end instead of one line per sentence.")
@cloup.option("--header/--no-header", default=True, show_default=True, help="Print the column names in a first line.")
@source_option
@run_options()
def score_command(text: str, each_word: bool, header: bool, source: str | None, run: RunConfig) -> None:
    """Score each line of TEXT (- is standard input) with each LM: natural-log probabilities. Blank lines are scored, too, except
    with --context blank.

    The output has tab-separated columns: line number, number of words, then two columns per LM. These are its score
    (summed over the words and the sentence end) and the number of words that it does not know.

    With --words, the columns are line number and word, then per LM the score of the word and whether it is unknown (1
    or 0).

    If LMs see different words, each has a third column with its own number of words, and the second column of the line
    counts the words as read.

    \b
    Examples:
      attlm score text.txt --lm checkpoint_best.pt --kenlm lm.arpa
      echo "a sentence" | attlm score - --kenlm lm.arpa --words
    """
    names, differ = list(run.texts), len(set(run.texts.values())) > 1
    if each_word and differ:
        raise InputError(f"--words needs LMs that see the same words; {', '.join(names)} do not: run it for each alone")
    check_files({"the text": [text], "the source": [source]})
    with lines_bar(text) as bar, whole_file("-") as out:  # a bad line leaves no part of a table
        scored = score_text(text, config=run, source=source, on_progress=bar.update)
        if header:
            columns = [column for name in names for column in (name, f"{name}_oov", *([f"{name}_tokens"] if differ else []))]
            echo_fields("line", "word" if each_word else "words", *columns, file=out)
        for line in scored.lines:
            for fields in words_of(line) if each_word else [sentence_of(line, differ)]:
                echo_fields(line.number, *fields, file=out)


def sentence_of(line: ScoredLine, differ: bool) -> list[object]:
    """Return the number of words of a line, then score and unknown words of each LM; if LMs ``differ``, also the words each saw."""
    counts = [(f"{score.total:.6f}", score.oov_count, *([score.words] if differ else [])) for score in line.scores]
    return [len(line.text.split() if differ else line.words[0]), *(value for of_lm in counts for value in of_lm)]


def words_of(line: ScoredLine) -> Iterator[list[object]]:
    """Yield each word of a line and its sentence end, with each LM's score and whether the word is unknown."""
    for place, word in enumerate([*line.words[0], END]):
        events = [(f"{score.log_probs[place]:.6f}", int((*score.oov, False)[place])) for score in line.scores]
        yield [word, *(value for of_lm in events for value in of_lm)]
