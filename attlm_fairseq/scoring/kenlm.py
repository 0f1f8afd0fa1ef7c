"""N-gram models of KenLM as scorers: ARPA files (also compressed) and KenLM's own binary files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

import kenlm

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import sha256
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

LN_10 = math.log(10.0)
UNKNOWN = "<unk>"

BINARY_MAGIC = b"mmap lm http://kheafield.com/code format version"
BINARY_ORDER = 88  # where KenLM's binary header states the order: one byte
BINARY_COUNTS = 108  # where its n-gram counts begin: 8 bytes each
OPEN_BY_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}

_SEPARATOR = re.compile(r"[ \t\n\v\f\r]")  # what separates words for KenLM; other white space is part of a word


class KenLMScorer(Scorer):
    """An n-gram model as a Scorer: ``ln p(w_i | <s> w_1 .. w_{i-1})`` and ``ln p(</s> | ..)``, each word looked up as given.

    A word that the model does not have is scored as its ``<unk>``, whose probability it gives to every unknown word. So are ``<s>``
    and ``</s>`` where they stand as words of a sentence: they are no words, and KenLM would otherwise take them for its symbols.
    """

    def __init__(self, path: Path, name: str = "kenlm") -> None:
        """Load an ARPA or binary file. Raises InputError where it is missing or broken."""
        self.name = name
        self.path = path
        self._model = load_kenlm(path)
        self.order: int = self._model.order
        self.ngrams = read_ngram_counts(path)

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score each sentence. Raises ValueError for a word that is empty or holds a space, tab or line end."""
        return [self._score_sentence(words) for words in sentences]

    def _score_sentence(self, words: Sequence[str]) -> SentenceScore:
        # Word by word rather than as one string: then as many words come back as went in, whatever they are made of.
        state, following = kenlm.State(), kenlm.State()
        self._model.BeginSentenceWrite(state)
        log_probs: list[float] = []
        oov: list[bool] = []
        for word in words:
            event = self._model.BaseFullScore(state, as_looked_up(word), following)
            log_probs.append(event.log_prob * LN_10)
            oov.append(event.oov)
            state, following = following, state
        log_probs.append(self._model.BaseScore(state, "</s>", following) * LN_10)
        return SentenceScore(tuple(log_probs), tuple(oov))

    def signature(self) -> dict[str, object]:
        state = kenlm.State()
        self._model.NullContextWrite(state)
        return {
            "kind": "kenlm",
            "model": str(self.path),
            "sha256": sha256(self.path),
            "order": self.order,
            "ngrams": list(self.ngrams),
            "vocabulary": self.ngrams[0],
            "OOV policy": "p(<unk>) for each unknown word, and for <s> and </s> as words",
            "ln p(<unk>)": self._model.BaseScore(state, UNKNOWN, kenlm.State()) * LN_10,
        }


def read_ngram_counts(path: Path) -> tuple[int, ...]:
    """How many n-grams of each order, from 1 up, the header of an ARPA or KenLM binary file states. Raises InputError."""
    try:
        with path.open("rb") as file:
            start = file.read(BINARY_COUNTS + 8 * 255)  # the order is one byte
        if start.startswith(BINARY_MAGIC):
            return struct.unpack_from(f"<{start[BINARY_ORDER]}Q", start, BINARY_COUNTS)
        with _open_arpa(path, start) as file:
            return tuple(_arpa_counts(file))
    except (OSError, EOFError, ValueError, struct.error, lzma.LZMAError) as error:
        raise InputError(f"has no readable header of an ARPA or KenLM file ({error})", path=path) from None


def _open_arpa(path: Path, start: bytes) -> IO[bytes]:
    for magic, opener in OPEN_BY_MAGIC.items():
        if start.startswith(magic):
            return opener(path, "rb")
    return path.open("rb")


def _arpa_counts(file: IO[bytes]) -> list[int]:
    counts: list[int] = []
    for line in file:
        if line.startswith(b"ngram "):
            counts.append(int(line.partition(b"=")[2]))
        elif line.startswith(b"\\") and counts:
            return counts
    raise ValueError("no \\1-grams: section")


def read_unigrams(path: Path) -> list[str]:
    """The entries of an ARPA file's 1-grams, special symbols included, in its order. Raises InputError, for a binary file too."""
    words: list[str] = []
    try:
        with path.open("rb") as file:
            start = file.read(len(BINARY_MAGIC))
        if start.startswith(BINARY_MAGIC):
            raise InputError("is a KenLM binary file; give the ARPA file it was made from, or a list of its words", path=path)
        with _open_arpa(path, start) as file:
            within = False
            for line in file:
                if line.startswith(b"\\"):
                    if within:
                        break
                    within = line.strip() == b"\\1-grams:"
                elif within and line.strip(b"\n\r"):
                    words.append(line.split(b"\t")[1].rstrip(b"\r\n").decode("utf-8"))
    except (OSError, EOFError, IndexError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise InputError(f"has no readable 1-grams of an ARPA file ({error})", path=path) from None
    return words


def load_kenlm(path: Path) -> kenlm.Model:
    if not path.is_file():
        raise InputError("is not a file; an ARPA file or a KenLM binary file is expected", path=path)
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    try:
        return kenlm.Model(os.fsencode(path), config)
    except UnicodeDecodeError as error:  # KenLM's message quotes bytes of the file that are not UTF-8
        message = error.object.decode("utf-8", "backslashreplace")
    except (OSError, RuntimeError) as error:
        message = str(error)
    raise InputError(f"cannot be loaded as an ARPA file or a KenLM binary file: {gist(message)}", path=path)


def gist(message: str) -> str:
    """What KenLM or its programs say, without the place in its source code, the condition that failed, and the file's name."""
    message = re.sub(r"^Cannot read model .*? \((.*)\)$", r"\1", message, flags=re.DOTALL)
    _, location, explanation = re.match(r"(.*?)(\S+:\d+ in .* threw [\w:]+(?: because `.*?')?\.\s+|$)(.*)", message, re.DOTALL).groups()
    return explanation if location else (message.strip() or "(no message)").splitlines()[-1]


@lru_cache(maxsize=1 << 16)
def as_looked_up(word: str) -> str:
    """The word for KenLM's vocabulary: ``<unk>`` for what is a symbol there, and for what its C strings cannot hold."""
    if not word or _SEPARATOR.search(word):
        raise ValueError(f"{word!r} is not a word: it is empty or holds a space, tab or line end")
    unencodable = any("\ud800" <= character <= "\udfff" for character in word)
    return UNKNOWN if word in ("<s>", "</s>") or "\0" in word or unencodable else word
