"""Add LM scores to n-best lists, and put the best hypotheses first."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat

from attlm_fairseq.batching import batch_by_size, peeked
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.features.combination import COMPUTED
from attlm_fairseq.nbest.nbest_list import DECODER_SCORES, NbestList
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.block_scores import BlockScores
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.decoder_score import distances_from_best, total_without_lms, with_default, with_telling, written_name
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.nbest.run.walk import Choice, Group, Turn, with_scores
from attlm_fairseq.nbest.run.workers import Workers
from attlm_fairseq.scoring.context.context_walk import in_order, turns
from attlm_fairseq.scoring.context.conversations import ContextSpec, groups_of
from attlm_fairseq.scoring.unknown_words.oov import OOVCount

BLOCK_CHARACTERS = 1 << 20  # of text scored together: what bounds memory, and wide enough to share prefixes and fill matrix products
FIRST_BLOCK_CHARACTERS = 1 << 16  # of the first block, each one after it is twice as large: progress shows within seconds
RESCORED = "rescored lists"  # the place of a warning among the notes
HYPOTHESIS_CHARACTERS = 16  # what an empty hypothesis counts


class Rescorer:
    """Applies LMs to a stream of lists, in constant memory and in order.

    Attributes:
        oov: unknown words so far, by LM.
        notes: what else the user is told, by LM.
        conversations: names of the conversations so far; empty with ``--context all``.
    """

    def __init__(
        self,
        workers: Workers,
        config: RunConfig,
        on_progress: Callable[[int], object] | None = None,
        cache: ScoreCache | None = None,
        context: Context | None = None,
    ) -> None:
        """Prepare for a stream of lists.

        Args:
            workers: the loaded LMs.
            config: the run, which tells what its LMs need besides the texts.
            on_progress: called with the number of hypotheses finished since the last call.
            cache: scores that need not be computed again.
            context: the conversations of the lists; None scores each list by itself.
        """
        self.workers = workers
        self.translations = [lm.name for lm in config.lms if lm.uses_source]
        measured = any(lm.only_close is not None for lm in config.scored)
        self.distances = partial(distances_from_best, run=config) if measured else None
        approximate = any(device.normaliser != "exact" for device in config.devices) and config.decision.rule == "max"
        self.rest = partial(total_without_lms, config=config) if approximate and any(config.weights.values()) else None
        self.uses_rank = bool(config.weights.get("rank")) or not config.weights  # without weights, they are tuned
        self.oov: dict[str, OOVCount] = {}
        self.notes: dict[str, str] = {}
        self.on_progress = on_progress
        self.cache = cache or ScoreCache(None)
        self.context = context
        self.conversations: list[str] = []  # the names of those met so far; none of --context all

    def score(self, lists: Iterable[NbestList]) -> Generator[NbestList, None, None]:
        """Yield copies of the lists with a score per LM (natural log, summed over words and sentence end) and the LM features."""
        if self.context is not None:
            yield from self._in_context(lists, self.context)
            return
        waiting: deque[list[NbestList]] = deque()

        def blocks() -> Iterator[Block]:
            sourced = map(self._with_source, lists) if self.translations else lists
            for block in batch_by_size(sourced, growing_limits(FIRST_BLOCK_CHARACTERS, BLOCK_CHARACTERS), characters):
                waiting.append(block)
                yield Block.of_lists(block, self.distances, self.rest)

        for scores in self.cache.score(self.workers, blocks()):
            yield from self._scored(waiting.popleft(), scores)

    def _in_context(self, lists: Iterable[NbestList], context: Context) -> Iterator[NbestList]:
        """Score as ``score`` does, by conversation. All lists are read before the first is scored, unless all are one conversation."""
        if context.spec.kind == "all":
            going: Iterable[Conversations] = [Conversations([((place, nbest) for place, nbest in enumerate(lists))], [""])]
        else:
            lists = list(lists)
            going = context.conversations(lists)
        waiting: deque[deque[Mapping[int, tuple[int, NbestList]]]] = deque()

        def groups() -> Iterator[Group]:
            for conversations in going:
                turns_read: deque[Mapping[int, tuple[int, NbestList]]] = deque()
                waiting.append(turns_read)
                self.conversations += filter(None, conversations.names)
                choices = [context.choices.get(name, context.choice) for name in conversations.names]
                yield Group(recorded(turns(conversations.lists), turns_read), choices)

        def scored() -> Iterator[tuple[int, NbestList]]:
            for group in self.cache.walk(self.workers, groups()):
                turns_read = waiting.popleft()
                for scores in group:
                    places, of_turn = zip(*turns_read.popleft().values(), strict=True)
                    yield from zip(places, self._scored(of_turn, scores), strict=True)

        return in_order(scored())

    def _with_source(self, nbest: NbestList) -> NbestList:
        """Return the list. Raises InputError if it has no source sentence."""
        if nbest.source is None:
            raise nbest.error(
                f"list {nbest.id!r} has no source sentence, which {', '.join(self.translations)} needs: give --source FILE, one per line"
            )
        return nbest

    def _scored(self, block: Sequence[NbestList], scores: BlockScores) -> Iterator[NbestList]:
        for name, count in scores.oov.items():
            self.oov.setdefault(name, OOVCount(name)).merge(count)
        self.notes = scores.notes | self.notes
        hypotheses = list(chain.from_iterable(nbest.hypotheses for nbest in block))
        for name, column in scores.values.items():
            rows = list(zip(hypotheses, column, strict=True))
            known = (name, written_name(name))
            if self.uses_rank and all(any(has(one.scores | one.lm_scores, given, value) for given in known) for one, value in rows):
                told = f"WARNING: the lists have the scores of {name} already: they seem to be rescored, and rank goes by their new order"
                self.notes.setdefault(RESCORED, f"{told}; give the decoder's own lists")
            if any(name in hypothesis.scores and not has(hypothesis.scores, name, value) for hypothesis, value in rows):
                kind = "WARNING" if name in DECODER_SCORES else "note"
                self.notes[f"{name} of the lists"] = (
                    f"{kind}: the lists have a score {name!r} of their own. The LM of that name decides; a file has its score as {name}2 "
                    "(or 3, ..). Under another name (`--lm OTHER=FILE`), both can be used"
                )
        for name in COMPUTED:
            if any(name in hypothesis.scores for hypothesis in hypotheses):
                self.notes[f"{name} of the lists"] = (
                    f"note: the lists have a score {name!r} of their own, which is not a feature: {name!r} is computed; call theirs "
                    "otherwise to use both"
                )
        yield from with_scores(block, scores)
        if self.on_progress:
            self.on_progress(len(hypotheses))


@dataclass(frozen=True)
class Conversations:
    """The lists of some conversations, each list with its position in the file, and the names of the conversations."""

    lists: Sequence[Iterable[tuple[int, NbestList]]]
    names: Sequence[str]


@dataclass(frozen=True)
class Context:
    """How lists form conversations, and which text of a list is context for the lists after it.

    ``choices`` are for single conversations, by name; ``choice`` is for all others. ``scored_before`` is whether the lists are
    scored again, with another context: warnings about their conversations are not repeated.
    """

    spec: ContextSpec
    choice: Choice = field(default_factory=Choice)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    scored_before: bool = False

    def conversations(self, lists: Sequence[NbestList]) -> Iterator[Conversations]:
        """Yield the conversations in the groups in which they are scored.

        Raises:
            InputError: the conversation of a list is not known, see ``ContextSpec.conversations``, or two lists have one line of its file.
        """
        found = self.spec.conversations([nbest.id for nbest in lists])
        ids: set[str] = set()
        for nbest in lists if self.spec.kind == "file" else ():
            if nbest.id in ids:
                raise nbest.error(f"list {nbest.id!r} is there twice, so that {self.spec.argument} cannot tell its conversation")
            ids.add(nbest.id)
        if len(found) == len(lists) > 1 and not self.scored_before:
            note(f"WARNING: {len(found)} conversations of one list each: --context has no effect")
        for group in groups_of(found):
            yield Conversations([[(place, lists[place]) for place in places] for _, places in group], [name for name, _ in group])


def with_context(run: RunConfig, lists: Iterable[NbestList]) -> tuple[Context | None, Iterator[NbestList]]:
    """Return how the lists of a run form conversations, and the lists: a list's context is what the run chooses from the lists before it.

    The first list that tells which scores the lists have shows the decoder's own score.
    """
    if run.context is None:
        return None, peeked(lists)[1]
    telling, lists = with_telling(run, lists)
    weights = dict(run.weights) if telling is None else with_default(run, run.weights, telling)[0]  # the run itself logs the line
    return Context(run.context, Choice(weights, run.decision)), lists


def recorded(turns_of_group: Iterable[Mapping[int, tuple[int, NbestList]]], read: deque) -> Iterator[Turn]:
    """Yield the turns, each of which is put into ``read`` first with the places of its lists."""
    for turn in turns_of_group:
        read.append(turn)
        yield {place: nbest for place, (_, nbest) in turn.items()}


def has(scores: Mapping[str, float], name: str, value: float) -> bool:
    """Return whether a score is there with this value, beyond the digits that files leave out."""
    return name in scores and math.isclose(scores[name], value, rel_tol=1e-3, abs_tol=1e-3)


def characters(nbest: NbestList) -> int:
    """Return the size of a list, which estimates the work to score it."""
    return sum(len(hypothesis.text) + HYPOTHESIS_CHARACTERS for hypothesis in nbest.hypotheses)


def growing_limits(first: int, last: int) -> Iterator[int]:
    """Yield ``first``, twice that, and so on, then ``last`` for ever."""
    limit = first
    while limit < last:
        yield limit
        limit *= 2
    yield from repeat(last)
