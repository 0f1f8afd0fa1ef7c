"""Measure n-best lists, their rescored versions, and other systems' outputs for the same utterances, against references."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from attlm_fairseq.errors import InputError, require_whole_number
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.table_notes import warn_of_part
from attlm_fairseq.nbest.fingerprints import COMMON_SHARE, LEARNED_SHARE
from attlm_fairseq.nbest.line_matching import By
from attlm_fairseq.nbest.metrics.edit_rates import EditRate, Edits
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.references import without_unscored
from attlm_fairseq.nbest.report.report import Report
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG, read_config
from attlm_fairseq.nbest.run.deciding import warn_of_unseen
from attlm_fairseq.nbest.run.decoder_score import with_decoder_score
from attlm_fairseq.nbest.run.rescoring import with_context
from attlm_fairseq.nbest.run.toml_files import in_utf8
from attlm_fairseq.nbest.statistics.calibration import Calibration
from attlm_fairseq.nbest.statistics.evaluation import Row, compare, measure_lists
from attlm_fairseq.nbest.statistics.table import ErrorCounts, as_table, error_table
from attlm_fairseq.nbest.tuning.oracle import oracle
from attlm_fairseq.nbest.tuning.tuned_system import answers_of
from attlm_fairseq.nbest.tuning.tuning import selection
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.verbs.arguments import FilePath, OnProgress
from attlm_fairseq.verbs.calibration import calibrate
from attlm_fairseq.verbs.configuration import metric_of, run_config
from attlm_fairseq.verbs.fit_of_references import warn_of_references
from attlm_fairseq.verbs.lists import Lists, NbestFile, groups_of, is_file, lists_or_texts, title_of
from attlm_fairseq.verbs.references import ReferenceFiles, References, among, reference_files, with_references
from attlm_fairseq.verbs.report import note_samples, row_record, write_report
from attlm_fairseq.verbs.run import Measurement, measure, require_weights, warn_of_subwords
from attlm_fairseq.verbs.systems import lists_of_system

AGAINST = "against the first"
ELSEWHERE = "elsewhere expect tune's cross-validated row"


class System(NamedTuple):
    """The label of a row, the statistics (N, S) of its answers, and their texts (N); None if a row is only measured."""

    label: str
    statistics: np.ndarray
    texts: Sequence[str] | None = None


@dataclass(frozen=True)
class Evaluation:
    """The result of ``evaluate``.

    Attributes:
        rows: one row per system with its 95 % interval: the input order first, the oracle last.
        metric: the metric.
        references: the references of each list.
        run: the LMs, weights and decision that rescored the lists.
        systems: the answers behind the rows.
        calibration: how well word confidences match reality; None unless requested.
    """

    rows: list[Row]
    metric: Metric
    run: RunConfig
    measurement: Measurement = field(repr=False)
    title: str
    notes: list[str] = field(repr=False)
    systems: Sequence[System] = field(repr=False)
    calibration: Calibration | None = None

    @property
    def references(self) -> list[tuple[str, ...]]:
        return self.measurement.lists.references

    @property
    def signature(self) -> str:
        """Return the metric's settings as a sacreBLEU-style signature."""
        return self.metric.signature(self.references)

    def write_report(self, path: FilePath, command: str | None = None) -> None:
        """Write the HTML report: table, weights and what rescoring changed.

        Raises:
            InputError: the file cannot be written, or the LMs have to be loaded again and one cannot be loaded.
        """
        notes, answers = self.notes, None
        first, *others = (system for system in self.systems if system.texts is not None)
        if others:
            notes = [*notes, f"The changes are those from {first.label} to {others[0].label}."]
            answers = list(zip(others[0].texts or (), others[0].statistics, strict=True))
        page = Report(self.title, self.rows, AGAINST, notes=notes, calibration=self.calibration)
        write_report(path, self.run, self.measurement, self.metric, page, command, answers)

    def errors(self) -> dict[str, ErrorCounts]:
        """Return the errors of each system whose texts are known: the input order, the rescored answers, the other systems.

        Raises:
            InputError: the metric counts no single errors of words or characters.
        """
        return {label: ErrorCounts.of(edits) for label, _, edits in self._answers()}

    def write_errors(self, path: FilePath) -> None:
        """Write the errors of each list and system as a tab-separated table with a header.

        Raises:
            InputError: the file cannot be written, or as in ``errors``.
        """
        answers = self._answers()
        with whole_file(os.fspath(path)) as out:
            table = csv.writer(out, dialect="excel-tab", lineterminator="\n")
            table.writerow(["id", "system", *Edits._fields, "reference", "answer"])
            for place, (nbest, references) in enumerate(zip(self.measurement.lists.lists, self.references, strict=True)):
                for label, texts, edits in answers:
                    table.writerow([nbest.id, in_utf8(label), *edits[place], " ||| ".join(references), texts[place]])
        note(f"wrote {path}")

    def _answers(self) -> list[tuple[str, Sequence[str], list[Edits]]]:
        """Return the label, the answers and their edits of each system whose answers are known. Raises InputError as in ``errors``."""
        if not isinstance(self.metric, EditRate):
            raise InputError(f"{self.metric.name} counts no single errors: expected the metric wer or cer")
        answers = [(system.label, system.texts) for system in self.systems if system.texts is not None]
        return [(label, texts, list(map(self.metric.edits, texts, self.references))) for label, texts in answers]

    def __str__(self) -> str:
        """Return what ``attlm eval`` prints: the table, the metric's settings, and how good the word confidences are."""
        lines = [as_table(self.rows, self.metric, AGAINST), f"{len(self.references)} lists; {self.signature}"]
        if isinstance(self.metric, EditRate):
            lines.append(error_table(self.errors(), self.metric.unit))
        return "\n".join([*lines, *([str(self.calibration)] if self.calibration else [])])

    def as_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-serialisable dictionary."""
        systems = list(map(row_record, self.rows))
        if isinstance(self.metric, EditRate):
            for label, counts in self.errors().items():
                next(system for system in systems if system["label"] == label)["errors"] = counts.as_dict()
        found = {"metric": self.signature, "lists": len(self.references), "systems": systems, "notes": self.notes}
        return found | ({"confidence": self.calibration.as_dict()} if self.calibration else {})


def evaluate(
    lists: Lists,
    refs: References | None = None,
    others: Sequence[NbestFile | FilePath] | Mapping[str, Lists] = (),
    *,
    config: RunConfig | FilePath | None = None,
    metric: str | Metric | None = None,
    draw_by: str | ContextSpec | None = None,
    seed: int = 1,
    confidence: bool = False,
    on_progress: OnProgress = None,
) -> Evaluation:
    """Measure the 1-best hypotheses of lists, and of other systems on the same utterances, with 95 % bootstrap intervals.

    With ``config``, the lists are also rescored, with all weights and with each LM alone. Each system is compared with
    the input order: the difference with a 95 % interval, and the p-value of a paired permutation test. The last row is the
    oracle, the best choice from the lists. For BLEU and chrF it is a lower bound of that.

    A system that was tuned on these lists gets no p-value; if it was tuned on a part of them, a warning is logged. Unless
    ``config`` is or was read from a file, the ``others`` count as tuned on these lists if the ``attlm.toml`` of the current
    folder was.

    Args:
        lists: n-best lists, or texts in their place, or a file of lists or of texts, one per line.
        refs: references: files, texts in the order of the lists, or texts by id. None: the lists have their own.
        others: other systems: files of lists or texts, or lists by name.
        config: LMs, weights and decision: a RunConfig or the path of an ``attlm.toml``.
        metric: ``wer``, ``cer``, ``bleu``, ``chrf``, ``chrf++``, ``ter``, ``external:COMMAND``, or a Metric. None: that
            of ``config``, else WER.
        draw_by: which lists are one sample of intervals and p-values, such as those of a document or a speaker, as in
            ``TuneOptions.folds_by``. None: the conversations of a context, else the lists of the same utterance.
        seed: random seed for the bootstrap and the tosses.
        confidence: also measure the word confidences; needs the metric ``wer``. See ``calibration.calibrate``.
        on_progress: called with the number of hypotheses scored since the last call.

    Returns:
        One row per system with its interval, the run that rescored the lists and, if requested, how good the word
        confidences are.

    Raises:
        InputError: the input is unreadable or wrong, files are of different utterances, an LM has no weight, or confidences
            are asked for with fewer than two utterances or a metric other than WER.
    """
    run = run_config(config)
    metric = metric_of(metric, run)
    require_whole_number("seed", seed)
    features = require_weights(run)
    name = str(lists) if is_file(lists) else "input 1-best"
    files = reference_files(refs) or ReferenceFiles()
    as_read = list(lists_or_texts(lists, files.by))
    read = with_references(as_read, refs)
    whole, places = among(as_read, read, refs)
    scored = whole if run.context is not None else read
    context, _ = with_context(run, scored)
    groups = run.groups(read) if draw_by is None else groups_of(read, draw_by, "draw_by")
    found = measure(scored, metric, run, features, on_progress, context, groups, places=places if scored is whole else None)
    run, rescored = _rescored(found, metric, run)
    given = refs is not None and (refs is not files or files.paths)  # then the lists' own references do not count
    further = _further(_by_name(others), found, whole, places, metric, name, files.by, not given)
    best = f"oracle of {name}" if further else "oracle"
    of_best = oracle(found.lists.statistics, metric, [system.statistics for system in rescored[:1]])
    in_sample, notes = _in_sample(rescored, further, run, found.lists.references)
    utterances = found.lists.utterances(metric)
    notes += note_samples(utterances, found.lists.groups is not None, compared=bool(rescored or further))
    systems = [System(name, found.lists.first, [texts[0] for texts in found.lists.texts]), *rescored, *further, System(best, of_best)]
    _require_distinct([system.label for system in systems])
    rows = compare(
        [(system.label, system.statistics) for system in systems],
        metric,
        seed=seed,
        unpaired=[best],
        in_sample=in_sample,
        groups=utterances.tolist(),
    )
    saw = bool(rescored) and rescored[0].label in in_sample
    calibration = calibrate(found.lists, metric, run, utterances, saw) if confidence else None
    return Evaluation(rows, metric, run, found, title_of("Evaluation", lists), notes, systems, calibration)


def _rescored(found: Measurement, metric: Metric, run: RunConfig) -> tuple[RunConfig, list[System]]:
    """Return the run with its effective weights, and its systems: all weights first, then each LM alone.

    Raises InputError if a weight names no feature, or if the decision cannot be made.
    """
    if not (run.lms or run.weights or run.candidates.anything or run.decision.rule != "max"):  # nothing rescores
        return run, []
    run = with_decoder_score(run, found.lists.lists)
    answers = answers_of(found.lists, metric, run.weights, run.decision)
    warn_of_unseen({name for name, value in run.weights.items() if value} - {*found.lists.names})
    measured, names = (found.lists.features, found.lists.statistics), found.lists.names
    alone = [System(f"{lm.name} alone", selection(*measured, {lm.name: 1.0}, names=names)) for lm in run.scored]
    texts, statistics = zip(*answers, strict=True)
    return run, [System(f"rescored, {run.decision}", np.array(statistics), texts), *alone]


def _in_sample(
    rescored: Sequence[System], further: Sequence[System], run: RunConfig, references: Sequence[Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Find the systems that were tuned on these lists, or whose corrections were learned from them.

    Returns their labels and notes for the report, and logs the notes. If ``run`` was not read from a file, the current
    folder's ``attlm.toml`` may have written the further systems.
    """
    # a file with the same answers as these weights was written by them
    same = [one.label for one in further if rescored and np.array_equal(one.statistics, rescored[0].statistics)]
    of_weights = [*(one.label for one in rescored[:1]), *same]
    labels, reasons = _seen(run, of_weights, [*(one.label for one in rescored), *same], references)
    notes = []
    if reasons:
        line = f"the {' and the '.join(reasons)}: they look too good, so there is no p; {ELSEWHERE}"
        if others := [system.label for system in further if system.label not in labels]:
            line += f". {', '.join(others)}: p is too small if the same weights chose these answers, too"
        notes.append(line)
    if run.path is None and not run.tuned_on and further and DEFAULT_CONFIG.is_file():
        of_further = [system.label for system in further]
        guessed, reasons = _seen(read_config(DEFAULT_CONFIG), of_further, of_further, references)
        labels += [label for label in guessed if label not in labels]
        if reasons:
            line = f"if the other systems were rescored with {DEFAULT_CONFIG}, they look too good, so there is no p: "
            notes.append(f"{line}its {' and its '.join(reasons)} ({ELSEWHERE}; --config names another file)")
    for line in notes:
        note(f"note: {line}")
    return labels, [f"{line[:1].upper()}{line[1:]}." for line in notes]


def _seen(
    run: RunConfig, of_weights: Sequence[str], of_corrections: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Return which of the systems that weights or corrections of a run made have seen the references, and why."""
    labels: list[str] = []
    reasons = []
    tuned = run.share_tuned_on(run.weights, references)
    if tuned > LEARNED_SHARE:
        reasons.append("weights were tuned on these lists")
        labels += of_weights
    elif tuned > COMMON_SHARE and of_weights:
        note(
            f"WARNING: about {tuned:.0%} of these references are among those that the weights were tuned on. If the lists are the same, "
            "the figures are too good and p is too small: measure the other lists alone"
        )
    learned = run.candidates.read_table() if of_corrections and run.adds_candidates else None
    if learned is not None and run.candidates.table is not None:
        share = learned.share_of(references)
        warn_of_part(run.candidates.table, share)
        if share > LEARNED_SHARE:
            reasons.append("corrections were learned from these lists")
            labels += [label for label in of_corrections if label not in labels]  # an LM alone chooses among their candidates, too
    return labels, reasons


def _further(
    others: Mapping[str, Lists],
    found: Measurement,
    whole: Sequence[NbestList],
    places: Sequence[int],
    metric: Metric,
    name: str,
    by: By | None,
    compare_references: bool,
) -> list[System]:
    """Return the further systems with the statistics of their 1-best hypotheses.

    ``name``: of the first system, ``whole``: all of its lists, ``places``: those that are measured.

    Raises InputError if one cannot be read or is of other utterances.
    """
    systems, first = [], found.lists.lists
    for label, other in others.items():
        of_texts = None if by == "id" else by  # --refs-by id is about references: further texts need no ids
        of_system = lists_of_system(label, other, whole, name, of_texts, compare_references)
        lists = [of_system[place] for place in places]
        of_first = [replace(own, references=nbest.references, unscored=nbest.unscored) for own, nbest in zip(lists, first, strict=True)]
        measured = measure_lists(without_unscored(of_first, label), metric)
        warn_of_subwords(measured.lists, metric)
        warn_of_references(measured.lists, metric, system=label)
        systems.append(System(label, measured.first, [texts[0] for texts in measured.texts]))
    return systems


def _by_name(others: Sequence[NbestFile | FilePath] | Mapping[str, Lists]) -> Mapping[str, Lists]:
    """Return the other systems by name, which is a file's path. Raises InputError for lists without a name, or one name twice."""
    if isinstance(others, Mapping):
        return others
    if isinstance(others, NbestFile | str | os.PathLike):
        raise InputError(f"the other systems are {str(others)!r}: expected a list of files, such as [{str(others)!r}]")
    given = list(others) if isinstance(others, Iterable) else [others]
    if not all(map(is_file, given)):
        raise InputError("other systems that are not files need names: expected a dictionary, such as {'rescored': lists}")
    _require_distinct(list(map(str, given)))
    return {str(other): other for other in given}


def _require_distinct(labels: Sequence[str]) -> None:
    """Raise InputError if two systems have the same label."""
    if twice := [label for place, label in enumerate(labels) if label in labels[:place]]:
        raise InputError(f"two systems are called {twice[0]!r}: give each a name of its own")
