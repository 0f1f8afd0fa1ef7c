"""The configuration of a run from arguments: LMs, weights, text steps, decision, devices, metric."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from attlm_fairseq.errors import InputError, require_type, shown
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.metrics.making import make_metric as metric_of_name
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.nbest.run.lm_changes import LM_CHANGES
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig, parse_devices
from attlm_fairseq.scoring.context.conversations import ContextSpec, parse_context
from attlm_fairseq.scoring.lm_files import EXPECTED
from attlm_fairseq.scoring.lm_options import check_name, parsed
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.text.pipeline import NO_STEPS
from attlm_fairseq.verbs.arguments import FilePath, plain_weights, require_by_name
from attlm_fairseq.verbs.decision_choice import DecisionChoice

if TYPE_CHECKING:
    import torch

LM: TypeAlias = FilePath | Sequence[FilePath] | Scorer | LMSpec
"""An LM: a checkpoint, exported folder, ARPA or KenLM file, or Hugging Face model; several checkpoints (an ensemble); a loaded LM; or
an ``LMSpec``."""
Devices: TypeAlias = "str | torch.device | DeviceConfig | Sequence[str | torch.device | DeviceConfig]"


def metric_of(metric: str | Metric | None, run: RunConfig) -> Metric:
    """Return the metric itself, or make it from its name. None: the metric of the run.

    Raises:
        InputError: there is no metric of this name, ``external:`` has no usable command, the value is not a Metric, or
            the run's was one of the user's own.
    """
    if metric is None:
        try:
            return run.metric.make()
        except InputError as error:
            raise InputError(f"[metric] {error}", path=run.path) from None
    if not isinstance(metric, str) and not hasattr(metric, "statistics"):
        raise InputError(f"the metric is {shown(metric)}: expected a name such as 'wer', or a Metric")
    return metric_of_name(metric) if isinstance(metric, str) else metric


def make_metric(name: str, *, text: str | Iterable[str] | TextPipeline | None = None, **options: Any) -> Metric:
    """Make a metric that compares texts after text steps.

    Args:
        name: ``wer``, ``cer``, ``ter``, ``bleu``, ``chrf``, ``chrf++``, or ``external:COMMAND``.
        text: text steps for hypotheses and references, such as ``"remove-punctuation,lowercase"``.
        options: options of the metric, such as ``tokenize="zh"`` for BLEU.

    Returns:
        The metric, for ``tune`` and ``evaluate``.

    Raises:
        InputError: the name, an option or a text step is unknown.
    """
    return metric_of_name(name, text=NO_STEPS if text is None else text_pipeline(text), **options)


def run_config(
    config: RunConfig | FilePath | None = None,
    *,
    lms: Mapping[str, LM] | None = None,
    weights: Mapping[str, float] | None = None,
    text: str | Iterable[str] | TextPipeline | None = None,
    decision: Decision | str | None = None,
    keep_incomplete: bool | None = None,
    devices: Devices | None = None,
    context: str | ContextSpec | None = None,
    corrections: FilePath | None = None,
    phrases: FilePath | None = None,
    corrector: FilePath | None = None,
    corrector_languages: str | None = None,
    corrector_prefix: str | None = None,
    candidates: int | None = None,
    lm_options: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Build the configuration of a run: an optional base configuration, changed by the other arguments.

    Args:
        config: a RunConfig or the path of an ``attlm.toml``. The ``attlm.toml`` of the current folder is not read
            unless named.
        lms: LMs by name, added to those of ``config``. One with the name of an LM there takes its place, with the settings of that LM
            where it has none of its own.
        weights: weights of the features that ``rescore`` names. Weights of ``config`` not named here stay.
        text: text steps for all LMs that have no steps of their own, such as ``"tokenize:en,lowercase"``.
        decision: the name of a rule, such as ``"mbr-wer"``: its scale, text steps and tokenizer are those that were tuned, else those of
            the metric. A ``Decision`` replaces them all.
        keep_incomplete: leave a list in input order, without totals, if a hypothesis lacks a score that has a weight; else such a list
            is an error.
        devices: where neural LMs run: ``"cpu"``, ``"cpu:4"`` (four processes), ``"cuda:0,cuda:1"``, or one name or
            DeviceConfig per process. LMs that are loaded stay on their device.
        context: which lists or lines form one conversation: ``"all"``, ``"id:REGEX"``, ``"file:FILE"``, ``"blank"``, or
            a ContextSpec.
        corrections: a table of corrections, which adds candidates to the lists.
        phrases: a file of names and terms, one per line, which adds candidates, too.
        corrector: a neural corrector, a checkpoint of fairseq or a folder of Hugging Face, which adds candidates, too.
        corrector_languages: its languages as ``SOURCE:TARGET``, if it has several.
        corrector_prefix: a text before each of its inputs, as T5 has.
        candidates: maximum number of candidates added to each list by the table and the phrases.
        lm_options: attributes of the LMs by name, as in ``LMSpec.of``: a value for all LMs that can have it, or values by the name of
            the LM, such as ``{"oov": "penalty:-12", "temperature": {"neural": 1.2}}``.

    Returns:
        The configuration.

    Raises:
        InputError: a file cannot be read, an LM has the name of a mixture, a text step or device is unknown, an argument is of
            another type, an LM is already loaded on another device, or an option fits no LM.
    """
    require_type("configuration", config, (RunConfig, str, os.PathLike, NoneType), "a RunConfig or an attlm.toml")
    require_type("decision", decision, (Decision, str, NoneType), "the name of a rule, such as 'mbr-wer', or a Decision")
    require_type("value of keep_incomplete", keep_incomplete, (bool, NoneType), "True or False")
    require_type("context", context, (str, ContextSpec, NoneType), "a text such as 'all', or a ContextSpec")
    run = config if isinstance(config, RunConfig) else RunConfig() if config is None else read_config(Path(config))
    if lms is not None:
        require_by_name("LMs", lms)
    known = {lm.name: lm for lm in run.lms}
    given = {name: lm_spec(name, lm) for name, lm in (lms or {}).items()}
    replaced = {name: lm.in_place_of(known[name]) for name, lm in given.items() if name in known}
    changes: dict[str, Any] = {"lms": tuple((known | given | replaced).values())}
    if text is not None:
        changes["text"] = text_pipeline(text)
    if isinstance(decision, Decision):
        changes["decision"] = decision
    if devices is not None:
        changes["devices"] = _devices(devices)
    if context is not None:
        changes["context"] = parse_context(context) if isinstance(context, str) else context
    for name, file in (("corrections", corrections), ("phrases", phrases), ("corrector", corrector)):
        require_type(f"value of {name}", file, (str, os.PathLike, NoneType), "the name of a file, which in_memory() reads once")
    sources = {"table": corrections, "phrases": phrases, "corrector": corrector}
    of_candidates: dict[str, Any] = {name: Path(os.fspath(file)) for name, file in sources.items() if file is not None}
    of_corrector = {"corrector_languages": corrector_languages, "corrector_prefix": corrector_prefix}
    changes["candidates"] = run.candidates.changed(**of_candidates, **of_corrector, candidates=candidates)
    run, weights = replace(run, **changes), plain_weights(weights or {})
    if isinstance(decision, str):
        run = DecisionChoice(weights, decision).apply(run, metric_of(None, replace(run, metric=run.metric.of_decisions())))
    else:
        run = run.with_weights(weights)
    if keep_incomplete is not None:
        run = replace(run, decision=replace(run.decision, keep_incomplete=keep_incomplete))
    run = _with_lm_options(run, lm_options or {})
    _require_files(run)
    if devices is not None or run.devices != RunConfig().devices:
        _require_devices_of_loaded(run)
    return run


def _with_lm_options(run: RunConfig, options: Mapping[str, Any]) -> RunConfig:
    """Return the run with these attributes of its LMs. Raises InputError if no LM can have one, no LM has a name, or a value is wrong."""
    require_type("value of lm_options", options, Mapping, "a dictionary, such as {'temperature': 1.2}")
    changes = {change.field: change for change in LM_CHANGES}
    lms = {lm.name: lm for lm in run.lms}
    for field, given in options.items():
        if field not in changes:
            raise InputError(f"the option {field!r} of LMs: expected one of {', '.join(changes)}")
        for name, value in given.items() if isinstance(given, Mapping) else [(None, given)]:
            changes[field].apply(lms, name, parsed(field, value), field)
    return replace(run, lms=tuple(lms.values()))


def _require_files(run: RunConfig) -> None:
    """Raise InputError if a file of an LM or of candidates is missing, before anything is read. An attlm.toml names files from its
    folder; the message says so."""
    candidates = run.candidates
    for source in filter(None, (candidates.table, candidates.phrases, candidates.corrector)):
        if candidates.loaded is None and not source.exists():
            raise InputError("cannot be read: there is no such file", path=source)
    for lm in run.lms:
        for file in lm.files:
            if not file.exists():
                named = "" if run.path is None else f". If {run.path} names it: its paths are relative to its own folder"
                raise InputError(f"there is no such file; {EXPECTED}{named}", path=file)


def _require_devices_of_loaded(run: RunConfig) -> None:
    """Raise InputError if a loaded LM is on another device than those of the run, which would have no effect on it."""
    for lm in run.lms:
        if lm.loaded is not None and lm.loaded.loaded_on not in (None, *run.devices):
            raise InputError(f"{lm.name} is loaded already, with {lm.loaded.loaded_on}: to change its device, load it from its files")


def _devices(devices: Devices) -> tuple[DeviceConfig, ...]:
    several = devices if isinstance(devices, Sequence) and not isinstance(devices, str) else [devices]
    if several and all(isinstance(one, DeviceConfig) for one in several):
        return tuple(cast("Sequence[DeviceConfig]", several))
    return parse_devices(",".join(map(str, several)), DEFAULT_DEVICE.precision, DEFAULT_DEVICE.memory)


def lm_spec(name: str, lm: LM) -> LMSpec:
    """Return the LMSpec of an LM under this name. The kind of a file is recognised by its content.

    Raises:
        InputError: the name is not allowed for an LM, the LM is none of these, no file is given, or a file is neither
            a path nor the name of a cached model.
    """
    check_name(name)
    if isinstance(lm, LMSpec):
        return replace(lm, name=name)
    if isinstance(lm, Scorer):
        return LMSpec.of_loaded(name, lm)
    return LMSpec.of_files(name, lm)
