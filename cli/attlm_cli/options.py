"""Options that several commands share, in titled groups. Each option is declared once, and a group becomes one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import cloup

from attlm_cli.option_groups import grouped
from attlm_cli.types import GROUPS
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.numbers import LANGUAGE
from attlm_fairseq.nbest.formats import OWN_NAMES
from attlm_fairseq.nbest.line_matching import By
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG
from attlm_fairseq.scoring.compute import parse_device
from attlm_fairseq.verbs.references import ReferenceFiles
from attlm_fairseq.verbs.sources import SourceFile

format_option = cloup.option(
    "--format",
    "format_name",
    metavar="NAME",
    help=f"Format of the lists: {', '.join(OWN_NAMES)} (nemo:K and plain:K with the number of hypotheses), or that of "
    "an installed package. text is one text per line. Default: recognised by content.",
)
device_option = cloup.option(
    "--device",
    default="cpu",
    show_default=True,
    callback=lambda context, parameter, text: parse_device(text),
    help="Device that runs the LM: cpu, cuda, cuda:1.",
)
dictionary_option = cloup.option(
    "--dict",
    "dictionary",
    type=click.Path(path_type=Path),
    help="dict.txt of neural LMs. For translation models, the folder with both dictionaries. Default: looked "
    "for next to the checkpoint, then in its data folder.",
)
seed_option = cloup.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Random seed for intervals and p-values; in attlm tune also for the search.",
)
json_option = cloup.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
language_option = cloup.option(
    "--language", default=LANGUAGE, show_default=True, help="Language of spelled-out numbers: en, de, fr, .. (num2words codes)."
)
folds_by_option = cloup.option(
    "--folds-by",
    type=GROUPS,
    help="Keep the lists of a group, such as a document or a speaker, in one fold. id:REGEX: lists whose ids match with the same "
    "groups. file:FILE: lines of `list-id group`. Default: the lists of one utterance.",
)
draw_by_option = cloup.option(
    "--draw-by",
    type=GROUPS,
    help="Take the lists of a group, such as a document or a speaker, as one sample for intervals and p-values. id:REGEX: lists whose "
    "ids match with the same groups. file:FILE: lines of `list-id group`. Default: the conversations of --context, else the lists of "
    "one utterance.",
)
source_option = cloup.option(
    "--source",
    metavar="FILE",
    help="Source sentences of TEXT, one per line, for translation models (--mt).",
)


def _source_of_lists(source: str | None, source_by: By | None) -> SourceFile | None:
    if source_by and not source:
        raise InputError("--source-by is for --source: give it, or leave --source-by out")
    return SourceFile(source, source_by, "--source-by") if source else None


list_source_options = grouped(
    "Source sentences",
    "source",
    _source_of_lists,
    cloup.option(
        "--source",
        metavar="FILE",
        help="Source sentences, one per list, for translation models (--mt). All lists are then held in memory. "
        "Default: the source sentences in NBEST.",
    ),
    cloup.option(
        "--source-by",
        type=click.Choice(["order", "number", "id"], case_sensitive=False),
        help="How source lines are matched with lists. order: line i belongs to list i. number: a list's id is its "
        "line number, from 0. id: each line carries a list id. Default: id if every line carries the id of a "
        "list, else order; a file that may be either is refused.",
    ),
)


@dataclass(frozen=True)
class Results:
    """Where results go: ``report`` is the file of the HTML report or None; ``as_json`` prints JSON instead of a table."""

    report: str | None
    as_json: bool


result_options = grouped(
    "Results",
    "results",
    Results,
    cloup.option(
        "--report",
        metavar="FILE",
        help="Write a self-contained HTML page with the table, the weights, and the changed sentences, word by word.",
    ),
    json_option,
)
config_output_option = cloup.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="File to write. If it exists, it is updated, and then holds the LMs, text steps and weights of this "
    "run only. - is standard output; tables then go to standard error.",
)


def _references(refs: tuple[str, ...], refs_by: By | None, partial_refs: bool, source: str | None = None) -> ReferenceFiles:
    return ReferenceFiles(refs, refs_by, source, partial_refs)


_REFERENCES = (
    cloup.option(
        "--refs",
        multiple=True,
        metavar="FILE",
        help="References: one line per list, in the same order or with ids (Kaldi, sclite). Repeat the option for "
        "multiple references, of which blank ones are left out. A list whose references are all blank is silence. Default: the references "
        "in NBEST.",
    ),
    cloup.option(
        "--refs-by",
        type=click.Choice(["order", "number", "id"], case_sensitive=False),
        help="How reference lines are matched with lists. order: line i belongs to list i. number: a list's id is "
        "its line number, from 0, as in fairseq-generate. id: each line carries a list id ('id text' or 'text "
        "(id)'), and some lines may match no list. Default: id if every line carries the id of a list, else "
        "order; a file that may be either is refused.",
    ),
    cloup.option(
        "--partial-refs",
        is_flag=True,
        help="Leave out lists without a reference; a note says how many. With --refs, lists and lines are matched by id. "
        "Default: such lists are refused.",
    ),
)
reference_options = grouped("References", "refs", _references, *_REFERENCES)
measured_reference_options = grouped(
    "References",
    "refs",
    _references,
    *_REFERENCES,
    cloup.option(
        "--source",
        metavar="FILE",
        help="Source sentences, matched with lists as references are. They are for translation models (--mt) and "
        "for the first column of --metric external:COMMAND. Default: the source sentences in NBEST.",
    ),
)
