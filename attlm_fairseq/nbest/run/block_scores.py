"""What LMs say of a block of hypotheses, in the form that travels: between processes and machines, and into a score cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attlm_fairseq.nbest.features.lm_features import lm_feature
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.advice import advise
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore
from attlm_fairseq.text import TextPipeline, split_texts


@dataclass(frozen=True)
class BlockScores:
    """``values``: by name of LM or feature, one for each hypothesis; ``oov``: by LM; ``notes``: what the user is to know once, by LM."""

    values: dict[str, list[float]]
    oov: dict[str, OOVCount]
    notes: dict[str, str]


class BlockScorer:
    """LMs, the text steps before each, and the features wanted besides the LMs' scores (see :mod:`lm_features`)."""

    def __init__(self, scorers: Sequence[Scorer], texts: Sequence[TextPipeline], features: Sequence[str] = ()) -> None:
        """``texts`` has one pipeline per LM."""
        if len(texts) != len(scorers):
            raise ValueError(f"{len(scorers)} LMs need as many text pipelines, not {len(texts)}")
        self.scorers = tuple(scorers)
        self.texts = tuple(texts)
        self.features = tuple(features)

    @classmethod
    def load(cls, config: RunConfig, compute: DeviceConfig, features: Sequence[str] = ()) -> BlockScorer:
        """Load the LMs and text steps of a run. Raises InputError."""
        scorers = config.load(compute)
        return cls(scorers, [text.load() for text in config.texts.values()], features)

    def score(self, texts: Sequence[str]) -> BlockScores:
        """Score the texts of some hypotheses. A score is the natural log of the probability of the words and the sentence end."""
        seen = list(split_texts(self.texts, texts))
        return self.block([(sentences, scorer.score(sentences)) for scorer, sentences in zip(self.scorers, seen, strict=True)])

    def block(self, columns: Sequence[tuple[Sequence[Sentence], Sequence[SentenceScore]]]) -> BlockScores:
        """Return the scores of some hypotheses, given for each LM what it saw of them and what it says of them."""
        oov: dict[str, OOVCount] = {}
        scores = {}
        for scorer, (sentences, of_lm) in zip(self.scorers, columns, strict=True):
            scores[scorer.name] = of_lm
            oov[scorer.name] = OOVCount(scorer.name)
            oov[scorer.name].add(sentences, (score.oov for score in of_lm))
        values = {name: [score.total for score in of_lm] for name, of_lm in scores.items()}
        values |= {name: lm_feature(name, scores) for name in self.features}
        return BlockScores(values, oov, {scorer.name: "; ".join(told) for scorer in self.scorers if (told := scorer.notes())})

    def advise(self, count: OOVCount) -> str | None:
        """The text steps that would make the unknown words of an LM known."""
        lms = {scorer.name: (scorer, text) for scorer, text in zip(self.scorers, self.texts, strict=True)}
        return advise(count, *lms[count.lm_name])

    def signatures(self) -> dict[str, Mapping[str, Any]]:
        """By LM, what is needed to get the same scores again."""
        return {
            scorer.name: dict(scorer.signature()) | {"text": text.signature()}
            for scorer, text in zip(self.scorers, self.texts, strict=True)
        }
