"""``attlm convert``: convert n-best lists to another format."""

from __future__ import annotations

import click
import cloup

from attlm_cli.metric_options import once
from attlm_cli.options import format_option
from attlm_cli.types import NAMED_FILE, STEPS
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import FORMATS
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.verbs.convert import TARGETS, convert, convert_parts
from attlm_fairseq.verbs.lists import NbestFile
from attlm_fairseq.verbs.overwriting import check_files, files_of_steps


@cloup.command("convert")
@cloup.argument("nbest", nargs=-1, required=True, help="N-best lists; - is standard input. Several files or folders are joined.")
@cloup.option(
    "-o", "--output", default="-", metavar="FILE", help="New file or folder to write; - is standard output (default). .gz compresses."
)
@format_option
@cloup.option(
    "--to",
    type=click.Choice(tuple(dict.fromkeys((*TARGETS, *FORMATS))), case_sensitive=False),
    help="Format to write. Default: the end of FILE's name, if that is the name of a format, as in lists.csv or lists.moses.gz.",
)
@cloup.option(
    "--text",
    type=STEPS,
    multiple=True,
    callback=once,
    help="Text steps for hypotheses and references, such as join-subwords:bpe,detokenize:en. The lists are then new ones.",
)
@cloup.option(
    "--scores",
    type=NAMED_FILE,
    multiple=True,
    help="Add the score NAME from FILE, which has one number per line, larger is better: one for each hypothesis, in the order of the "
    "lists. Numbers are taken as they are: LM scores in log10, as SRILM writes them, need a weight 2.303 times as large. Repeatable.",
)
@cloup.option("--prefix-ids", is_flag=True, help="Put the name of its file and a dash before each id, if files share ids.")
def convert_command(
    nbest: tuple[str, ...],
    output: str,
    format_name: str | None,
    to: str | None,
    text: TextPipeline,
    scores: tuple[tuple[str, str], ...],
    prefix_ids: bool,
) -> None:
    """Convert the lists of NBEST to another format.

    One line on standard error names each kind of information that the new format cannot hold. Existing files are never
    overwritten. The formats espnet and srilm are folders; kaldi is a folder if the output name ends in / or the lists
    come from one. Several inputs become one output; a list without an id that is alone in its file gets the file's name.

    \b
    Examples:
      attlm convert whisper.json -o lists.jsonl
      attlm convert nbest.csv -o nbest.moses.gz
      attlm convert lists.jsonl -o kaldi/ --to kaldi
      attlm convert rescored.out --to 1best --text join-subwords:bpe,detokenize:en
      attlm convert dev.nbest -o dev.scored.jsonl --scores qe=dev.qe.txt
      attlm convert decode/logdir/output.* -o lists.jsonl
    """
    inputs = {"the input": list(nbest), "a file of --scores": [file for _, file in scores]}
    check_files({**inputs, "a step of --text": files_of_steps(text)}, {"the output": output.rstrip("/") or output}, folders=True)
    if len(by_name := dict(scores)) < len(scores):
        raise InputError("--scores: two scores have the same name: name them apart")
    files = [NbestFile(path, format_name) for path in nbest]
    if len(files) == 1 and not prefix_ids:
        found = convert(files[0], output, to, text=text, scores=by_name)
    else:
        found = convert_parts(files, output, to, text=text, scores=by_name, prefix_ids=prefix_ids)
    note(f"{found.list_count} lists, {found.hypothesis_count} hypotheses")
