"""Load and run the LMs of a run, and check which weights and scores take part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.clauses import SPLITS_AT_SPACES, fitting_tokenizer, takes_clauses
from attlm_fairseq.nbest.corrections.corrector import CORRECTOR
from attlm_fairseq.nbest.corrections.expansion import PHRASES, SCORES
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.features.combination import COMPUTED
from attlm_fairseq.nbest.features.lm_features import differing_lms, is_lm_feature
from attlm_fairseq.nbest.metrics.edit_rates import WER
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.metrics.ngram_metrics import BLEU
from attlm_fairseq.nbest.metrics.sacrebleu_metric import TER
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.rescoring import Context, Rescorer
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.nbest.run.workers import OneProcess, Processes
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists, measure_lists
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.unknown_words.oov import OOVCount, warn_of_oov
from attlm_fairseq.text import note_texts
from attlm_fairseq.text.subword_marks import SubwordMarks
from attlm_fairseq.verbs.arguments import OnProgress
from attlm_fairseq.verbs.fit_of_references import warn_of_references

COMPARES_WORDS = {"consensus": "the vote of --consensus", "mbr-wer": "the loss of --mbr wer", "mbr-ter": "the loss of --mbr ter"}


@contextmanager
def scoring(
    run: RunConfig,
    features: Sequence[str] = (),
    on_progress: OnProgress = None,
    cache: ScoreCache | None = None,
    context: Context | None = None,
    loaded: OneProcess | Processes | None = None,
) -> Iterator[Rescorer]:
    """Yield the Rescorer of a run; at the end, log unknown words and other notes.

    The LMs are loaded on the devices of the run, unless they are ``loaded``, by ``open_workers``, for several runs.
    """
    note_texts(run.texts)
    with open_workers(run, features) if loaded is None else nullcontext(loaded) as workers:
        rescorer = Rescorer(workers, run, on_progress, cache, context)
        yield rescorer
        warn_of_oov(rescorer.oov.values(), workers.advise)
    for line in rescorer.notes.values():
        note(line)


def open_workers(run: RunConfig, features: Sequence[str]) -> OneProcess | Processes:
    """Return the loaded LMs: in this process, or in one process per device if there are several.

    Raises:
        InputError: an LM cannot be loaded, an option has no effect, or there are several devices and an LM is an object.
    """
    require_context(run)
    if len(run.devices) == 1:
        return OneProcess(BlockScorer.load(run, run.device, features), run)
    if here := [lm.name for lm in run.lms if lm.loaded is not None]:
        raise InputError(f"{', '.join(here)}: an LM that is an object lives in this process; name its file to use several devices")
    return Processes(run, run.devices, features)


@dataclass(frozen=True)
class Measurement:
    """Scored and measured lists, with signatures and unknown words of their LMs.

    ``loaded`` holds the LMs; it is None if they were loaded only in other processes.
    """

    lists: MeasuredLists
    loaded: BlockScorer | None
    signatures: dict[str, Mapping[str, Any]]
    oov: list[OOVCount]


def measure(
    lists: Sequence[NbestList],
    metric: Metric,
    run: RunConfig,
    features: Sequence[str],
    on_progress: OnProgress,
    context: Context | None = None,
    groups: np.ndarray | None = None,
    rules: Sequence[str] = (),
    places: Sequence[int] | None = None,
) -> Measurement:
    """Score lists that have references, add the run's candidates, and compare every hypothesis with the references.

    The lists of one group of ``groups`` (N,) count as one sample for the statistics. ``rules`` are decision rules that will be tried.
    ``places`` are those of the N lists to compare, if the others are only context.

    Raises:
        InputError: an LM or the corrections cannot be loaded or used, a list lacks a reference or a source sentence
            that an LM needs, a score is not finite, or there are no lists.
    """
    run = replace(run, candidates=run.candidates.noted()) if run.adds_candidates else run
    with scoring(run, features, on_progress, context=context) as rescorer:
        scored = rescorer.score(rescorer.workers.expand(lists))
        compared = range(len(lists)) if places is None else frozenset(places)
        measured = measure_lists((nbest for place, nbest in enumerate(scored) if place in compared), metric, groups)
        signatures = rescorer.workers.signatures()
    warn_of_other_lms(run, signatures)
    warn_of_other_candidates(run)
    warn_of_subwords(measured.lists, metric)
    warn_of_references(measured.lists, metric)
    hint_at_tokenizer(measured.references, metric, rules)
    return Measurement(measured, rescorer.workers.scorer, signatures, list(rescorer.oov.values()))


def require_context(run: RunConfig) -> None:
    """Raise InputError if an LM has options that have no effect because no conversations are given."""
    files = [lm for lm in run.lms if lm.loaded is None]  # those in memory may be at the beginning of a conversation: RunConfig.after
    for lm in map(LMSpec.unpacked, files) if run.context is None else ():
        given = [*(["dynamic evaluation (--adapt)"] if lm.adapt else []), *(["--context-sentences"] if lm.context_sentences else [])]
        if given:
            raise InputError(f"{lm.name}: no effect without a context: {' and '.join(given)}; give --context, or leave it out")


def require_lms(run: RunConfig) -> None:
    """Raise InputError if the run has no LM."""
    if not run.lms:
        raise InputError("no LM given: use --lm or --kenlm (in Python, lms=), or a configuration with LMs (attlm.toml, --config)")


def require_weights(run: RunConfig) -> list[str]:
    """Return the names in ``run.weights`` that are LM features.

    Raises InputError if an LM has no weight or one that it cannot have, or if candidates would join the lists but none of their scores
    has one, not even 0, which is what tuning may find for all of them.
    Warns if this is so for one of several sources of candidates.
    """
    names = [lm.name for lm in run.scored]
    features = [name for name in run.weights if is_lm_feature(name, run.feature_texts)]
    weighted = {*run.weights, *(lm for name in features for lm in differing_lms(name, names) or ())}
    if missing := [name for name in names if name not in weighted]:
        others = [name for name in run.weights if name not in {*features, *COMPUTED}]
        also = f" (weights are given for {', '.join(others)}; the LMs are {', '.join(names)})" if others else ""
        raise InputError(
            f"no weight for {', '.join(missing)}{also}; find the weights with `attlm tune` on lists with references, "
            f"or give --weight {missing[0]}=NUMBER"
        )
    for name in run.never_negative:
        if run.weights[name] < 0:
            raise InputError(
                f"the weight of {name} is {run.weights[name]:g}, expected 0 or more: with --only-close, hypotheses that it does not score "
                "would win by their score; find the weights again with `attlm tune`, or leave --only-close out"
            )
    if run.adds_candidates and not any(name in run.weights for name in (*SCORES, CORRECTOR)):
        raise InputError("no weight for what corrections add to the lists: find the weights with `attlm tune` and the same options")
    of_sources = {
        run.candidates.table: [name for name in SCORES if name != PHRASES],
        run.candidates.phrases: [PHRASES],
        run.candidates.corrector: [CORRECTOR],
    }
    for source, scores in of_sources.items():
        if source is not None and not any(name in run.weights for name in scores):
            note(f"WARNING: {source} adds candidates, but its score has no weight; find the weights with `attlm tune` and the same options")
    return features


IDENTITY = ("sha256", "weights", "ensemble weights")
"""The names in a signature that tell an LM apart from another: its files, and the weights of the members of mixtures and ensembles."""


def warn_of_other_lms(run: RunConfig, signatures: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn if the weights were tuned with other files of an LM, or another mixture of LMs, than those that are loaded now."""
    for name, before in run.tuned_with.items():
        known, now = _identity(before), _identity(signatures.get(name, {}))
        if run.weights.get(name) and known and now and known != now:
            where = f" of {run.path}" if run.path is not None else ""
            note(f"WARNING: {name} is not the LM that its weight{where} was tuned with: tune again, or use the files of that time")


def warn_of_other_candidates(run: RunConfig) -> None:
    """Warn if the weights were tuned with other candidates, or if the LM of the search is not the one that the table was learned with.

    Raises InputError if a file of the candidates cannot be read.
    """
    if not run.adds_candidates:
        return
    spec, now = run.candidates, run.candidates.digests()
    called = {"table": f"{spec.table}", "search_lm": f"the LM of {spec.table}", "corrector": f"{spec.corrector}"}
    where = f" of {run.path}" if run.path is not None else ""
    for name, before in run.candidates_tuned_with.items():
        if name in called and now.get(name, before) != before:
            note(
                f"WARNING: {called[name]} is not the {'LM' if name == 'search_lm' else name} that the weights{where} were tuned with: tune "
                "again, or use the files of that time"
            )
    warn_of_replaced_lm(spec, now)


def warn_of_replaced_lm(spec: CandidateSpec, digests: Mapping[str, str]) -> None:
    """Warn if the LM that was written next to a table has been replaced by another one."""
    table = spec.read_table() if "search_lm" in digests else None  # of a table on a stream nothing is known
    if table is None or spec.table is None or table.lm is None or table.own_lm in ("", "no", digests["search_lm"]):
        return
    if table.lm.resolve() == spec.table.with_suffix(".arpa").resolve():
        note(
            f"WARNING: {table.lm} is not the LM that was written with {spec.table}: learn again, or name the LM of the search in its line "
            "'# lm ='"
        )


def _identity(signature: object, within: bool = False) -> list[str]:
    """Return what a signature has under the names ``IDENTITY``, in it or in the signatures of its members."""
    if isinstance(signature, Mapping):
        return [value for name, of_name in sorted(signature.items()) for value in _identity(of_name, within or name in IDENTITY)]
    if isinstance(signature, list | tuple):
        return [value for one in signature for value in _identity(one, within)]
    return [f"{signature:.6g}" if isinstance(signature, float) else str(signature)] if within else []


def hint_at_tokenizer(references: Iterable[Sequence[str]], metric: Metric, rules: Sequence[str] = ()) -> None:
    """Log how words are told apart in references that are written without spaces, for the metric and the decision ``rules``."""
    bleu = isinstance(metric, BLEU) and metric.tokenize in SPLITS_AT_SPACES
    of_words = [metric.name] if isinstance(metric, WER | TER) else []
    of_words += [what for rule, what in COMPARES_WORDS.items() if rule in rules]
    loss = "mbr-bleu" in rules and not isinstance(metric, BLEU)
    if not (bleu or loss or of_words):
        return
    texts = [metric.prepared(text) for of_list in references for text in of_list]
    tokenizer = fitting_tokenizer(texts)
    without = "note: the references have no spaces between words, so"
    if tokenizer and bleu:
        fitting = dict.fromkeys([*([tokenizer] if _is_installed(tokenizer) else []), "char"])
        note(f"{without} BLEU takes clauses for words: --bleu-tokenize {' or '.join(fitting)} counts better")
    if tokenizer and of_words and takes_clauses(texts):
        takes = "take" if len(of_words) > 1 else "takes"
        note(f"{without} {' and '.join(of_words)} {takes} clauses for words: --metric-text characters counts characters")
    if tokenizer and loss:
        note(f"{without} the loss of --mbr bleu takes clauses for words: --mbr chrf does not")


def hint_at_clauses(texts: Iterable[str], decision: Decision) -> None:
    """Log if a decision compares the clauses of these hypotheses as words, for they have no spaces between words."""
    what = COMPARES_WORDS.get(decision.rule)
    if what is not None and takes_clauses(map(decision.text.prepared, texts)):
        note(f"note: the hypotheses have no spaces between words, so {what} takes clauses for words: --metric-text characters divides them")


def _is_installed(tokenizer: str) -> bool:
    return tokenizer != "ja-mecab" or find_spec("MeCab") is not None


def warn_of_subwords(lists: Iterable[NbestList], metric: Metric) -> None:
    """Log if the 1-best hypotheses consist of subwords: a warning if the references do not, else a note."""
    marks = SubwordMarks(metric.text)
    for nbest in lists:
        marks.add(nbest.hypotheses[0].text, nbest.references)
    if warning := marks.warning(metric.name):
        note(warning)
