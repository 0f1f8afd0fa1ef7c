"""Options that several commands share, in titled groups. Each option is declared once, and a group becomes one value."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.types import GROUPS, METRIC, STEPS
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import STANDARD_OUTPUT
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.numbers import LANGUAGE
from attlm_fairseq.nbest.decision.decision import EXTERNAL_RULE
from attlm_fairseq.nbest.formats import OWN_NAMES
from attlm_fairseq.nbest.line_matching import By
from attlm_fairseq.nbest.metrics.external import PREFIX
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.metrics.spec import UNNAMED, MetricSpec
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG, read_config, unused
from attlm_fairseq.scoring.compute import parse_device
from attlm_fairseq.text import TextPipeline, remarks
from attlm_fairseq.verbs.configuration import metric_of
from attlm_fairseq.verbs.lists import SourceFile
from attlm_fairseq.verbs.references import ReferenceFiles

Decorator = Callable[[Callable], Callable]


def grouped(title: str, name: str, build: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds a titled group of options to a command, as ``in_groups`` does."""
    return in_groups({title: options}, name, build)


def in_groups(groups: Mapping[str, Sequence[Decorator]], name: str, build: Callable[..., Any]) -> Decorator:
    """Return a decorator that adds groups of options, by title, to a command.

    The command receives them as one argument ``name``: the result of ``build`` called with the options.
    """

    def decorate(command: Callable) -> Callable:
        @wraps(command)
        def wrapper(**given: Any) -> Any:
            return command(**{name: build(**{own: given.pop(own) for own in names})}, **given)

        before = _parameters(command)
        decorated: Any = wrapper
        for title, options in reversed(list(groups.items())):
            decorated = cloup.option_group(title, *options)(decorated)
        names = [own for own in _parameters(decorated) if own not in before]
        return decorated

    return decorate


def _parameters(command: Callable) -> list[str]:
    """Return the names of the options that decorators have attached to a function so far, as click stores them."""
    return [parameter.name for parameter in getattr(command, "__click_params__", [])]


def given_option(*names: str) -> str | None:
    """Return the first option among the parameters ``names`` that the user gave, as it is written; None if there is none."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) == click.core.ParameterSource.COMMANDLINE:
            return "/".join([*parameter.opts[:1], *parameter.secondary_opts[:1]])
    return None


format_option = cloup.option(
    "--format",
    "format_name",
    metavar="NAME",
    help=f"Format of the lists: {', '.join(OWN_NAMES)} (nemo:K and plain:K with the number of hypotheses). text is one "
    "text per line. Default: recognised by content.",
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

list_source_options = grouped(
    "Source sentences",
    "source",
    lambda source, source_by: SourceFile(source, source_by, "--source-by") if source else None,
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


@dataclass(frozen=True)
class MetricChoice:
    """The metric that the user gave. What is not given is as in ``attlm.toml``, else the default."""

    metric_text: TextPipeline
    bleu_tokenize: str | None
    metric: str | None = None
    ter_case_sensitive: bool = False
    cer_without_spaces: bool = False

    def of_folder(self) -> RunConfig:
        """Return a run that has nothing but the metric of the folder's ``attlm.toml``, unless ``--metric`` is given; log which."""
        if self.metric or not DEFAULT_CONFIG.is_file():
            return RunConfig()
        config = read_config(DEFAULT_CONFIG)
        if config.context is not None and config.context.kind in ("id", "file") and not given_option("context", "draw_by"):
            drawn = f"--draw-by {shlex.quote(str(config.context))} draws whole conversations for intervals and p-values"
            note(f"note: {DEFAULT_CONFIG} in this folder has the context {config.context}: {drawn}")
        spec = config.metric
        if spec.name == UNNAMED:
            note(f"note: {DEFAULT_CONFIG} in this folder is for a metric of your own, which only --metric can name: this is WER")
            return RunConfig()
        if spec != RunConfig().metric:
            after = f" after {','.join(map(str, spec.text.steps))}" if spec.text.steps else ""
            note(f"note: {spec.name}{after} is the metric of {DEFAULT_CONFIG} in this folder; --metric names another")
        return RunConfig(metric=spec)

    def of_decisions(self, run: RunConfig) -> Metric:
        """Return the metric whose text steps and words decision rules compare. Nothing is measured: ``--bleu-tokenize`` implies BLEU.

        Raises:
            InputError: the metric of the run cannot be made.
        """
        spec = run.metric.of_decisions()
        if self.bleu_tokenize and spec.name != "bleu":
            spec = MetricSpec("bleu", spec.text)
        return self.of(replace(run, metric=spec))

    def of(self, run: RunConfig) -> Metric:
        """Return the metric. Without ``--metric``, the other options change that of the run.

        Raises:
            InputError: an option is of another metric, or the run's metric is one of the user's own.
        """
        name = self.metric or run.metric.name
        if self.bleu_tokenize and name != "bleu":
            raise InputError(f"--bleu-tokenize is for --metric bleu, not for {name}; --metric-text says what {name} is to see")
        if self.ter_case_sensitive and name != "ter":
            raise InputError(f"--ter-case-sensitive is for --metric ter; {name} is case-sensitive unless --metric-text has lowercase")
        if self.cer_without_spaces and name != "cer":
            raise InputError(f"--cer-without-spaces is for --metric cer, not for {name}")
        spec = MetricSpec(name) if self.metric or name != run.metric.name else run.metric
        text = self.metric_text if given_option("metric_text") else spec.text
        for line in remarks([text.load()]):
            note(line)
        of_bleu = {"tokenize": self.bleu_tokenize} if self.bleu_tokenize else {}
        of_ter = {"lowercase": False} if self.ter_case_sensitive else {}
        of_cer = {"spaces": False} if self.cer_without_spaces else {}
        options = {**spec.options, **of_bleu, **of_ter, **of_cer}
        if self.metric:  # may be a program
            return make_metric(name, text=text, **options)
        return metric_of(None, replace(run, metric=MetricSpec(name, text, options)))


def metric_options(choice: bool = True) -> Decorator:
    """Add the metric options, passed to the command as ``measured``.

    Without ``choice`` there is no ``--metric``: the other options only say what decision rules compare.
    """

    of_choice = (
        cloup.option(
            "--metric",
            type=METRIC,
            help="Metric. external:COMMAND runs a program once. It reads lines of source, hypothesis and reference, "
            "separated by tabs, and prints one number per line; higher is better. "
            "Of several references the one with the highest number counts. Default: that of attlm.toml, else wer.",
        ),
        cloup.option("--ter-case-sensitive", is_flag=True, help="Make TER case-sensitive. By default it ignores case, as in sacreBLEU."),
        cloup.option(
            "--cer-without-spaces",
            is_flag=True,
            help="Leave spaces out of CER, as is usual for Chinese, Japanese and Thai. By default they count.",
        ),
    )
    return grouped(
        "Metric" if choice else "Comparison of texts",
        "measured",
        MetricChoice,
        *(of_choice if choice else ()),
        cloup.option(
            "--metric-text",
            type=STEPS,
            multiple=True,
            callback=once,
            help="Text steps for hypotheses and references before they are compared, written as in --text, such as "
            "join-subwords:bpe,lowercase.",
        ),
        cloup.option(
            "--bleu-tokenize",
            help="sacreBLEU's tokenisation: 13a, none, zh, intl, .. "
            + ("Default: that of attlm.toml, else 13a." if choice else "For --mbr bleu. Default: as tuned, else none."),
        ),
    )


def check_standard_output(outputs: Mapping[str, object]) -> None:
    """Raise InputError if two outputs, by what they are called, go to standard output."""
    there = [name for name, path in outputs.items() if str(path) in STANDARD_OUTPUT]
    if len(there) > 1:
        raise InputError(f"{' and '.join(there)} both go to standard output: name a file for one of them")


def once(context: click.Context, option: click.Parameter, given: tuple[TextPipeline, ...]) -> TextPipeline:
    """Return the text steps of an option. Raises InputError if it is given twice: the last would win, silently."""
    if len(given) > 1:
        raise InputError(f"{option.opts[0]} is given {len(given)} times: join the steps by commas")
    return given[0] if given else TextPipeline()


def check_source(source: str | None, run: RunConfig | None, metric: Metric | None, rules: Sequence[str] = ()) -> None:
    """Raise InputError if source sentences are given but no translation model, external metric or external loss uses them.

    ``rules``: the decision rules that are tried.
    """
    if not source or (metric is not None and metric.name == "external") or any(rule.startswith(EXTERNAL_RULE) for rule in rules):
        return
    if not (run and (run.decision.asks_program or any(lm.uses_source for lm in run.lms))):
        options = f"--mbr {PREFIX}COMMAND" if metric is None else f"--metric and --mbr {PREFIX}COMMAND"
        raise InputError(f"--source is for translation models (--mt) and for {options}, and there is none of them")


def warn_of_unused(output: Path, run: RunConfig, found: tuple[str, ...] = (), of_lms: tuple[str, ...] = ()) -> None:
    """Warn, before the work begins, of what the existing output file holds that this run does not use and would remove.

    Args:
        output: the file to be written.
        run: the run.
        found: the tables of the file that this run will fill.
        of_lms: the settings of LMs that this run will find.

    Raises:
        InputError: the file is not an ``attlm.toml``.
    """
    if gone := [table for table in unused(output, run, of_lms) if table not in found]:
        note(
            f"WARNING: {output} holds what this run does not use, and will be without it: {', '.join(gone)}; "
            f"--config {output} uses and keeps it, -o writes elsewhere"
        )
