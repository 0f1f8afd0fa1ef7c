"""Estimate the weights of a linear mixture of LMs on a text."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import shown_output
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.exposure import SAMPLE
from attlm_fairseq.nbest.features.lm_features import all_features
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import context_to_write, note_kept_context, write_config
from attlm_fairseq.scoring import text_file
from attlm_fairseq.scoring.lm_options import check_name
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.mixture import DISPUTED, MAX_REMAINING_GAIN, EMIteration, em_weights, mix
from attlm_fairseq.scoring.perplexity import perplexity
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov_policy import UNK
from attlm_fairseq.verbs.arguments import FilePath, OnProgress, no_sentences, text_lines, text_name
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.exposure import warn_if_seen
from attlm_fairseq.verbs.run import require_context
from attlm_fairseq.verbs.text import load_scorers, note_penalties, note_scorers, source_lines
from attlm_fairseq.version import __version__


@dataclass(frozen=True)
class Mixture:
    """The result of ``estimate_mixture``; ``print`` shows its table.

    Attributes:
        config: the run with the mixture, which is scored in place of its members.
        weights: the weight of each LM; they sum to 1.
        ppl: the perplexity of each LM and, last, of the mixture, over all words and sentence ends.
        iterations: the EM iterations. Their perplexities cover only the words that count for the weights.
        record: what is needed to reproduce the result.
    """

    config: RunConfig
    weights: dict[str, float]
    ppl: dict[str, float]
    iterations: list[EMIteration] = field(repr=False)
    record: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        """Return the perplexity of each LM, and perplexity and weights of iterations 0, 1, 2, 4, 8, .. and the last, joined by tabs."""
        rows = [("lm", "ppl"), *((name, f"{self.ppl[name]:.4f}") for name in self.weights), ("iteration", "ppl", *self.weights)]
        last = len(self.iterations) - 1
        for number in sorted({0, last, *(1 << k for k in range(last.bit_length()))}):
            step = self.iterations[number]
            rows.append((str(number), f"{step.ppl:.4f}", *(f"{weight:.6f}" for weight in step.weights)))
        return "\n".join(map("\t".join, rows))

    def save(self, path: FilePath = "attlm.toml", command: str | None = None) -> None:
        """Write the LMs and the mixture as an ``attlm.toml``.

        Raises:
            InputError: the file cannot be written, the existing file is not an ``attlm.toml``, or the name of a file
                in it is not UTF-8.
        """
        write_config(Path(path), self.config, self.record, "mixing", command)
        note(f"wrote {shown_output(path)}; a mixture takes the place of its LMs: tune its weight with `attlm tune`")


@dataclass
class _Events:
    """The words and sentence ends of a text: log-probabilities (K, E) of K LMs, and which LMs know which words. Natural log."""

    members: Sequence[Scorer]
    log_probs: np.ndarray
    unknown: np.ndarray  # (E,) bool: no LM knows the word
    words: int
    disputed: int  # words that some LMs know and others do not
    sample: list[text_file.ScoredLine]  # numbers of the first lines on which the LMs differ


def estimate_mixture(
    text: FilePath | Iterable[str],
    lms: Mapping[str, LM] | None = None,
    *,
    name: str = "mix",
    config: RunConfig | FilePath | None = None,
    source: FilePath | Iterable[str] | None = None,
    on_progress: OnProgress = None,
) -> Mixture:
    """Estimate by EM the weights of ``p(w | h) = sum of weight * p_lm(w | h)`` that make a text most probable.

    If an LM has the OOV policy ``unk``, words unknown to all LMs do not count for the weights. One LM may give p(<unk>)
    to all unknown words together and another to each of them, so these probabilities cannot be compared.

    Args:
        text: a file or lines, one sentence each, that no LM was trained on.
        lms: two or more LMs by name, as files or objects.
        name: the name of the mixture.
        config: LMs and text steps: a RunConfig or the path of an ``attlm.toml``.
        source: source sentence of each line, for translation models: a file or lines.
        on_progress: called with the number of lines finished since the last call.

    Returns:
        The weights, the run with the mixture, and the perplexities of the LMs and of the mixture.

    Raises:
        InputError: there are fewer than two LMs, the text has no sentence, an option has no effect, they
            see different words, or one gives a word probability 0.
    """
    mixture, run = with_mixture(run_config(config, lms=lms), check_name(name))
    events = _scored_events(text, run, mixture, source, on_progress)
    log_probs, names = events.log_probs, [member.name for member in events.members]
    as_unk = any(lm.unpacked().oov.kind == "unk" for lm in run.lms if lm.name in names)
    left_out = events.unknown & as_unk
    iterations = list(em_weights(log_probs[:, ~left_out]))
    best = iterations[-1].weights
    totals = [*log_probs.sum(axis=1), mix(log_probs, best).sum()]
    ppl = {lm: perplexity(float(total), len(left_out)) for lm, total in zip([*names, name], totals, strict=True)}
    note_penalties(run.lms)
    _note_doubts(iterations, events, int(left_out.sum()), name, ppl[name], as_unk)
    weights = {lm: round(float(weight), 6) for lm, weight in zip(names, best, strict=True)}
    record = {
        "text": text_name(text),
        "words and sentence ends": len(left_out),
        **({"unknown to all LMs, left out of the estimation": int(left_out.sum())} if left_out.any() else {}),
        "ppl": {lm: round(value, 4) for lm, value in ppl.items()},
        "iterations": len(iterations) - 1,
        "attlm": __version__,
        "lm": {member.name: member.signature() for member in events.members},
    }
    mixed = tuple(replace(lm, mixture=tuple(weights.items())) if lm.name == name else lm for lm in run.lms)
    note_kept_context(run)
    found = replace(run, lms=mixed, context=context_to_write(run))
    return Mixture(found, weights, ppl, iterations, record)


def _scored_events(
    text: FilePath | Iterable[str], run: RunConfig, mixture: LMSpec, source: FilePath | Iterable[str] | None, on_progress: OnProgress
) -> _Events:
    """Score a text with the LMs of a mixture, and log what the user is to know of them.

    Raises InputError if the text, an LM or the source sentences cannot be used, or if a word has probability 0.
    """
    plain = [lm for lm in run.lms if not lm.mixture]
    # the mixture's own OOV policy has no effect on the weights
    mixed = RunConfig((*plain, replace(mixture, oov=UNK)), run.text, devices=run.devices, context=run.context)
    require_context(run)
    lines = text_lines(text)
    (scorer,) = load_scorers(mixed)
    members, texts = scorer.members, list(mixed.texts.values()) * len(scorer.members)
    sources = source_lines(mixed, source, list(mixed.source_texts.values()) * len(members))
    scored = text_file.score_text(lines, members, texts, on_progress, run.context, sources)
    events = _events(scored, members, text)
    note_scorers(members, texts, scored.oov)
    for place, lm in enumerate(plain):
        if lm.uses_source:  # to it, rare words are probable because the source sentence has them
            continue
        warn_if_seen(lm, [line.words[place] for line in events.sample], [line.scores[place] for line in events.sample], "the text")
    return events


def _events(scored: text_file.ScoredText, members: Sequence[Scorer], text: FilePath | Iterable[str]) -> _Events:
    """Return all words and sentence ends of the text with their scores. Raises InputError if there are none or a probability is 0."""
    log_probs = [array("d") for _ in members]
    unknown = array("b")
    disputed = words = 0
    sample: dict[str, text_file.ScoredLine] = {}
    for line in scored.lines:
        if len(sample) < SAMPLE:
            sample.setdefault(line.text, line)
        for values, score in zip(log_probs, line.scores, strict=True):
            values.extend(score.log_probs)
        words += line.scores[0].words
        flags_of_words = list(zip(*(score.oov for score in line.scores), strict=True))
        disputed += sum(any(flags) and not all(flags) for flags in flags_of_words)
        unknown.extend([*map(all, flags_of_words), False])
    matrix = np.array(log_probs)
    if not matrix.size:
        raise no_sentences(text)
    for member, values in zip(members, matrix, strict=True):
        if not np.isfinite(values).all():
            path = text if isinstance(text, str | os.PathLike) else None
            raise InputError(f"{member.name} gives a word of the text probability 0: it cannot be mixed", path=path)
    return _Events(members, matrix, np.array(unknown, dtype=bool), words, disputed, list(sample.values()))


def _note_doubts(iterations: Sequence[EMIteration], events: _Events, left_out: int, name: str, ppl: float, as_unk: bool) -> None:
    """Warn if EM ended early, or if LMs do not know some of the words."""
    if iterations[-1].gap >= MAX_REMAINING_GAIN:
        note(
            f"WARNING: EM ended after {len(iterations) - 1} iterations and before it found the best weights: their perplexity may be lower "
            f"by up to {-100 * math.expm1(-iterations[-1].gap):.2g} %"
        )
    if left_out:
        note(
            f"note: {left_out} of {events.words} words are unknown to all LMs: they count neither for the weights nor for the iterations' "
            f"perplexities, but for those of the LMs and of {name}, {ppl:.4f}. With --oov spread:TYPES for all LMs they would count"
        )
    if events.disputed and as_unk:
        note(f"WARNING: {events.disputed} of {events.words} words are unknown to some of the LMs only: {DISPUTED}")


def with_mixture(config: RunConfig, name: str) -> tuple[LMSpec, RunConfig]:
    """Return an equal-weight mixture of all LMs, and the configuration with it. The weights of its members and their features go.

    Raises InputError if there are fewer than two LMs, or if one of them has the name.
    """
    members = [lm for lm in config.lms if not lm.mixture]
    if len(members) < 2:
        raise InputError(f"a mixture needs two LMs or more, there are {len(members)}: use --lm and --kenlm, each as often as needed")
    old = next((lm for lm in config.lms if lm.name == name), LMSpec(name))
    if old in members:
        raise InputError(f"{name!r} is one of the LMs already: name the mixture with --name")
    mixture = replace(old, mixture=tuple((lm.name, 1.0 / len(members)) for lm in members))
    others = tuple(lm for lm in config.lms if lm.name != name)
    mixed = replace(config, lms=(*others, mixture))
    of_lms, scored = ({lm.name for lm in lms} for lms in (mixed.lms, mixed.scored))
    gone = (of_lms - scored) | (all_features(of_lms) - of_lms - all_features(scored))
    return mixture, mixed.without_weights(gone)
