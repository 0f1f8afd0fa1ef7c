"""The letter channel against a loop over single pairs, and the search against all targets there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from attlm_fairseq.nbest.corrections import letters
from attlm_fairseq.nbest.corrections.alignment import align_list, bounded
from attlm_fairseq.nbest.corrections.expansion import SPELLED, Channel
from attlm_fairseq.nbest.corrections.letters import LetterChannel, _Batch, _expected, _matrix, alike, estimate, learn_letters
from attlm_fairseq.nbest.corrections.numbers import NumberChannel
from attlm_fairseq.nbest.corrections.phrase_table import PhraseTable, Rule
from attlm_fairseq.nbest.corrections.spelling import MAX_COST, SpellingSearch


def expected_by_enumeration(source: list[int], target: list[int], change: np.ndarray, insert: np.ndarray) -> tuple:
    """Expected counts of one pair, by writing down every alignment. Letters are indices; the last column of ``change`` is deletion."""
    size, stop = len(insert), 1 - insert.sum()

    def alignments(i: int, j: int) -> list[list[tuple]]:
        if i == len(source) and j == len(target):
            return [[]]
        found = []
        if j < len(target):
            found += [[("insert", target[j]), *rest] for rest in alignments(i, j + 1)]
        if i < len(source):
            found += [[("change", source[i], size), *rest] for rest in alignments(i + 1, j)]
            if j < len(target):
                found += [[("change", source[i], target[j]), *rest] for rest in alignments(i + 1, j + 1)]
        return found

    changed, inserted, total = np.zeros_like(change), np.zeros_like(insert), 0.0
    for alignment in alignments(0, 0):
        p = stop ** (len(source) + 1)
        for step in alignment:
            p *= insert[step[1]] if step[0] == "insert" else change[step[1], step[2]]
        total += p
        for step in alignment:
            if step[0] == "insert":
                inserted[step[1]] += p
            else:
                changed[step[1], step[2]] += p
    return changed / total, inserted / total


def test_expectations_are_those_of_all_alignments() -> None:
    generator = np.random.default_rng(1)
    size = 3
    change = generator.dirichlet(np.ones(size + 1), size)
    insert = generator.dirichlet(np.ones(size + 1))[:size] * 0.5
    pairs = [([0, 1, 2], [0, 2]), ([1], [2, 0, 1]), ([2, 2], [2, 2])]
    weights = np.array([1.0, 2.0, 0.5])
    sources, targets = (_matrix([pair[side] for pair in pairs], size) for side in (0, 1))
    lengths = np.array([[len(source), len(target)] for source, target in pairs])
    changed, inserted, stops = _expected(_Batch(sources, targets, lengths, weights), change, insert)
    by_hand = [expected_by_enumeration(source, target, change, insert) for source, target in pairs]
    np.testing.assert_allclose(changed, sum(w * c for w, (c, _) in zip(weights, by_hand, strict=True)), rtol=1e-9)
    np.testing.assert_allclose(inserted, sum(w * i for w, (_, i) in zip(weights, by_hand, strict=True)), rtol=1e-9)
    assert stops == pytest.approx(sum(w * (len(source) + 1) for w, (source, _) in zip(weights, pairs, strict=True)))


def test_probabilities_sum_to_one() -> None:
    channel = estimate({("twenty-two", "twenty two"): 3.0, ("pm", "p m"): 5.0, ("fair", "fare"): 2.0})
    for costs in channel.changes.values():
        assert sum(math.exp(-cost) for cost in costs.values()) == pytest.approx(1)
    assert sum(math.exp(-cost) for cost in channel.inserts.values()) + math.exp(-channel.stop) == pytest.approx(1)
    assert min(channel.change("-"), key=channel.change("-").get) == " "
    assert min(channel.inserts, key=channel.inserts.get) == " "


@pytest.mark.parametrize("together", [1, 3])
def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    spellings = {("twenty-two", "twenty two"): 3.0, ("pm", "p m"): 5.0, ("fair", "fare"): 2.0, ("am", "a m"): 1.0}
    whole = estimate(spellings)
    monkeypatch.setattr(letters, "TOGETHER", together)
    parts = estimate(spellings)
    assert parts.stop == pytest.approx(whole.stop, rel=1e-12)
    assert parts.inserts == pytest.approx(whole.inserts, rel=1e-9)
    for letter, costs in whole.changes.items():
        assert parts.changes[letter] == pytest.approx(costs, rel=1e-9)


def test_only_blocks_spelled_alike_teach() -> None:
    assert alike("twenty-two", "twenty two")
    assert not alike("and", "the first")
    assert not alike("", "a")
    assert learn_letters(align_list(["to boston"], ["to denver"])) == LetterChannel()


def cost(source: str, target: str, channel: LetterChannel) -> float:
    """-ln p of the best alignment, by dynamic programming."""
    best = np.full((len(source) + 1, len(target) + 1), np.inf)
    best[0, 0] = 0.0
    for i, j in itertools.product(range(len(source) + 1), range(len(target) + 1)):
        if i:
            best[i, j] = min(best[i, j], best[i - 1, j] + channel.stop + channel.change(source[i - 1]).get("", np.inf))
        if j:
            best[i, j] = min(best[i, j], best[i, j - 1] + channel.inserts.get(target[j - 1], np.inf))
        if i and j:
            best[i, j] = min(best[i, j], best[i - 1, j - 1] + channel.stop + channel.change(source[i - 1]).get(target[j - 1], np.inf))
    return float(best[-1, -1]) + channel.stop


def test_search_finds_the_cheapest_word_sequences() -> None:
    channel = estimate({("twa", "t w a"): 4.0, ("dender", "denver"): 1.0, ("fair", "fare"): 2.0, ("two-one", "two one"): 3.0})
    words = ["t", "w", "a", "two", "denver", "fare", "one"]
    search = SpellingSearch(channel, words)
    for text in ("twa", "two-one", "dendver", "fair"):
        found = dict(search.options(text.split(), 0, 1))
        targets = [" ".join(target) for count in (1, 2, 3) for target in itertools.product(words, repeat=count)]
        costs = sorted((cost(text, target, channel), target) for target in targets if target != text)
        assert " ".join(max(found, key=found.get)) == costs[0][1]
        best = math.exp(found[max(found, key=found.get)])
        for target, log_prob in found.items():
            assert math.exp(log_prob) / best == pytest.approx(math.exp(costs[0][0] - cost(text, " ".join(target), channel)))


def test_unknown_words_become_known_ones_with_what_phrases_leave_over() -> None:
    search = SpellingSearch(estimate({("dender", "denver"): 1.0, ("fair", "fare"): 2.0}), ["to", "denver", "fare"])
    phrases = PhraseTable({("dendver",): [Rule(("dendver",), ("dover",), math.log(0.2), 2.0)]}, {"dendver": math.log(0.5)})
    words = bounded("to dendver fare")
    edges = [edge for here in Channel(phrases, NumberChannel(), search).edges(words) for edge in here]
    found = {edge.target: edge for edge in edges if edge.rule is not None and edge.rule[0] == "letters"}
    expected = dict(search.options(words, 2, 3))
    assert ("denver",) in found.keys() == expected.keys()
    for target, edge in found.items():
        assert (edge.begin, edge.end) == (2, 3)
        assert edge.log_prob == pytest.approx(math.log((1 - 0.5 - 0.2) * SPELLED) + expected[target])


def test_nothing_is_found_beyond_the_cost_or_without_a_channel() -> None:
    channel = estimate({("twa", "t w a"): 4.0})
    assert cost("q" * 9, "twa", channel) > MAX_COST
    assert not list(SpellingSearch(channel, ["twa"]).options(["q" * 9], 0, 1))
    assert not list(SpellingSearch(LetterChannel(), ["twa"]).options(["twb"], 0, 1))


def test_of_large_alphabets_only_changes_that_were_seen_are_kept(monkeypatch):
    words = [chr(0xAC00 + number) + chr(0xAC01 + number) for number in range(letters.MANY_LETTERS + 20)]
    spellings = {(word, word): 3.0 for word in words} | {(words[5], words[5][0] + "b"): 1.0}
    few = letters.estimate(spellings)
    assert max(len(targets) for targets in few.changes.values()) <= 3
    assert "b" in few.changes[words[5][1]]
    monkeypatch.setattr(letters, "MANY_LETTERS", 10_000)
    every = letters.estimate(spellings)
    assert sum(map(len, every.changes.values())) > 40_000
    assert all(every.changes[a][b] == cost for a, targets in few.changes.items() for b, cost in targets.items())
