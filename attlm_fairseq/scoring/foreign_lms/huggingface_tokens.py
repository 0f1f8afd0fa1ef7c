"""Sentences as the tokens of a tokenizer of Hugging Face: each token belongs to the word in which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import or_
from typing import Any

from attlm_fairseq.errors import require_words
from attlm_fairseq.one_at_a_time import CUTTING
from attlm_fairseq.scoring.foreign_lms.token_lm import Encoded
from attlm_fairseq.text.symbols import encodable


def line_end(tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens of a line end, which keep the words of two sentences apart; none if the tokenizer leaves it out, as BERT's does."""
    return tuple(tokenizer("\n", add_special_tokens=False)["input_ids"])


def encode_words(tokenizer: Any, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
    """Tokenize sentences, whose words are joined by single spaces."""
    if not sentences:
        return []
    for words in sentences:
        require_words(words)
    texts = [encodable(" ".join(words)) for words in sentences]
    named = (getattr(tokenizer, f"{name}_token") for name in ("bos", "eos", "sep", "cls", "pad", "mask"))
    special = [token for token in named if token]  # others, such as <laugh>, are words of the texts that the LM was trained on
    cut: dict[int, tuple[list[int], list[tuple[int, int]]]] = {}
    for as_letters in (False, True):  # "</s>" that a text has is a word like any other, not the end of a sentence
        places = [place for place, text in enumerate(texts) if as_letters == any(token in text for token in special)]
        given = [texts[place] for place in places]
        if given:
            with CUTTING:
                found = tokenizer(given, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=as_letters)
            cut |= zip(places, zip(found["input_ids"], found["offset_mapping"], strict=True), strict=True)
    unknown = None if tokenizer.unk_token in special else tokenizer.unk_token
    return [_with_unknown(encoded(words, *cut[place], tokenizer.unk_token_id), words, unknown) for place, words in enumerate(sentences)]


def _with_unknown(sentence: Encoded, words: Sequence[str], unknown: str | None) -> Encoded:
    """Return the sentence with its words ``<unk>``, or what the tokenizer calls it, as unknown, though they may be cut as letters."""
    if unknown is None or unknown not in words:
        return sentence
    of_words = [word == unknown for word, length in zip(words, sentence.lengths, strict=True) for _ in range(length)]
    return replace(sentence, unknown=tuple(map(or_, sentence.unknown, of_words)))


def encoded(words: Sequence[str], tokens: Sequence[int], offsets: Sequence[tuple[int, int]], unknown: int | None) -> Encoded:
    """Assign each token of ``" ".join(words)`` to the word in which it ends, by its ``offsets`` in the text."""
    ends = []  # the text position after each word
    position = 0
    for word in words:
        position += len(word)
        ends.append(position)
        position += 1
    lengths = [0] * len(words)
    place = 0
    for _, end in offsets:
        while place + 1 < len(words) and end > ends[place]:
            place += 1
        lengths[place] += 1
    return Encoded(tuple(tokens), tuple(lengths), tuple(token == unknown for token in tokens))
