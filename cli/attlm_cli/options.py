"""Options that several commands share, each declared once."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attlm_cli.lm_changes import LMChanges, numbered
from attlm_fairseq.errors import InputError, visible
from attlm_fairseq.nbest.external_metric import PREFIX
from attlm_fairseq.nbest.features.combination import LARGEST
from attlm_fairseq.nbest.features.lm_features import differing_lms, is_lm_feature
from attlm_fairseq.nbest.formats import FORMATS
from attlm_fairseq.nbest.metrics import METRICS, Metric, make_metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.references import By, TextFile, attach_references, read_references
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG, read_config, unused
from attlm_fairseq.nbest.run.workers import OneProcess, Processes, Workers
from attlm_fairseq.scoring.compute import PRECISIONS, DeviceConfig, parse_devices, parse_memory
from attlm_fairseq.scoring.lm_spec import LMSpec, check_name
from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import Step, TextPipeline, describe_pipelines, parse_step, parse_steps, remarks
from attlm_fairseq.text.pipeline import usage
from attlm_fairseq.text.steps import KINDS
from attlm_fairseq.text.subwords import SubwordMarks

if TYPE_CHECKING:
    from tqdm import tqdm


# the parameters of lm_options that only change what LMs do
OF_LMS = ("ensemble_weights", "mixture", "dictionary", "text_steps", "lowercase", "tokenize", "oov", "devices", "precision", "memory")


@dataclass(frozen=True)
class Setup:
    """LMs, text steps and weights of a run, from options and ``attlm.toml``."""

    config: RunConfig
    computes: tuple[DeviceConfig, ...]  # one for each process

    def workers(self, features: Sequence[str] = (), needed: bool = True) -> Workers:
        """The LMs, ready to score on all devices, and a line to the user on what they see.

        ``features``: what is wanted besides their scores. Raises InputError, also where no LM is given and one needed.
        """
        self._describe(needed)
        if len(self.computes) > 1:
            return Processes(self.config, self.computes, features)
        return OneProcess(BlockScorer.load(self.config, self.compute, features))

    def load(self) -> list[Scorer]:
        """The LMs in this process, ready to score, as :meth:`workers`."""
        self._describe()
        scorers = self.config.load(self.the_compute())
        for text in self.texts:
            text.load()
        return scorers

    @property
    def compute(self) -> DeviceConfig:
        """Of the first device."""
        return self.computes[0]

    def the_compute(self) -> DeviceConfig:
        """Of the only device. Raises InputError where there are more."""
        if len(self.computes) > 1:
            raise InputError("this command runs as one process: --devices with one device")
        return self.compute

    @property
    def texts(self) -> list[TextPipeline]:
        """What each of the LMs that :meth:`load` gives is to see."""
        return list(self.config.texts.values())

    def _describe(self, needed: bool = True) -> None:
        if needed and not self.config.lms:
            raise InputError(f"no LM given: use --lm or --kenlm, or an {DEFAULT_CONFIG} in this folder, or --config")
        for line in (*describe_pipelines(self.config.texts), *remarks(self.texts)):
            note(line)


class FiniteRange(click.FloatRange):
    """A number in a range; click itself lets nan through every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


format_option = click.option(
    "--format",
    "format_name",
    metavar="NAME",
    help=f"Format of NBEST: {', '.join(sorted(FORMATS))} (nemo:BEAM with its beam size). Default: recognised by its content.",
)


@dataclass
class GivenReferences:
    """``--refs --refs-by``: called with lists, gives the same with their references."""

    paths: tuple[str, ...]
    by: By | None

    def __call__(self, lists: Iterable[NbestList]) -> list[NbestList]:
        return attach_references(lists, self.read(), self.by, note)

    def check_inputs(self, *paths: str) -> None:
        """Raises InputError where standard input is to be these files or references more than once."""
        if [*paths, *self.paths].count("-") > 1:
            raise InputError("standard input (-) is named more than once, and can be read once: name a file in place of one of them")

    def read(self) -> list[TextFile] | None:
        """Read the files; None if the lists have to bring their references. Raises InputError."""
        return read_references(self.paths) if self.paths else None


def reference_options(command: Callable) -> Callable:
    """``--refs --refs-by``, handed to the command as ``with_references``, :class:`GivenReferences`."""

    def wrapper(refs: tuple[str, ...], refs_by: str | None, **rest: Any) -> Any:
        return command(with_references=GivenReferences(refs, refs_by), **rest)

    return wrapped(
        wrapper,
        command,
        click.option(
            "--refs",
            multiple=True,
            metavar="FILE",
            help="References, one line per list, in the same order or with ids (Kaldi, sclite). Repeat for multiple references; a blank "
            "line means none. Default: those in NBEST.",
        ),
        click.option(
            "--refs-by",
            type=click.Choice(["order", "number", "id"]),
            help="Match references by order (line i is of list i), by number (the list's id is the line number from 0, as in "
            "fairseq-generate), or by id (each line carries one, 'id text' or 'text (id)'; lines may be left over). Default: id if every "
            "line carries the id of a list, else order.",
        ),
    )


def wrapped(wrapper: Callable, command: Callable, *options: Callable) -> Callable:
    """The wrapper of a command with its name, its help and the options in the order given before those that it has already."""
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__click_params__ = getattr(command, "__click_params__", [])
    for option in reversed(options):
        wrapper = option(wrapper)
    return wrapper


def lm_options(command: Callable, only_where_given: bool = False) -> Callable:
    """The LMs, what they see, their unknown words, and the device, handed to the command as ``setup``.

    ``only_where_given``: ``setup`` is None where neither LMs nor a configuration are named; that of this folder does not count then.
    """
    where_else = "Default: none" if only_where_given else f"Default: {DEFAULT_CONFIG} in this folder unless --lm or --kenlm is given"

    def wrapper(
        lm: tuple[str, ...],
        ensemble_weights: tuple[str, ...],
        kenlm: tuple[str, ...],
        mixture: tuple[str, ...],
        dictionary: Path | None,
        config: Path | None,
        text_steps: tuple[str, ...],
        lowercase: bool | None,
        tokenize: str | None,
        oov: tuple[str, ...],
        devices: str,
        precision: str,
        memory: str,
        **rest: Any,
    ) -> Any:
        if only_where_given and not lm and not kenlm and config is None:
            if option := given_option(*OF_LMS):  # ignoring it would let the user believe that it changed something
                raise InputError(
                    f"{option} is about LMs, and there are none: give --config {DEFAULT_CONFIG}, --lm or --kenlm; what the metric compares "
                    "is changed by --metric-text and --metric-lowercase"
                )
            return command(setup=None, **rest)
        computes = parse_devices(devices, precision, parse_memory(memory))
        changes = LMChanges(ensemble_weights, mixture, text_steps, oov)
        return command(setup=make_setup(lm, kenlm, dictionary, config, lowercase, tokenize, computes, changes), **rest)

    return wrapped(
        wrapper,
        command,
        click.option(
            "--lm",
            multiple=True,
            metavar="[NAME=]LM[:LM..]",
            help="An LM, recognised by its content: a checkpoint of fairseq-train (this package's models or fairseq's own), a folder of "
            "attlm export, a folder or cached name of a Hugging Face causal LM, an ARPA or KenLM file. Several joined by colons are an "
            "ensemble that averages their probabilities. Repeatable.",
        ),
        click.option(
            "--ensemble-weights",
            multiple=True,
            metavar="[NAME=]NUMBER:NUMBER..",
            help="Weights of the checkpoints of an ensemble (the one there is, or NAME). Default: equal.",
        ),
        click.option(
            "--kenlm", multiple=True, metavar="[NAME=]FILE", help="The same as --lm, called kenlm unless NAME is given. Repeatable."
        ),
        click.option(
            "--mixture",
            multiple=True,
            metavar="[NAME=]LM:NUMBER,..",
            help="Mix LMs linearly, word by word, with these weights (found by `attlm mix`). Repeatable.",
        ),
        click.option(
            "--dict",
            "dictionary",
            type=click.Path(path_type=Path),
            help="dict.txt of the neural LMs. Default: beside the checkpoint, then its data folder.",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help=f"LMs, text steps and weights, as written by attlm tune. {where_else}.",
        ),
        click.option(
            "--text",
            "text_steps",
            multiple=True,
            metavar="[NAME=]STEP,..",
            help=f"What the text goes through before all LMs (or NAME) see it, in this order: {', '.join(map(usage, KINDS))}. "
            "The lists' own text is never changed.",
        ),
        click.option("--lowercase/--no-lowercase", default=None, help="Short for --text lowercase, after --tokenize."),
        click.option("--tokenize", metavar="LANG", help="Short for --text tokenize:LANG: Moses' rules for this language (en, de)."),
        click.option(
            "--oov",
            multiple=True,
            metavar="[NAME=]POLICY",
            help="What an unknown word costs in all LMs (or NAME): unk (p(<unk>), default), penalty:LOGPROB (natural log), "
            "spread:TYPES (p(<unk>) shared by so many unseen words).",
        ),
        click.option(
            "--devices",
            "--device",
            default="cpu",
            show_default=True,
            help="Where LMs run: cpu, cuda:1. To rescore and tune also several that share the work: cpu:4 (processes), cuda:0,cuda:1.",
        ),
        click.option(
            "--precision",
            type=click.Choice(PRECISIONS),
            default="float32",
            show_default=True,
            help="Of neural LMs' matrix products; the deviation that bfloat16 causes is measured and printed.",
        ),
        click.option(
            "--memory",
            default="1G",
            show_default=True,
            help="What the scoring of neural LMs may take, beside the models and the lists: 500M, 4G.",
        ),
    )


class MetricName(click.ParamType):
    """The name of a metric, in any case, or ``external:COMMAND``."""

    name = "metric"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(sorted(METRICS))}|{PREFIX}COMMAND]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.startswith(PREFIX) and value.lower() not in METRICS:
            self.fail(f"{value!r} is not one of {', '.join(sorted(METRICS))} and {PREFIX}COMMAND.", param, ctx)
        return value if value.startswith(PREFIX) else value.lower()


METRIC_HELP = (
    "What counts. external:COMMAND runs a program once: it reads lines of source, hypothesis and reference, joined by tabs, and answers "
    "a number for each, higher is better."
)


def metric_options(command: Callable, choice: bool = True) -> Callable:
    """``--metric --metric-lowercase --metric-case --metric-text --bleu-tokenize``, handed to the command as ``metric``.

    ``choice``: whether there is ``--metric``. Without it the others say what ``--mbr`` and ``--consensus`` compare.
    """

    def wrapper(metric_lowercase: bool | None, metric_text: str | None, bleu_tokenize: str, metric: str = "", **rest: Any) -> Any:
        tokenize_given = given_option("bleu_tokenize") is not None
        metric = metric or ("bleu" if tokenize_given else "wer")
        if tokenize_given and metric != "bleu":
            raise InputError(f"--bleu-tokenize is for --metric bleu, not for {metric}; --metric-text says what {metric} is to see")
        options = {} if metric_lowercase is None else {"lowercase": metric_lowercase}
        text = parse_steps(filter(None, (metric_text or "").split(","))).load()
        for line in remarks([text]):
            note(line)
        return command(
            metric=make_metric(metric, text=text, **options, **({"tokenize": bleu_tokenize} if metric == "bleu" else {})), **rest
        )

    return wrapped(
        wrapper,
        command,
        *([click.option("--metric", type=MetricName(), default="wer", show_default=True, help=METRIC_HELP)] * choice),
        click.option(
            "--metric-lowercase/--metric-case",
            default=None,
            help="Whether the metric ignores case. Default: as in sacreBLEU TER ignores it; WER, CER, BLEU and chrF do not.",
        ),
        click.option(
            "--metric-text",
            metavar="STEP,..",
            help="What hypotheses and references go through before they are compared: steps as in attlm score --text, "
            "such as join-subwords:bpe,detokenize:en.",
        ),
        click.option(
            "--bleu-tokenize",
            default="13a",
            show_default=choice,
            help="sacreBLEU's tokenisation: 13a, none, zh, intl, .." + ("" if choice else " For --mbr bleu. Default: as tuned, else none."),
        ),
    )


def warn_of_subwords(lists: Iterable[NbestList], metric: Metric) -> None:
    """The warning where the first hypotheses of lists with references are in subwords."""
    marks = SubwordMarks(metric.text)
    for nbest in lists:
        marks.add(nbest.hypotheses[0].text, nbest.references)
    if warning := marks.warning(metric.name):
        note(warning)


def make_setup(
    lm: Iterable[str],
    kenlm: Iterable[str],
    dictionary: Path | None,
    config_path: Path | None,
    lowercase: bool | None,
    tokenize: str | None,
    computes: tuple[DeviceConfig, ...],
    changes: LMChanges | None = None,
) -> Setup:
    """Options over the configuration file; the one of this folder counts only where no LM is given. Raises InputError."""
    lm, kenlm = tuple(lm), tuple(kenlm)
    if config_path is None and not lm and not kenlm and DEFAULT_CONFIG.is_file():
        config_path = DEFAULT_CONFIG
    config = read_config(config_path) if config_path else RunConfig()
    lms = {spec.name: spec for spec in config.lms}
    for text, default in [*((text, "lm") for text in lm), *((text, "kenlm") for text in kenlm)]:
        name, equals, files = text.partition("=")
        if not equals:
            name, files = next(name for name in numbered(default) if name not in lms), text
        elif check_name(name) in lms:
            raise InputError(f"two LMs are called {name!r}; name them apart: --{default} NAME=FILE")
        if not files:
            raise InputError(f"--{default} {text!r} names no file")
        lms[name] = LMSpec.of_files(name, list(filter(None, files.split(":"))))
    if dictionary is not None:
        lms = {name: replace(spec, dictionary=dictionary) if spec.checkpoints else spec for name, spec in lms.items()}
    text = shorthand_steps(config.text, lowercase, tokenize)
    return Setup((changes or LMChanges()).apply(replace(config, lms=tuple(lms.values()), text=text)), computes)


def shorthand_steps(text: TextPipeline, lowercase: bool | None, tokenize: str | None) -> TextPipeline:
    """``--tokenize`` and ``--lowercase`` over steps that are these two at most. Raises InputError."""
    if lowercase is None and tokenize is None:
        return text
    steps = {step.name: step for step in text.steps}
    if steps.keys() - {"tokenize", "lowercase"}:
        raise InputError(f"--lowercase and --tokenize would change the text steps of attlm.toml ({text}): give all steps with --text")
    if tokenize is not None:
        steps["tokenize"] = parse_step(f"tokenize:{tokenize}")
    if lowercase is not None:
        steps["lowercase"] = Step("lowercase")
    return TextPipeline(
        tuple(steps[name] for name in ("tokenize", "lowercase") if name in steps and (name, lowercase) != ("lowercase", False))
    )


def parse_weights(texts: Iterable[str], option: str = "--weight") -> dict[str, float]:
    """``NAME=NUMBER`` options as weights. Raises InputError."""
    weights = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name or not abs(weights[name]) <= LARGEST:
            raise InputError(f"{option} {text!r}: expected NAME=NUMBER, such as {option} lm=0.5")
    return weights


def complete_weights(setup: Setup, options: Iterable[str]) -> tuple[dict[str, float], list[str]]:
    """The weights of configuration and options, and which of them are of features of LMs. Raises InputError for an LM without one."""
    weights = setup.config.weights | parse_weights(options)
    names = [lm.name for lm in setup.config.scored]
    features = [name for name in weights if is_lm_feature(name, names)]
    weighted = {*weights, *(lm for name in features for lm in differing_lms(name, names) or ())}
    if missing := [name for name in names if name not in weighted]:
        raise InputError(
            f"no weight for {', '.join(missing)}; find the weights with `attlm tune` on lists with references, "
            f"or give --weight {missing[0]}=NUMBER"
        )
    return weights, features


def warn_of_unseen(names: Iterable[str]) -> None:
    """The warning where weights name scores that no hypothesis has, as only sparse lists may: perhaps a name is mistyped."""
    if names := sorted(names):
        note(f"WARNING: no hypothesis has a score {', '.join(names)}: the weight had no effect")


class NoProgress(contextlib.AbstractContextManager):
    """What stands for the bar where nobody watches."""

    def __exit__(self, *_: object) -> None:
        """There is nothing to clear away."""

    def update(self, count: int) -> None:
        """Say nothing."""


def progress(unit: str, total: int | None) -> tqdm | NoProgress:
    """A bar with rate and time left on a terminal, nothing in a pipe."""
    if not on_terminal():
        return NoProgress()
    from tqdm import tqdm

    return tqdm(total=total, unit=f" {unit}", unit_scale=True, file=sys.stderr, dynamic_ncols=True, smoothing=0.1)


def on_terminal() -> bool:
    """Whether the user watches: only then is it worth knowing how long the work will take."""
    return sys.stderr.isatty()


def worth_counting(path: str) -> bool:
    """Whether to read a file once more first: where the user watches, and never standard input, a pipe or the shell's ``<(..)``."""
    return on_terminal() and path != "-" and (Path(path).is_file() or Path(path).is_dir())


config_output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="The file to write, or to change: then it holds the LMs, text steps and weights of this run and no others (- is standard output).",
)


def warn_of_unused(output: Path, config: RunConfig, found: Sequence[str] = ()) -> None:
    """Before the work: what the file to be written holds that this run does not use, but for the tables ``found`` that it fills anew.

    Raises InputError where the file is no ``attlm.toml``.
    """
    if gone := [table for table in unused(output, config) if table not in found]:
        note(
            f"WARNING: {output} holds what this run does not use, and will be without it: {', '.join(gone)}; "
            f"--config {output} uses and keeps it, -o writes elsewhere"
        )


def echo_fields(*fields: str) -> None:
    """A line of fields joined by tabs on standard output. Words of the user's files go as they are, but harmless to a terminal."""
    # with color, or click takes what looks like a colour out of the words
    click.echo("\t".join(map(visible, fields) if sys.stdout.isatty() else fields), color=True)


def note(text: str) -> None:
    """Write one line to the user, on standard error."""
    click.echo(text, err=True)


def warn_of_oov(counts: Iterable[OOVCount], advise: Callable[[OOVCount], str | None] | None = None) -> None:
    """The loud warning, for each LM that does not know many of the words, with ``advise``'s advice."""
    for count in counts:
        if warning := count.warning():
            if advise and (advice := advise(count)):
                warning = f"{warning}. {advice}"
            note(click.style(warning, fg="red", bold=True) if on_terminal() else warning)


def say_notes(scorers: Iterable[Scorer]) -> None:
    """Tell the user what each LM has to say of its scores, such as the deviation of a lower precision."""
    for scorer in scorers:
        for line in scorer.notes():
            note(line)


def this_command() -> str:
    """The command line as a shell takes it: how to get a result again."""
    return shlex.join(["attlm", *sys.argv[1:]])


def given_option(*names: str) -> str | None:
    """The first option among the parameters ``names`` of this command that the user gave, as its name is written; None for none."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) == click.core.ParameterSource.COMMANDLINE:
            return "/".join([*parameter.opts[:1], *parameter.secondary_opts[:1]])
    return None


def warn_of_penalties(setup: Setup) -> None:
    """What has a fixed price is not a probability."""
    for lm in setup.config.lms:
        if lm.oov.kind == "penalty":
            note(f"WARNING: {lm.name} gives unknown words a fixed penalty, so it has no perplexity: compare ppl_without_oov, or use spread")
