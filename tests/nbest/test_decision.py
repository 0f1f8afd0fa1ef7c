"""Minimum Bayes risk and consensus against brute force and hand-made networks, and the cheap way over many lists against the plain one."""

from __future__ import annotations

import itertools
import math
import random
import re
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import sacrebleu
from decision_lists import some_lists
from hypothesis import given, settings
from hypothesis import strategies as st

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision import mbr
from attlm_fairseq.nbest.decision.decision import RULES, Decider, Decision, compared_text, decide, loss_spaces, posterior_weights
from attlm_fairseq.nbest.decision.mbr import LOSSES, expected_losses, least_risk, loss_metric, pairwise_losses
from attlm_fairseq.nbest.decision.posterior import posteriors
from attlm_fairseq.nbest.decision.rover import ConfusionNetwork, confusion_network, disputed, vote, winner
from attlm_fairseq.nbest.features.combination import combine
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.text import parse_steps

texts_of_lists = st.lists(st.lists(st.sampled_from("abc"), max_size=6).map(" ".join), min_size=1, max_size=6)


def levenshtein(a, b) -> int:
    """By definition: recursion over the last tokens."""
    table = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return table[len(a), len(b)]


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 40.0])
def test_posteriors_are_a_softmax(scale):
    totals = [-1e4 - 1.5, -1e4, -1e4 - 0.25, -1e4]
    weights = [math.exp(scale * (total + 1e4)) for total in totals]
    found = posteriors(np.array(totals), scale)
    assert found == pytest.approx([weight / sum(weights) for weight in weights])
    assert (posteriors(np.array([totals, totals[::-1]]), scale) == [found, found[::-1]]).all()


def test_posteriors_of_extreme_totals():
    assert posteriors(np.array([-1e300, 0.0, -800.0]), 1e3).tolist() == [0.0, 1.0, 0.0]
    assert posteriors(np.array([5.0]), 0.0).tolist() == [1.0]
    for scale in (-0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match="scale is"):
            posteriors(np.zeros(2), scale)


@settings(deadline=None, max_examples=60)
@given(texts_of_lists)
def test_edit_losses_by_definition(texts):
    words, characters = pairwise_losses(texts, loss_metric("wer")), pairwise_losses(texts, loss_metric("cer"))
    for i, j in itertools.product(range(len(texts)), repeat=2):
        assert words[i, j] == levenshtein(texts[i].split(), texts[j].split())
        assert characters[i, j] == levenshtein(texts[i], texts[j])


@settings(deadline=None, max_examples=60)
@given(texts_of_lists)
def test_bleu_and_chrf_losses_are_sacrebleus_sentence_scores(texts):
    bleu, chrf = pairwise_losses(texts, loss_metric("bleu")), pairwise_losses(texts, loss_metric("chrf"))
    for (i, chosen), (j, truth) in itertools.product(enumerate(texts), repeat=2):
        if chosen == truth:
            assert bleu[i, j] == chrf[i, j] == 0
        else:
            assert bleu[i, j] == pytest.approx(1 - sacrebleu.sentence_bleu(chosen, [truth], tokenize="none").score / 100)
            assert chrf[i, j] == pytest.approx(1 - sacrebleu.sentence_chrf(chosen, [truth]).score / 100)


def test_bleu_losses_of_unspaced_text_need_a_tokenizer():
    texts = ["今天 天气", "我喜欢北京的苹果", "我喜欢北京的平果", "我很喜欢北京的苹果"]
    shares = np.full(4, 0.25)
    assert least_risk(pairwise_losses(texts, loss_metric("bleu")), shares)[0] == 0  # as far from all as each is from each
    losses = pairwise_losses(texts, loss_metric("bleu", "zh"))
    assert losses[1, 2] == pytest.approx(1 - sacrebleu.sentence_bleu(texts[1], [texts[2]], tokenize="zh").score / 100)
    assert least_risk(losses, shares)[0] == 1
    nbest = NbestList("one", [Hypothesis(text, rank=rank) for rank, text in enumerate(texts, 1)])
    assert decide(nbest, {"rank": 0.0}, Decision("mbr-bleu", 0.0, tokenize="zh")).hypotheses[0].text == texts[1]
    decider = Decider(Decision("mbr-bleu", tokenize="zh"), [texts], [(texts[1],)], [np.zeros((4, 2))], loss_metric("wer"))
    assert decider.answers([0], [np.zeros(4)], 0.0)[0][0] == texts[1]


def test_ter_losses_count_edits():
    losses = pairwise_losses(["a b c d e", "d e a b c"], loss_metric("ter"))
    assert losses.tolist() == [[0, 1], [1, 0]]  # one shift
    assert pairwise_losses(["A b", "a b"], loss_metric("ter")).tolist() == [[0, 1], [1, 0]]
    assert compared_text(make_metric("ter")).prepared("A b") == "a b"  # what makes case not count, where it is not to
    assert compared_text(make_metric("ter", lowercase=False)).prepared("A b") == "A b"


@settings(deadline=None, max_examples=100)
@given(texts_of_lists, st.data())
def test_mbr_against_brute_force_in_fractions(texts, data):
    """By the sum of probability times distance over all that could be right, computed without rounding; ties by probability, then place."""
    shares = data.draw(st.lists(st.integers(1, 9), min_size=len(texts), max_size=len(texts)))
    probabilities = np.array(shares) / sum(shares)
    found = least_risk(pairwise_losses(texts, loss_metric("wer")), probabilities).tolist()
    risks = [
        sum(Fraction(share) * levenshtein(text.split(), truth.split()) for share, truth in zip(shares, texts, strict=True))
        for text in texts
    ]
    assert found == sorted(range(len(texts)), key=lambda row: (risks[row], -shares[row], row))


def test_equal_risks_go_to_the_more_probable_then_to_the_first():
    losses = pairwise_losses(["a b", "a c", "x", "a b"], loss_metric("wer"))
    assert least_risk(losses, np.array([0.25, 0.25, 0.25, 0.25])).tolist() == [0, 3, 1, 2]
    assert least_risk(losses, np.array([0.1, 0.2, 0.3, 0.4])).tolist()[0] == 3
    assert least_risk(np.full((3, 3), -0.8), np.array([0.2, 0.5, 0.3])).tolist() == [1, 2, 0]  # of a metric whose losses are below 0
    assert expected_losses(losses, np.array([0.5, 0.25, 0.25, 0.0])).tolist() == [0.25 + 0.5, 0.5 + 0.5, 1.0 + 0.5, 0.25 + 0.5]


def test_risks_in_parts_are_those_of_all_at_once(monkeypatch):
    """Of several lists too: what is held at a time bounds memory, and changes nothing."""
    generator = np.random.default_rng(5)
    losses, shares = generator.random((4, 7, 7)), generator.random((4, 7))
    whole = expected_losses(losses, shares)
    assert whole == pytest.approx((losses @ shares[..., None])[..., 0])
    monkeypatch.setattr(mbr, "PRODUCTS", 2 * 4 * 7)  # 2 rows of each list
    assert (expected_losses(losses, shares) == whole).all()


def test_mbr_takes_the_middle_where_maximum_takes_the_mode():
    texts = ["the cat sat", "a dog ran on", "a dog ran in", "a dog ran"]
    shares = np.array([0.4, 0.2, 0.2, 0.2])
    assert texts[least_risk(pairwise_losses(texts, loss_metric("wer")), shares)[0]] == "a dog ran"


def consensus(network: ConfusionNetwork, shares: np.ndarray) -> str:
    return winner(network, vote(disputed(network), shares), network.texts)


def as_rows(network: ConfusionNetwork) -> list[str]:
    return [" ".join(slot[i] or "-" for slot in network.slots) for i in range(len(network.texts))]


@pytest.mark.parametrize(
    ("texts", "rows"),
    [
        (["a b c"], ["a b c"]),
        (["a b c", "a x c"], ["a b c", "a x c"]),
        (["a b c", "a c"], ["a b c", "a - c"]),
        (["a c", "a b c"], ["a - c", "a b c"]),
        (["a b c d", "b c d", "a b c d e"], ["a b c d -", "- b c d -", "a b c d e"]),
        (["a b", "a x b", "a y b"], ["a - b", "a x b", "a y b"]),  # x and y compete for one slot, though neither is in the first
        (["i scream", "ice cream", "i scream"], ["i scream", "ice cream", "i scream"]),
        (["", "a b", ""], ["- -", "a b", "- -"]),
        (["a b", ""], ["a b", "- -"]),
        (["", ""], ["", ""]),
        (["a", "b c"], ["- a", "b c"]),  # from the end
    ],
)
def test_networks_by_hand(texts, rows):
    assert as_rows(confusion_network(texts)) == rows


@settings(deadline=None, max_examples=150)
@given(texts_of_lists)
def test_every_hypothesis_can_be_read_off_its_network(texts):
    network = confusion_network(texts)
    for i, text in enumerate(texts):
        assert [slot[i] for slot in network.slots if slot[i]] == text.split()
    assert all(any(slot) for slot in network.slots)


@settings(deadline=None, max_examples=150)
@given(st.tuples(*[st.lists(st.sampled_from("abc"), max_size=7).map(" ".join)] * 2))
def test_two_hypotheses_are_aligned_at_levenshteins_distance(texts):
    network = confusion_network(texts)
    assert sum(a != b for a, b in network.slots) == levenshtein(texts[0].split(), texts[1].split())


@pytest.mark.parametrize(
    ("texts", "shares", "expected"),
    [
        # the most probable hypothesis is wrong in one word, and so is each of the others, in another
        (["a x c d", "a b y d", "z b c d"], [0.4, 0.3, 0.3], "a b c d"),
        (["a b c", "a c", "a c d"], [0.3, 0.3, 0.4], "a c"),
        (["a b", "a b", "c"], [0.3, 0.3, 0.4], "a b"),  # equal hypotheses vote together
        (["the cat", "", "a hat"], [0.3, 0.4, 0.3], ""),
        (["a", "b"], [0.5, 0.5], "a"),  # a tie goes to the first
        (["x  y", "x z"], [0.6, 0.4], "x  y"),  # as read
    ],
)
def test_votes_by_hand(texts, shares, expected):
    assert consensus(confusion_network(texts), np.array(shares)) == expected


def test_long_lists_are_decided_in_bounded_memory():
    """A vote's arrays grow with the list, not with its square, and losses of n-grams are no n-gram counting for each pair."""
    generator = np.random.default_rng(3)
    reference = generator.choice(300, 15)
    texts = []
    for _ in range(600):
        words = np.where(generator.random(15) < 0.2, generator.choice(300, 15), reference)
        texts.append(" ".join(f"w{word}" for word in words[generator.random(15) < 0.95]))
    shares = np.full(600, 1 / 600)
    tracemalloc.start()
    said = consensus(confusion_network(texts), shares)
    voted = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    best = [texts[least_risk(pairwise_losses(texts, loss_metric(loss)), shares)[0]] for loss in ("bleu", "chrf")]
    compared = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said == " ".join(f"w{word}" for word in reference)
    assert min(loss_metric("wer").distances([said, *best])[0][1:]) < 5
    assert voted < 20 << 20
    assert compared < 200 << 20


def test_ties_of_votes_go_to_the_earliest_whatever_the_order_of_summation():
    """Equal probabilities, half of the hypotheses with the other word: all ties up to 14 hypotheses, exact in whole numbers."""
    for n in range(2, 15, 2):
        ties = [labels for labels in itertools.product((0, 1), repeat=n) if sum(labels) == n // 2]
        slots = np.array([[labels.index(label) for label in labels] for labels in ties])
        assert not vote(slots, np.full(n, 1 / n)).any()


@settings(deadline=None, max_examples=100)
@given(texts_of_lists, st.data())
def test_a_peaked_posterior_is_the_maximum(texts, data):
    peak = data.draw(st.integers(0, len(texts) - 1))
    shares = np.full(len(texts), 0.4 / max(1, len(texts) - 1))
    shares[peak] = 0.6
    assert consensus(confusion_network(texts), shares).split() == texts[peak].split()


def test_bad_decisions():
    for rule in ("min", "mbr", "mbr-external:", 1):
        with pytest.raises(InputError, match=f"rule {rule!r}: expected one of max, mbr-wer"):
            Decision(rule)
    for scale in (-1.0, math.nan, math.inf, "1"):
        with pytest.raises(InputError, match=f"scale is {scale}: expected a finite number that is not negative"):
            Decision("consensus", scale)


def in_pieces(lists: list[NbestList]) -> list[NbestList]:
    """The same lists with every second letter glued to the one behind it, so that two letters are a word: ``a@@ b c@@ d``."""

    def glued(text: str) -> str:
        letters = text.split()
        return " ".join(letter + "@@" * (place % 2 == 0 and place + 1 < len(letters)) for place, letter in enumerate(letters))

    return [
        NbestList(
            nbest.id,
            [replace(hypothesis, text=glued(hypothesis.text)) for hypothesis in nbest.hypotheses],
            tuple(glued(reference).replace("@@ ", "") for reference in nbest.references),
        )
        for nbest in lists
    ]


@pytest.mark.parametrize("text", [None, "join-subwords:bpe"])
@pytest.mark.parametrize("rule", RULES)
def test_many_lists_at_once_answer_as_each_alone(rule, text):
    steps = parse_steps([text] if text else [])
    metric = make_metric("wer", text=steps)
    lists = some_lists(RULES.index(rule), 40 if rule != "mbr-ter" else 10)
    if text:
        lists = in_pieces(lists)
    texts = [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in lists]
    statistics = [metric.statistics(of_list, nbest.references) for of_list, nbest in zip(texts, lists, strict=True)]
    totals = [np.array([hypothesis.scores["am"] for hypothesis in nbest.hypotheses]) for nbest in lists]
    decider = Decider(Decision(rule, text=steps), texts, [nbest.references for nbest in lists], statistics, metric)
    changed = 0
    for scale in (0.0, 0.7, 3.0):
        answers = decider.answers(range(len(lists)), totals, scale)
        for nbest, (text, counts) in zip(lists, answers, strict=True):
            decided = decide(nbest, {"am": 1.0}, Decision(rule, scale, steps)).hypotheses
            assert decided[0].text == text
            assert counts.tolist() == metric.statistics([text], nbest.references)[0].tolist()
            changed += text != max(nbest.hypotheses, key=lambda hypothesis: hypothesis.scores["am"]).text
            if rule.startswith("mbr"):
                assert sorted(hypothesis.rank for hypothesis in decided) == list(range(1, len(nbest.hypotheses) + 1))
                assert all(a.total >= b.total for a, b in itertools.pairwise(decided))
    assert (changed > 0) == (rule != "max")


def test_rules_for_answers():
    assert set(RULES) == {"max", "consensus", *(f"mbr-{loss}" for loss in LOSSES)}
    nbest = some_lists(1)[0]
    combined = combine(nbest, {"am": 1.0})
    assert decide(nbest, {"am": 1.0}, Decision()) == combined
    (answer,) = decide(nbest, {"am": 1.0}, Decision("consensus", 1e6)).hypotheses
    assert (answer.text, answer.rank, answer.total) == (combined.hypotheses[0].text, combined.hypotheses[0].rank, None)


@pytest.mark.parametrize("weights", [{}, {"am": 0.0}, {"am": 0.0, "rank": 0.0}])
def test_weights_of_0_leave_the_first_hypotheses_as_read(weights):
    """Posteriors go by rank: at scale 1 the first has most of them, which decides every vote and every loss that is a distance."""
    assert posterior_weights(weights)["rank"] == -1
    for rule in RULES:
        for nbest in some_lists(5):
            if rule not in ("mbr-bleu", "mbr-chrf", "mbr-ter"):
                assert decide(nbest, weights, Decision(rule)).hypotheses[0].text == nbest.hypotheses[0].text
            if rule != "max":
                assert decide(nbest, weights, Decision(rule, 0.2)) == decide(nbest, {"rank": -1.0}, Decision(rule, 0.2))
    assert posterior_weights({"am": 0.5, "rank": 0.0}) == {"am": 0.5, "rank": 0.0}


PIECES = ["ni@@ gh@@ t and da@@ y", "ni@@ ght an@@ d day s", "ri@@ ghts and d@@ ay", "ni@@ gh@@ t", "li@@ ght an@@ d da@@ y"]


@pytest.mark.parametrize("mark", ["bpe", "sentencepiece", "wordpiece"])
@settings(deadline=None, max_examples=60)
@given(st.permutations(PIECES), st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_losses_and_votes_over_pieces_are_those_over_words(mark, texts, shares):
    """With the step, lists in pieces are decided as their words are, by brute force; the answer of a vote is in words."""
    words = [text.replace("@@ ", "") for text in texts]
    cut = {
        "bpe": lambda text: text,
        "sentencepiece": lambda text: " ".join("\u2581" + word.replace("@@ ", " ") for word in re.split(r"(?<!@@) ", text)),
        "wordpiece": lambda text: text.replace("@@ ", " ##"),
    }[mark]
    steps = parse_steps([f"join-subwords:{mark}"])
    totals = [math.log(share) for share in shares]

    def decided(rule: str, of_list: list[str], steps=steps) -> Hypothesis:
        hypotheses = [Hypothesis(text, {"am": total}, i) for i, (text, total) in enumerate(zip(of_list, totals, strict=True), 1)]
        return decide(NbestList("0", hypotheses), {"am": 1.0}, Decision(rule, 1.0, steps)).hypotheses[0]

    pieces = list(map(cut, texts))
    found = decided("mbr-wer", pieces)
    risks = [sum(share * levenshtein(a.split(), b.split()) for share, b in zip(shares, words, strict=True)) for a in words]
    assert found.text == pieces[found.rank - 1]  # as read
    assert risks[found.rank - 1] == min(risks)
    for loss in LOSSES:
        assert decided(f"mbr-{loss}", pieces).rank == decided(f"mbr-{loss}", words, parse_steps([])).rank
    found = decided("consensus", pieces)
    assert found == decided("consensus", words, parse_steps([]))
    assert set(found.text.split()) <= {word for text in words for word in text.split()}
    assert found.rank == (words.index(found.text) + 1 if found.text in words else 0)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "max"])
@pytest.mark.parametrize("steps", [[], ["join-subwords:bpe"]])
def test_texts_that_a_metric_takes_for_the_same_do_not_split_the_posterior(rule, steps):
    """Where the metric ignores case, lists decide as in lower case, one by one and together, and are written as they were read."""
    metric = make_metric("wer", text=parse_steps(steps), lowercase=True)
    text = compared_text(metric)
    assert text == parse_steps([*steps, "lowercase"])
    generator = np.random.default_rng(3)
    for nbest in some_lists(6):
        cased = [" ".join(str(generator.choice([word, word.upper()])) for word in h.text.split()) for h in nbest.hypotheses]
        lists = replace(nbest, hypotheses=[replace(h, text=of_list) for h, of_list in zip(nbest.hypotheses, cased, strict=True)])
        expected, found = (decide(these, {"am": 1.0}, Decision(rule, 0.5, text)).hypotheses for these in (nbest, lists))
        assert [(h.rank, h.text.lower()) for h in found] == [(h.rank, h.text) for h in expected]
        assert {word for h in found for word in h.text.split()} <= {word for of_list in cased for word in of_list.split()}
        if found[0].rank:
            assert found[0].text == cased[found[0].rank - 1]
        statistics = [metric.statistics(cased, nbest.references)]
        decider = Decider(Decision(rule, text=text), [cased], [nbest.references], statistics, metric)
        ((answer, _),) = decider.answers([0], [np.array([h.scores["am"] for h in nbest.hypotheses])], 0.5)
        assert answer == found[0].text


@pytest.mark.parametrize(
    ("steps", "written"),
    [
        (["lowercase", "remove-punctuation"], "New York"),
        (["remove-punctuation", "lowercase"], "New York"),
        (["lowercase", "tokenize:en"], "new york ,"),
        (["remove-punctuation"], "New York"),
        (["uppercase"], "NEW YORK,"),
    ],
)
def test_a_consensus_keeps_case_unless_a_later_step_may_depend_on_it(steps, written):
    hypotheses = [Hypothesis("New York,", rank=1), Hypothesis("new york,", rank=2)]
    assert decide(NbestList("0", hypotheses), {}, Decision("consensus", 0.0, parse_steps(steps))).hypotheses[0].text == written


@pytest.mark.parametrize(
    ("texts", "answer", "rank"),
    [
        (["我去香港吧", "我去相港吧", "他去香港吧"], "我去香港吧", 1),
        (["我去相港吧", "他去香港吧", "他去香巷吧"], "他去香港吧", 2),
        (["我去香港x", "他去相港吧", "他去香巷吧"], "他去香港吧", 0),
        (["你好 世界", "你好 世家"], "你好 世界", 1),
        (["我 去 香 港", "他 去 相 港", "他 去 香 巷"], "他 去 香 港", 0),
    ],
)
def test_a_consensus_of_characters_is_joined_as_the_list_is(texts, answer, rank):
    hypotheses = [Hypothesis(text, rank=place) for place, text in enumerate(texts, 1)]
    [found] = decide(NbestList("0", hypotheses), {}, Decision("consensus", 0.0, parse_steps(["characters"]))).hypotheses
    assert (found.text, found.rank) == (answer, rank)


def test_a_new_text_has_the_case_of_the_earliest_hypothesis_with_its_words():
    hypotheses = [Hypothesis(text, rank=i) for i, text in enumerate(["A x C d", "a B y D", "z b c D"], 1)]
    answer = decide(NbestList("0", hypotheses), {}, Decision("consensus", 0.0, parse_steps(["lowercase"]))).hypotheses[0]
    assert (answer.text, answer.rank) == ("A B C d", 0)


def test_the_text_that_is_compared():
    lower = parse_steps(["lowercase"])
    assert compared_text(make_metric("wer")) == parse_steps([])
    for name in LOSSES:
        assert compared_text(make_metric(name, lowercase=True)) == lower
        assert compared_text(make_metric(name, lowercase=False)) == parse_steps([])
        assert compared_text(make_metric(name, lowercase=True, text=lower)) == lower
    cut = compared_text(make_metric("wer", lowercase=True), parse_steps(["unicode:nfc", "bpe:codes"]))
    assert list(map(str, cut.steps)) == ["unicode:nfc", "lowercase", "bpe:codes"]


def test_votes_over_pieces_make_words_that_are_in_no_list():
    """What the step is for."""
    hypotheses = [Hypothesis(text, rank=i) for i, text in enumerate(["ni@@ ght", "ni@@ ghty", "ri@@ ghts", "li@@ ghts"], 1)]
    for steps, expected in ([], "ni@@ ghts"), (["join-subwords:bpe"], "night"):
        answer = decide(NbestList("0", hypotheses), {}, Decision("consensus", 0.0, parse_steps(steps))).hypotheses[0]
        assert answer.text == expected


def test_votes_are_over_words_where_the_metric_compares_pieces(tmp_path, monkeypatch):
    """Pieces of words are not written, and not cut again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "codes").write_text("#version: 0.2\nq q\n")  # every letter is a piece
    pieces = parse_steps(["bpe:codes"])
    assert pieces.words("ab") == ["a@@", "b"]
    hypotheses = [Hypothesis(text, rank=i) for i, text in enumerate(["ab cd", "ab ce", "xb cd"], 1)]
    answer = decide(NbestList("0", hypotheses), {}, Decision("consensus", 0.0, pieces)).hypotheses[0]
    assert (answer.text, answer.rank) == ("ab cd", 1)
    new = [Hypothesis(text, rank=i) for i, text in enumerate(["ab cx ef", "ay cd ef", "ab cd eg"], 1)]
    assert decide(NbestList("0", new), {}, Decision("consensus", 0.0, pieces)).hypotheses[0].text == "ab cd ef"


def test_cer_without_spaces_is_the_loss_of_mbr_too():
    texts = ["明天 天气 很 好啊", "今天 天气 很 好", "今天天气很好"]
    nbest = NbestList("0", [Hypothesis(text, {"am": -0.1 * place}, place) for place, text in enumerate(texts, 1)])
    found = [decide(nbest, {"am": 1.0}, Decision("mbr-cer", 1.0, spaces=spaces)) for spaces in (True, False)]
    assert [one.hypotheses[-1].text for one in found] == [texts[2], texts[0]]
    metric = make_metric("cer", spaces=False)
    totals, statistics = np.array([-0.1, -0.2, -0.3]), metric.statistics(texts, [texts[2]])
    decider = Decider(Decision("mbr-cer", spaces=loss_spaces(metric)), [texts], [(texts[2],)], [statistics], metric)
    assert decider.answers([0], [totals], 1.0)[0][0] == texts[1]
    assert str(Decision("mbr-cer", spaces=False)) == "mbr-cer at 1, without spaces"


def test_long_texts_are_aligned_as_short_ones_are(monkeypatch):
    draw = random.Random(1)
    lists = [[" ".join(draw.choices("abcdef", k=draw.randint(0, 12))) for _ in range(5)] for _ in range(100)]
    expected = list(map(confusion_network, lists))
    monkeypatch.setattr("attlm_fairseq.nbest.decision.rover.FEW_COSTS", 0)
    assert list(map(confusion_network, lists)) == expected
    with pytest.raises(InputError, match="40000 words are too many to align with 30000 others: split such texts into sentences"):
        confusion_network([" ".join(["a"] * 30_000), " ".join(["b"] * 40_000)])


def test_lists_without_a_choice_are_said(caplog):
    attlm.rescore([["a"], ["b", "b"]], weights={"rank": -1.0})
    assert "WARNING: no list has two different hypotheses: there is nothing to choose between; corrections add" in caplog.text
    caplog.clear()
    attlm.rescore([["a"], ["b", "c"]], weights={"rank": -1.0})
    attlm.rescore([["b", "b"]], weights={"rank": -1.0})  # a request of a service
    assert "no list has two different" not in caplog.text
