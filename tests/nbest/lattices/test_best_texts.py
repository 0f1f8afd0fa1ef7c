"""The best texts of a lattice are those of all its paths: checked against a walk along every path."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.lattices import best_texts as module
from attlm_fairseq.nbest.lattices.best_texts import best_texts
from attlm_fairseq.nbest.lattices.lattice import Arc, Lattice

WEIGHTS = {"graph": 1.0, "acoustic": 0.1, "words": -0.2}


def random_lattice(seed: int, states: int = 9) -> Lattice:
    """A lattice with arcs without words, several paths of one text, two ends and a state that leads nowhere."""
    chosen = random.Random(seed)
    lattice = Lattice("u", ("graph", "acoustic"), WEIGHTS)
    numbers = list(range(states))
    chosen.shuffle(numbers)  # the order of states is not that of paths
    lattice.start = numbers[0]
    for place in range(states - 1):
        for step in (1, *chosen.choices([1, 2, 3], k=chosen.randint(0, 3))):
            target = numbers[min(states - 1, place + step)]
            scores = (chosen.uniform(-3, 1), chosen.uniform(-30, 0))
            lattice.state(max(numbers[place], target))
            lattice.arcs[numbers[place]].append(Arc(target, chosen.choice(["", "SIL", "a", "b", "c"]), scores))
    for end in (numbers[-2], numbers[-3]):
        lattice.finals[end] = (chosen.uniform(-1, 0), chosen.uniform(-1, 0))
    return lattice


def every_path(lattice: Lattice, state: int, words: tuple[str, ...] = (), scores=((0.0, 0.0),)) -> Iterator[tuple[tuple[str, ...], list]]:
    if state in lattice.finals:
        yield words, [*scores, lattice.finals[state]]
    for arc in lattice.arcs[state]:
        yield from every_path(lattice, arc.target, (*words, arc.word), (*scores, arc.scores))


def by_all_paths(lattice: Lattice, left_out: set[str]) -> list[tuple[str, float, dict[str, float]]]:
    """Every text with the total and the scores of its best path, best first."""
    found: dict[str, tuple[float, dict[str, float]]] = {}
    for words, scores in every_path(lattice, lattice.start):
        kept = [word for word in words if word not in left_out]
        sums = {name: sum(score[place] for score in scores) for place, name in enumerate(lattice.names)}
        total = sum(WEIGHTS[name] * value for name, value in sums.items()) + WEIGHTS["words"] * len(kept)
        text = " ".join(kept)
        if text not in found or total > found[text][0]:
            found[text] = (total, sums)
    return sorted(((text, *best) for text, best in found.items()), key=lambda row: -row[1])


@pytest.mark.parametrize("left_out", [set(), {"SIL"}])
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("spare", [0, 64])
def test_texts_are_the_best_of_all_paths(seed, left_out, spare, monkeypatch):
    monkeypatch.setattr(module, "SPARE", spare)  # 0: whatever can be left out is left out at once
    lattice = random_lattice(seed)
    expected = by_all_paths(lattice, {"", *left_out})
    for size in (1, 2, 5, 40, 10_000):
        found = best_texts(lattice, size, left_out=left_out)
        assert [hypothesis.text for hypothesis in found] == [text for text, _, _ in expected[:size]]
        assert [hypothesis.rank for hypothesis in found] == list(range(1, len(found) + 1))
        for hypothesis, (_, _, scores) in zip(found, expected, strict=False):
            assert hypothesis.scores == pytest.approx(scores)


@pytest.mark.parametrize(("score", "weight"), [(-1e300, 1.0), (-1e300, 1e300), (-1.0, 1e300), (-1e308, 0.0)])
def test_sums_beyond_all_bounds_are_refused(score, weight):
    lattice = Lattice("u", ("graph",), {"graph": weight}, arcs=[[Arc(1, "a", (score,))], [Arc(2, "b", (score,))], []], finals={2: (0.0,)})
    with pytest.raises(InputError, match=r"'u' has a score, or a weighted sum of scores, beyond 1e\+80: give smaller weights"):
        best_texts(lattice, 1)


def test_weights_decide_the_order():
    lattice = random_lattice(3)
    by_acoustic = [hypothesis.scores["acoustic"] for hypothesis in best_texts(lattice, 1000, {"acoustic": 1.0})]
    assert by_acoustic == sorted(by_acoustic, reverse=True)
    lengths = [len(hypothesis.text.split()) for hypothesis in best_texts(lattice, 1000, {"words": 100.0, "graph": 1e-3})]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) > 1


def test_only_what_leads_to_an_end_is_extended():
    """A lattice of 2 ** 60 paths: the search goes by the best, and reads no others."""
    lattice = Lattice("u", ("graph",), {"graph": 1.0})
    for place in range(60):
        lattice.state(place + 1)
        lattice.arcs[place] += [Arc(place + 1, "a", (-1.0,)), Arc(place + 1, "b", (-1.0 - 2.0**-place,))]
    lattice.finals[60] = (0.0,)
    found = best_texts(lattice, 4)
    assert [hypothesis.text for hypothesis in found[:2]] == [" ".join("a" * 60), " ".join("a" * 59 + "b")]
    assert math.isclose(found[1].scores["graph"], -60 - 2.0**-59)


@pytest.mark.parametrize("costs", [(-1.0,), (-0.1, -0.7, -1.3)])
def test_texts_that_cost_the_same_are_not_searched_side_by_side(costs):
    """Homophones: 2 ** 80 texts have the same scores, which are no binary fractions."""
    lattice = Lattice("u", ("graph",), {"graph": 0.3})
    for place in range(80):
        lattice.state(place + 1)
        cost = costs[place % len(costs)]
        lattice.arcs[place] += [Arc(place + 1, "a", (cost,)), Arc(place + 1, "b", (cost,)), Arc(place + 1, "c", (cost - 1,))]
    lattice.finals[80] = (0.0,)
    found = best_texts(lattice, 200)
    assert len({hypothesis.text for hypothesis in found}) == 200
    assert found[0].text == " ".join("a" * 80)
    best = sum(costs[place % len(costs)] for place in range(80))
    assert [hypothesis.scores["graph"] for hypothesis in found] == pytest.approx([best] * 200)


def test_a_lattice_without_an_end_has_no_texts_and_one_with_a_cycle_is_refused():
    lattice = random_lattice(1)
    lattice.finals.clear()
    assert best_texts(lattice, 1) == []
    lattice = random_lattice(1)
    end = next(iter(lattice.finals))
    lattice.arcs[end].append(Arc(lattice.start, "a", (0.0, 0.0)))
    with pytest.raises(InputError, match="without cycles"):
        best_texts(lattice, 1)
