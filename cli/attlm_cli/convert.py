"""``attlm convert``: convert n-best lists to another format."""

from __future__ import annotations

import click
import cloup

from attlm_cli.options import format_option
from attlm_cli.overwriting import check_files
from attlm_fairseq.messages import note
from attlm_fairseq.verbs.convert import TARGETS, convert
from attlm_fairseq.verbs.inputs import NbestFile


@cloup.command("convert")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@cloup.option(
    "-o", "--output", default="-", metavar="FILE", help="New file or folder to write; - is standard output (default). .gz compresses."
)
@format_option
@cloup.option("--to", type=click.Choice(TARGETS, case_sensitive=False), required=True, help="Format to write.")
def convert_command(nbest: str, output: str, format_name: str | None, to: str) -> None:
    """Convert the lists of NBEST to another format.

    One line on standard error names each kind of information that the new format cannot hold. Existing files are never
    overwritten. The formats espnet and srilm are folders; kaldi is a folder if the output name ends in /.

    \b
    Examples:
      attlm convert whisper.json -o lists.jsonl --to jsonl
      attlm convert nbest.csv -o nbest.moses.gz --to moses
      attlm convert lists.jsonl -o kaldi/ --to kaldi
    """
    check_files({"the input": [nbest]}, {"the output": output.rstrip("/") or output})
    found = convert(NbestFile(nbest, format_name), output, to)
    note(f"{found.list_count} lists, {found.hypothesis_count} hypotheses")
