"""Advice on text normalisation steps that would help an LM.

Steps help a word LM if they make unknown words known, and a subword LM if they make the text more probable.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text.pipeline import TextPipeline, parse_steps
from attlm_fairseq.text.steps import KINDS

TYPES = 300  # the commonest unknown words are tried
WORTH_SAYING = 0.25  # share of their occurrences that a step must make known
WORTH_A_SECOND_STEP = 0.1

_FORMS = ("unicode:nfc", "unicode:nfd", "unicode:nfkc")
_SINGLE = ("lowercase", "uppercase", "remove-punctuation", "normalize-punctuation:en", *_FORMS, "characters", "tokenize:en")
_DOUBLE = ("remove-punctuation,lowercase", "remove-punctuation,uppercase", "tokenize:en,lowercase", "tokenize:en,uppercase")
WORTH_NATS = 0.1  # per word, that a step must gain for an LM without unknown words; of several steps for each

_TRUECASE = "truecase:MODEL"  # what it would give, nearly: a capital first letter


def advise(count: OOVCount, scorer: Scorer, text: TextPipeline) -> str | None:
    """Return a sentence that names the steps, after those of ``text``, that would make most unknown words known, or None.

    Joining subwords is tried first, on whole sentences. The other steps are tried on each of the most frequent unknown words.
    """
    if text.segmentation is not None or not count.unknown:
        return None
    as_given = Counter(word for example in count.examples for word in example.split())
    unknown_as_given = sum(times for word, times in as_given.items() if word in count.unknown)
    for mark in KINDS["join-subwords"].choices:
        join = f"join-subwords:{mark}"
        words = Counter(word for example in count.examples for word in parse_steps([join]).words(example))
        if (as_given - words).total() <= WORTH_SAYING * unknown_as_given:
            continue  # few subword marks or none
        shares = _known_shares(words.items(), scorer, {"": lambda word: [word], **_changers()})
        best, share = _best({f"{join},{steps}" if steps else join: share for steps, share in shares.items()})
        if 1.0 - share <= (1.0 - WORTH_SAYING) * unknown_as_given / as_given.total():
            return f"{_with(text, best)} it would know {share:.0%} of the words"
    unknown = sorted(count.unknown.items(), key=lambda item: (-item[1], item[0]))[:TYPES]
    best, share = _best(_known_shares(unknown, scorer, _changers()))
    return f"{_with(text, best)} it would know {share:.0%} of these" if share >= WORTH_SAYING else None


def advise_written_text(scorer: Scorer, sentences: Sequence[Sequence[str]]) -> str | None:
    """Return a sentence that names the steps that make the text most probable under a subword LM, or None.

    LMs of written text expect capitals and no spaces before punctuation, but lists are often lower-cased and tokenised. The
    log-probabilities of sentences are compared per given word, so that different pieces do not matter.
    """
    words = sum(map(len, sentences))
    if not words:
        return None
    texts = [" ".join(sentence) for sentence in sentences]
    gains = {}
    as_given = math.fsum(score.total for score in scorer.score([text.split() for text in texts]))
    for steps, change in _written().items():
        changed = [change(text).split() for text in texts]
        if changed != list(map(list, sentences)):
            with contextlib.suppress(InputError):  # the change makes a sentence longer than the LM can read
                gains[steps] = (math.fsum(score.total for score in scorer.score(changed)) - as_given) / words
    best = max(gains, key=lambda steps: gains[steps] - WORTH_NATS * steps.count(","), default=None)
    if best is None or gains[best] < WORTH_NATS * (1 + best.count(",")):
        return None
    return f"with --text {best} the text would be more probable, by {gains[best]:.2f} nats per word"


def _written() -> dict[str, Callable[[str], str]]:
    """Return functions by steps. Truecasing is approximated: a capital at the beginning of the sentence and in "I"."""
    lower, detokenize = (parse_steps([step]).prepared for step in ("lowercase", "detokenize:en"))

    def capital(text: str) -> str:
        return re.sub(r"\bi\b", "I", text[:1].upper() + text[1:])

    return {
        "lowercase": lower,
        "detokenize:en": detokenize,
        "lowercase,detokenize:en": lambda text: detokenize(lower(text)),
        _TRUECASE: capital,
        f"lowercase,{_TRUECASE}": lambda text: capital(lower(text)),
        f"{_TRUECASE},detokenize:en": lambda text: detokenize(capital(text)),
        f"lowercase,{_TRUECASE},detokenize:en": lambda text: detokenize(capital(lower(text))),
    }


def _known_shares(words: Iterable[tuple[str, int]], scorer: Scorer, changers: dict[str, Callable[[str], list[str]]]) -> dict[str, float]:
    """Return, for each combination of steps, the share of the words (word, count) that the LM knows after them."""
    words = list(words)
    changed = {steps: [changer(word) for word, _ in words] for steps, changer in changers.items()}
    pieces = sorted({piece for columns in changed.values() for column in columns for piece in column})
    known = {piece for piece, score in zip(pieces, scorer.score([[piece] for piece in pieces]), strict=True) if not any(score.oov)}
    total = sum(times for _, times in words) or 1
    return {
        steps: sum(times for column, (_, times) in zip(columns, words, strict=True) if known.issuperset(column)) / total
        for steps, columns in changed.items()
    }


def _best(shares: dict[str, float]) -> tuple[str, float]:
    """Return the steps with the highest share, the first if equal. Each additional step must raise the share enough."""
    return max(shares.items(), key=lambda item: item[1] - WORTH_A_SECOND_STEP * item[0].count(","))


def _with(text: TextPipeline, steps: str) -> str:
    return f"With --text {','.join([*map(str, text.steps), steps])}"


def _changers() -> dict[str, Callable[[str], list[str]]]:
    pipelines = {steps: parse_steps(steps.split(",")).words for steps in (*_SINGLE, *_DOUBLE)}
    return pipelines | {_TRUECASE: lambda word: [word[:1].upper() + word[1:]]}
