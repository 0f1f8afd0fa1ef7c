"""fairseq's ``dict.txt`` without fairseq: words to token ids, exactly as the model was trained."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

from attlm_fairseq.errors import InputError, is_word, not_a_word, require_words
from attlm_fairseq.text.symbols import END, START, UNKNOWN

BOS, PAD, EOS, UNK = range(4)
"""Ids of ``<s> <pad> </s> <unk>``, which every fairseq dictionary starts with and ``dict.txt`` leaves out."""

REPEATS = "#fairseq:overwrite"
"""fairseq's mark at the end of a line of ``dict.txt``: the word may repeat an earlier one."""

SPECIAL_SYMBOLS = (START, "<pad>", END, UNKNOWN)


def fingerprint(symbols: Sequence[str]) -> str:
    """Return the SHA-256 of a dictionary's symbols in id order, special ones included. It identifies the meaning of the ids."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def fingerprint_numbers(symbols: Sequence[str]) -> list[int]:
    """Return the fingerprint as 8 numbers of 32 bits, stored with the weights as int64: sums in averaged checkpoints do not overflow."""
    return list(struct.unpack(">8I", bytes.fromhex(fingerprint(symbols))))


class Vocabulary:
    """The words that an LM knows. If ``<s>``, ``<pad>`` or ``</s>`` occurs as a word of a text, it is an unknown word."""

    def __init__(self, symbols: Sequence[str]) -> None:
        """Take ``symbols`` in the order of their ids, the four special symbols first."""
        self.symbols = tuple(symbols)
        self._ids = {symbol: index for index, symbol in enumerate(self.symbols) if index > EOS}

    def __len__(self) -> int:
        return len(self.symbols)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.symbols == other.symbols

    def __hash__(self) -> int:
        return hash(self.symbols)

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return the ids of the words; words outside the vocabulary get ``UNK``. Raises InputError for a string, or what is not a word."""
        require_words(words)
        ids = self.symbol_ids(words)
        if UNK in ids:
            for word, number in zip(words, ids, strict=True):
                if number == UNK and not is_word(word):
                    raise not_a_word(word)
        return ids

    def symbol_ids(self, symbols: Sequence[str]) -> list[int]:
        """Return the ids of the symbols of another vocabulary, which may have spaces; ``UNK`` for those outside this one."""
        return [self._ids.get(symbol, UNK) for symbol in symbols]

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read a ``dict.txt`` with one ``word count`` per line; ids start at 4.

        Raises:
            InputError: the file cannot be read or is not UTF-8, a line is not ``word count``, or a word is there
                twice without ``#fairseq:overwrite``. For lines, the message has the line number.
        """
        symbols = list(SPECIAL_SYMBOLS)
        seen = dict.fromkeys(symbols, 0)
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        except UnicodeDecodeError as error:
            raise InputError(
                f"is not UTF-8 (byte {error.start}); a dict.txt as written by fairseq-preprocess is expected", path=path
            ) from None
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            fields = line.rstrip().split(" ")
            overwrite = fields[-1] == REPEATS
            word, count = " ".join(fields[: -2 if overwrite else -1]), fields[-2 if overwrite else -1]
            if not word or not count.lstrip("-").isdigit():
                raise InputError(f"found {line[:60]!r}, expected `word count`; is this the dict.txt of the model?", path=path, line=number)
            if word in seen and not overwrite:
                raise InputError(f"the word {word!r} stands in line {seen[word] or '0 (special)'} already", path=path, line=number)
            seen[word] = number
            symbols.append(word)
        return cls(symbols)
