"""From the text of a hypothesis to the words that the LM looks up. The hypothesis itself is never changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from attlm_fairseq.errors import InputError

LOUD_OOV_RATE = 0.05  # above this share of unknown words, text and LM probably differ in case, punctuation or tokenisation


@dataclass(frozen=True)
class TextPipeline:
    """The steps before an LM, in their order: Moses tokenisation for a language, then lower case, then splitting at white space.

    Give text that is tokenised already as it is: without steps only the splitting remains.
    """

    tokenize: str | None = None
    lowercase: bool = False

    @cached_property
    def _tokenizer(self) -> object:
        from sacremoses import MosesTokenizer

        return MosesTokenizer(lang=self.tokenize)

    def words(self, text: str) -> list[str]:
        """The words of a text, none of them empty."""
        if self.tokenize:
            text = self._tokenizer.tokenize(text, return_str=True, escape=False)
        return (text.lower() if self.lowercase else text).split()

    def __str__(self) -> str:
        steps = [f"Moses tokenisation ({self.tokenize})"] if self.tokenize else []
        return ", ".join([*steps, *(["lower case"] if self.lowercase else []), "split at white space"])


class OOVCount:
    """How many of the words that an LM was given it does not know, and which most often."""

    def __init__(self, lm_name: str) -> None:
        self.lm_name = lm_name
        self.words = 0
        self.unknown: Counter[str] = Counter()

    def add(self, sentences: Iterable[Sequence[str]], oov: Iterable[Sequence[bool]]) -> None:
        for words, flags in zip(sentences, oov, strict=True):
            self.words += len(words)
            self.unknown.update(word for word, is_oov in zip(words, flags, strict=True) if is_oov)

    @property
    def rate(self) -> float:
        """Share of unknown words, of all words given."""
        return self.unknown.total() / self.words if self.words else 0.0

    def warning(self) -> str | None:
        """What to tell the user where the rate is high: it is the commonest reason for an LM that makes things worse."""
        if self.rate <= LOUD_OOV_RATE:
            return None
        most_first = sorted(self.unknown.items(), key=lambda item: (-item[1], item[0]))
        commonest = ", ".join(f"{word} ({count})" for word, count in most_first[:10])
        return (
            f"WARNING: {self.rate:.1%} of the words ({self.unknown.total()} of {self.words}) are unknown to {self.lm_name}. "
            f"Do case, punctuation and tokenisation match its training text (--lowercase, --tokenize)? Most often: {commonest}"
        )


def require_language(code: str | None) -> str | None:
    """The language of ``--tokenize`` as given, or InputError: Moses' rules go by two-letter codes."""
    if code is not None and not (len(code) == 2 and code.isalpha() and code.islower()):
        raise InputError(f"--tokenize {code!r} is not a two-letter language code such as en or de")
    return code
