"""``attlm lattices``: make n-best lists from word lattices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import cloup

from attlm_cli.types import WEIGHT
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.verbs.lattices import HYPOTHESES, lists_from_lattices
from attlm_fairseq.verbs.nbest_files import write_nbest
from attlm_fairseq.verbs.overwriting import check_files


@cloup.command("lattices")
@cloup.argument("lattices", nargs=-1, required=True, help="Files or folders with lattices of Kaldi or in HTK's format (SLF).")
@cloup.option("-o", "--output", default="-", metavar="FILE", help="File to write (jsonl); - is standard output (default). .gz compresses.")
@cloup.option("-n", "--hypotheses", type=int, default=HYPOTHESES, show_default=True, help="Size of the lists.")
@cloup.option(
    "--words",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Kaldi's words.txt, for lattices with numbers for words, as binary ones are.",
)
@cloup.option(
    "--weight",
    "weights",
    multiple=True,
    type=WEIGHT,
    help="Weight of a score, or of words, that decides which texts are the best. Repeatable. Default: 1 graph + 0.1 acoustic "
    "for Kaldi, the scales of the header for SLF.",
)
@cloup.option("--leave-out", metavar="WORD,..", default="", help="Words that are no part of a text: SIL,[noise]. Their scores count.")
@cloup.option(
    "--frame-shift",
    type=float,
    metavar="SECONDS",
    help="Seconds of a frame in Kaldi's lattices, such as 0.03: gives words times (exact after lattice-align-words). SLF has its own.",
)
def lattices_command(
    lattices: tuple[str, ...],
    output: str,
    hypotheses: int,
    words: Path | None,
    weights: tuple[tuple[str, float], ...],
    leave_out: str,
    frame_shift: float | None,
) -> None:
    """Make n-best lists from LATTICES: the best texts of each lattice, exactly, each text once.

    The texts get the scores of the lattice as separate scores, so that `attlm tune` can weigh them. Lattices of Kaldi are read
    as its decoders write them (lat.1.gz) or as text, without Kaldi.

    \b
    Examples:
      attlm lattices exp/decode_dev/lat.*.gz --words exp/graph/words.txt -n 200 -o dev.jsonl
      attlm lattices slf/ --leave-out 'SIL,[noise]' -o dev.jsonl
      attlm tune dev.jsonl --refs dev.ref --kenlm lm.arpa
    """
    check_files({"the input": list(lattices), "--words": [words]}, {"the output": output}, folders=True)
    left_out = [word.strip() for word in leave_out.split(",") if word.strip()]
    counts = [0, 0]
    lists = lists_from_lattices(
        lattices, words=words, hypotheses=hypotheses, weights=dict(weights), leave_out=left_out, frame_shift=frame_shift
    )
    write_nbest(_counted(lists, counts), output)
    note(f"{counts[0]} lists, {counts[1]} hypotheses")


def _counted(lists: Iterable[NbestList], counts: list[int]) -> Iterator[NbestList]:
    for nbest in lists:
        counts[0] += 1
        counts[1] += len(nbest.hypotheses)
        yield nbest
