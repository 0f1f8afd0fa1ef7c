"""A word lattice in memory, independent of the file format it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from attlm_fairseq.errors import InputError

MAX_STATES = 1 << 22
WORDS = "words"  # the number of words, as something that has a weight


class Arc(NamedTuple):
    """An arc of a lattice.

    Attributes:
        target: the state that it leads to.
        word: its word; empty if it has none.
        scores: natural logs, in the order of the lattice's names.
        duration: in the lattice's unit of time; 0 if unknown.
    """

    target: int
    word: str
    scores: tuple[float, ...]
    duration: float = 0.0


@dataclass(slots=True)
class Lattice:
    """The lattice of one utterance.

    Attributes:
        id: the utterance's id.
        names: the names of the scores.
        weights: the weights of the scores, and of ``words``, by which the decoder compares paths.
        start: the first state.
        arcs: the arcs from each state.
        finals: the states in which a path may end, with the scores of the end.
        path: the file, for messages.
        line: the line at which it begins; 0 in binary files.
        unit: seconds of a duration of 1; None if durations are unknown.
        begin: the time of the start in seconds.
        more_names: names of scores that other lattices of this format may have.
        impossible: how many arcs were left out because a score of theirs is minus infinity.
        times_go_back: whether durations are unknown because an arc ends before it begins.
    """

    id: str
    names: tuple[str, ...]
    weights: Mapping[str, float]
    start: int = 0
    arcs: list[list[Arc]] = field(default_factory=list)
    finals: dict[int, tuple[float, ...]] = field(default_factory=dict)
    path: str = ""
    line: int = 0
    unit: float | None = None
    begin: float = 0.0
    more_names: re.Pattern[str] | None = None
    impossible: int = 0
    times_go_back: bool = False

    def state(self, number: int) -> list[Arc]:
        """Return the arcs from a state, which is added if it is new. Raises InputError if the number is too large."""
        if number >= MAX_STATES:
            raise self.error(f"has a state with the number {number}: expected less than {MAX_STATES}")
        while len(self.arcs) <= number:
            self.arcs.append([])
        return self.arcs[number]

    def add(self, state: int, arc: Arc) -> None:
        """Add an arc from a state. All states of the file are there before: a word with spaces becomes several arcs with states between.

        The first of these arcs has the scores. They share the duration.
        """
        words = arc.word.split() or [""]
        share, no_scores = arc.duration / len(words), (0.0,) * len(arc.scores)
        for place, word in enumerate(words):
            target = arc.target if place == len(words) - 1 else len(self.arcs)
            self.state(target)
            self.arcs[state].append(Arc(target, word, no_scores if place else arc.scores, share))
            state = target

    def in_order(self) -> list[int]:
        """Return the states that can be reached, each after those that lead to it.

        Raises:
            InputError: a path leads back to its own state.
        """
        entering = [0] * len(self.arcs)
        reached, todo = {self.start}, [self.start]
        while todo:
            for arc in self.arcs[todo.pop()]:
                entering[arc.target] += 1
                if arc.target not in reached:
                    reached.add(arc.target)
                    todo.append(arc.target)
        order, ready = [], [self.start] if not entering[self.start] else []
        while ready:
            order.append(state := ready.pop())
            for arc in self.arcs[state]:
                entering[arc.target] -= 1
                if not entering[arc.target]:
                    ready.append(arc.target)
        if len(order) < len(reached):
            raise self.error("has a path that leads back to its own state: expected a lattice without cycles")
        return order

    def error(self, message: str) -> InputError:
        """Return an InputError that names the lattice, its file and its line."""
        return InputError(f"the lattice of {self.id!r} {message}", path=self.path or None, line=self.line or None)
