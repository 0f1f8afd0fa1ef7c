"""``attlm combine``: join the n-best lists of several systems."""

from __future__ import annotations

import click
import cloup

from attlm_cli.options import format_option
from attlm_cli.types import NAMED_FILE
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.line_matching import By
from attlm_fairseq.verbs.combine import combine
from attlm_fairseq.verbs.lists import NbestFile
from attlm_fairseq.verbs.nbest_files import write_nbest
from attlm_fairseq.verbs.overwriting import check_files


@cloup.command("combine")
@cloup.argument("systems", type=NAMED_FILE, nargs=-1, required=True, help="N-best lists of two or more systems, each with a name.")
@cloup.option("-o", "--output", default="-", metavar="FILE", help="File to write (jsonl); - is standard output (default). .gz compresses.")
@format_option
@cloup.option(
    "--texts-by",
    type=click.Choice(["order", "number", "id"], case_sensitive=False),
    help="How lines of text are matched with the lists of the first system: as --refs-by of attlm eval. fairseq-generate needs number.",
)
def combine_command(systems: tuple[tuple[str, str], ...], output: str, format_name: str | None, texts_by: By | None) -> None:
    """Join the n-best lists of several systems for the same utterances, each given as NAME=FILE.

    Each list gets the hypotheses of all systems. The scores of the system NAME are called NAME_SCORE, and NAME_rank is
    minus the rank in its list. A hypothesis that a system does not have gets the system's lowest scores. The first
    system gives ids and order; references are those of the first system that has them. Others are matched by id if both
    have ids. Systems of one answer may be texts with one line per utterance.

    `attlm tune` then finds weights for all scores. Without tuning the systems vote: `attlm rescore both.jsonl --consensus`
    word by word (ROVER), --mbr wer for one of their texts. The score systems_vote decides: ln of the mean of the systems'
    posteriors, in proportion to exp(-rank).

    \b
    Examples:
      attlm combine whisper=a.json zipformer=b.jsonl -o both.jsonl
      attlm tune both.jsonl --refs dev.ref --kenlm lm.arpa --mbr wer
    """
    check_files({"the input": [file for _, file in systems]}, {"the output": output})
    by_name = {name: NbestFile(file, format_name) for name, file in systems}
    if len(by_name) < len(systems):
        raise InputError("two systems have the same name: name them apart")
    lists = combine(by_name, texts_by=texts_by)
    write_nbest(lists, output)
    note(f"{len(lists)} lists, {sum(len(nbest.hypotheses) for nbest in lists)} hypotheses")
