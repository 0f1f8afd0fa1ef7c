"""Adding LM scores to n-best lists, and putting the best hypotheses first."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat

from attlm_fairseq.batching import batch_by_size
from attlm_fairseq.nbest.features.combination import COMPUTED
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.block_scores import BlockScores
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.nbest.run.workers import Workers
from attlm_fairseq.scoring.oov import OOVCount

BLOCK_CHARACTERS = 1 << 20  # of text scored together: what bounds memory, and wide enough to share prefixes and fill matrix products
FIRST_BLOCK_CHARACTERS = 1 << 16  # of the first block, each one after it is twice as large: progress shows within seconds
HYPOTHESIS_CHARACTERS = 16  # what an empty hypothesis counts


class Rescorer:
    """LMs applied to a stream of lists, in constant memory, order kept.

    ``oov`` holds, by LM, the unknown words met so far; ``notes``, by LM, what else the user is to know. Each LM sees a hypothesis' words as
    its text pipeline gives them; the hypothesis stays as read.
    """

    def __init__(self, workers: Workers, on_progress: Callable[[int], None] | None = None, cache: ScoreCache | None = None) -> None:
        """``on_progress`` is called with the number of hypotheses finished since the last call; what ``cache`` holds is not scored."""
        self.workers = workers
        self.oov: dict[str, OOVCount] = {}
        self.notes: dict[str, str] = {}
        self.on_progress = on_progress
        self.cache = cache or ScoreCache(None)

    def score(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """Copies of the lists whose hypotheses carry a score per LM (natural log, summed over words and sentence end) and the features."""
        waiting: deque[list[NbestList]] = deque()

        def texts() -> Iterator[list[str]]:
            for block in batch_by_size(lists, growing_limits(FIRST_BLOCK_CHARACTERS, BLOCK_CHARACTERS), characters):
                waiting.append(block)
                yield [hypothesis.text for nbest in block for hypothesis in nbest.hypotheses]

        for scores in self.cache.score(self.workers, texts()):
            yield from self._scored(waiting.popleft(), scores)

    def _scored(self, block: Sequence[NbestList], scores: BlockScores) -> Iterator[NbestList]:
        for name, count in scores.oov.items():
            self.oov.setdefault(name, OOVCount(name)).merge(count)
        self.notes = scores.notes | self.notes
        hypotheses = list(chain.from_iterable(nbest.hypotheses for nbest in block))
        for name, column in scores.values.items():
            if any(differs(hypothesis.scores.get(name), value) for hypothesis, value in zip(hypotheses, column, strict=True)):
                self.notes[f"{name} of the lists"] = (
                    f"note: the lists have a score {name!r} of their own, which the LM of that name replaces: `--lm OTHER=FILE` keeps both"
                )
        for name in COMPUTED:
            if any(name in hypothesis.scores for hypothesis in hypotheses):
                self.notes[f"{name} of the lists"] = (
                    f"note: the lists have a score {name!r} of their own, which is not a feature: {name!r} is computed; call theirs "
                    "otherwise to use both"
                )
        scored = iter(
            replace(hypothesis, lm_scores=hypothesis.lm_scores | {name: column[row] for name, column in scores.values.items()})
            for row, hypothesis in enumerate(hypotheses)
        )
        for nbest in block:
            yield replace(nbest, hypotheses=[next(scored) for _ in nbest.hypotheses])
        if self.on_progress:
            self.on_progress(len(hypotheses))


def differs(own: float | None, value: float) -> bool:
    """Whether a score that came with the list is another than the LM's, beyond the digits that files leave out."""
    return own is not None and not math.isclose(own, value, rel_tol=1e-3, abs_tol=1e-3)


def characters(nbest: NbestList) -> int:
    """How much work a list is."""
    return sum(len(hypothesis.text) + HYPOTHESIS_CHARACTERS for hypothesis in nbest.hypotheses)


def growing_limits(first: int, last: int) -> Iterator[int]:
    """Yield ``first``, twice that, and so on, then ``last`` for ever."""
    limit = first
    while limit < last:
        yield limit
        limit *= 2
    yield from repeat(last)
