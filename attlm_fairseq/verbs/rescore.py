"""Rescore n-best lists: put the best hypothesis of each list first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.confidence import Confidence
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.formats import (
    CONVERTIBLE,
    CONVERTIBLE_FOLDERS,
    ONE_BEST,
    Holds,
    NbestFolderFormat,
    NbestFormat,
    find_target,
    format_in_name,
    holding_new,
    write_nbest,
    write_one_best,
)
from attlm_fairseq.nbest.formats.as_read import expanded_for
from attlm_fairseq.nbest.formats.ctm import write_ctm
from attlm_fairseq.nbest.formats.sausage import write_sausages
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.deciding import ListDecider
from attlm_fairseq.nbest.run.rescoring import with_context
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.nbest.run.workers import OneProcess, Processes
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.verbs.arguments import FilePath, OnProgress
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.conversion_losses import Losses
from attlm_fairseq.verbs.fit_of_references import SAMPLE_LISTS
from attlm_fairseq.verbs.lists import Lists, opened_lists
from attlm_fairseq.verbs.overwriting import check_files, files_of_lists, files_of_sources
from attlm_fairseq.verbs.run import hint_at_clauses, require_lms, require_weights, scoring, warn_of_other_candidates, warn_of_other_lms
from attlm_fairseq.verbs.sources import Sources, with_sources
from attlm_fairseq.version import __version__

OF_WORDS: dict[str, Callable[[Iterable[NbestList], str], None]] = {"ctm": write_ctm, "sausage": write_sausages}  # need confidences
WITH_CONFIDENCES = ("jsonl", "json")
OUTPUTS = ("same", *dict.fromkeys((*CONVERTIBLE, *CONVERTIBLE_FOLDERS)), *ONE_BEST, *OF_WORDS)


@dataclass(frozen=True)
class RescoreOutput:
    """Where and how to write rescored lists. Lists are written as they are scored, so they may be larger than memory.

    Attributes:
        path: a file (``.gz`` compresses), which is replaced if it exists; ``-`` for standard output, or a new folder.
        to: one of OUTPUTS: ``same`` (the input's format; of lists in memory that in which ``path`` ends), another format, the
            1-best texts, or words with confidences (``ctm``, ``sausage``).
        resume: keep the scores in ``PATH.unfinished`` until the output is complete, so that the same call can continue
            after an interruption.
    """

    path: FilePath = "-"
    to: str = "same"
    resume: bool = True

    def __post_init__(self) -> None:
        if self.to not in OUTPUTS:
            raise InputError(f"output {self.to!r}: expected one of {', '.join(OUTPUTS)}")


@dataclass(frozen=True)
class Rescored:
    """The result of ``rescore``; iterating yields its lists, so it may be given where lists are.

    Attributes:
        lists: the lists, best hypothesis first, with ``lm_scores`` and ``total``. Empty if they were written to a
            RescoreOutput. If ``[confidence]`` was tuned, each list has a ``sausage``: its confusion network, and the
            confidences of the words of its answer.
        list_count: number of lists.
        hypothesis_count: number of hypotheses.
        changed: number of lists whose 1-best text changed.
        new_texts: number of answers that are in no list (ROVER).
        weights: the weights used, including the default weight of the decoder's own score.
        decision: the decision rule used.
        oov: the unknown words of each LM, by LM name.
        record: what is needed to reproduce the result: files with their hashes, weights, decision, version.
        conversations: names of the conversations, if there is a context.
    """

    lists: list[NbestList] = field(repr=False)
    list_count: int
    hypothesis_count: int
    changed: int
    new_texts: int
    weights: dict[str, float]
    decision: Decision
    oov: dict[str, OOVCount] = field(repr=False)
    record: dict[str, Any] = field(repr=False)
    conversations: list[str] = field(default_factory=list, repr=False)

    def __iter__(self) -> Iterator[NbestList]:
        if self.list_count > len(self.lists):
            raise InputError("the rescored lists were written to the output: read them with attlm.read_nbest")
        return iter(self.lists)

    def __str__(self) -> str:
        total = " + ".join(f"{weight:g} {name}" for name, weight in self.weights.items() if weight)
        return f"{self.summary}\ndecision: {self.decision}; total = {total or 0}"

    @property
    def summary(self) -> str:
        said = f"{self.changed} changed (another 1-best text), {self.list_count - self.changed} unchanged"
        if self.decision.makes_text:
            said += f"; {self.new_texts} answers are in no list"
        return f"{self.list_count} lists, {self.hypothesis_count} hypotheses; {said}"


def rescore(
    lists: Lists,
    lms: Mapping[str, LM] | None = None,
    weights: Mapping[str, float] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    source: Sources | None = None,
    output: RescoreOutput | FilePath | None = None,
    on_progress: OnProgress = None,
) -> Rescored:
    """Score the hypotheses with LMs, combine the scores, and put the best hypothesis of each list first.

    The total of a hypothesis is a weighted sum of its LM scores (natural log, summed over words and sentence end), the
    scores in the list, its number of words and its rank in the input (0, 1, ..). If an LM has a weight, and neither a score
    of the list nor ``rank`` is given one (0 counts as given), the decoder's own score gets weight 1: the only score, or
    ``decoder``, ``score``, ``total`` or ``systems_vote``. With candidates it does not.

    Args:
        lists: n-best lists: NbestLists, lists of strings, or a file.
        lms: LMs by name, as files or objects.
        weights: weights of LMs, of the lists' scores, of ``words``, ``rank``, ``NAME_oov``, ``NAME_tokens``,
            ``A_minus_B``.
        config: LMs, text steps, weights and decision: the config that ``tune`` returns, or the path of an
            ``attlm.toml``.
        source: source sentences for translation models: a file, or texts in the order of the lists. All lists are then
            held in memory. None: the lists have their own.
        output: where to write the lists: a RescoreOutput, or a file in the format of the input. None returns them.
        on_progress: called with the number of hypotheses finished since the last call.

    Returns:
        The lists, the counts and the record.

    Raises:
        InputError: the input is unreadable or wrong, an LM has no weight, or a weight names no feature. Nothing is
            written then.
    """
    if isinstance(output, str | os.PathLike):
        output = RescoreOutput(output)
    require_type("output", output, (RescoreOutput, NoneType), "a file, or RescoreOutput(..)")
    run = run_config(config, lms=lms, weights=weights)
    check_files(
        {"the input": files_of_lists(lists), "the configuration": [run.path], "the source": files_of_sources(source)},
        {"the output": None if output is None else output.path},
        run,
        folders=True,
    )
    form, opened = opened_lists(lists)
    features = require_weights(run)
    if not run.weights and run.decision.rule == "max":
        require_lms(run)
    return rescore_opened(form, with_sources(opened, source), run, features, output, on_progress)


def rescore_opened(
    form: NbestFormat | NbestFolderFormat | None,
    lists: Iterable[NbestList],
    run: RunConfig,
    features: list[str],
    output: RescoreOutput | None = None,
    on_progress: OnProgress = None,
    loaded: OneProcess | Processes | None = None,
) -> Rescored:
    """Rescore lists that have been opened.

    Args:
        form: the format they were read from; None for lists in memory.
        lists: the lists, with the source sentences that they need.
        run: the configuration.
        features: its LM features with weights, of ``require_weights``.
        output: as for ``rescore``.
        on_progress: as for ``rescore``.
        loaded: the LMs of the run, of ``open_workers``. None: they are loaded, and dropped at the end.

    Raises:
        InputError: as for ``rescore``.
    """
    writer = _writer(form, output, run) if output else _collector(run)
    resumes = output is not None and output.resume
    cache = ScoreCache.of_output(os.fspath(output.path), run, run.devices[0], features) if output and resumes else ScoreCache(None)
    decider = ListDecider(run, features, writer.confidence)
    run = replace(run, candidates=run.candidates.noted()) if run.adds_candidates else run
    signatures: dict[str, Mapping[str, Any]] = {}
    with cache.telling_how_to_continue():
        context, read = with_context(run, lists)
        sample: list[str] = []
        read = _sampled(read, sample)
        with scoring(run, features, on_progress, cache, context, loaded) as rescorer:
            # closed if deciding or writing fails: whoever keeps the exception would keep the scores' file locked
            with contextlib.closing(rescorer.score(rescorer.workers.expand(read))) as scored:
                writer.write(_then(decider.decide_all(scored), lambda: signatures.update(rescorer.workers.signatures())))
            cache.finish()
    warn_of_other_lms(run, signatures)
    warn_of_other_candidates(run)
    hint_at_clauses(sample, run.decision)
    record = {"weights": dict(decider.weights), "decision": str(run.decision), "attlm": __version__, "lm": signatures}
    counts: dict[str, Any] = dict(decider.counts)
    return Rescored(
        writer.kept,
        **counts,
        weights=decider.weights,
        decision=run.decision,
        oov=rescorer.oov,
        record=record,
        conversations=rescorer.conversations,
    )


def _then(lists: Iterable[NbestList], act: Callable[[], object]) -> Iterator[NbestList]:
    """Yield the lists, then act: an output appears only after that. Signatures raise InputError for a file that has changed."""
    yield from lists
    act()


def _sampled(lists: Iterable[NbestList], sample: list[str]) -> Iterator[NbestList]:
    """Yield the lists, and add the first hypotheses of the first SAMPLE_LISTS to ``sample``."""
    for nbest in lists:
        if len(sample) < SAMPLE_LISTS:
            sample.append(nbest.hypotheses[0].text)
        yield nbest


@dataclass(frozen=True)
class _Writer:
    """A function that writes or keeps decided lists, and the Confidence for their words; None if they are not written."""

    write: Callable[[Iterable[NbestList]], None]
    confidence: Confidence | None = None
    kept: list[NbestList] = field(default_factory=list)


def _collector(run: RunConfig) -> _Writer:
    kept: list[NbestList] = []
    return _Writer(kept.extend, run.confidence, kept)


def _writer(form: NbestFormat | NbestFolderFormat | None, output: RescoreOutput, run: RunConfig) -> _Writer:
    """Return the writer for this output. Raises InputError if the output cannot hold what the decision makes."""
    path = os.fspath(output.path)
    to = _written_as(form, path, output.to, run)
    if to in OF_WORDS:
        confidence = run.confidence
        if confidence is None:
            confidence = Confidence(run.decision.scale)
            found = f"posteriors at scale {confidence.scale:g}"
            note(f"note: the confidences are {found}: `attlm tune --confidence` fits them to how often words are right")
        return _Writer(lambda lists: OF_WORDS[to](lists, path), confidence)
    if to in ONE_BEST:
        return _Writer(lambda lists: write_one_best(lists, path, style=ONE_BEST[to]))
    if run.decision.makes_text:
        return _answer_writer(find_target(to, path, form), path, run)
    return _list_writer(form, path, to, run)


def _answer_writer(target: NbestFormat | NbestFolderFormat, path: str, run: RunConfig) -> _Writer:
    """Return the writer of lists of one hypothesis, which need not have been in its list: it has no scores.

    Raises InputError if the format needs the decoder's own.
    """
    if target.holds is not None and target.holds.main_score is not None:
        raise InputError(f"--to {target.name} needs the decoder's own score, which a consensus does not have: write jsonl, or 1best")
    losses = Losses(target.name, replace(target.holds or Holds(), scores=True))  # an answer has none

    def write(lists: Iterable[NbestList]) -> None:
        watched = losses.watch(lists)
        answers = (replace(one, hypotheses=[Hypothesis(one.hypotheses[0].text)], sparse=False, verbatim=None) for one in watched)
        write_nbest(answers, target, path)
        losses.told()

    return _Writer(write, _confidence_in(target, run))


def _confidence_in(target: NbestFormat | NbestFolderFormat, run: RunConfig) -> Confidence | None:
    """Return the confidences of the run, None if the format has no place for them, with a note."""
    if run.confidence is None or target.name in WITH_CONFIDENCES:
        return run.confidence
    note(f"note: {target.name} has no place for word confidences; {', '.join(WITH_CONFIDENCES)} have, and --to ctm and sausage")
    return None


def _write_new(lists: Iterable[NbestList], target: NbestFormat | NbestFolderFormat, path: str) -> None:
    """Write lists in a format that is not theirs, and tell what it has no place for."""
    losses = Losses(target.name, target.holds or Holds())
    write_nbest(losses.watch(lists, new_only=True), target, path)
    losses.told()


def _written_as(form: NbestFormat | NbestFolderFormat | None, path: str, to: str, run: RunConfig) -> str:
    """Return ``to``, or the format to which ``same`` has to change: no file was read, or its format cannot hold what this run makes."""
    if to == "same" and form is None:
        to = format_in_name(path) or to
    if to == "same" and run.adds_candidates and form is not None and form.name in OF_WORDS:
        return form.name  # its own lines cannot hold other words
    if to in OF_WORDS:
        return to
    if run.decision.makes_text and to not in ONE_BEST:
        if to != "same":
            return to
        if form is None or form.name != "text":
            note("note: a consensus need not be in its list: lines of text are written, without ids and scores; --to jsonl has ids")
        return "1best"
    if run.adds_candidates and to == "same":
        to = holding_new(form, path).name
        if form is not None and to != form.name:
            more = "a folder is written if the name ends in /" if form.holds is not None else "--to 1best writes text"
            note(f"note: with new hypotheses, lists of {form.name} are written as {to}; {more}")
    return to


def _list_writer(form: NbestFormat | NbestFolderFormat | None, path: str, to: str, run: RunConfig) -> _Writer:
    target = form if to == "same" else find_target(to, path, form)
    if target is None:
        ways = f"name the output as in lists.jsonl, or give RescoreOutput(.., to=) one of {', '.join(OUTPUTS[1:])}"
        raise InputError(f"lists that were not read from a file have no format of their own: {ways}")
    ending = Path(path.removesuffix(".gz")).suffix[1:].lower()
    if to == "same" and target.name != ending and {ending, target.name} & {"csv", "tsv"} and ending in CONVERTIBLE:
        note(f"note: {path} is written in the format of the input, {target.name}: --to {ending} writes another")
    confidence = _confidence_in(target, run)
    is_other = form is None or target.name != form.name
    if run.adds_candidates or is_other:
        when = f"in {target.name}" if is_other else "with added candidates"
        return _Writer(lambda lists: _write_new(expanded_for(lists, target.keeps, when), target, path), confidence)
    if not target.has_scores:
        note(f"note: {target.name} has no place for scores: only the order of the hypotheses changes")
    return _Writer(lambda lists: write_nbest(lists, target, path), confidence)
