"""Detect whether an LM was trained on the text that weights are tuned on; it would then look better than it is.

An n-gram LM estimated from a sentence contains all of its n-grams. Any other LM is judged by the words that occur once
among the N words of the text. Their relative frequency alone gives ln p = -ln N. An LM that has not seen the text can
improve on this only through the preceding words; one that has seen it gives a clearly higher ln p.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attlm_fairseq.scoring.scorer import Sentence, SentenceScore

if TYPE_CHECKING:
    import kenlm

MIN_SENTENCES = 20
MIN_WORDS = 5  # the n-grams of a shorter sentence are in many texts
SEEN_SHARE = 0.9  # in-domain text that was not seen has a tenth to a half
SAMPLE = 500  # sentences looked at
MIN_SCORED = 60  # sentences, and
MIN_RARE = 30  # words that occur once: fewer vary too much
SEEN_COST = 0.5  # of ln N: LMs that had not seen a text paid 0.52 and more (ATIS; 0.9 and more for broader text), those that had 0.3 to 0.5


def held_share(model: kenlm.Model, texts: Iterable[str]) -> float | None:
    """Return the share of sentences all of whose n-grams of the highest order the LM holds.

    Each distinct text of at least MIN_WORDS words counts once, up to SAMPLE. None if fewer than MIN_SENTENCES count.
    """
    distinct = list(dict.fromkeys(" ".join(text.replace("\0", "").split()) for text in texts))
    sentences = [words for text in distinct if len(words := text.split()) >= MIN_WORDS][:SAMPLE]
    if len(sentences) < MIN_SENTENCES:
        return None
    return sum(_holds(model, words) for words in sentences) / len(sentences)


def _holds(model: kenlm.Model, words: Sequence[str]) -> bool:
    """Return whether every n-gram was found in full: the sentence begin counts, so the first word ends a bigram."""
    scores = model.full_scores(" ".join(words), bos=True, eos=True)
    return all(length == min(model.order, place) and not unknown for place, (_, length, unknown) in enumerate(scores, 2))


def rare_word_cost(scored: Iterable[tuple[Sentence, SentenceScore]]) -> float | None:
    """Return the mean cost of words that occur once: -ln p over ln N, for the N words of the distinct sentences.

    Unknown words do not count. None if there are fewer than MIN_SCORED sentences or MIN_RARE such words.
    """
    distinct = {tuple(words): score for words, score in scored}
    counts = Counter(word for words in distinct for word in words)
    costs = [
        -value
        for words, score in distinct.items()
        for word, value, unknown in zip(words, score.log_probs, score.oov, strict=False)  # the last value is of the sentence end
        if counts[word] == 1 and not unknown
    ]
    if len(distinct) < MIN_SCORED or len(costs) < MIN_RARE:
        return None
    return sum(costs) / len(costs) / math.log(counts.total())


TOO_GOOD = "Its weight will be too large, and the scores are too good; use other text, or `attlm jackknife`"


def warning_of_exposure(
    name: str, share: float | None = None, cost: float | None = None, text: str = "the references", advice: str = TOO_GOOD
) -> str | None:
    """Return what to tell about an LM with this ``held_share`` or ``rare_word_cost`` of a text; None if nothing."""
    if share is not None and share >= SEEN_SHARE:
        found = f"has seen {text}: all n-grams of {share:.0%} of the sentences are in it"
    elif cost is not None and cost < SEEN_COST:
        found = f"seems to have seen {text}: words that occur once cost it {cost:.0%} of what their frequency says"
    else:
        return None
    return f"WARNING: {name} {found}. {advice}"
