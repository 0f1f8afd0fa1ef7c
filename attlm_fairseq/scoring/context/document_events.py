"""The events of documents, scored in context, for settings that are fitted on a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attlm_fairseq.scoring.context.cache import Cache, CacheScorer, UnigramCache, cached_probabilities
from attlm_fairseq.scoring.context.context_walk import SENTENCES_AT_ONCE, stretches
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.perplexity import perplexity
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov_policy import UNK, OOVPolicy
from attlm_fairseq.text import TextPipeline


@dataclass(frozen=True)
class Events:
    """The words and sentence ends of a document: the LM's log-probabilities (E,), word ids (E,), features (E, F). Natural log.

    ``unknown`` (E,) says which are unknown words, whose scores are those of ``oov``, whatever the caches make of them.
    """

    log_probs: np.ndarray
    words: np.ndarray
    features: np.ndarray
    unknown: np.ndarray
    oov: OOVPolicy = UNK


def read_documents(
    lm: Scorer, oov: OOVPolicy, text: TextPipeline, context: ContextSpec, lines: Iterable[str], features: bool
) -> Iterator[Events]:
    """Yield the events of each document of a text, scored by the LM in context."""
    numbers = CacheScorer(lm, UnigramCache(1, 0.0))
    for documents in context.documents(lines):
        later: dict[int, Scorer] = {}
        events: dict[int, list[tuple[np.ndarray, ...]]] = {}
        for stretch in stretches(documents, SENTENCES_AT_ONCE):
            requests = [(later.get(place, lm), [text.words(line.text) for line in of_document]) for place, of_document in stretch.items()]
            for place, (_, sentences), walked in zip(stretch, requests, lm.walk(requests, features), strict=True):
                later[place] = walked.later
                for words, score, of_events in zip(sentences, walked.scores, walked.features, strict=True):
                    ids, unknown = numbers.numbered(words, score), np.array([*score.oov, False])
                    events.setdefault(place, []).append((np.array(score.log_probs), ids, of_events, unknown))
        for of_document in events.values():
            log_probs, ids, features_read, unknown = (np.concatenate(parts) for parts in zip(*of_document, strict=True))
            yield Events(log_probs, ids, features_read, unknown, oov)


def under_policy(documents: Sequence[Events], log_probs: np.ndarray) -> np.ndarray:
    """Return the scores (E,) of all events, given their log-probabilities: those of unknown words are what the policy makes of them."""
    policy = documents[0].oov
    if policy.kind == "unk":
        return log_probs
    of_unknown = policy.value if policy.kind == "penalty" else log_probs - math.log(policy.value)
    return np.where(np.concatenate([document.unknown for document in documents]), of_unknown, log_probs)


def cached_in(document: Events, cache: Cache) -> np.ndarray:
    """Return ``p_cache`` (E,) of each event of a document."""
    return cached_probabilities(cache, document.features, document.words)


def perplexity_of(documents: Sequence[Events]) -> float:
    """Return the perplexity of all events of the documents."""
    log_probs = np.concatenate([document.log_probs for document in documents])
    return perplexity(float(under_policy(documents, log_probs).sum()), len(log_probs))
