"""The score of an unknown word: one policy for every LM, so that neural and n-gram LMs are comparable."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import ComposedScorer, Scorer, Sentence, SentenceScore


@dataclass(frozen=True)
class OOVPolicy:
    """The score of an unknown word. Scores of known words and sentence ends do not change.

    - ``unk``: the LM's own ``ln p(<unk> | ..)``. In a neural LM this is the probability of the whole class of unknown words.
      In KenLM it is the probability that lmplz reserved.
    - ``penalty``: the fixed score ``value`` (natural log). The scores are then not a probability distribution, so they have
      no perplexity.
    - ``spread``: ``ln p(<unk> | ..) - ln value``. The probability is shared equally by ``value`` unseen types. The sum over the
      known words and these types is one, so LMs are comparable. Do not use it for a KenLM model that was estimated with
      ``--vocab_pad``, which already shares the probability.
    """

    kind: Literal["unk", "penalty", "spread"] = "unk"
    value: float = 0.0

    def apply(self, score: SentenceScore) -> SentenceScore:
        """Return the score of a sentence under this policy."""
        if self.kind == "unk" or not any(score.oov):
            return score
        shared = math.log(self.value) if self.kind == "spread" else 0.0
        words = (
            value if not unknown else self.value if self.kind == "penalty" else value - shared
            for value, unknown in zip(score.log_probs, score.oov, strict=False)  # the sentence end follows the last word
        )
        return SentenceScore((*words, score.log_probs[-1]), score.oov)

    def __str__(self) -> str:
        return {"unk": "unk", "penalty": f"penalty:{self.value!r}", "spread": f"spread:{self.value:.0f}"}[self.kind]


UNK = OOVPolicy()


class OOVPolicyScorer(ComposedScorer):
    """A Scorer under an OOV policy. It has the same name."""

    def __init__(self, scorer: Scorer, policy: OOVPolicy) -> None:
        self.members = (scorer,)
        self.policy = policy
        self.name = scorer.name

    def combined(self, columns: Sequence[Sequence[SentenceScore]], sentences: Sequence[Sentence]) -> list[SentenceScore]:
        return list(map(self.policy.apply, columns[0]))

    def with_members(self, members: Sequence[Scorer]) -> Scorer:
        return OOVPolicyScorer(members[0], self.policy)

    def signature(self) -> dict[str, object]:
        return self.members[0].signature() | {"OOV policy": str(self.policy)}

    def notes(self) -> list[str]:
        """Return the LM's notes. Under a penalty, leave out those about p(<unk>), which is then not used."""
        silent = self.members[0].oov_notes() if self.policy.kind == "penalty" else []
        return [note for note in super().notes() if note not in silent]

    def oov_notes(self) -> list[str]:
        return [] if self.policy.kind == "penalty" else super().oov_notes()


def with_policy(scorer: Scorer, policy: OOVPolicy) -> Scorer:
    """Return the scorer under the policy, or the scorer itself if the policy changes nothing."""
    return scorer if policy.kind == "unk" else OOVPolicyScorer(scorer, policy)


def parse_policy(text: str) -> OOVPolicy:
    """Parse a policy: ``unk``, ``penalty:-12`` or ``spread:100000``.

    Raises:
        InputError: the text has another form, the penalty is above 0 or not finite, or TYPES is not a whole number of
            at least 1.
    """
    kind, _, value = text.partition(":")
    if kind == "unk" and not value:
        return UNK
    if kind == "penalty" and re.fullmatch(r"-?\d+(\.\d*)?([eE][+-]?\d+)?", value) and math.isfinite(float(value)) and float(value) <= 0:
        return OOVPolicy("penalty", float(value))
    if kind == "spread" and re.fullmatch(r"[1-9]\d{0,15}", value):
        return OOVPolicy("spread", float(value))
    raise InputError(
        f"{text!r} is not an OOV policy; expected unk, penalty:LOGPROB (natural log, not above 0: penalty:-12) "
        "or spread:TYPES (spread:100000)"
    )
