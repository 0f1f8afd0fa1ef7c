"""Which text step would make an LM's unknown words known: the answer to a high rate of them."""

from __future__ import annotations

from collections.abc import Callable

from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text.oov import OOVCount
from attlm_fairseq.text.pipeline import TextPipeline, parse_steps

TYPES = 300  # the commonest unknown words are tried
WORTH_SAYING = 0.25  # share of their occurrences that a step must make known
WORTH_A_SECOND_STEP = 0.1

_SINGLE = ("lowercase", "uppercase", "remove-punctuation", "normalize-punctuation:en", "unicode:nfkc", "tokenize:en")
_DOUBLE = ("remove-punctuation,lowercase", "remove-punctuation,uppercase", "tokenize:en,lowercase", "tokenize:en,uppercase")
_TRUECASE = "truecase:MODEL"  # what it would give, nearly: a capital first letter


def advise(count: OOVCount, scorer: Scorer, text: TextPipeline) -> str | None:
    """A sentence naming the steps, after those of ``text``, that would make most of the unknown words known; None without such steps.

    The steps are tried on each of the commonest unknown words by itself.
    """
    if text.segmentation is not None or not count.unknown:
        return None
    unknown = sorted(count.unknown.items(), key=lambda item: (-item[1], item[0]))[:TYPES]
    changed = {steps: [changer(word) for word, _ in unknown] for steps, changer in _changers().items()}
    pieces = sorted({piece for columns in changed.values() for words in columns for piece in words})
    known = {piece for piece, score in zip(pieces, scorer.score([[piece] for piece in pieces]), strict=True) if not any(score.oov)}
    total = sum(times for _, times in unknown)
    shares = {
        steps: sum(times for words, (_, times) in zip(columns, unknown, strict=True) if known.issuperset(words)) / total
        for steps, columns in changed.items()
    }
    best = max(shares, key=lambda steps: shares[steps] - (WORTH_A_SECOND_STEP if "," in steps else 0))  # the first of equals
    if shares[best] < WORTH_SAYING:
        return None
    return f"With --text {','.join([*map(str, text.steps), best])} it would know {shares[best]:.0%} of these"


def _changers() -> dict[str, Callable[[str], list[str]]]:
    pipelines = {steps: parse_steps(steps.split(",")).words for steps in (*_SINGLE, *_DOUBLE)}
    return pipelines | {_TRUECASE: lambda word: [word[:1].upper() + word[1:]]}
