"""Compute log-probabilities and perplexities of raw text, one sentence per line."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from attlm_fairseq.errors import InputError, shown
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring import text_file
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.perplexity import PerplexityCounter
from attlm_fairseq.scoring.scorer import Scorer, note_lines
from attlm_fairseq.scoring.text_file import ScoredText
from attlm_fairseq.scoring.unknown_words.oov import OOVCount, warn_of_oov
from attlm_fairseq.text import TextPipeline, note_texts
from attlm_fairseq.verbs.arguments import FilePath, OnProgress, no_sentences, text_lines
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.run import require_context, require_lms

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Perplexity:
    """The perplexities of a text under one LM. They count different events: never compare one with another.

    Each is nan if it counts no event.

    Attributes:
        lm: the LM's name.
        ppl: every word and every sentence end is predicted and counted; the words alone if the LM scores no sentence ends.
        ppl_salton2017: the first event of each sentence is counted but not predicted, as in the code of Salton et al.
            (2017).
        ppl_without_oov: unknown words are neither predicted nor counted.
        sentences: number of sentences.
        words: number of words that the LM saw, without the sentence ends.
        oov: how many of these words the LM does not know.
        ppl_as_read: the log-probability of ``ppl``, divided by the white-space words and sentence ends of the text as
            read.
    """

    lm: str
    ppl: float
    ppl_salton2017: float
    ppl_without_oov: float
    sentences: int
    words: int
    oov: int
    ppl_as_read: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a JSON-serialisable dictionary; nan and infinity become None."""
        return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in asdict(self).items()}


def load_lm(lm: LM, name: str = "lm", *, device: str | torch.device = "cpu") -> Scorer:
    """Load a language model that scores sentences.

    Args:
        lm: a checkpoint of fairseq-train, a folder of ``attlm export``, an ARPA or KenLM file, or a Hugging Face model (its
            folder or the name of a cached one). Several checkpoints are an ensemble that averages their probabilities. An
            LMSpec can also set the dictionary, the OOV policy and more.
        name: the name of the LM's score.
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Returns:
        A scorer. ``load_lm("lm.pt").score([["a", "sentence"]])`` returns natural-log probabilities of the words and the
        sentence end.

    Raises:
        InputError: a file cannot be read or is not an LM.
    """
    run = run_config(lms={name: lm}, devices=device).in_memory()
    return cast(Scorer, run.lms[0].loaded)


def score_text(
    text: FilePath | Iterable[str],
    lms: Mapping[str, LM] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    source: FilePath | Iterable[str] | None = None,
    on_progress: OnProgress = None,
) -> ScoredText:
    """Score every line of a text with every LM, each LM after its own text steps.

    Args:
        text: a file (``-`` is standard input, gzip is recognised), or lines. Blank lines are empty sentences; with the context
            ``blank`` they separate documents, and are not scored.
        lms: LMs by name, as files or objects.
        config: LMs and text steps: a RunConfig or the path of an ``attlm.toml``.
        source: source sentence of each line, for translation models: a file or lines.
        on_progress: called with the number of lines finished since the last call.

    Returns:
        ``lines``: an iterator, to be read once, over the lines with their words and one score per LM. A score is a
        natural log, summed over the words and, for LMs that score it, the sentence end. The text may be larger than memory. ``oov`` counts
        unknown words as the lines are read.

    Raises:
        InputError: there is no LM, an option has no effect, a file cannot be read, or it holds n-best lists instead of text.
    """
    run = run_config(config, lms=lms)
    require_lms(run)
    require_context(run)
    lines_to_score = text_lines(text)
    scorers = load_scorers(run)
    sources = source_lines(run, source, run.source_texts.values())
    scored = text_file.score_text(lines_to_score, scorers, list(run.texts.values()), on_progress, run.context, sources)

    def lines() -> Iterable[text_file.ScoredLine]:
        yield from scored.lines
        note_scorers(scorers, list(run.texts.values()), scored.oov)

    return ScoredText(iter(lines()), scored.oov, scored.scores_end)


def perplexity(
    text: FilePath | Iterable[str],
    lms: Mapping[str, LM] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    source: FilePath | Iterable[str] | None = None,
    on_progress: OnProgress = None,
) -> list[Perplexity]:
    """Compute the perplexities of a text under every LM. The arguments are those of ``score_text``.

    Returns:
        The perplexities under each LM, in the order of the LMs.

    Raises:
        InputError: as in ``score_text``, the text has no sentence, or an LM gives a word probability 0.
    """
    counted = count_text(text, run_config(config, lms=lms), source, on_progress)
    words_read = sum(counted.words_read)
    return [
        Perplexity(
            *(name, counter.ppl, counter.ppl_salton2017, counter.ppl_without_oov),
            *(counter.sentences, counter.words, counter.oov, counter.ppl_as_read(words_read)),
        )
        for name, counter in counted.counters.items()
    ]


@dataclass(frozen=True)
class CountedText:
    """What each LM gives the sentences of a text, by name.

    Attributes:
        counters: the counts of each LM.
        words_read: the number of white-space words of each sentence as read.
        lines: the number of each sentence's line, from 1; blank lines between documents have none.
    """

    counters: dict[str, PerplexityCounter]
    words_read: array[int]
    lines: array[int]


NO_PERPLEXITY = "an LM that gives a word probability 0 (in an ARPA file, -inf) has no perplexity"


def count_text(
    text: FilePath | Iterable[str], run: RunConfig, source: FilePath | Iterable[str] | None, on_progress: OnProgress
) -> CountedText:
    """Score a text as ``score_text`` does, and count its sentences for perplexities. Raises InputError as ``perplexity`` does."""
    require_word_scores(run)
    scored = score_text(text, config=run, source=source, on_progress=on_progress)
    counters = {name: PerplexityCounter(scores_end) for name, scores_end in zip(run.texts, scored.scores_end, strict=True)}
    words_read, lines = array("L"), array("L")
    for line in scored.lines:
        words_read.append(len(line.text.split()))
        lines.append(line.number)
        for (name, counter), score in zip(counters.items(), line.scores, strict=True):
            if not math.isfinite(score.total):
                raise InputError(
                    f"score {name!r} is {score.total}, expected a finite number: {NO_PERPLEXITY}",
                    path=text if isinstance(text, str | os.PathLike) else None,
                    line=line.number,
                )
            counter.add(score)
    if not words_read:
        raise no_sentences(text)
    if blank := words_read.count(0):
        note(
            f"note: {blank} of {len(words_read)} lines are blank and count, as sentences without words: "
            "take them out for an LM that was trained without them (--blank-lines skip)"
        )
    note_penalties(run.lms)
    _warn_of_other_vocabularies(run.lms, counters)
    return CountedText(counters, words_read, lines)


def _warn_of_other_vocabularies(lms: Iterable[LMSpec], counters: Mapping[str, PerplexityCounter]) -> None:
    """Warn if p(<unk>) stands for more words in one LM than in another, so that their perplexities and mixtures mislead."""
    lms = list(lms)
    plain = {lm.name: lm.unpacked().oov.kind for lm in lms if not lm.mixture}
    mixed = {lm.name: "unk" if "unk" in {plain[name] for name, _ in lm.mixture} else "spread" for lm in lms if lm.mixture}
    policies = {name: kind for name, kind in (plain | mixed).items() if name in counters}
    unknown = {name: counters[name].oov for name, kind in policies.items() if kind == "unk"}
    if any(unknown.values()) and (len({*unknown.values()}) > 1 or "spread" in policies.values()):
        counts = ", ".join(f"{count} of {name}" for name, count in unknown.items())
        note(
            f"WARNING: unknown words do not count alike in these LMs: p(<unk>) is the score of {counts}. If it stands for many words, an "
            "LM with more of them looks too good: --oov spread:TYPES for all LMs shares it among the unseen words"
        )


def source_lines(run: RunConfig, source: FilePath | Iterable[str] | None, texts: Iterable[TextPipeline]) -> text_file.SourceLines | None:
    """Return the source sentences of a text for LMs that see ``texts``.

    Raises InputError if a translation model has no source sentences, or if they are given without a translation model.
    """
    translating = [lm.name for lm in run.lms if lm.uses_source]
    if source is None:
        if translating:
            raise InputError(f"{', '.join(translating)} scores translations: give the source sentences with --source FILE, one per line")
        return None
    if not translating:
        raise InputError("--source is for translation models, and there is none: --mt takes one")
    if isinstance(source, Mapping | Set) or not isinstance(source, str | os.PathLike | Iterable):
        raise InputError(f"the source sentences are {shown(source)}: expected a file, or one for each line of the text, in its order")
    lines = os.fspath(source) if isinstance(source, str | os.PathLike) else source
    return text_file.SourceLines(lines, [text.load() for text in texts])


def load_scorers(run: RunConfig) -> list[Scorer]:
    """Load the LMs of a run and the files of its text steps, and log what the LMs see.

    Raises:
        InputError: an LM or a text step cannot be loaded, or there are several devices.
    """
    note_texts(run.texts)
    scorers = run.load(run.device)
    for text in run.texts.values():
        text.load()
    return scorers


def tell_notes(scorers: Iterable[Scorer]) -> None:
    """Log what the LMs have to say, such as how much a lower precision changed the scores."""
    for scorer in scorers:
        for line in note_lines(scorer.notes()):
            note(line)


def note_scorers(scorers: Sequence[Scorer], texts: Sequence[TextPipeline], oov: Iterable[OOVCount]) -> None:
    """Log what the LMs have to say, and which of them do not know many of the words."""
    tell_notes(scorers)
    warn_of_oov(oov, BlockScorer(scorers, texts).advise)


def require_word_scores(run: RunConfig) -> None:
    """Raise InputError for a translation model that scores the source given the text: it has no perplexity of the text."""
    if names := [lm.name for lm in run.lms if lm.translates_back]:
        raise InputError(
            f"{', '.join(names)} scores the source given the text (translation = reverse), so it has no perplexity of the text: leave it "
            "out, or use attlm score"
        )


def note_penalties(lms: Iterable[LMSpec]) -> None:
    """Log which LMs have no perplexity: with a fixed penalty per unknown word, their scores are not probabilities."""
    for lm in lms:
        if lm.unpacked().oov.kind == "penalty":
            note(f"WARNING: {lm.name} gives unknown words a fixed penalty, so it has no perplexity: compare ppl_without_oov, or use spread")
