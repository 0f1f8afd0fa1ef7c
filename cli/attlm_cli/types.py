"""Types of option values. Each parses its text once; a parse error is one line that names the option."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.mbr import LOSSES
from attlm_fairseq.nbest.features.combination import MAX_ABSOLUTE
from attlm_fairseq.nbest.metrics.external import PREFIX
from attlm_fairseq.nbest.metrics.making import METRICS
from attlm_fairseq.numeric import whole_number
from attlm_fairseq.scoring.context.cache import parse_neural_cache, parse_temperature, parse_unigram_cache
from attlm_fairseq.scoring.context.conversations import ContextSpec, parse_context
from attlm_fairseq.scoring.lm_options import are_shares
from attlm_fairseq.scoring.unknown_words.oov_policy import parse_policy
from attlm_fairseq.text import TextPipeline, parse_steps


class Parsed(click.ParamType):
    """An option type made from a ``parse`` function. Its InputError is prefixed with the option and its text."""

    def __init__(self, metavar: str, parse: Callable[[str], Any]) -> None:
        self.name = metavar
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        try:
            return self.parse(value)
        except InputError as error:
            option = param.opts[0] if param is not None else self.name
            raise InputError(f"{option} {value!r}: {error}") from None

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return self.name


class NameValue(Parsed):
    """Parses ``NAME=VALUE`` to (name, value).

    If ``optional``, ``VALUE`` alone gives (None, value), and a name consists of letters, digits, _ and -. A value of ``files`` may
    contain ``=``, so that the name ends at the first one, and an existing file has no other name. Else the name ends at the
    last ``=``, since names of list scores may contain ``=``.
    """

    def __init__(self, metavar: str, parse: Callable[[str], Any], optional: bool = False, files: bool = False) -> None:
        super().__init__(f"[NAME=]{metavar}" if optional else f"NAME={metavar}", self._split)
        self._value = parse
        self._optional = optional
        self._files = files

    def _split(self, text: str) -> tuple[str | None, Any]:
        if self._optional:
            name, equals, value = text.partition("=")
            is_file = self._files and os.path.exists(text)  # noqa: PTH110 - Path.exists raises for a name that is too long
            named = bool(equals) and re.fullmatch(r"[\w-]+", name) is not None and not is_file
            return (name, self._value(value)) if named else (None, self._value(text))
        name, equals, value = text.partition("=") if self._files else text.rpartition("=")
        if not equals or not name:
            raise InputError(f"expected {self.name}")
        return name, self._value(value)


class Precision(click.Choice):
    """Parses ``float32`` or ``bfloat16``; fairseq's names ``fp32`` and ``bf16`` are accepted, too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert({"fp32": "float32", "bf16": "bfloat16"}.get(str(value).lower(), value), param, ctx)


class NameOrCommand(click.ParamType):
    """Parses one of the names, in any case, or ``external:COMMAND``."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        self.name = name
        self._names = list(names)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(self._names)}|{PREFIX}COMMAND]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = value if value.startswith(PREFIX) else value.lower()
        if found == PREFIX:
            raise InputError(f"--{self.name} {PREFIX} names no command; expected {PREFIX}COMMAND, such as '{PREFIX}python comet.py'")
        if found not in self._names and not found.startswith(PREFIX):
            self.fail(f"{value!r} is not one of {', '.join(self._names)} and {PREFIX}COMMAND.", param, ctx)
        return found


class FiniteRange(click.FloatRange):
    """Parses a finite number in a range. click itself accepts nan in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def _weight(text: str) -> float:
    weight = _number(text, "NAME=NUMBER, such as lm=0.5")
    if not abs(weight) <= MAX_ABSOLUTE:
        raise InputError(f"expected a finite number of at most {MAX_ABSOLUTE:g}")
    return weight


def _interval(text: str) -> tuple[float, float]:
    lower, colon, upper = text.partition(":")
    expected = "NAME=LOW:HIGH, such as lm=0:2 or lm=0:"
    if not colon:
        raise InputError(f"expected {expected}")
    low, high = _number(lower or "-inf", expected), _number(upper or "inf", expected)
    if not low <= high or any(MAX_ABSOLUTE < abs(end) < math.inf for end in (low, high)) or low == math.inf or high == -math.inf:
        raise InputError(f"expected finite numbers of at most {MAX_ABSOLUTE:g}, the lower one first")
    return low, high


def _mixture(text: str) -> tuple[tuple[str, float], ...]:
    expected = "LM:NUMBER,LM:NUMBER.., two LMs or more, none negative, not all zero, each LM once"
    parts = [part.rpartition(":") for part in text.split(",")]
    members = tuple((name, _number(share, expected)) for name, _, share in parts)
    if not are_shares([share for _, share in members], max(2, len(members))) or len(dict(members)) != len(members):
        raise InputError(f"expected {expected}")
    return members


def _shares(text: str) -> tuple[float, ...]:
    expected = "numbers, none negative, not all zero, with : between"
    shares = tuple(_number(share, expected) for share in text.split(":"))
    if not are_shares(list(shares), len(shares)):
        raise InputError(f"expected {expected}")
    return shares


def _number(text: str, expected: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"expected {expected}") from None


def _files(text: str) -> tuple[str, ...]:
    if os.path.exists(text):  # noqa: PTH110 - a name with colons; Path.exists raises for one that is too long
        return (text,)
    files = tuple(filter(None, text.split(":")))
    if not files:
        raise InputError("names no file")
    return files


def _margin(text: str) -> float:
    margin = _number(text, "a number, such as 10")
    if not 0 <= margin < math.inf:
        raise InputError("expected a finite number that is not negative")
    return margin


def _steps(text: str) -> TextPipeline:
    return parse_steps(filter(None, text.split(",")))


def _sentences(text: str) -> int | None:
    if text == "all":
        return None
    if (found := whole_number(text)) is None:
        raise InputError("expected a whole number, 0 for none, or all")
    return found


def _groups(text: str) -> ContextSpec:
    if not text.startswith(("id:", "file:")):
        raise InputError(f"found {text!r}, expected id:REGEX or file:FILE")
    return parse_context(text)


METRIC = NameOrCommand("metric", sorted(METRICS))
LOSS = NameOrCommand("mbr", LOSSES)
WEIGHT = NameValue("NUMBER", _weight)
INTERVAL = NameValue("LOW:HIGH", _interval)
NAMED_FILE = NameValue("FILE", str, files=True)
FILES = Parsed("LM[:LM..]", _files)
FILES_OF_LM = NameValue("LM[:LM..]", _files, optional=True, files=True)
ENSEMBLE_WEIGHTS = NameValue("NUMBER:NUMBER..", _shares, optional=True)
MIXTURE = NameValue("LM:NUMBER,..", _mixture, optional=True)
TEXT_OF_LM = NameValue("STEP,..", _steps, optional=True)
OOV_OF_LM = NameValue("POLICY", parse_policy, optional=True)
STEPS = Parsed("STEP,..", _steps)
CONTEXT = Parsed("HOW", parse_context)
GROUPS = Parsed("HOW", _groups)
TEMPERATURE_OF_LM = NameValue("NUMBER", parse_temperature, optional=True)
NEURAL_CACHE_OF_LM = NameValue("SIZE:THETA:WEIGHT", parse_neural_cache, optional=True)
UNIGRAM_CACHE_OF_LM = NameValue("SIZE:WEIGHT[:DECAY]", parse_unigram_cache, optional=True)
FILE_OF_LM = NameValue("FILE", Path, optional=True, files=True)
SENTENCES_OF_LM = NameValue("K", _sentences, optional=True)
MARGIN_OF_LM = NameValue("NUMBER", _margin, optional=True)
TOKEN_OF_LM = NameValue("TOKEN", str, optional=True)
LANGUAGES_OF_LM = NameValue("SOURCE:TARGET", str, optional=True)
PREFIX_OF_LM = NameValue("TEXT", str, optional=True)
