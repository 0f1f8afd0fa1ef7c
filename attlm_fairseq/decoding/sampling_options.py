"""How the words of sampled sentences are chosen. Without torch, so that help is shown at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attlm_fairseq.errors import InputError


@dataclass(frozen=True)
class SamplingOptions:
    """Options for choosing the next word. Raises InputError if a value is out of range.

    The options are applied to the model's distribution in this order:

    - ``<s>``, ``<pad>`` and (unless ``unknown``) ``<unk>`` are removed.
    - Probabilities are raised to the power 1 / ``temperature``; 0 takes the likeliest word.
    - ``top_k`` keeps the likeliest words; 0 keeps all.
    - ``top_p`` keeps the smallest set of likeliest words with at least this share of the remaining probability; 1 keeps all.

    A sentence is cut after ``max_words`` words.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_words: int = 100
    unknown: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.temperature < math.inf and self.top_k >= 0 and 0 < self.top_p <= 1 and self.max_words >= 0):
            raise InputError(
                f"cannot sample with temperature {self.temperature}, top-k {self.top_k}, top-p {self.top_p} and at most {self.max_words} "
                "words: expected a temperature of 0 or more, a top-k of 0 or more, a top-p above 0 and up to 1, and no negative number"
            )
