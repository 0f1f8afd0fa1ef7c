"""Neural LMs as scorers: the prefix tree against one sentence at a time, ensembles, unknown words."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
import tracemalloc
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_files import write_checkpoint
from small_models import set_limits

from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.modules.kernels import softmax_events
from attlm_fairseq.modules.kernels.limits import Widths
from attlm_fairseq.modules.kernels.softmax_events import SoftmaxEvents, plain_normalisers
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.deviation import SAMPLE_SENTENCES
from attlm_fairseq.scoring.neural import neural_scorer, tree_scoring
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.prefix_tree import build_prefix_tree
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.tree_memory import TreeMemory, split_into_blocks

WORDS = [f"w{number}" for number in range(30)]


MODELS = {
    "single": {"attention_score": "single"},
    "combined": {"attention_score": "combined"},
    "adaptive": {"output_layer": "adaptive", "adaptive_cutoffs": "7"},
    "MoS": {"softmaxes": "3"},
    "DOC": {"_name": "averaging_lstm_lm", "softmaxes": "2,2"},
    **{family: {"_name": family} for family in FAMILIES if family != "attentive_lstm_lm"},
}


@pytest.fixture(scope="module", params=MODELS)
def checkpoint(tmp_path_factory, request):
    return write_checkpoint(tmp_path_factory.mktemp(request.param) / "lm.pt", WORDS, **MODELS[request.param])


def nbest_like(count: int, seed: int = 0) -> list[list[str]]:
    """Sentences that share beginnings, among them empty, equal and unknown ones."""
    random_ = random.Random(seed)
    made: list[list[str]] = [[]]
    for _ in range(count):
        old = random_.choice(made)
        made.append(old[: random_.randint(0, len(old))] + random_.choices([*WORDS, "unheard-of", "</s>"], k=random_.randint(0, 6)))
    return made


def one_by_one(scorer: NeuralScorer, words: list[str]) -> list[float]:
    """A full pass over one sentence, no tree."""
    ids = [2, *scorer.vocabulary.ids(words)]
    logits, _ = scorer.models[0].model(torch.tensor([ids]))
    return torch.log_softmax(logits[0].double(), dim=-1)[range(len(ids)), [*ids[1:], 2]].tolist()


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_normalisers_of_any_size(monkeypatch, scale):
    """Sums that float32 cannot hold are taken the usual way, row by row; the others without the largest logit's being subtracted."""
    set_limits(monkeypatch, softmax=Widths(7, 2048, 300))
    random_ = torch.Generator().manual_seed(1)
    features, weight = (torch.randn(rows, 8, generator=random_) for rows in (20, 5000))
    bias = torch.randn(5000, generator=random_)
    bias[:100] = -math.inf
    features[::2] *= scale
    features[1] = 0
    weight[:, 0], features[3, 0] = 1, -200  # all logits far below 0
    expected = torch.logsumexp(features.double() @ weight.double().t() + bias.double(), dim=-1)
    again: list[int] = []
    monkeypatch.setattr(softmax_events, "plain_normalisers", lambda *given: again.append(len(given[2])) or plain_normalisers(*given))
    found = SoftmaxEvents(weight, bias).normalisers(features)
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-6)
    if scale == 1:
        assert again == [1], "that row alone"
    for lower in (100, 300):
        low = SoftmaxEvents(weight, bias - lower).normalisers(features)
        torch.testing.assert_close(low.double(), expected - lower, rtol=2e-6, atol=1e-4)  # of logits of 300


def test_normalisers_of_many_words_are_as_exact_as_those_of_few():
    random_ = torch.Generator().manual_seed(1)
    for words in (1000, 300_000):
        features, weight, bias = (torch.randn(*shape, generator=random_) for shape in ((300, 4), (words, 4), (words,)))
        found = SoftmaxEvents(weight, bias).normalisers(features)
        expected = torch.logsumexp(torch.addmm(bias.double(), features.double(), weight.double().t()), dim=-1)
        assert (found.double() - expected).abs().max() < 5e-6, words


def test_scores_are_those_of_one_sentence_at_a_time(checkpoint, monkeypatch):
    scorer = NeuralScorer.load([checkpoint])
    sentences = nbest_like(100)
    scores = scorer.score(sentences)
    assert isinstance(scorer, Scorer)
    for words, score in zip(sentences, scores, strict=True):
        assert score.log_probs == pytest.approx(one_by_one(scorer, words), abs=1e-5)
        assert score.oov == tuple(word not in WORDS for word in words)
    blocks = []
    monkeypatch.setattr(neural_scorer, "OTHER_BYTES", 0)
    monkeypatch.setattr(neural_scorer, "build_prefix_tree", lambda block: blocks.append(block) or build_prefix_tree(block))
    set_limits(
        monkeypatch, step_rows=7, softmax=Widths(7, 14, 5), event_numbers=100
    )  # many small trees, and rows and logits a few at a time: the same scores
    frugal = NeuralScorer.load([checkpoint], compute=DeviceConfig(memory=20_000))
    for whole, in_blocks in zip(scores, frugal.score(sentences), strict=True):
        assert whole.log_probs == pytest.approx(in_blocks.log_probs, abs=1e-5)
    assert 3 < len(blocks) < 90


def test_a_history_is_read_before_each_sentence(checkpoint):
    scorer = NeuralScorer.load([checkpoint])
    history = [["w1", "unheard-of"], [], ["w7", "w2", "w1"]]
    before = [token for words in history for token in (2, *scorer.vocabulary.ids(words))]
    sentences = nbest_like(20)
    later = scorer.after(history[:1]).after(history[1:])
    for words, score in zip(sentences, later.score(sentences), strict=True):
        ids = [*before, 2, *scorer.vocabulary.ids(words)]
        logits, _ = scorer.models[0].model(torch.tensor([ids]))
        log_probs = torch.log_softmax(logits[0].double(), dim=-1)[len(before) :]
        expected = log_probs[range(len(words) + 1), [*ids[len(before) + 1 :], 2]].tolist()
        assert score.log_probs == pytest.approx(expected, abs=1e-5)


def test_parts_side_by_side_score_as_one(checkpoint, monkeypatch):
    sentences = nbest_like(300, seed=4)
    at_work, parts = [], []

    def watched(*arguments):
        at_work.append((threading.get_ident(), torch.get_num_threads()))
        parts.append(arguments[1].size)
        return event_log_probs(*arguments)

    event_log_probs = neural_scorer.event_log_probs
    monkeypatch.setattr(neural_scorer, "event_log_probs", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        alone = NeuralScorer.load([checkpoint], compute=DeviceConfig(memory=128 << 20)).score(sentences)
        assert at_work == [(threading.get_ident(), 4)]  # no memory for two parts
        at_work.clear()
        parts.clear()
        monkeypatch.setattr(neural_scorer, "PART_NODES", 100)
        scorer = NeuralScorer.load([checkpoint], compute=DeviceConfig(memory=384 << 20))
        together = scorer.score(sentences)
        threads, shares = zip(*at_work, strict=True)
        assert len(threads) == 2  # three would leave a thread over
        assert threading.get_ident() not in threads
        assert set(shares) == {2}
        assert max(parts) < 1.5 * min(parts)
        assert [score.log_probs for score in together] == [pytest.approx(score.log_probs, abs=1e-5) for score in alone]
        monkeypatch.setattr(neural_scorer, "build_prefix_tree", lambda block: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scorer.score(sentences)
        assert torch.get_num_threads() == 4
        torch.set_num_threads(3)
        levels = []

        def fail_or_wait(model, tree, step_limit, check, before):
            """One part fails; the others go on until they are told."""
            if not levels:
                levels.append(1)
                raise ZeroDivisionError
            while True:
                check()

        monkeypatch.setattr(neural_scorer, "build_prefix_tree", build_prefix_tree)
        monkeypatch.setattr(tree_scoring, "tree_features", fail_or_wait)
        with pytest.raises(ZeroDivisionError):
            scorer.score(sentences)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_score_does_not_depend_on_its_neighbours_or_their_order(checkpoint):
    scorer = NeuralScorer.load([checkpoint])
    sentences = nbest_like(60, seed=2)
    alone = [scorer.score([words])[0].total for words in sentences]
    mixed = random.Random(1).sample(range(len(sentences)), len(sentences))
    for place, score in zip(mixed, scorer.score([sentences[place] for place in mixed]), strict=True):
        assert score.total == pytest.approx(alone[place], abs=1e-4)
    assert scorer.score([]) == []


def test_probabilities_of_all_continuations_sum_to_one(checkpoint):
    scorer = NeuralScorer.load([checkpoint])
    prefix = ["w3", "w1"]
    continuations = [[*prefix, word] for word in [*WORDS, "unheard-of"]]
    mass = sum(math.exp(score.log_probs[2]) for score in scorer.score(continuations))
    mass += math.exp(scorer.score([prefix])[0].log_probs[2])
    never = torch.softmax(scorer.models[0].model(torch.tensor([[2, *scorer.vocabulary.ids(prefix)]]))[0][0, -1], dim=-1)[:2].sum()
    assert mass + never.item() == pytest.approx(1.0, abs=1e-5)  # <s> and <pad> have a little mass too, as in fairseq


def test_an_ensemble_averages_probabilities(tmp_path):
    paths = [write_checkpoint(tmp_path / str(seed) / "lm.pt", WORDS, seed=seed) for seed in (1, 2)]
    sentences = nbest_like(20)
    one, two = ([score.log_probs for score in NeuralScorer.load([path]).score(sentences)] for path in paths)
    for weights, share in ((None, 0.5), ([3.0, 1.0], 0.75), ([1.0, 0.0], 1.0)):
        together = NeuralScorer.load(paths, weights=weights).score(sentences)
        for first, second, score in zip(one, two, together, strict=True):
            expected = [math.log(share * math.exp(a) + (1 - share) * math.exp(b)) for a, b in zip(first, second, strict=True)]
            assert score.log_probs == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="as many weights"):
        NeuralScorer.load(paths, weights=[1.0])


def test_an_ensemble_of_unlike_dictionaries_is_refused(tmp_path):
    paths = [write_checkpoint(tmp_path / "a" / "lm.pt", WORDS), write_checkpoint(tmp_path / "b" / "lm.pt", WORDS[::-1])]
    with pytest.raises(InputError, match=r"b/lm.pt: its dictionary is not that of"):
        NeuralScorer.load(paths)


def test_the_signature_tells_files_and_policy(checkpoint):
    signature = NeuralScorer.load([checkpoint], "mine").signature()
    assert signature["sha256"] == [load_model(checkpoint).sha256]
    assert signature["vocabulary"] == 34


tokens = st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=25)


@settings(max_examples=200, deadline=None)
@given(tokens)
def test_the_tree_has_each_prefix_once(sentences):
    distinct = sorted(set(map(tuple, sentences)))
    tree = build_prefix_tree(distinct)
    assert tree.size == len({sentence[:length] for sentence in distinct for length in range(len(sentence) + 1)})
    prefixes = [()]
    for level, (last, parents) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        above = [prefix for prefix in prefixes if len(prefix) == level]
        prefixes += [(*above[parent], int(token)) for token, parent in zip(last, parents, strict=True)]
    for sentence, path in zip(distinct, tree.paths, strict=True):
        assert [prefixes[node] for node in path] == [sentence[:length] for length in range(1, len(sentence) + 1)]


@settings(max_examples=200, deadline=None)
@given(tokens, st.integers(100, 2000))
def test_blocks_hold_all_sentences_in_order_within_the_limit(sentences, limit):
    memory = TreeMemory.__new__(TreeMemory)
    memory.node, memory.word, memory._states = 10, 7, [5, 8, 11]  # a state that grows by 3 with every word
    distinct = sorted(set(map(tuple, sentences)))
    blocks = split_into_blocks(distinct, memory, limit)
    assert [place for begin, end in blocks for place in range(begin, end)] == list(range(len(distinct)))

    def taken(block):
        tree = build_prefix_tree(block)
        widths = [1, *map(len, tree.tokens)]
        levels = [above * (2 + 3 * depth) + 2 * new * (5 + 3 * depth) for depth, (above, new) in enumerate(pairwise(widths), 1)]
        return tree.size * 10 + len({token for sentence in block for token in sentence}) * 7 + max(levels, default=0)

    for begin, end in blocks:
        assert end - begin == 1 or taken(distinct[begin:end]) <= limit
    for (begin, end), (_, after) in pairwise(blocks):  # and none is smaller than it need be
        assert after > end
        assert taken(distinct[begin : end + 1]) > limit


def test_one_long_sentence_costs_no_more_than_its_length():
    sentences = sorted({(1, 2, number % 7, number) for number in range(2000)} | {(1,) * 20_000})
    tracemalloc.start()
    tree = build_prefix_tree(sentences)
    memory = TreeMemory.__new__(TreeMemory)
    memory.node, memory.word, memory._states = 10, 7, [5, 8, 11]
    split_into_blocks(sentences, memory, 1 << 30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tree.size == 1 + 20_000 + 1 + 7 + 2000  # the root, the long sentence, and after its first word the others by level
    assert peak < 10 << 20


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["combined", "amsrn_lm"])
def test_memory_stays_within_its_option(tmp_path, name, precision):
    """A trunk of 90 words under 3,000 leaves: in one block it takes 480 MB with `combined`, 180 MB with `amsrn_lm`."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, decoder_embed_dim=64, decoder_hidden_size=64, **MODELS[name])
    program = f"""
import resource
from pathlib import Path
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
scorer = NeuralScorer.load([Path({str(path)!r})], compute=DeviceConfig(precision={precision!r}, memory=128 << 20))
words = {WORDS!r}
trunk = words * 3
scorer.score([words])
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
scores = scorer.score([trunk + [words[n % 30], words[n // 30 % 30], words[n // 900]] for n in range(3000)])
print((peak() - before) >> 20, len(scores))
"""
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    grown, scores = map(int, result.stdout.split())
    assert grown < 128 + 40  # the sentences and their scores take some, too
    assert scores == 3000


def test_bfloat16_is_close_and_tells_how_close(checkpoint):
    sentences = nbest_like(200)
    exact = NeuralScorer.load([checkpoint]).score(sentences)
    scorer = NeuralScorer.load([checkpoint], compute=DeviceConfig(precision="bfloat16"))
    rounded = scorer.score(sentences)
    differences = [abs(one.total - other.total) for one, other in zip(exact, rounded, strict=True)]
    assert 0 < max(differences) < 0.5
    measured = scorer.deviation
    assert measured.sentences <= 64
    assert 0 < measured.mean <= measured.largest <= max(differences) + 1e-3
    assert f"{measured.largest:.4f} at most (measured on {measured.sentences}" in str(measured)
    assert scorer.signature()["precision"] == "bfloat16"


def test_what_bfloat16_changes_is_measured_on_many_sentences_of_one_text(checkpoint):
    sentences = [[], *nbest_like(100)]
    scorer = NeuralScorer.load([checkpoint], compute=DeviceConfig(precision="bfloat16"))
    scorer.walk([(scorer, sentences)])
    first = {tuple(scorer.vocabulary.ids(words)) for words in sentences[:SAMPLE_SENTENCES]}
    assert scorer.deviation.sentences == len(first) > 10
    two = NeuralScorer.load([checkpoint], compute=DeviceConfig(precision="bfloat16"))
    two.walk([(two, sentences[:50]), (two, sentences[50:])])
    assert two.deviation.sentences > 10
