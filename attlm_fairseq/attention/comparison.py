"""The sentences that a model improves most over another LM. Liu et al. (2016) chose the sentences of Figure 2 in this way."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any

from attlm_fairseq.attention.highlight import printable
from attlm_fairseq.attention.weights import SentenceAttention
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore


@dataclass(frozen=True)
class Improvement:
    """A sentence under two LMs.

    Attributes:
        line: its line number in the text.
        attention: the attention of the model.
        log_prob: ln p of the model, summed over words and sentence end.
        against: the same of the other LM.
    """

    line: int
    attention: SentenceAttention
    log_prob: float
    against: float

    @property
    def gain(self) -> float:
        """The difference of the log-perplexities, in nats per event; above 0 if the model is better."""
        return (self.log_prob - self.against) / len(self.attention.predicted)

    def perplexity(self, log_prob: float) -> float:
        return math.exp(min(700.0, -log_prob / len(self.attention.predicted)))

    @property
    def ppl(self) -> float:
        """The perplexity of the sentence under the model."""
        return self.perplexity(self.log_prob)

    @property
    def ppl_against(self) -> float:
        """The perplexity of the sentence under the other LM."""
        return self.perplexity(self.against)

    @property
    def heading(self) -> str:
        return f"Line {self.line}: perplexity {self.ppl:.2f}, against {self.ppl_against:.2f}"

    def as_dict(self) -> dict[str, Any]:
        """Return the sentence and its figures as a JSON-serialisable dictionary."""
        figures = {"gain": round(self.gain, 6), "ppl": round(self.ppl, 4), "ppl_against": round(self.ppl_against, 4)}
        return {"line": self.line, **figures, "sentence": " ".join(self.attention.words)}

    def __str__(self) -> str:
        """Return the fields of ``HEADER``, separated by tabs."""
        return f"{self.line}\t{self.gain:.4f}\t{self.ppl:.2f}\t{self.ppl_against:.2f}\t{printable(' '.join(self.attention.words))}"


HEADER = "line\tgain\tppl\tppl_against\tsentence"


class Comparison:
    """Collects the sentences with the largest gains while a text is read.

    Sentences with words that only one of the LMs knows are left out: their probabilities cannot be compared.
    """

    def __init__(self, scorer: Scorer, top: int) -> None:
        """Compare with ``scorer``, and keep the ``top`` sentences with the largest gains."""
        self.scorer = scorer
        self.top = top
        self.left_out = 0
        self._best: list[tuple[float, int, Improvement]] = []

    def add(self, line: int, attention: SentenceAttention, score: SentenceScore) -> None:
        """Compare a sentence, given its attention with log-probabilities and its score by the other LM.

        Raises InputError if an LM gives it probability 0.
        """
        if tuple(score.oov) != attention.oov:
            self.left_out += 1
            return
        assert attention.log_probs is not None, "the sentence was read without log-probabilities"
        found = Improvement(line, attention, math.fsum(attention.log_probs), score.total)
        if not math.isfinite(found.gain):
            raise InputError(
                f"line {line}: ln p is {found.log_prob:.6g}, under the other LM {found.against:.6g}: expected finite numbers; "
                "leave out this sentence, or give each word a probability (in an ARPA file, one above -inf)"
            )
        heapq.heappush(self._best, (found.gain, -line, found))
        if len(self._best) > self.top:
            heapq.heappop(self._best)

    @property
    def best(self) -> list[Improvement]:
        """The sentences with the largest gains, the largest first."""
        return [found for _, _, found in sorted(self._best, key=lambda kept: (-kept[0], -kept[1]))]
