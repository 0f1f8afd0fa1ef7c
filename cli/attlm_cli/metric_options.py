"""The options that say how texts are measured and compared. Together they become a ``Metric``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

import click
import cloup

from attlm_cli.option_groups import Decorator, given_option, grouped
from attlm_cli.types import METRIC, STEPS
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.metrics.spec import UNNAMED, MetricSpec
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG, read_config
from attlm_fairseq.text import TextPipeline, remarks
from attlm_fairseq.verbs.configuration import metric_of


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


def once(context: click.Context, option: click.Parameter, given: tuple[TextPipeline, ...]) -> TextPipeline:
    """Return the text steps of an option. Raises InputError if it is given twice: the last would win, silently."""
    if len(given) > 1:
        raise InputError(f"{option.opts[0]} is given {len(given)} times: join the steps by commas")
    return given[0] if given else TextPipeline()
