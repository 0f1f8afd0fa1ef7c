"""The log-probability of a hypothesis from what tools save of its tokens or segments, if they save no score of the whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.numeric import is_number

# a probability of a token that is printed as 0 with 6 decimals, as whisper.cpp does
MIN_PROBABILITY = 5e-7


def logprob_of_parts(members: Mapping[str, Any]) -> float | None:
    """Return the natural log of a hypothesis' probability, summed over its tokens; None if they do not all have one."""
    of_tokens = _logprob_of_tokens(members)
    return _logprob_of_windows(members) if of_tokens is None else of_tokens


def _logprob_of_tokens(members: Mapping[str, Any]) -> float | None:
    """Return the sum of the tokens' log-probabilities, from whisper.cpp's ``p`` in the segments or the hypothesis itself."""
    parts = next((members[key] for key in keys.SEGMENTS if isinstance(members.get(key), list)), [members])
    lists = (part["tokens"] for part in parts if isinstance(part, dict) and isinstance(part.get("tokens"), list))
    tokens = [token for of_part in lists for token in of_part]
    found = [float(token["p"]) for token in tokens if isinstance(token, dict) and is_number(token.get("p")) and 0 <= token["p"] <= 1]
    if not found or len(found) < len(tokens):
        return None
    return sum(math.log(max(p, MIN_PROBABILITY)) for p in found)


def _logprob_of_windows(members: Mapping[str, Any]) -> float | None:
    """Return the sum of the tokens' log-probabilities, from Whisper's mean in each segment.

    All segments of a window of 30 s, which begins at ``seek``, have the mean over the window: over its tokens and its end.
    """
    segments: list[Any] = next((members[key] for key in keys.SEGMENTS if isinstance(members.get(key), list)), [])
    tokens: Counter[tuple[Any, float]] = Counter()
    for segment in segments:
        of_segment = segment if isinstance(segment, dict) else {}
        mean: Any = of_segment.get("avg_logprob")
        if not is_number(mean) or not isinstance(of_segment.get("tokens"), list):
            return None
        tokens[str(of_segment.get("seek")), float(mean)] += len(of_segment["tokens"])
    return sum(mean * (count + 1) for (_, mean), count in tokens.items()) if tokens else None
