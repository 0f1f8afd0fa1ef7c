"""How the words of sampled sentences are chosen. Without torch, so that help is shown at once."""

from __future__ import annotations

from dataclasses import dataclass

from attlm_fairseq.errors import InputError
from attlm_fairseq.numeric import NOT_NEGATIVE, POSITIVE, WHOLE_NUMBER


@dataclass(frozen=True)
class SamplingOptions:
    """Options for choosing the next word. Raises InputError if a value is out of range.

    The options are applied to the model's distribution in this order:

    - ``<s>``, ``<pad>`` and (unless ``unknown``) ``<unk>`` are removed.
    - Probabilities are raised to the power 1 / ``temperature``; 0 takes the likeliest word.
    - ``top_k`` keeps the likeliest words; 0 keeps all.
    - ``top_p`` keeps the smallest set of likeliest words with at least this share of the remaining probability; 1 keeps all.

    A sentence is cut after ``max_words`` words, or after the prefix if that is longer.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_words: int = 100
    unknown: bool = False

    def __post_init__(self) -> None:
        whole = WHOLE_NUMBER.is_right(self.top_k) and WHOLE_NUMBER.is_right(self.max_words)
        if not (whole and NOT_NEGATIVE.is_right(self.temperature) and POSITIVE.is_right(self.top_p) and self.top_p <= 1):
            raise InputError(
                f"cannot sample with temperature {self.temperature}, top-k {self.top_k}, top-p {self.top_p} and at most {self.max_words} "
                "words: expected a temperature of 0 or more, a top-p above 0 and up to 1, and whole numbers that are not negative"
            )
