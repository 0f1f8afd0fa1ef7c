"""The metrics by name."""

from __future__ import annotations

import inspect
from typing import Any

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.nbest.metrics.edit_rates import CER, WER
from attlm_fairseq.nbest.metrics.external import PREFIX, ExternalMetric
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.metrics.ngram_metrics import BLEU, ChrF, ChrFPlusPlus
from attlm_fairseq.nbest.metrics.sacrebleu_metric import TER
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline

METRICS: dict[str, type] = {"wer": WER, "cer": CER, "bleu": BLEU, "chrf": ChrF, "chrf++": ChrFPlusPlus, "ter": TER}


def make_metric(name: str, *, text: TextPipeline = NO_STEPS, **options: Any) -> Metric:
    """Make the metric of this name, on texts after the steps ``text``.

    Args:
        name: a key of METRICS, in any case, or ``external:COMMAND``.
        text: text steps for hypotheses and references.
        options: keyword options of the metric.

    Raises:
        InputError: the name or an option is unknown.
    """
    require_type("metric", name, str, "a name such as 'wer'")
    if name.startswith(PREFIX):
        if options:
            raise InputError(f"metric {name!r} has no option {next(iter(options))!r}")
        return ExternalMetric(name.removeprefix(PREFIX), text=text)
    if name.lower() not in METRICS:
        raise InputError(f"unknown metric {name!r}; known are {', '.join(METRICS)} and {PREFIX}COMMAND")
    metric = METRICS[name.lower()]
    known = [option for option in inspect.signature(metric).parameters if option != "text"]
    for option in options:
        if option not in known:
            raise InputError(f"metric {name!r} has no option {option!r}; its options are {', '.join(known)}")
    return metric(text=text, **options)
