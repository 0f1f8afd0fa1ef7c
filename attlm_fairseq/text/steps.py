"""The text steps: functions from text to text, each built from its argument.

Words are separated by white space before and after every step. A step's library is imported when the step is built, so
a run without steps does not import it.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import unicodedata
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Literal

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.one_at_a_time import LOADING
from attlm_fairseq.text.subwords import JOINED_STYLES, join_subwords
from attlm_fairseq.text.symbols import encodable
from attlm_fairseq.text.unspaced import divided, has_unspaced, joined

TextFunction = Callable[[str], str]


@dataclass(frozen=True)
class StepKind:
    """A kind of text step: what its argument is (empty: no argument), and how a step is built from it.

    ``choices`` are all values of the argument; empty if it is a language or a file. ``segments``: the step cuts words
    into the units of one LM, so it must come last. ``optional``: the argument may be left out.
    """

    argument: str
    build: Callable[[str], TextFunction]
    choices: tuple[str, ...] = ()
    segments: bool = False
    optional: bool = False


_UNICODE_FORMS: dict[str, Literal["NFC", "NFD", "NFKC", "NFKD"]] = {"nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC", "nfkd": "NFKD"}


def _unicode(form: str) -> TextFunction:
    return partial(unicodedata.normalize, _UNICODE_FORMS[form.lower()])


def _normalize_punctuation(language: str) -> TextFunction:
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer(lang=language).normalize


_SIGN = re.compile(r"[^\w\s]|_")
_APOSTROPHES = ("'", "\u2019")
# soft hyphen, zero-width space, marks of direction, word joiner and invisible operators, byte order mark; not the joiners U+200C and U+200D
_INVISIBLE = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_COMMA = r"(?:[,\u066c]|(?<=[\uff10-\uff19])\uff0c(?=[\uff10-\uff19]))"  # of 1,234, Arabic and full-width; else a comma of clauses
_ZEROS = "0\u0660\u06f0\u0966\u09e6\u0ae6\u0be6\u0c66\u0ce6\u0d66\u0e50\u0ed0\uff10"
_WITH_COMMAS = re.compile(
    rf"(?<![\d.,\u066b\u066c\uff0c\uff0e])(?![{_ZEROS}])\d(?:\d{{0,2}}(?:{_COMMA}\d{{3}})+|\d?(?:{_COMMA}\d{{2}})+{_COMMA}\d{{3}})"
    rf"(?!\d|[.,\u066b\u066c\uff0c\uff0e]\d{{4}}|{_COMMA}\d)"
)


def _remove_punctuation(_: str) -> TextFunction:
    def replacement(match: re.Match) -> str:
        before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
        inside = before and unicodedata.category(before)[0] in "LM" and after.isalpha()
        if match[0] in _APOSTROPHES and inside and not (has_unspaced(before) or has_unspaced(after)):
            return "'"
        return " " if unicodedata.category(match[0]).startswith("P") else match[0]  # signs such as $ and + are not punctuation

    def without(text: str) -> str:
        numbers = _WITH_COMMAS.sub(lambda found: re.sub(_COMMA, "", found[0]), _INVISIBLE.sub("", text))
        return _SIGN.sub(replacement, numbers)

    return without


DOTLESS = ("tr", "az")  # languages with an i with a dot and one without, in both cases


def turkish_lower(text: str) -> str:
    """Return the text in lower case: ``\u0131`` (without a dot) for ``I``, and ``i`` for ``\u0130`` (with one)."""
    return text.replace("I\u0307", "i").translate({ord("I"): "\u0131", 0x130: "i"}).lower()


def turkish_upper(text: str) -> str:
    """Return the text in upper case: ``\u0130`` (with a dot) for ``i``, and ``I`` for ``\u0131`` (without one)."""
    return text.translate({ord("i"): "\u0130"}).upper()


def _tokenize(language: str) -> TextFunction:
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return lambda text: tokenizer.tokenize(text, return_str=True, escape=False)


def tokenized_languages() -> set[str]:
    """Return the languages with own rules in Moses' tokeniser. Other languages get general rules and those of English."""
    from sacremoses.corpus import NonbreakingPrefixes

    return {*NonbreakingPrefixes().available_langs.values(), "ja", "ko", "cjk"}


def _detokenize(language: str) -> TextFunction:
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return lambda text: detokenizer.detokenize(text.split())


def _unescape(_: str) -> TextFunction:
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer().unescape_xml


def _truecase(file: str) -> TextFunction:
    from sacremoses import MosesTruecaser

    try:
        truecaser = MosesTruecaser(load_from=file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=file) from None
    except ValueError as error:  # also what is not UTF-8
        raise InputError(f"is not a truecasing model as Moses writes it: {error}", path=file) from None
    return lambda text: truecaser.truecase(" ".join(text.split()), return_str=True)


def _replace(file: str) -> TextFunction:
    """Replace words of a table: at each word the longest entry that begins there; what was put in is not replaced again."""
    table: dict[str, dict[tuple[str, ...], str]] = {}  # by first word
    for number, line in enumerate(TextSource(file, "words, a tab, and what replaces them").lines(), 1):
        line = line.rstrip("\r\n")
        words, tab, replacement = line.partition("\t")
        if not line.strip():
            continue
        if not tab or "\t" in replacement or not words.split():
            raise InputError(f"found {line[:60]!r}, expected words, a tab, and what replaces them (or nothing)", path=file, line=number)
        entry, ends = tuple(words.split()), table.setdefault(words.split()[0], {})
        if ends.setdefault(entry, replacement) != replacement:
            raise InputError(f"{words!r} is replaced by {ends[entry]!r} in an earlier line", path=file, line=number)
    entries = {first: sorted(found.items(), key=lambda item: -len(item[0])) for first, found in table.items()}

    def replaced(text: str) -> str:
        words, out, place = text.split(), [], 0
        while place < len(words):
            found = (item for item in entries.get(words[place], ()) if tuple(words[place : place + len(item[0])]) == item[0])
            entry, replacement = next(found, (words[place : place + 1], words[place]))
            out.append(replacement)
            place += len(entry)
        return " ".join(out)

    return replaced


def _sentencepiece(file: str) -> TextFunction:
    package = _package("sentencepiece", "sentencepiece")
    _require_file(file)
    processor = package.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(Path(file).read_bytes())  # its own reading of files takes no name that is not UTF-8
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=file) from None
    except RuntimeError:
        raise InputError("is not a sentencepiece model", path=file) from None
    return lambda text: " ".join(processor.encode(encodable(" ".join(text.split())), out_type=str))


def _bpe(file: str) -> TextFunction:
    package = _package("subword_nmt.apply_bpe", "subword-nmt")
    _require_file(file)
    complaint = io.StringIO()
    try:
        # -sig: subword-nmt takes a byte order mark before "#version" for a pair to merge, and the codes for version 0.1
        with Path(file).open(encoding="utf-8-sig") as codes, LOADING, redirect_stderr(complaint):
            bpe = package.BPE(codes)
            bpe.segment("ab")  # it finds a version that it cannot read only when it is used
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=file) from None
    except NotImplementedError:
        raise InputError("is not a file of BPE codes that subword-nmt reads: its #version is not 0.1 or 0.2", path=file) from None
    except (SystemExit, ValueError):  # subword-nmt leaves the program where a line is wrong
        reason = (complaint.getvalue().splitlines() or ["it is not UTF-8 or its version is not a number"])[0]
        raise InputError(f"is not a file of BPE codes as subword-nmt writes it: {reason}", path=file) from None
    return lambda text: bpe.segment(" ".join(text.split()))


def _whisper(_: str) -> TextFunction:
    return _whisper_normalisers().BasicTextNormalizer()


def _whisper_english(file: str) -> TextFunction:
    text = "".join(TextSource(file, "the spellings that a Whisper model has in its normalizer.json").lines())
    try:
        spellings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON ({error}): expected the normalizer.json of a Whisper model", path=file) from None
    if not (isinstance(spellings, dict) and all(isinstance(word, str) for word in spellings.values())):
        raise InputError("is not the normalizer.json of a Whisper model: expected an object, word to word", path=file)
    return _whisper_normalisers().EnglishTextNormalizer(spellings)


def _whisper_normalisers() -> ModuleType:
    return _package("transformers.models.whisper.english_normalizer", "transformers", "hf")


def _package(module: str, distribution: str, extra: str = "subword") -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"this text step needs the package {distribution}, which is not installed: pip install {distribution}, "
            f"or attlm-fairseq[{extra}]"
        ) from None


def _require_file(file: str) -> None:
    if not Path(file).is_file():
        raise InputError("is not a file: the model of a text step is expected", path=file)


KINDS: dict[str, StepKind] = {
    "unicode": StepKind("FORM", _unicode, ("nfc", "nfkc", "nfd", "nfkd")),
    "normalize-punctuation": StepKind("LANG", _normalize_punctuation),
    "remove-punctuation": StepKind("", _remove_punctuation),
    "lowercase": StepKind("LANG", lambda language: turkish_lower if language else str.lower, DOTLESS, optional=True),
    "uppercase": StepKind("LANG", lambda language: turkish_upper if language else str.upper, DOTLESS, optional=True),
    "tokenize": StepKind("LANG", _tokenize),
    "detokenize": StepKind("LANG", _detokenize),
    "characters": StepKind("", lambda _: divided),
    "join-characters": StepKind("", lambda _: joined),
    "unescape": StepKind("", _unescape),
    "truecase": StepKind("FILE", _truecase),
    "replace": StepKind("FILE", _replace),
    "whisper": StepKind("", _whisper),
    "whisper-english": StepKind("FILE", _whisper_english),
    "join-subwords": StepKind("MARK", lambda style: partial(join_subwords, style), JOINED_STYLES),
    "bpe": StepKind("FILE", _bpe, segments=True),
    "sentencepiece": StepKind("FILE", _sentencepiece, segments=True),
}
