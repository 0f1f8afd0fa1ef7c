"""Options that several commands share, in titled groups: each option is declared once, and a group becomes one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.types import STEPS, MetricName
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.external_metric import PREFIX
from attlm_fairseq.nbest.formats import FORMATS
from attlm_fairseq.nbest.metrics import Metric, make_metric
from attlm_fairseq.nbest.references import By
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG, unused
from attlm_fairseq.scoring.compute import parse_device
from attlm_fairseq.text import TextPipeline, remarks
from attlm_fairseq.verbs.inputs import ReferenceFiles, SourceFile

Decorator = Callable[[Callable], Callable]


def grouped(title: str, name: str, build: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator: a titled group of options, which the command gets as one value ``name``, what ``build`` makes of theirs."""

    def decorate(command: Callable) -> Callable:
        @wraps(command)
        def wrapper(**given: Any) -> Any:
            return command(**{name: build(**{own: given.pop(own) for own in names})}, **given)

        before = _parameters(command)
        decorated = cloup.option_group(title, *options)(wrapper)
        names = [name for name in _parameters(decorated) if name not in before]
        return decorated

    return decorate


def _parameters(command: Callable) -> list[str]:
    """The names of the options that decorators have given a function so far, as click keeps them."""
    return [parameter.name for parameter in getattr(command, "__click_params__", [])]


def given_option(*names: str) -> str | None:
    """Return the first option among the parameters ``names`` of this command that the user gave, as it is written; None for none."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) == click.core.ParameterSource.COMMANDLINE:
            return "/".join([*parameter.opts[:1], *parameter.secondary_opts[:1]])
    return None


format_option = cloup.option(
    "--format",
    "format_name",
    metavar="NAME",
    help=f"Format of NBEST: {', '.join(sorted(FORMATS))} (nemo:BEAM with its beam size). Default: recognised by its content.",
)

device_option = cloup.option(
    "--device",
    default="cpu",
    show_default=True,
    callback=lambda context, parameter, text: parse_device(text),
    help="Where the LM runs: cpu, cuda, cuda:1.",
)

dictionary_option = cloup.option(
    "--dict",
    "dictionary",
    type=click.Path(path_type=Path),
    help="dict.txt of neural LMs; the folder with both dictionaries of translation models. Default: next to the checkpoint, then its data "
    "folder.",
)

seed_option = cloup.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Random seed of the bootstrap.")

json_option = cloup.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")

source_option = cloup.option(
    "--source",
    metavar="FILE",
    help="The sentences that TEXT translates, one per line, for translation models (--mt).",
)

list_source_options = grouped(
    "Source sentences",
    "source",
    lambda source, source_by: SourceFile(source, source_by, "--source-by") if source else None,
    cloup.option(
        "--source",
        metavar="FILE",
        help="The sentences that were translated, one per list, for translation models (--mt). Lists are then held in memory. Default: "
        "those in NBEST.",
    ),
    cloup.option(
        "--source-by",
        type=click.Choice(["order", "number", "id"], case_sensitive=False),
        help="Match source sentences by order, by number (the list's id is the line number from 0) or by id (each line carries one). "
        "Default: id if every line carries the id of a list, else order.",
    ),
)


@dataclass(frozen=True)
class Results:
    """Where a table goes: printed, as JSON if that was asked for, and into a page."""

    report: str | None
    as_json: bool


result_options = grouped(
    "Results",
    "results",
    Results,
    cloup.option(
        "--report",
        metavar="FILE",
        help="Write a page (HTML, self-contained) with table, weights, and what changed for better and worse, word by word.",
    ),
    json_option,
)

config_output_option = cloup.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="The file to write, or to change: then it holds the LMs, text steps and weights of this run and no others (- is standard output).",
)


def _references(refs: tuple[str, ...], refs_by: By | None, source: str | None = None) -> ReferenceFiles:
    return ReferenceFiles(refs, refs_by, source)


_REFERENCES = (
    cloup.option(
        "--refs",
        multiple=True,
        metavar="FILE",
        help="References, one line per list, in the same order or with ids (Kaldi, sclite). Repeat for multiple references; a blank "
        "line means none. Default: those in NBEST.",
    ),
    cloup.option(
        "--refs-by",
        type=click.Choice(["order", "number", "id"], case_sensitive=False),
        help="Match references by order (line i is of list i), by number (the list's id is the line number from 0, as in "
        "fairseq-generate), or by id (each line carries one, 'id text' or 'text (id)'; lines may be left over). Default: id if every "
        "line carries the id of a list, else order.",
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
        help="The sentences that were translated, matched as references are: for translation models (--mt), and the first column of what "
        "--metric external:COMMAND reads. Default: those in NBEST.",
    ),
)


def _metric(metric_text: TextPipeline, bleu_tokenize: str, metric: str = "", ter_case_sensitive: bool = False) -> Metric:
    """Make the metric. Raises InputError for options of another one."""
    tokenize_given = given_option("bleu_tokenize") is not None
    metric = metric or ("bleu" if tokenize_given else "wer")
    if tokenize_given and metric != "bleu":
        raise InputError(f"--bleu-tokenize is for --metric bleu, not for {metric}; --metric-text says what {metric} is to see")
    if ter_case_sensitive and metric != "ter":
        raise InputError(f"--ter-case-sensitive is for --metric ter; {metric} is case-sensitive unless --metric-text has lowercase")
    for line in remarks([metric_text.load()]):
        note(line)
    options: dict[str, dict[str, Any]] = {"bleu": {"tokenize": bleu_tokenize}, "ter": {"lowercase": not ter_case_sensitive}}
    return make_metric(metric, text=metric_text, **options.get(metric, {}))


def metric_options(choice: bool = True) -> Decorator:
    """The metric, handed to the command as ``metric``. Without ``choice`` there is no ``--metric``: the rest says what rules compare."""

    of_choice = (
        cloup.option(
            "--metric",
            type=MetricName(),
            default="wer",
            show_default=True,
            help="What counts. external:COMMAND runs a program once: it reads lines of source, hypothesis and reference, joined by tabs, "
            "and answers a number for each, higher is better.",
        ),
        cloup.option("--ter-case-sensitive", is_flag=True, help="TER ignores case, as in sacreBLEU, unless this is given."),
    )
    return grouped(
        "Metric" if choice else "What rules compare",
        "metric",
        _metric,
        *(of_choice if choice else ()),
        cloup.option(
            "--metric-text",
            type=STEPS,
            default=TextPipeline(),
            help="What hypotheses and references go through before they are compared: steps as in --text, such as "
            "join-subwords:bpe,lowercase.",
        ),
        cloup.option(
            "--bleu-tokenize",
            default="13a",
            show_default=choice,
            help="sacreBLEU's tokenisation: 13a, none, zh, intl, .." + ("" if choice else " For --mbr bleu. Default: as tuned, else none."),
        ),
    )


def check_source(source: str | None, run: RunConfig | None, metric: Metric) -> None:
    """Raise InputError if source sentences are given and nothing asks for them."""
    if source and metric.name != "external" and not (run and any(lm.uses_source for lm in run.lms)):
        raise InputError(f"--source is for translation models (--mt) and --metric {PREFIX}COMMAND, and there is neither")


def warn_of_unused(output: Path, run: RunConfig, found: tuple[str, ...] = ()) -> None:
    """Before the work: tell what the file to be written holds that this run does not use, but for the tables ``found`` that it fills.

    Raises InputError if the file is no ``attlm.toml``.
    """
    if gone := [table for table in unused(output, run) if table not in found]:
        note(
            f"WARNING: {output} holds what this run does not use, and will be without it: {', '.join(gone)}; "
            f"--config {output} uses and keeps it, -o writes elsewhere"
        )
