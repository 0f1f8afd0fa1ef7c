"""Warn if an LM was trained on the text that weights are tuned on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.exposure import SAMPLE, TOO_GOOD, held_share, rare_word_cost, warning_of_exposure
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm
from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore
from attlm_fairseq.text import TextPipeline, split_texts
from attlm_fairseq.verbs.run import Measurement


def warn_of_seen_references(found: Measurement, run: RunConfig) -> None:
    """Warn for each LM that was probably trained on the references. Up to SAMPLE references are scored to tell.

    Translation models are not judged: to them, rare words are probable because the source sentence has them.
    """
    texts = [text for of_list in found.lists.references for text in of_list]
    scorers: Sequence[Scorer | None] = [None] * len(run.scored)
    if any(lm.unpacked().kenlm is None for lm in run.scored):
        scorers = found.loaded.scorers if found.loaded else run.load(run.devices[0])
    pipelines = [pipeline.load() for pipeline in run.texts.values()]
    for lm, scorer, pipeline in zip(run.scored, scorers, pipelines, strict=True):
        warn_of_seen_texts(lm, scorer, pipeline, texts, "the references")


def warn_of_seen_texts(
    lm: LMSpec, scorer: Scorer | None, pipeline: TextPipeline, texts: Iterable[str], what: str, advice: str = TOO_GOOD
) -> None:
    """Warn if the LM was probably trained on ``texts``, which are ``what``. Up to SAMPLE of them are scored to tell."""
    [sentences] = split_texts([pipeline], list(dict.fromkeys(texts))[:SAMPLE])
    by_words = scorer is not None and lm.unpacked().kenlm is None and scorer.left_to_right and not scorer.uses_source
    warn_if_seen(lm, sentences, scorer.score(sentences) if scorer and by_words else [], what, advice)


def warn_if_seen(lm: LMSpec, sentences: Sequence[Sentence], scores: Sequence[SentenceScore], text: str, advice: str = TOO_GOOD) -> None:
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
    if warning := warning_of_exposure(lm.name, share, cost, text, advice):
        note(warning)
