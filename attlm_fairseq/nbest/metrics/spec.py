"""A metric by name and options, as ``attlm.toml`` keeps it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.metrics.external import ExternalMetric
from attlm_fairseq.nbest.metrics.making import METRICS, make_metric
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline

UNNAMED = "external"  # a program or a class of the user's: a file never says what to run


@dataclass(frozen=True)
class MetricSpec:
    """A metric of METRICS, its text steps and those of its options that do not have their default value.

    Attributes:
        name: a key of METRICS, or UNNAMED.
        text: text steps for hypotheses and references.
        options: keyword options of the metric.
    """

    name: str = "wer"
    text: TextPipeline = NO_STEPS
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Metric:
        """Make the metric.

        Raises:
            InputError: the name or an option is unknown, or the metric is a program or UNNAMED.
        """
        if self.name.startswith(UNNAMED):
            raise InputError("the weights were tuned for a metric of your own, and a file never says what to run: name it, or another one")
        defaults = options_of(METRICS[self.name]) if self.name in METRICS else {}
        for option, value in self.options.items():
            if option in defaults and type(value) is not type(defaults[option]):
                raise InputError(f"{option} is {value!r}, expected a value such as {defaults[option]!r}")
        return make_metric(self.name, text=self.text, **self.options)

    def of_decisions(self) -> MetricSpec:
        """Return the metric whose text steps and words decision rules compare: this one, or WER after its steps if it cannot be made."""
        return MetricSpec(text=self.text) if self.name.startswith(UNNAMED) else self


def options_of(metric: type) -> dict[str, Any]:
    """Return the keyword options of a class of METRICS with their defaults, without ``text``."""
    return {name: parameter.default for name, parameter in inspect.signature(metric).parameters.items() if name != "text"}


def spec_of(metric: Metric) -> MetricSpec:
    """Return how a metric is made again. A program's or a class of the user's is UNNAMED."""
    names = [name for name, kind in METRICS.items() if type(metric) is kind]
    if not names:
        return MetricSpec(UNNAMED, metric.text if isinstance(metric, ExternalMetric) else NO_STEPS)
    options = {name: getattr(metric, name) for name, default in options_of(type(metric)).items() if getattr(metric, name) != default}
    return MetricSpec(names[0], metric.text, options)
