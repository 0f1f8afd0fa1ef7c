"""The warning about words that an LM does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from attlm_fairseq.errors import visible
from attlm_fairseq.messages import note, warnings_are_read

FEW_TYPES = 2  # so many distinct unknown words may be names in a few utterances, unless the rate is high
HIGH_OOV_RATE = 0.5
LOUD_OOV_RATE = 0.05  # above this share of unknown words, text and LM probably differ in case, punctuation or tokenisation
MAX_WORD_CHARACTERS = 40  # characters shown of an unknown word, which may be a whole line of text without spaces
UNKNOWN_IN_TEXT = "<unk>"  # stands for a rare word in a prepared text: it is unknown on purpose
EXAMPLES = 50  # sentences with unknown words that are kept, to try text normalisation on


@dataclass(repr=False)
class OOVCount:
    """Counts of the words that an LM does not know. ``examples`` are the first sentences with unknown words."""

    lm_name: str
    words: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.unknown.total()} of {self.words} words are unknown to {self.lm_name}>"

    def add(self, sentences: Iterable[Sequence[str]], oov: Iterable[Sequence[bool]]) -> None:
        for words, flags in zip(sentences, oov, strict=True):
            self.words += len(words)
            self.unknown.update(word for word, is_oov in zip(words, flags, strict=True) if is_oov)
            if len(self.examples) < EXAMPLES and any(flags):
                self.examples.append(" ".join(words))

    def merge(self, other: OOVCount) -> None:
        """Add the counts of ``other``, which is for the same LM."""
        self.words += other.words
        self.unknown.update(other.unknown)
        self.examples += other.examples[: EXAMPLES - len(self.examples)]

    @property
    def rate(self) -> float:
        """Return the share of unknown words among all words."""
        return self.unknown.total() / self.words if self.words else 0.0

    def warning(self) -> str | None:
        """Return a warning if the rate is high, else None. Unknown words are the most common reason why an LM does harm."""
        strange = {word: count for word, count in self.unknown.items() if word != UNKNOWN_IN_TEXT}
        rate = sum(strange.values()) / self.words if self.words else 0.0
        if rate <= LOUD_OOV_RATE or (len(strange) <= FEW_TYPES and rate < HIGH_OOV_RATE):
            return None
        most_first = sorted(strange.items(), key=lambda item: (-item[1], item[0]))
        commonest = ", ".join(
            f"{visible(word[:MAX_WORD_CHARACTERS])}{'..' * (len(word) > MAX_WORD_CHARACTERS)} ({count})" for word, count in most_first[:10]
        )
        return (
            f"WARNING: {rate:.1%} of the words ({sum(strange.values())} of {self.words}) are unknown to {self.lm_name}. "
            f"Do case, punctuation and tokenisation match its training text (--text)? Most often: {commonest}"
        )


def warn_of_oov(counts: Iterable[OOVCount], advise: Callable[[OOVCount], str | None] | None = None) -> None:
    """Warn of each LM that does not know many of the words, with the advice that ``advise`` gives for it."""
    for count in counts if warnings_are_read() else ():
        if warning := count.warning():
            advice = advise(count) if advise else None
            note(f"{warning}. {advice}" if advice else warning)
