"""Adding LM scores to n-best lists, and putting the best hypotheses first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from attlm_fairseq.nbest.combination import combine
from attlm_fairseq.nbest.lm_features import lm_feature
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.text import OOVCount, TextPipeline, split_texts

BLOCK_HYPOTHESES = 8192  # scored together: what bounds memory, and wide enough for an LM to share prefixes and fill its batches


class Rescorer:
    """LMs applied to a stream of lists, in constant memory, order kept.

    ``oov`` holds, per LM, the unknown words met so far. Each LM sees a hypothesis' words as its text pipeline gives them; the
    hypothesis stays as read.
    """

    def __init__(
        self,
        scorers: Sequence[Scorer],
        texts: Sequence[TextPipeline],
        on_progress: Callable[[int], None] | None = None,
        features: Sequence[str] = (),
    ) -> None:
        """``texts`` has one pipeline per LM. ``on_progress`` is called with the number of hypotheses finished since the last call.

        ``features`` names what is wanted besides the LMs' scores: see :mod:`lm_features`.
        """
        if len(texts) != len(scorers):
            raise ValueError(f"{len(scorers)} LMs need as many text pipelines, not {len(texts)}")
        self.scorers = tuple(scorers)
        self.texts = tuple(texts)
        self.oov = [OOVCount(scorer.name) for scorer in scorers]
        self.on_progress = on_progress
        self.features = tuple(features)

    def score(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """Copies of the lists whose hypotheses carry a score per LM (natural log, summed over words and sentence end) and the features."""
        for block in blocks(lists, lambda nbest: len(nbest.hypotheses), BLOCK_HYPOTHESES):
            hypotheses = list(chain.from_iterable(nbest.hypotheses for nbest in block))
            columns = split_texts(self.texts, [hypothesis.text for hypothesis in hypotheses])
            scores: dict[str, list[SentenceScore]] = {}
            for scorer, oov, sentences in zip(self.scorers, self.oov, columns, strict=True):
                scores[scorer.name] = scorer.score(sentences)
                oov.add(sentences, (score.oov for score in scores[scorer.name]))
            values = {name: [score.total for score in of_lm] for name, of_lm in scores.items()}
            values |= {name: lm_feature(name, scores) for name in self.features}
            scored = iter(
                replace(hypothesis, lm_scores=hypothesis.lm_scores | {name: column[row] for name, column in values.items()})
                for row, hypothesis in enumerate(hypotheses)
            )
            for nbest in block:
                yield replace(nbest, hypotheses=[next(scored) for _ in nbest.hypotheses])
            if self.on_progress:
                self.on_progress(len(hypotheses))

    def rescore(self, lists: Iterable[NbestList], weights: Mapping[str, float]) -> Iterator[NbestList]:
        """Scored lists, each sorted by its total under the weights, best first."""
        return (combine(nbest, weights) for nbest in self.score(lists))


def blocks(items: Iterable, size: Callable[[object], int], limit: int) -> Iterator[list]:
    """Consecutive items in lists whose sizes sum to ``limit`` or just above."""
    block, total = [], 0
    for item in items:
        block.append(item)
        total += size(item)
        if total >= limit:
            yield block
            block, total = [], 0
    if block:
        yield block
