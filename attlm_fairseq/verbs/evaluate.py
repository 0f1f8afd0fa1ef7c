"""Measure n-best lists, their rescored versions, and other systems' outputs for the same utterances, against references."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError, UnknownFormatError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.references import TEXT, By, read_further, read_texts
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG, read_config
from attlm_fairseq.nbest.run.decoder_score import with_decoder_score
from attlm_fairseq.nbest.run.rescoring import context_of
from attlm_fairseq.nbest.statistics.calibration import Calibration
from attlm_fairseq.nbest.statistics.evaluation import Row, compare, measure_lists
from attlm_fairseq.nbest.tuning.oracle import oracle
from attlm_fairseq.nbest.tuning.tuned_system import answers_of
from attlm_fairseq.nbest.tuning.tuning import selection
from attlm_fairseq.verbs.calibration import calibrate
from attlm_fairseq.verbs.inputs import (
    FilePath,
    Lists,
    NbestFile,
    OnProgress,
    ReferenceFiles,
    References,
    lists_of,
    metric_of,
    reference_files,
    run_config,
    title_of,
    with_references,
)
from attlm_fairseq.verbs.report import Table, note_repeats, row_record, write_report
from attlm_fairseq.verbs.run import (
    Measurement,
    measure,
    require_candidate_weights,
    require_weights,
    warn_of_subwords,
    warn_of_unseen,
)

AGAINST = "against the first"


@dataclass(frozen=True)
class Evaluation:
    """The result of ``evaluate``.

    Attributes:
        rows: one row per system with its 95 % interval: the input order first, the oracle last.
        metric: the metric.
        references: the references of each list.
        run: the LMs, weights and decision that rescored the lists.
        calibration: how well word confidences match reality; None unless requested.
    """

    rows: list[Row]
    metric: Metric
    run: RunConfig
    measurement: Measurement = field(repr=False)
    title: str
    notes: list[str] = field(repr=False)
    calibration: Calibration | None = None

    @property
    def references(self) -> list[tuple[str, ...]]:
        """Return the references of each list."""
        return self.measurement.lists.references

    @property
    def signature(self) -> str:
        """Return the metric's settings as a sacreBLEU-style signature."""
        return self.metric.signature(self.references)

    def write_report(self, path: FilePath, command: str | None = None) -> None:
        """Write the HTML report: table, weights and what rescoring changed. Raises InputError."""
        table = Table(self.title, self.rows, AGAINST, self.notes, calibration=self.calibration)
        write_report(path, self.run, self.measurement, self.metric, table, command)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-serialisable dictionary."""
        found = {"metric": self.signature, "lists": len(self.references), "systems": list(map(row_record, self.rows)), "notes": self.notes}
        return found | ({"confidence": self.calibration.as_dict()} if self.calibration else {})


def evaluate(
    lists: Lists,
    refs: References | None = None,
    others: Sequence[NbestFile | FilePath] | Mapping[str, Lists] = (),
    *,
    config: RunConfig | FilePath | None = None,
    metric: str | Metric = "wer",
    seed: int = 1,
    confidence: bool = False,
    on_progress: OnProgress = None,
) -> Evaluation:
    """Measure the 1-best hypotheses of lists, and of other systems on the same utterances, with 95 % bootstrap intervals.

    With ``config``, the lists are also rescored, with all weights and with each LM alone. Each system is compared with
    the input order: the difference, and the p-value of a paired permutation test. The last row is the oracle, the best
    choice from the lists. For BLEU and chrF it is a lower bound of that.

    A system that was tuned on these lists gets no p-value. Without ``config``, the ``others`` count as tuned on these
    lists if the ``attlm.toml`` of the current folder was.

    Args:
        lists: n-best lists, or a file of lists or of texts, one per line.
        refs: references: files, texts in the order of the lists, or texts by id. None: the lists have their own.
        others: other systems: files of lists or texts, or lists by name.
        config: LMs, weights and decision: a RunConfig or the path of an ``attlm.toml``.
        metric: ``wer``, ``cer``, ``bleu``, ``chrf``, ``ter``, or a Metric.
        seed: random seed for the bootstrap.
        confidence: also measure the word confidences; needs the metric ``wer``. See ``calibration.calibrate``.
        on_progress: called with the number of hypotheses scored since the last call.

    Raises:
        InputError: the input is unreadable or wrong, files are of different utterances, or an LM has no weight.
    """
    metric, run = metric_of(metric), run_config(config)
    features = require_weights(run)
    name = str(lists) if isinstance(lists, str | os.PathLike | NbestFile) else "as read"
    files = reference_files(refs) or ReferenceFiles()
    if isinstance(lists, str | os.PathLike):
        lists = NbestFile(lists)
    read = _texts_or_lists(lists, files.by) if isinstance(lists, NbestFile) else lists_of(lists)
    require_candidate_weights(run)
    referenced = with_references(read, refs)
    context = context_of(run, referenced[0] if referenced else None, run.weights)
    found = measure(referenced, metric, run, features, on_progress, context)
    systems, answers = [(name, found.lists.first)], None
    if config is not None and run != RunConfig(
        context=run.context
    ):  # a config with only a context rescores nothing: it says which lists the bootstrap draws together
        run, label, answers = _rescored(found, metric, run)
        systems.append((label, answers))
        systems += [(f"{lm.name} alone", _alone(found, lm.name)) for lm in run.scored]
    further = others.items() if isinstance(others, Mapping) else [(str(other), other) for other in others]
    systems += [(label, _further(other, found, metric, name, files)) for label, other in further]
    best = f"oracle of {name}" if further else "oracle"
    systems.append((best, oracle(found.lists.statistics, metric, [] if answers is None else [answers])))
    in_sample, notes = _in_sample(systems, {label for label, _ in further}, answers, config, run, found)
    utterances = found.lists.utterances(metric)
    notes += note_repeats(utterances)
    rows = compare(systems, metric, seed=seed, unpaired=[best], in_sample=in_sample, groups=utterances.tolist())
    calibration = calibrate(found.lists, metric, run, utterances) if confidence else None
    return Evaluation(rows, metric, run, found, title_of("Evaluation", lists), notes, calibration)


def _rescored(found: Measurement, metric: Metric, run: RunConfig) -> tuple[RunConfig, str, np.ndarray]:
    """Return the run with its effective weights, its row label, and the statistics (N, S) of its answers. Raises InputError."""
    weights = with_decoder_score(run, run.weights, found.lists.lists[0], note)
    run = replace(run, weights=weights)
    answers = answers_of(found.lists, metric, weights, run.decision)
    warn_of_unseen({name for name, value in weights.items() if value} - {*found.lists.names})
    return run, f"rescored, {run.decision}", np.array([statistics for _, statistics in answers])


def _alone(found: Measurement, lm: str) -> np.ndarray:
    """Return the statistics (N, S) of the hypotheses that one LM alone ranks first."""
    return selection(found.lists.features, found.lists.statistics, {lm: 1.0}, names=found.lists.names)


def _in_sample(
    systems: Sequence[tuple[str, np.ndarray]],
    further: set[str],
    answers: np.ndarray | None,
    config: object,
    run: RunConfig,
    found: Measurement,
) -> tuple[list[str], list[str]]:
    """Find the systems that were tuned on these lists; return their labels and notes for the report, and log a note."""
    references = found.lists.references
    if config is not None:
        if not run.tuned_on_these(run.weights, references):
            return [], []
        line = "the weights were tuned on these lists, which flatters them, so there is no p: elsewhere expect tune's cross-validated row"
        # a file with the same answers as these weights was written by them
        labels = [
            label
            for label, of_system in systems[1:]
            if not label.startswith("oracle") and answers is not None and np.array_equal(of_system, answers)
        ]
    else:
        here = read_config(DEFAULT_CONFIG) if further and DEFAULT_CONFIG.is_file() else RunConfig()
        if not here.tuned_on_these(here.weights, references):
            return [], []
        line = (
            f"the weights of {DEFAULT_CONFIG} were tuned on these lists, which flatters what they have written, so there is no p: "
            "elsewhere expect tune's cross-validated row; --config names another file"
        )
        labels = [label for label, _ in systems if label in further]
    note(f"note: {line}")
    return labels, [f"{line[:1].upper()}{line[1:]}."]


def _texts_or_lists(file: NbestFile, by: By | None) -> Iterable[NbestList]:
    """Return the lists of a file, or its lines as texts if its format is not recognised. Raises InputError."""
    if file.format != TEXT:
        try:
            return file.open()[1]
        except UnknownFormatError:
            if str(file) == "-":
                raise
        note(f"note: {file} is not an n-best list: read as one text per line")
    return read_texts(str(file), by, note)


def _further(other: Lists, found: Measurement, metric: Metric, first_name: str, references: ReferenceFiles) -> np.ndarray:
    """Return the statistics (N, S) of another system's 1-best hypotheses for the same utterances. Raises InputError."""
    if isinstance(other, str | os.PathLike | NbestFile):
        lists = _further_file(other if isinstance(other, NbestFile) else NbestFile(other), found.lists.lists, first_name, references)
    else:
        lists = list(lists_of(other))
        if len(lists) != len(found.lists.lists):
            raise InputError(f"{len(lists)} lists, but {first_name} has {len(found.lists.lists)}: compare lists of the same utterances")
        lists = [replace(own, references=nbest.references) for own, nbest in zip(lists, found.lists.lists, strict=True)]
    measured = measure_lists(lists, metric)
    warn_of_subwords(measured.lists, metric)
    return measured.first


def _further_file(file: NbestFile, first: Sequence[NbestList], first_name: str, references: ReferenceFiles) -> list[NbestList]:
    further, told = read_further(str(file), file.format, first, first_name, references.by)
    if told:
        note(told)
    lists = []
    for own, nbest in zip(further, first, strict=True):
        if own.references and not references.paths and own.references != nbest.references:
            message = f"the reference of list {own.id!r} is not that of {first_name}; compare the same utterances in the same order"
            raise InputError(message, path=file, line=own.line)
        lists.append(replace(own, references=nbest.references))
    return lists
