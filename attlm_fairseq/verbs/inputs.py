"""Inputs of the library functions: n-best lists, references and LMs, as Python objects or as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

import numpy as np

from attlm_fairseq.errors import InputError, UnknownFormatError
from attlm_fairseq.files import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.external_metric import with_source
from attlm_fairseq.nbest.formats import LIKE_TEXT, NbestFolderFormat, NbestFormat, format_of, open_nbest
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.metrics import make_metric as metric_of_name
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.references import (
    REFS_BY,
    TEXT,
    By,
    attach_references,
    check_by,
    match_lines,
    read_references,
    read_text_file,
    read_texts,
    with_known_references,
)
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.numeric import is_finite, is_number
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig, parse_devices
from attlm_fairseq.scoring.conversations import ContextSpec, parse_context
from attlm_fairseq.scoring.lm_files import EXPECTED
from attlm_fairseq.scoring.lm_spec import LMSpec, check_name
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.text.pipeline import NO_STEPS

if TYPE_CHECKING:
    import torch

FilePath: TypeAlias = str | os.PathLike[str]
LM: TypeAlias = FilePath | Sequence[FilePath] | Scorer | LMSpec
"""An LM: a checkpoint, exported folder, ARPA or KenLM file; several checkpoints (an ensemble); a loaded LM; or an ``LMSpec``."""
# the hypotheses of one list, best first: each a text, or a text with the decoder's score or with named scores
Hypotheses: TypeAlias = Sequence[str | tuple[str, float | Mapping[str, float]]]
OnProgress: TypeAlias = Callable[[int], object] | None
Devices: TypeAlias = "str | torch.device | DeviceConfig | Sequence[str | torch.device | DeviceConfig]"

_EXAMPLES = {"LMs": "'lm.pt'", "weights": "0.5"}


@dataclass(frozen=True)
class NbestFile:
    """A file or folder of n-best lists.

    Attributes:
        path: the file or folder; ``-`` is standard input.
        format: name of the format, as in ``--format``; None recognises it by content.
    """

    path: FilePath
    format: str | None = None

    def __post_init__(self) -> None:
        check_file(self.path, self.format)

    def open(self) -> tuple[NbestFormat | NbestFolderFormat, Iterator[NbestList]]:
        """Return the format, and an iterator that reads the lists on demand.

        Raises:
            InputError: the file cannot be read, its format is unknown or not recognised, or a list is wrong. Errors
                after the first 64 KiB come from the iterator.
        """
        return open_nbest(os.fspath(self.path), self.format)

    def __str__(self) -> str:
        return os.fspath(self.path)


Lists: TypeAlias = NbestFile | FilePath | Iterable[NbestList | Hypotheses]


@dataclass(frozen=True)
class SourceFile:
    """A file of source sentences, one per line, matched with the lists by the same rule as references.

    Attributes:
        path: the file.
        by: how lines are matched with lists, see ``attlm_fairseq.nbest.references``.
        option: the command-line option that sets ``by``, named in error messages.
    """

    path: str
    by: By | None = None
    option: str = REFS_BY

    def __post_init__(self) -> None:
        """Raise InputError for an unknown way to match lines."""
        check_by(self.by)

    def attach(self, lists: Iterable[NbestList]) -> list[NbestList]:
        """Return the lists with their source sentences.

        Raises:
            InputError: the file cannot be read, or its lines do not match the lists.
        """
        lists = list(lists)
        file = read_text_file(self.path, "one source sentence per line", self.option)
        return _with_sources(lists, match_lines([nbest.id for nbest in lists], file, self.by).texts)


# a file, or the source sentences as strings in the order of the lists
Sources: TypeAlias = SourceFile | FilePath | Sequence[str]


def with_sources(lists: Iterable[NbestList], sources: Sources | None) -> Iterable[NbestList]:
    """Return the lists with these source sentences, which replace their own.

    Raises:
        InputError: the file cannot be read, or the source sentences do not match the lists.
    """
    if sources is None:
        return lists
    if isinstance(sources, str | os.PathLike):
        sources = SourceFile(os.fspath(sources))
    if isinstance(sources, SourceFile):
        return sources.attach(lists)
    lists, sources = list(lists), list(sources)
    if len(lists) != len(sources):
        raise InputError(f"{len(sources)} source sentences, but there are {len(lists)} lists: expected one per list, in the same order")
    return _with_sources(lists, sources)


def _with_sources(lists: Sequence[NbestList], sources: Sequence[str]) -> list[NbestList]:
    return [replace(nbest, source=source) for nbest, source in zip(lists, sources, strict=True)]


@dataclass(frozen=True, init=False)
class ReferenceFiles:
    """Files of references, one line per list. Without files, the lists must have their own references.

    Attributes:
        paths: one file per set of references; a single path is one file.
        by: how lines are matched with lists, see ``attlm_fairseq.nbest.references``.
        source: a file of source sentences, matched in the same way, for translation models and external metrics.
        partial: leave out lists that have no reference, instead of refusing them. With files, they are matched by id.
    """

    paths: tuple[str, ...] = ()
    by: By | None = None
    source: str | None = None
    partial: bool = False

    def __init__(
        self, paths: FilePath | Iterable[FilePath] = (), by: By | None = None, source: FilePath | None = None, partial: bool = False
    ) -> None:
        given = [paths] if isinstance(paths, str | os.PathLike) else paths
        require_type("value of paths", given, Iterable, "a path or several")
        files = list(given)
        for path in files:
            require_type("reference file", path, (str, os.PathLike), "a path")
        require_type("file of source sentences", source, (str, os.PathLike, NoneType), "a path")
        check_by(by)
        # the only way to set attributes of a frozen object
        object.__setattr__(self, "paths", tuple(os.fspath(path) for path in files))
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "source", None if source is None else os.fspath(source))
        object.__setattr__(self, "partial", partial)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of all files: references and source."""
        return (*self.paths, self.source) if self.source else self.paths

    def attach(self, lists: Iterable[NbestList]) -> list[NbestList]:
        """Return the lists with their references.

        Raises:
            InputError: a file cannot be read, its lines do not match the lists, or a list has no reference; if ``partial``, none has.
        """
        read, by = read_references(self.paths) if self.paths else None, self.by
        if self.partial:
            lists, by = with_known_references(lists, read, by)
        found = attach_references(lists, read, by)
        return found if self.source is None else SourceFile(self.source, by).attach(found)


# files; or one text (or several alternatives) per list, in the order of the lists or by list id
References: TypeAlias = ReferenceFiles | FilePath | Sequence[str | Sequence[str] | os.PathLike[str]] | Mapping[str, str | Sequence[str]]


def is_file(lists: Lists) -> TypeGuard[NbestFile | FilePath]:
    return isinstance(lists, str | os.PathLike | NbestFile)


def opened_lists(lists: Lists) -> tuple[NbestFormat | NbestFolderFormat | None, Iterator[NbestList]]:
    """Return the format, if the lists are in a file, and an iterator over the lists.

    A list of strings becomes an ``NbestList`` whose id is its position from 0. A single number next to a hypothesis
    becomes its score ``score``. The ranks of a program's lists are their present order, as if they had been written to a
    file: rescored lists count as rescored.

    Raises:
        InputError: as in ``NbestFile.open``. From the iterator: a list of Python objects has no hypotheses, or one
            that is not a text with or without scores.
    """
    if isinstance(lists, str | os.PathLike):
        lists = NbestFile(lists)
    if isinstance(lists, NbestFile):
        return lists.open()
    return None, map(_ranked, _of_program(cast(Iterable, lists)))


def lists_to_write(lists: Lists) -> Iterable[NbestList]:
    """Return lists to write, as a sequence if they are one. Ranks of a program's lists stay, because formats may write them.

    Raises:
        InputError: as in ``opened_lists``.
    """
    if is_file(lists):
        return lists_of(lists)
    given = _of_program(cast(Iterable, lists))
    return list(given) if isinstance(lists, Sequence) else given


def _of_program(lists: Iterable[NbestList | Hypotheses]) -> Iterator[NbestList]:
    if isinstance(lists, NbestList) or not isinstance(lists, Iterable):
        raise InputError(f"the lists are {_shown(lists)}: expected a file or a list of n-best lists")
    return _each_of_program(lists)


def _each_of_program(lists: Iterable[NbestList | Hypotheses]) -> Iterator[NbestList]:
    silent = 0
    for place, given in enumerate(lists):
        nbest = _list_of(place, given)
        if not nbest.hypotheses:
            silent += 1
            nbest = replace(nbest, hypotheses=[Hypothesis("", rank=1)])
        yield nbest
    if silent:
        note(f"note: {silent} lists without hypotheses are read as silence: one hypothesis, an empty text without scores")


def _shown(value: object) -> str:
    """Return a value of the wrong type for a message."""
    return f"{value!r:.60} ({type(value).__name__})"


def require_type(what: str, value: object, types: type | tuple[type, ...], expected: str) -> None:
    """Raise InputError, which says ``what`` the value is, unless it is of these types."""
    if not isinstance(value, types):
        raise InputError(f"the {what} is {_shown(value)}: expected {expected}")


def require_whole_number(name: str, value: object, least: int = 0) -> None:
    """Raise InputError, with the name of the argument, unless its value is a whole number that is at least ``least``."""
    expected = f"a whole number, {least} or more"
    require_type(f"value of {name}", value, Integral, expected)
    if cast("int", value) < least:
        raise InputError(f"the value of {name} is {value}: expected {expected}")


def check_file(path: FilePath, format: str | None) -> None:
    """Raise InputError unless ``path`` is a path and ``format`` a name, or None."""
    require_type("file", path, (str, os.PathLike), "a path")
    require_type("format", format, (str, NoneType), "a name such as 'jsonl'")


def lists_of(lists: Lists) -> Iterator[NbestList]:
    """Yield the lists of ``opened_lists``.

    Raises:
        InputError: as in ``opened_lists``.
    """
    return opened_lists(lists)[1]


def title_of(what: str, lists: Lists) -> str:
    """Return ``what`` followed by the file name, if the lists come from a file."""
    return f"{what} on {lists}" if is_file(lists) else what


def _list_of(place: int, given: NbestList | Hypotheses) -> NbestList:
    if isinstance(given, NbestList):
        nbest = _checked(given)
    else:
        nbest = NbestList(str(place), [_hypothesis_of(place, one) for one in _sequence(place, given)])
    ranks = {hypothesis.rank for hypothesis in nbest.hypotheses}
    return _ranked(nbest) if 0 in ranks or len(ranks) < len(nbest.hypotheses) else nbest


def _checked(nbest: NbestList) -> NbestList:
    """Return the list of a program with scores that are Python's numbers, as files hold them.

    Raises InputError for a hypothesis, text or reference of another type, or a score that is not a number.
    """
    for hypothesis in nbest.hypotheses:
        if not (isinstance(hypothesis, Hypothesis) and isinstance(hypothesis.text, str) and isinstance(hypothesis.scores, Mapping)):
            raise nbest.error(f"list {nbest.id!r} holds {_shown(hypothesis)}: expected attlm.Hypothesis(TEXT, {{NAME: NUMBER}})")
    if isinstance(nbest.references, str) or not all(isinstance(text, str) for text in nbest.references):
        raise nbest.error(f"list {nbest.id!r} has the references {_shown(nbest.references)}: expected a tuple of texts")
    scores = [item for hypothesis in nbest.hypotheses for item in hypothesis.scores.items()]
    if all(type(score) in (float, int) for _, score in scores):
        return nbest
    if wrong := [f"{name} = {score!r}" for name, score in scores if not _is_number(score)]:
        raise nbest.error(f"list {nbest.id!r} has the score {wrong[0]}: expected a number")
    plain = [{name: float(score) for name, score in hypothesis.scores.items()} for hypothesis in nbest.hypotheses]
    return replace(nbest, hypotheses=[replace(one, scores=scores) for one, scores in zip(nbest.hypotheses, plain, strict=True)])


def _ranked(nbest: NbestList) -> NbestList:
    """Return the list with its order as the ranks."""
    return replace(nbest, hypotheses=[replace(hypothesis, rank=rank) for rank, hypothesis in enumerate(nbest.hypotheses, 1)])


def lists_or_texts(lists: Lists, by: By | None = None) -> Iterable[NbestList]:
    """Return the lists; the lines of a file as texts if its format is not recognised.

    Raises InputError if the file cannot be read, or if it is standard input and its format is not recognised.
    """
    if not is_file(lists):
        return lists_of(lists)
    file = lists if isinstance(lists, NbestFile) else NbestFile(lists)
    if file.format != TEXT:
        try:
            form, opened = file.open()
            if form.name == "plain" and file.format is None:
                note(f"note: {file} is read as lists of several texts (plain); if it has one text per line, say --format {TEXT}")
            return opened
        except UnknownFormatError:
            if str(file) == "-":
                raise
        note(f"note: {file} is not an n-best list: read as one text per line")
    return read_texts(str(file), by)


def _sequence(place: int, given: Hypotheses) -> Hypotheses:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"list {place} is {given!r}: expected an NbestList or a list of hypotheses")
    return given


def _hypothesis_of(place: int, given: str | tuple[str, float | Mapping[str, float]]) -> Hypothesis:
    match given:
        case str():
            return Hypothesis(given)
        case (str() as text, Mapping() as scores) if all(map(_is_number, scores.values())):
            return Hypothesis(text, {str(name): float(score) for name, score in scores.items()})
        case (str() as text, score) if _is_number(score):
            return Hypothesis(text, {"score": float(score)})
    raise InputError(f"list {place} has the hypothesis {given!r}: expected a text, (text, score) or (text, {{name: score}})")


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of Python, numpy or torch."""
    return is_number(_plain(value))


def _plain(value: Any) -> Any:
    """Return a scalar of numpy or torch as Python's own; any other value as it is."""
    return value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value


def with_references(lists: Iterable[NbestList], references: References | None) -> list[NbestList]:
    """Return the lists with these references; None: every list must have its own. References carry the source sentence.

    Raises:
        InputError: a file cannot be read, the references do not match the lists, or a list has no reference.
    """
    found = _with_references(lists, references)
    return [nbest if nbest.source is None else replace(nbest, references=with_source(nbest.references, nbest.source)) for nbest in found]


def _with_references(lists: Iterable[NbestList], references: References | None) -> list[NbestList]:
    if references is None:
        return ReferenceFiles().attach(lists)
    if (files := reference_files(references)) is not None:
        return files.attach(lists)
    if isinstance(references, Mapping):
        found = [_with_own(nbest, references.get(nbest.id), "there is no reference of this id") for nbest in lists]
        known = {nbest.id for nbest in found}
        if left_over := [name for name in references if name not in known]:
            counts = f"{len(found)} lists, {len(references)} references with ids"
            note(f"note: {len(left_over)} references are of no list and left over, the first of id {left_over[0]!r}: {counts}")
        return found
    labelled = any(hasattr(references, name) and not callable(getattr(references, name)) for name in ("index", "columns"))
    if isinstance(references, Set) or labelled:  # pandas.Series and the like have labels, which would not be looked at
        advice = "give texts by id (`.to_dict()` of a Series), or a list of texts in the order of the lists (`.tolist()`)"
        raise InputError(f"the references are a {type(references).__name__}: {advice}")
    if not isinstance(references, Iterable):
        raise InputError(f"the references are {_shown(references)}: expected files, texts in the order of the lists, or texts by id")
    lists, texts = list(lists), list(cast("Iterable[str | Sequence[str]]", references))  # neither files nor a mapping
    if texts and all(isinstance(text, str) and text.strip() and os.path.isfile(text) for text in texts):  # noqa: PTH113 - raises for no text
        raise InputError(f"the references {texts[0]!r}, .. are names of files: give ReferenceFiles(..) of them, or Path objects")
    if len(lists) != len(texts):
        raise InputError(f"{len(texts)} references, but there are {len(lists)} lists: expected one per list, in the same order")
    return [_with_own(nbest, given, "its reference is empty") for nbest, given in zip(lists, texts, strict=True)]


def reference_files(references: References | None) -> ReferenceFiles | None:
    """Return the reference files; None if the references are texts or not given."""
    if isinstance(references, ReferenceFiles):
        return references
    if isinstance(references, str | os.PathLike):
        return ReferenceFiles(references)
    if isinstance(references, Sequence):
        paths = [given for given in references if isinstance(given, os.PathLike)]
        if paths and len(paths) == len(references):
            return ReferenceFiles(paths)
    return None


def _with_own(nbest: NbestList, given: str | Sequence[str] | None, problem: str) -> NbestList:
    found = (given,) if isinstance(given, str) or not isinstance(given, Iterable | None) else tuple(given or ())
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise nbest.error(f"list {nbest.id!r}: its reference is {_shown(wrong[0])}: expected a text or several")
    if not found:
        raise nbest.error(f"list {nbest.id!r}: {problem}")
    return replace(nbest, references=found)


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
        raise InputError(f"the metric is {_shown(metric)}: expected a name such as 'wer', or a Metric")
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


def groups_of(lists: Iterable[NbestList], folds_by: str | ContextSpec | None) -> np.ndarray | None:
    """Return the group number (N,) of each list, such as ``id:REGEX`` makes them; None without ``folds_by``.

    Raises:
        InputError: ``folds_by`` has another form or does not fit the ids of the lists, or there is only one group.
    """
    require_type("value of folds_by", folds_by, (str, ContextSpec, NoneType), "'id:REGEX' or 'file:FILE'")
    spec = parse_context(folds_by) if isinstance(folds_by, str) else folds_by
    return None if spec is None else spec.groups([nbest.id for nbest in lists])


def run_config(
    config: RunConfig | FilePath | None = None,
    *,
    lms: Mapping[str, LM] | None = None,
    weights: Mapping[str, float] | None = None,
    text: str | Iterable[str] | TextPipeline | None = None,
    decision: Decision | None = None,
    devices: Devices | None = None,
    context: str | ContextSpec | None = None,
    corrections: FilePath | None = None,
    phrases: FilePath | None = None,
    corrector: FilePath | None = None,
    corrector_languages: str | None = None,
    corrector_prefix: str | None = None,
    candidates: int | None = None,
) -> RunConfig:
    """Build the configuration of a run: an optional base configuration, changed by the other arguments.

    Args:
        config: a RunConfig or the path of an ``attlm.toml``. The ``attlm.toml`` of the current folder is not read
            unless named.
        lms: LMs by name, added to those of ``config``.
        weights: weights of LMs, scores of the lists, ``words`` and ``rank``. Weights of ``config`` not named here stay.
        text: text steps for all LMs that have no steps of their own, such as ``"tokenize:en,lowercase"``.
        decision: the decision rule, such as ``Decision("mbr-wer", scale=2.0)``.
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

    Returns:
        The configuration.

    Raises:
        InputError: a file cannot be read, two LMs have the same name, a text step or device is unknown, an argument is of
            another type, or an LM is already loaded on another device.
    """
    require_type("configuration", config, (RunConfig, str, os.PathLike, NoneType), "a RunConfig or an attlm.toml")
    require_type("decision", decision, (Decision, NoneType), "a Decision, such as Decision('mbr-wer')")
    require_type("context", context, (str, ContextSpec, NoneType), "a text such as 'all', or a ContextSpec")
    run = config if isinstance(config, RunConfig) else RunConfig() if config is None else read_config(Path(config))
    if lms is not None:
        _require_by_name("LMs", lms)
    known = {lm.name for lm in run.lms}
    for name in lms or {}:
        if name in known:
            raise InputError(f"two LMs are called {name!r}; give them different names")
    changes: dict[str, Any] = {"lms": (*run.lms, *(lm_spec(name, lm) for name, lm in (lms or {}).items()))}
    if text is not None:
        changes["text"] = text_pipeline(text)
    if decision is not None:
        changes["decision"] = decision
    if devices is not None:
        changes["devices"] = _devices(devices)
    if context is not None:
        changes["context"] = parse_context(context) if isinstance(context, str) else context
    sources = {"table": corrections, "phrases": phrases, "corrector": corrector}
    of_candidates: dict[str, Any] = {name: Path(os.fspath(file)) for name, file in sources.items() if file is not None}
    of_corrector = {"corrector_languages": corrector_languages, "corrector_prefix": corrector_prefix}
    changes["candidates"] = run.candidates.changed(**of_candidates, **of_corrector, candidates=candidates)
    run = replace(run, **changes).with_weights(plain_weights(weights or {}))
    _require_files(run)
    if devices is not None or run.devices != RunConfig().devices:
        _require_devices_of_loaded(run)
    return run


def plain_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights by name as floats. Raises InputError if they are no dictionary, or one is no finite number."""
    _require_by_name("weights", weights)
    for name, weight in weights.items():
        if not (_is_number(weight) and is_finite(_plain(weight))):
            raise InputError(f"the weight of {name} is {_shown(weight)}: expected a finite number")
    return {name: float(weight) for name, weight in weights.items()}


def _require_by_name(what: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise InputError(f"the {what} are {_shown(given)}: expected a dictionary by name, such as {{'lm': {_EXAMPLES[what]}}}")


def _require_files(run: RunConfig) -> None:
    """Raise InputError if a file of an LM or of candidates is missing, before anything is read. An attlm.toml names files from its
    folder; the message says so."""
    for source in filter(None, (run.candidates.table, run.candidates.phrases, run.candidates.corrector)):
        if not source.exists():
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


def text_name(text: FilePath | Iterable[str]) -> str:
    return os.fspath(text) if isinstance(text, str | os.PathLike) else "lines of a program"


def text_lines(text: FilePath | Iterable[str], expected: str = "one sentence per line") -> TextSource | Iterable[str]:
    """Return a text, one sentence per line, ready to read: a file (``-`` is standard input) or lines.

    Raises InputError if a file cannot be read or holds n-best lists.
    """
    if not isinstance(text, str | os.PathLike):
        if not isinstance(text, Iterable):
            raise InputError(f"the text is {_shown(text)}: expected a file or {expected}")
        return map(_line, text)
    source = TextSource(os.fspath(text), expected)
    form = format_of(source.head)
    if form is not None and form.name not in LIKE_TEXT:
        source.close()
        found = f"holds n-best lists ({form.name})"
        raise InputError(f"{found}: expected {expected}; `attlm rescore` and `attlm eval` read lists", path=source.name)
    return source


def no_sentences(text: FilePath | Iterable[str]) -> InputError:
    """Return the error for a text without a sentence, such as blank lines between documents."""
    return InputError("has no sentence: expected one sentence per line", path=text if isinstance(text, str | os.PathLike) else None)


def _line(line: str) -> str:
    if not isinstance(line, str):
        raise InputError(f"found the line {_shown(line)}: expected a text")
    return line
