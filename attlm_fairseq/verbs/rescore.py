"""Rescore n-best lists: put the best hypothesis of each list first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from attlm_fairseq import __version__
from attlm_fairseq.batching import batch_by_size
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.confidence import Confidence, with_confidences
from attlm_fairseq.nbest.decision.decision import Decision, decide
from attlm_fairseq.nbest.features.combination import COMPUTED
from attlm_fairseq.nbest.formats import (
    CONVERTIBLE,
    ONE_BEST_STYLES,
    NbestFolderFormat,
    NbestFormat,
    find_format,
    holding_new,
    write_nbest,
    write_one_best,
)
from attlm_fairseq.nbest.formats.ctm import write_ctm
from attlm_fairseq.nbest.formats.sausage import write_sausages
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.decoder_score import with_decoder_score
from attlm_fairseq.nbest.run.rescoring import context_of
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.text.subwords import SubwordMarks
from attlm_fairseq.verbs.inputs import LM, FilePath, Lists, NbestFile, OnProgress, Sources, lists_of, run_config, with_sources
from attlm_fairseq.verbs.run import (
    require_candidate_weights,
    require_lms,
    require_weights,
    scoring,
    warn_of_unseen,
)

ONE_BEST = {f"1best-{style}" if style != "text" else "1best": style for style in ONE_BEST_STYLES}
OF_WORDS: dict[str, Callable[[Iterable[NbestList], str], None]] = {"ctm": write_ctm, "sausage": write_sausages}  # need confidences
COMPARISONS = 1 << 18  # hypothesis pairs sent to the program of mbr-external in one run
OUTPUTS = ("same", *CONVERTIBLE, *ONE_BEST, *OF_WORDS)


@dataclass(frozen=True)
class RescoreOutput:
    """Where and how to write rescored lists. Lists are written as they are scored, so they may be larger than memory.

    Attributes:
        path: a file (``.gz`` compresses), ``-`` for standard output, or a new folder.
        to: one of OUTPUTS: ``same`` (the input's format), another format, the 1-best texts, or words with confidences
            (``ctm``, ``sausage``).
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
    """The result of ``rescore``.

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

    @property
    def summary(self) -> str:
        """Return the counts in one line."""
        said = f"{self.changed} changed (their first text is another), {self.list_count - self.changed} as read"
        if self.decision.makes_text:
            said += f"; {self.new_texts} texts in no list: the words' votes made them"
        return f"{self.list_count} lists, {self.hypothesis_count} hypotheses; {said}"


def rescore(
    lists: Lists,
    lms: Mapping[str, LM] | None = None,
    weights: Mapping[str, float] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    source: Sources | None = None,
    output: RescoreOutput | None = None,
    on_progress: OnProgress = None,
) -> Rescored:
    """Score the hypotheses with LMs, combine the scores, and put the best hypothesis of each list first.

    The total of a hypothesis is a weighted sum of its LM scores (natural log, summed over words and sentence end), the
    scores in the list, its number of words and its rank (0, 1, ..). If no score of the list has a weight and ``rank``
    has none either, the decoder's own score gets weight 1.

    Args:
        lists: n-best lists: NbestLists, lists of strings, or a file.
        lms: LMs by name, as files or objects.
        weights: weights of LMs, of the lists' scores, of ``words``, ``rank``, ``NAME_oov``, ``NAME_tokens``,
            ``A_minus_B``.
        config: LMs, text steps, weights and decision: the config that ``tune`` returns, or the path of an
            ``attlm.toml``.
        source: source sentences for translation models: a file, or texts in the order of the lists. All lists are then
            held in memory. None: the lists have their own.
        output: where to write the lists; None returns them.
        on_progress: called with the number of hypotheses finished since the last call.

    Returns:
        The lists, the counts and the record.

    Raises:
        InputError: the input is unreadable or wrong, an LM has no weight, or a weight names no feature. Nothing is
            written then.
    """
    if isinstance(lists, str | os.PathLike):
        lists = NbestFile(lists)
    form, opened = lists.open() if isinstance(lists, NbestFile) else (None, lists_of(lists))
    run = run_config(config, lms=lms, weights=weights)
    features = require_weights(run)
    require_candidate_weights(run)
    if not run.weights and run.decision.rule == "max":
        require_lms(run)
    writer = _writer(form, output, run) if output else None
    cache = _cache(output, run, features) if output and output.resume else ScoreCache(None)
    deciding = _Deciding(run, features, writer.confidence if writer else run.confidence)
    kept: list[NbestList] = []
    try:
        first, read = _first(with_sources(opened, source))
        with scoring(run, features, on_progress, cache, context_of(run, first, run.weights)) as rescorer:
            decided = deciding.decide_all(rescorer.score(rescorer.workers.expand(read)))
            if writer:
                writer.write(decided)
            else:
                kept = list(decided)
            cache.finish()
            signatures = rescorer.workers.signatures()
    except KeyboardInterrupt:
        if cache.path is not None and cache.path.exists():
            raise KeyboardInterrupt(f"the same command continues: the scores so far are in {cache.path}") from None
        raise
    deciding.tell()
    record = {"weights": deciding.weights, "decision": str(run.decision), "attlm": __version__, "lm": signatures}
    return Rescored(kept, **deciding.counts, weights=deciding.weights, decision=run.decision, oov=rescorer.oov, record=record)


def _first(lists: Iterable[NbestList]) -> tuple[NbestList | None, Iterable[NbestList]]:
    """Return the first list (None if there is none), and an iterable over all lists."""
    rest = iter(lists)
    first = next(rest, None)
    return first, rest if first is None else chain([first], rest)


class _Deciding:
    """Decides on each scored list as it passes by, counts changes, and logs the notes at the end."""

    def __init__(self, run: RunConfig, features: Iterable[str], confidence: Confidence | None) -> None:
        self.run, self.confidence = run, confidence
        self.weights = dict(run.weights)
        self.counts = {"list_count": 0, "hypothesis_count": 0, "changed": 0, "new_texts": 0}
        # a score may be missing from some hypotheses of sparse lists, but hardly from all of them
        self.unseen = {name for name, value in run.weights.items() if value} - {*(lm.name for lm in run.scored), *features, *COMPUTED}
        self.marks = SubwordMarks(run.decision.text)

    def decide_all(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        for scored in self._prepared(lists):
            if not self.counts["list_count"]:
                self.weights = with_decoder_score(self.run, self.weights, scored, note)
                self._tell_formula()
            decided = decide(scored, self.weights, self.run.decision)
            self._count(scored, decided)
            if self.confidence is not None:
                decided = with_confidences(scored, decided, self.weights, self.run.decision, self.confidence)
            yield decided

    def _prepared(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """Yield the lists. If an external program compares hypotheses, lists are read ahead so that one run serves many."""
        decision = self.run.decision
        if not decision.asks_program:
            yield from lists
            return
        for some in batch_by_size(lists, repeat(COMPARISONS), lambda nbest: len(nbest.hypotheses) ** 2):
            decision.prepare(some)
            yield from some

    def _count(self, scored: NbestList, decided: NbestList) -> None:
        self.marks.add(scored.hypotheses[0].text)
        if self.unseen:
            self.unseen.difference_update(*(hypothesis.scores for hypothesis in scored.hypotheses))
        first, answer = scored.hypotheses[0], decided.hypotheses[0]
        self.counts["list_count"] += 1
        self.counts["hypothesis_count"] += len(scored.hypotheses)
        self.counts["changed"] += answer.rank != first.rank and answer.text != first.text  # the report counts changes in the same way
        self.counts["new_texts"] += answer.rank == 0

    def _tell_formula(self) -> None:
        terms = " + ".join(f"{value:g} {name}" for name, value in self.weights.items() if value)
        if self.run.decision.rule != "max":
            note((f"total = {terms}" if terms else "all weights are 0") + f"; decision: {self.run.decision}")
        else:
            note(f"total = {terms}" if terms else "all weights are 0: the lists stay as they are")

    def tell(self) -> None:
        rule = self.run.decision.rule
        if rule != "max" and (warning := self.marks.warning_of_decision(rule)):
            note(warning)
        warn_of_unseen(self.unseen)


@dataclass(frozen=True)
class _Writer:
    """A function that writes decided lists, and the Confidence for its word confidences; None if the format has no place for them."""

    write: Callable[[Iterable[NbestList]], None]
    confidence: Confidence | None = None


def _writer(form: NbestFormat | NbestFolderFormat | None, output: RescoreOutput, run: RunConfig) -> _Writer:
    """Return the writer for this output. Raises InputError if the output cannot hold what the decision makes."""
    path, to = os.fspath(output.path), output.to
    if to in OF_WORDS:
        if run.confidence is None:
            note("note: the confidences are posteriors at scale 1: `attlm tune --confidence` fits them to how often words are right")
        return _Writer(lambda lists: OF_WORDS[to](lists, path), run.confidence or Confidence())
    if run.adds_candidates and to == "same" and not run.decision.makes_text:
        to = holding_new(form).name
        if form is not None and to != form.name:
            note(f"note: {form.name} cannot hold new hypotheses: lists are written as {to}; --to 1best writes text")
    if run.decision.makes_text and to not in ONE_BEST:
        if to != "same":
            raise InputError(f"--to {to}: a consensus is a text that need not be in the list; write first texts with --to 1best")
        to = "1best"
    if to in ONE_BEST:
        return _Writer(lambda lists: write_one_best(lists, path, style=ONE_BEST[to]))
    target = form if to == "same" else find_format(to)
    if target is None:
        raise InputError(f"lists that were not read from a file have no format of their own: expected one of {', '.join(OUTPUTS[1:])}")
    if not target.has_scores:
        note(f"note: {target.name} has no place for scores: only the order of the hypotheses changes")
    return _Writer(lambda lists: write_nbest(lists, target, path), run.confidence if target.name == "jsonl" else None)


def _cache(output: RescoreOutput, run: RunConfig, features: Iterable[str]) -> ScoreCache:
    """Return the score cache in a file next to the output, from which an interrupted run continues."""
    device = run.devices[0]
    settings: dict[str, Any] = {"precision": device.precision, "memory": device.memory, "device": device.device.partition(":")[0]}
    settings |= {"features": sorted(features)} | ({} if run.context is None else {"context": str(run.context)})
    return ScoreCache.of_output(os.fspath(output.path), settings, note)
