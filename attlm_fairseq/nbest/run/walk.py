"""Score n-best lists of conversations: each list in the context of the answers to the lists before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from attlm_fairseq.nbest.decision.decision import Decision, decide
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.block_scores import BlockScorer, BlockScores
from attlm_fairseq.scoring.context.context_walk import ContextWalk

Turn = Mapping[int, NbestList]
"""The next list of each open conversation of a group, by the number of the conversation."""


@dataclass(frozen=True)
class Choice:
    """Which text of a list is context for later lists: the decision's under these weights, or the input 1-best (None)."""

    weights: Mapping[str, float] | None = None
    decision: Decision = field(default_factory=Decision)

    def text(self, nbest: NbestList) -> str:
        """Return the text of a scored list.

        Raises:
            InputError: a weight is not finite, a score that has a weight is missing, or the external program of the
                decision fails.
        """
        if self.weights is None:
            return min(nbest.hypotheses, key=lambda hypothesis: hypothesis.rank).text
        return decide(nbest, self.weights, self.decision).hypotheses[0].text


@dataclass(frozen=True)
class Group:
    """Conversations that are scored in one batch.

    Attributes:
        turns: the turns in order; may be read on demand.
        choices: one per conversation.
        known: scores of the first turns, if they are known already.
    """

    turns: Iterable[Turn]
    choices: Sequence[Choice]
    known: Sequence[BlockScores] = ()

    def chosen(self, turn: Turn, scores: BlockScores) -> dict[int, str]:
        """Return the text of this turn that is context for later turns of each conversation.

        Raises:
            InputError: as in ``Choice.text``.
        """
        return {place: self.choices[place].text(nbest) for place, nbest in zip(turn, with_scores(turn.values(), scores), strict=True)}


@dataclass(frozen=True)
class TurnScores:
    """The scores of a turn's hypotheses. ``key``: a hash of what they depend on besides the LMs; ``known``: not computed again."""

    key: str
    scores: BlockScores
    known: bool


def walk(scorer: BlockScorer, group: Group) -> Iterator[TurnScores]:
    """Yield the scores of the hypotheses of each turn, conversation after conversation.

    Raises:
        InputError: as in ``Choice.text``, or an LM cannot score a text, for example one that is too long.
    """
    conversations = ContextWalk(scorer.scorers, scorer.texts)
    history = History()
    for number, turn in enumerate(group.turns):
        known = number < len(group.known)
        scores = group.known[number] if known else _score(scorer, conversations, turn)
        yield TurnScores(history.key(turn), scores, known)
        said = group.chosen(turn, scores)
        history.add(turn, said.values())
        conversations.advance(said)


def _score(scorer: BlockScorer, conversations: ContextWalk, turn: Turn) -> BlockScores:
    columns = conversations.score({place: [hypothesis.text for hypothesis in nbest.hypotheses] for place, nbest in turn.items()})
    of_lms = [list(zip(*column, strict=True)) for column in columns]
    return scorer.block([(list(chain.from_iterable(words)), list(chain.from_iterable(scores))) for words, scores in of_lms])


def light(turn: Turn) -> Turn:
    """Return the turn without what a format needs to write its lists: what another process has no use for."""
    return {
        place: replace(nbest, verbatim=None, hypotheses=[replace(hypothesis, verbatim=None) for hypothesis in nbest.hypotheses])
        for place, nbest in turn.items()
    }


def with_scores(lists: Iterable[NbestList], scores: BlockScores) -> Iterator[NbestList]:
    row = 0
    for nbest in lists:
        hypotheses = []
        for hypothesis in nbest.hypotheses:
            added = {name: column[row] for name, column in scores.values.items()}
            hypotheses.append(replace(hypothesis, scores=dict(hypothesis.scores), lm_scores=hypothesis.lm_scores | added))
            row += 1
        yield replace(nbest, hypotheses=hypotheses)


class History:
    """A hash of what the scores of a group's next turn depend on: the earlier turns and the texts chosen from them."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def key(self, turn: Turn) -> str:
        digest = self._digest.copy()
        for place, nbest in turn.items():
            _update(digest, f"{place} {len(nbest.hypotheses)}", *(hypothesis.text for hypothesis in nbest.hypotheses))
        return f"context {digest.hexdigest()}"

    def add(self, turn: Turn, chosen: Iterable[str]) -> None:
        _update(self._digest, self.key(turn), *chosen)


def _update(digest: hashlib._Hash, *parts: str) -> None:
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
