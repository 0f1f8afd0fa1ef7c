"""Whether an n-gram LM has seen the references of the lists that weights are tuned on: it then looks better there than it is.

An n-gram LM that was estimated from a sentence holds all of its n-grams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import kenlm

MIN_SENTENCES = 20
MIN_WORDS = 5  # the n-grams of a shorter sentence are in many texts
SEEN_SHARE = 0.9  # in-domain text that was not seen has a tenth to a half
SAMPLE = 1000  # sentences looked at


def held_share(model: kenlm.Model, texts: Iterable[str]) -> float | None:
    """Return the share of sentences all of whose n-grams of the highest order the LM holds.

    Each distinct text of at least MIN_WORDS words counts once, up to SAMPLE. None if there are fewer than MIN_SENTENCES.
    """
    distinct = list(dict.fromkeys(" ".join(text.replace("\0", "").split()) for text in texts))
    sentences = [words for text in distinct if len(words := text.split()) >= MIN_WORDS][:SAMPLE]
    if len(sentences) < MIN_SENTENCES:
        return None
    return sum(_holds(model, words) for words in sentences) / len(sentences)


def _holds(model: kenlm.Model, words: Sequence[str]) -> bool:
    """Whether every n-gram was found in full: the sentence begin counts, so the first word ends a bigram."""
    scores = model.full_scores(" ".join(words), bos=True, eos=True)
    return all(length == min(model.order, place) and not unknown for place, (_, length, unknown) in enumerate(scores, 2))


def warning_of_exposure(name: str, share: float | None) -> str | None:
    """What to tell about an LM with this :func:`held_share` of the references; None if nothing."""
    if share is None or share < SEEN_SHARE:
        return None
    return (
        f"WARNING: {name} has seen the references: all n-grams of {share:.0%} of them are in it. Its weight will be too large, and the "
        "scores are too good; estimate it from other text, or use `attlm jackknife`"
    )
