"""``attlm blank``: make a cloze test of a text."""

from __future__ import annotations

import click
import cloup

from attlm_fairseq.cloze.blanking import BlankingOptions
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.verbs.cloze import make_cloze
from attlm_fairseq.verbs.overwriting import check_files

DEFAULT = BlankingOptions()


@cloup.command("blank")
@cloup.argument("text", help="A text, one sentence per line; - is standard input.")
@cloup.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="File to write; - is standard output.")
@cloup.option("--questions", type=click.IntRange(0), default=DEFAULT.questions, show_default="all", help="Maximum number of questions.")
@cloup.option("--context", type=click.IntRange(1), default=DEFAULT.context, show_default=True, help="Sentences before each query.")
@cloup.option("--candidates", type=click.IntRange(2), default=DEFAULT.candidates, show_default=True, help="Candidates of each question.")
@cloup.option("--seed", type=click.IntRange(0), default=DEFAULT.seed, show_default=True, help="Seed for the choice of the words.")
def blank_command(text: str, output: str, **options: int) -> None:
    """Make a cloze test of TEXT (- is standard input), in the format of the Children's Book Test.

    Of every 21 sentences (one more than --context) the last is the query. A word of it is left out that consists of
    letters, occurs once in it and also in the context, and is not one of the 100 most frequent words of TEXT. The other
    candidates are the words of the context with the most similar frequency. Blank lines end documents; a question lies
    in one document.

    \b
    Example:
      attlm blank test.txt --questions 500 -o questions.txt
    """
    check_files({"the text": [text]}, {"the output": output})
    made = make_cloze(text, BlankingOptions(**options))
    with whole_file(output) as file:
        file.writelines(map(str, made))
    note(f"{len(made)} questions")
