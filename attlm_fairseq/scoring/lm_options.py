"""The options of an LM: the values of each, and the kinds of LMs that do not have it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attlm_fairseq.errors import InputError
from attlm_fairseq.numeric import NOT_NEGATIVE, POSITIVE, WHOLE_NUMBER, Allowed, is_number
from attlm_fairseq.scoring.context.cache import NeuralCache, UnigramCache, parse_neural_cache, parse_unigram_cache
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicy, parse_policy
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.text.symbols import encodable

RESERVED_NAMES = ("words", "rank", "total")

Direction = Literal["forward", "right-to-left", "reverse"]
"""The score of a translation model: ln p(hypothesis | source), the same right to left, or ln p(source | hypothesis)."""
DIRECTIONS: tuple[Direction, ...] = ("forward", "right-to-left", "reverse")


def is_mixture(value: Any) -> bool:
    """Return whether a value is a dictionary, or pairs, of names of two or more LMs with weights that can be normalised."""
    pairs = value.items() if isinstance(value, Mapping) else value
    if not isinstance(pairs, Collection) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        return False
    return all(isinstance(name, str) for name, _ in pairs) and are_shares([weight for _, weight in pairs], max(2, len(pairs)))


def mixture_of(value: Any) -> tuple[tuple[str, float], ...]:
    """Return the names and weights of ``is_mixture``."""
    return tuple((name, float(weight)) for name, weight in (value.items() if isinstance(value, Mapping) else value))


_FILE = Allowed(lambda value: isinstance(value, str | os.PathLike) and "\0" not in str(value), "a file", Path)
_TOKEN = Allowed(lambda value: isinstance(value, str), "a token of the LM")
_TEXT = Allowed(lambda value: isinstance(value, str) and bool(value.strip()) and encodable(value) == value, "a text in UTF-8")
ALLOWED: dict[str, Allowed] = {
    "kenlm": _FILE,
    "checkpoints": Allowed(
        lambda value: isinstance(value, list | tuple) and all(isinstance(file, str | os.PathLike) for file in value),
        "a list of files",
        lambda value: tuple(map(Path, value)),
    ),
    "mixture": Allowed(is_mixture, "{NAME = WEIGHT, ..}: names of two or more LMs with weights, none negative, not all zero", mixture_of),
    "ensemble_weights": Allowed(
        lambda value: isinstance(value, list | tuple) and are_shares(value, len(value)),
        "a list of numbers, none negative, not all zero",
        lambda value: tuple(map(float, value)),
    ),
    "sentence_start": _TOKEN,
    "sentence_end": _TOKEN,
    "prompt": _TEXT,
    "context_sentences": WHOLE_NUMBER,
    "temperature": POSITIVE,
    "translation": Allowed(lambda value: value in DIRECTIONS, f"one of {', '.join(DIRECTIONS)}"),
    "languages": Allowed(lambda value: isinstance(value, str) and bool(re.fullmatch(r"[^:\s]+:[^:\s]+", value)), "SOURCE:TARGET"),
    "source_prefix": _TEXT,
    "only_close": NOT_NEGATIVE,
    "dictionary": _FILE,
    "adapt": _FILE,
    "text": Allowed(lambda value: isinstance(value, TextPipeline), "text steps"),
    "source_text": Allowed(lambda value: isinstance(value, TextPipeline), "text steps"),
    "oov": Allowed(lambda value: isinstance(value, OOVPolicy), "a policy such as 'penalty:-12'"),
    "neural_cache": Allowed(lambda value: isinstance(value, NeuralCache), "SIZE:THETA:WEIGHT, such as '500:0.7:0.1'"),
    "unigram_cache": Allowed(lambda value: isinstance(value, UnigramCache), "SIZE:WEIGHT or SIZE:WEIGHT:DECAY, such as '500:0.1:0.99'"),
}
"""The values of the attributes of an LMSpec, besides their defaults."""
OF_TRANSLATIONS = ("source_text", "languages", "source_prefix")
_AROUND = ("sentence_start", "sentence_end", "prompt")
_OF_CHECKPOINTS = ("ensemble_weights", "dictionary", *_AROUND, "translation", *OF_TRANSLATIONS)
_IN_CONTEXT = ("context_sentences", "adapt", "neural_cache", "unigram_cache")
CALLED = {
    "kenlm": "an ARPA or KenLM file",
    "mixture": "a mixture: give it to its LMs",
    "translation": "a translation model: leave it out",
    "loaded": "an LM that is loaded already: give it to load_lm",
}
NOT_OF = {
    "kenlm": _OF_CHECKPOINTS,
    "mixture": (*_OF_CHECKPOINTS, *_IN_CONTEXT, "temperature"),
    "translation": (*_IN_CONTEXT, "temperature", *_AROUND),
    "loaded": tuple(name for name in _OF_CHECKPOINTS if name != "source_text"),
}
"""The attributes that an LMSpec cannot have next to these. Next to ``loaded`` it can if it also names the files."""


_PARSERS: dict[str, Callable[[str], Any]] = {
    "oov": parse_policy,
    "neural_cache": parse_neural_cache,
    "unigram_cache": parse_unigram_cache,
}


def parsed(field: str, value: Any) -> Any:
    """Return the value of an attribute of LMSpec, if it is written as on the command line (``"500:0.2:0.15"``), else the value itself.

    Raises InputError if it is written in another way.
    """
    if field in ("text", "source_text"):
        return None if value is None else text_pipeline(value)
    return _PARSERS[field](value) if field in _PARSERS and isinstance(value, str) else value


def check_name(name: str, where: Path | None = None) -> str:
    """Return the name if every output format can contain it. Raises InputError otherwise."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or name in RESERVED_NAMES:
        raise InputError(
            f"{name!r} cannot be the name of an LM or a score: a letter, then letters, digits, _ and -; not {', '.join(RESERVED_NAMES)}",
            path=where,
        )
    return name


def are_shares(weights: Sequence[Any], count: int) -> bool:
    """Return whether ``weights`` are ``count`` numbers that can be normalised: none is negative, and not all are 0."""
    return len(weights) == count and all(is_number(weight) and weight >= 0 for weight in weights) and 0 < sum(weights) < math.inf
