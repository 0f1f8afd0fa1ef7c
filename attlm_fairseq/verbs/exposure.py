"""Warn if an LM was trained on the text that weights are tuned on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.exposure import SAMPLE, held_share, rare_word_cost, warning_of_exposure
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm
from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore
from attlm_fairseq.text import split_texts
from attlm_fairseq.verbs.run import Measurement


def warn_of_seen_references(found: Measurement, run: RunConfig) -> None:
    """Warn for each LM that was probably trained on the references. Up to SAMPLE references are scored to tell.

    Translation models are not judged: to them, rare words are probable because the source sentence has them.
    """
    texts = list(dict.fromkeys(text for of_list in found.lists.references for text in of_list))[:SAMPLE]
    scorers: Sequence[Scorer | None] = [None] * len(run.scored)
    specs = [lm.unpacked() for lm in run.scored]
    if any(lm.kenlm is None for lm in specs):
        scorers = found.loaded.scorers if found.loaded else run.load(run.devices[0])
    pipelines = [pipeline.load() for pipeline in run.texts.values()]
    for lm, scorer, sentences in zip(specs, scorers, split_texts(pipelines, texts), strict=True):
        by_words = scorer is not None and lm.kenlm is None and scorer.left_to_right and not scorer.uses_source
        warn_if_seen(lm, sentences, scorer.score(sentences) if scorer and by_words else [], "the references")


def warn_if_seen(lm: LMSpec, sentences: Sequence[Sentence], scores: Sequence[SentenceScore], text: str) -> None:
    """Warn if the LM was probably trained on these sentences of ``text``.

    An n-gram LM is judged by which n-grams it holds, any other LM by its ``scores`` (none: no judgement).
    """
    share = cost = None
    lm = lm.unpacked()
    if lm.kenlm is not None:
        model = load_kenlm(lm.kenlm) if lm.loaded is None else cast(KenLMScorer, lm.loaded).lm.model
        share = held_share(model, map(" ".join, sentences))
    elif scores:
        cost = rare_word_cost(zip(sentences, scores, strict=True))
    if warning := warning_of_exposure(lm.name, share, cost, text):
        note(warning)
