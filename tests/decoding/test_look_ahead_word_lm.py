"""Word-boundary fusion with look-ahead: against sums over all words, for every way to cut words into units."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from lm_files import write_checkpoint
from toy_lms import random_lm, write_arpa

from attlm_fairseq.decoding.lexicon_tree import LexiconTree
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.decoding.token_texts import style_of, token_texts
from attlm_fairseq.scoring.ngrams.kenlm import KenLM

WORDS = ["a", "at", "ate", "tea", "team", "teä", "ä", "tt"]
LETTERS = [letter.encode() for letter in "atem"] + [b"\xc3", b"\xa4"]  # the last two are ä
BEGIN = [b" " + text for text in (b"a", b"at", b"te", b"t", b"zz", "ä".encode(), b"\xc3")]
COMPLETE = [text + b" " for text in (b"a", b"e", b"ea", b"\xa4", b"q")]
OTHER = [b" ", b"a t", b" at ", b"  ", None, b""]
UNITS = [*LETTERS, b"te", b"eam", b"zz", *BEGIN, *COMPLETE, *OTHER]
END = len(UNITS)
ALL = [*UNITS, b""]  # the last one is the sentence end


@pytest.fixture
def lms(tmp_path) -> LogLinearLM:
    """Three LMs, each with another vocabulary, one of them taken out."""
    neural = StatefulNeuralLM.load(write_checkpoint(tmp_path / "lm.pt", WORDS[:-1], attention_score="combined"))
    return LogLinearLM([random_lm(WORDS), neural, KenLM(write_arpa(tmp_path / "lm.arpa", WORDS[1:]))], [0.7, 0.4, -0.3])


def spelled(fusion: LookAheadWordLM, units: list[int]):
    total, state = 0.0, fusion.start()
    for unit in units:
        score, state = fusion.score(state, unit)
        total += score
    return total, state


def sentence_score(lms: LogLinearLM, words: list[str], unk_offset: float) -> tuple[float, tuple]:
    total, state = 0.0, lms.start()
    for word in words:
        score, state = lms.score(state, word, unk_offset)
        total += score
    return total, state


def cuts(text: bytes, units: list[bytes | None]) -> list[list[int]]:
    """Every way to write a text with units."""
    if not text:
        return [[]]
    return [[place, *rest] for place, unit in enumerate(units) if unit and text.startswith(unit) for rest in cuts(text[len(unit) :], units)]


@pytest.mark.parametrize("look_ahead", [True, False])
@pytest.mark.parametrize("words", [["at"], ["team", "a"], ["teä", "zz", "ä"], ["t", "ate"], ["ma", "at", "at"]])
def test_the_scores_of_a_words_units_sum_to_its_log_probability_however_it_is_cut(lms, words, look_ahead):
    fusion = LookAheadWordLM(lms, ALL, ends=[END], unk_offset=-3.0, look_ahead=look_ahead)
    expected, state = sentence_score(lms, words, -3.0)
    for text in (" ".join(words) + " ", " " + "  ".join(words) + "  "):
        ways = cuts(text.encode(), UNITS)
        assert ways
        for way in random.Random(1).sample(ways, min(len(ways), 40)):
            total, after = spelled(fusion, way)
            assert total == pytest.approx(expected, abs=1e-5)
            assert fusion.end(after) == pytest.approx(lms.end(state), abs=1e-5)
    way = cuts(" ".join(words).encode(), UNITS)[0]
    total, after = spelled(fusion, way)
    assert total + fusion.end(after) == pytest.approx(expected + lms.end(state), abs=1e-5)
    assert fusion.score(after, END)[0] == fusion.end(after)


def test_a_partial_word_has_the_probability_of_all_words_that_begin_with_it():
    lm = random_lm(WORDS)
    fusion = LookAheadWordLM(LogLinearLM([lm], [0.5]), ALL, ends=[END], unk_offset=-3.0)
    for before in ([], ["tea"], ["zz", "at"]):
        history = tuple(word if lm.knows(word) else "<unk>" for word in before)
        _, state = spelled(fusion, cuts((" ".join(before) + " ").encode(), UNITS)[0] if before else [])
        for letters in ("a", "t", "te", "tea", "ä", "am", "teaa"):
            known = [word for word in WORDS if word.startswith(letters)]
            expected = math.log(math.fsum(math.exp(lm._log_prob(history, word)) for word in known)) if known else None
            unknown = lm._log_prob(history, "<unk>") - 3.0
            score = 0.0
            after = state
            for unit in cuts(letters.encode(), UNITS)[-1]:
                value, after = fusion.score(after, unit)
                score += value
            assert score == pytest.approx(0.5 * (unknown if expected is None else expected))
        half_a_letter, _ = fusion.score(state, UNITS.index(b"\xc3"))
        assert half_a_letter == pytest.approx(0.5 * lm._log_prob(history, "ä"))


@pytest.mark.parametrize("look_ahead", [True, False])
def test_all_units_at_once_score_as_one_by_one(lms, look_ahead):
    fusion = LookAheadWordLM(lms, ALL, ends=[END], unk_offset=-3.0, look_ahead=look_ahead)
    random_ = random.Random(3)
    states = [fusion.start()]
    for _ in range(25):
        state = random_.choice(states)
        states.append(fusion.score(state, random_.randrange(len(UNITS)))[1])
    states.append(fusion.score(states[3], END)[1])
    scores = fusion.scores(states)
    assert scores.shape == (len(states), len(ALL))
    for state, row in zip(states, scores, strict=True):
        np.testing.assert_allclose(row, [fusion.score(state, unit)[0] for unit in range(len(ALL))], atol=1e-6)
    assert not scores[-1].any()  # behind the sentence end
    assert not scores[:, len(UNITS) - 2 : len(UNITS)].any()  # None and the empty text


def test_forbidden_words_stay_forbidden(lms):
    lms = LogLinearLM(lms.lms[:1])
    fusion = LookAheadWordLM(lms, ALL, ends=[END], unk_offset=-math.inf)
    for text in (b"zz", b"eteam "):
        total, state = spelled(fusion, cuts(text, UNITS)[0])
        assert total == -math.inf
        assert not np.isnan(fusion.scores([state])).any()
    total, state = spelled(fusion, cuts(b"te ", UNITS)[0])  # a partial word that is none
    assert total == -math.inf
    assert math.isfinite(spelled(fusion, cuts(b"tea ", UNITS)[0])[0])


def test_what_a_subtracted_lm_does_not_know_is_not_forbidden_or_preferred():
    first, second = random_lm([*WORDS, "zz"]), random_lm(WORDS)
    lms = LogLinearLM([first, second], [1.0, -0.3])
    state = lms.start()
    expected = first.score(state[0], first.token("zz"))[0] - 0.3 * second.score(state[1], second.token("zz"))[0]
    assert lms.score(state, "zz", -math.inf)[0] == pytest.approx(expected)
    assert lms.score(state, "unheard", -math.inf)[0] == -math.inf
    fusion = LookAheadWordLM(lms, ALL, ends=[END], unk_offset=-math.inf)
    for text in (b"zz ", b"tea "):
        total, after = spelled(fusion, cuts(text, UNITS)[0])
        assert math.isfinite(total)
        assert not np.isnan(fusion.scores([after])).any()


def test_without_lms_nothing_is_added():
    fusion = LookAheadWordLM(LogLinearLM([random_lm(WORDS)], [0.0]), ALL, ends=[END])
    assert not fusion.scores([fusion.start(), spelled(fusion, [1, 2, 9])[1]]).any()


def test_small_probabilities_below_a_large_node_keep_their_digits():
    words = [f"a{number:03}" for number in range(500)] + ["b"]
    tiny = -40.0
    lm = random_lm([])
    lm._words, lm._log_prob = words, lambda history, word: math.log(0.001) if word == "b" else -1.0 if word == "a000" else tiny
    fusion = LookAheadWordLM(LogLinearLM([lm]), [b"a", b"4", b"99", b"0"])
    scores = [spelled(fusion, units)[0] for units in ([0, 1], [0, 1, 2])]
    assert scores == pytest.approx([tiny + math.log(100), tiny], rel=1e-12)


def test_lms_of_subwords_need_no_tree(lms):
    parts = LogLinearLM([random_lm(["te", "@am", "a"])], segment=[lambda word: ["te", "@am"] if word == "team" else [word]])
    with pytest.raises(ValueError, match="look_ahead=False"):
        LookAheadWordLM(parts, ALL)
    fusion = LookAheadWordLM(parts, ALL, look_ahead=False)
    assert spelled(fusion, cuts(b"team a ", UNITS)[0])[0] == pytest.approx(sentence_score(parts, ["team", "a"], -10.0)[0])


@pytest.mark.parametrize("look_ahead", [True, False])
def test_broken_letters_are_an_unknown_word_of_every_lm(look_ahead):
    """Of one that knows U+FFFD too, which texts have that were decoded wrongly."""
    lm = LogLinearLM([random_lm(["a", "\ufffd"])])
    fusion = LookAheadWordLM(lm, [b" \xff", " \ufffd".encode(), b" zz", b"a"], unk_offset=-2.0, look_ahead=look_ahead)

    def word_score(*units: int) -> float:
        total, state = spelled(fusion, list(units))
        return total + fusion.end(state)

    for units, word in (((0,), "<unk>"), ((0, 3), "<unk>"), ((2,), "<unk>"), ((1,), "\ufffd")):
        total, state = sentence_score(lm, [word], -2.0)
        assert word_score(*units) == pytest.approx(total + lm.end(state))


def test_broken_letters_are_unknown_to_an_lm_that_breaks_words_up():
    lm = LogLinearLM([random_lm([*"<unk>", "\ufffd"])], segment=[list])
    fusion = LookAheadWordLM(lm, [b" \xff"], unk_offset=-2.0, look_ahead=False)
    state = spelled(fusion, [0])[1]
    [history] = lm.start()
    score, history = lm.lms[0].score(history, "<unk>")
    assert fusion.end(state) == pytest.approx(score - 2.0 + lm.end((history,)))


def test_tree_against_a_scan():
    words = ["".join(letters) for length in range(1, 5) for letters in itertools.product("abä", repeat=length)]
    words = random.Random(4).sample(words, 60)
    tree = LexiconTree([*words, words[0], ""])
    assert tree.words == sorted(word.encode() for word in words)
    units = {"".join(letters).encode(): [place, place + 1000] for place, letters in enumerate(itertools.product("abä", repeat=2))}
    for prefix in ("", "a", "ab", "ä", "bbbbb"):
        below = [place for place, word in enumerate(tree.words) if word.startswith(prefix.encode())]
        assert list(range(*tree.range(prefix.encode()))) == below
        for whole in (False, True):
            found = {unit: (begin, end) for unit, begin, end in tree.continuations(prefix.encode(), units, whole).tolist()}
            for text, numbers in units.items():
                longer = prefix.encode() + text
                fits = [place for place, word in enumerate(tree.words) if (word == longer if whole else word.startswith(longer))]
                for number in numbers:
                    assert list(range(*found.get(number, (0, 0)))) == fits


@pytest.mark.parametrize(("fusion", "units"), [(LookAheadWordLM, [b" at", b" tea", None]), (TokenFusion, ["at", "tea", None])])
def test_ends_that_are_no_units_and_offsets_that_are_no_numbers_are_refused(lms, fusion, units):
    for ends in ([None], [3], [-1], [2, 5]):
        with pytest.raises(ValueError, match=r"are not tokens: expected indexes from 0 to 2"):
            fusion(lms, units, ends=ends)
    for offset in (math.nan, math.inf):
        with pytest.raises(ValueError, match="is a number or -inf, not"):
            fusion(lms, units, ends=[2], unk_offset=offset)


def test_a_token_outside_the_vocabulary_is_refused(lms):
    fusion = LookAheadWordLM(lms, [b" at", b" tea", None], ends=[2])
    for token in (-1, 3):
        with pytest.raises(IndexError, match=f"token {token}: expected 0 to 2"):
            fusion.score(fusion.start(), token)


@pytest.mark.parametrize(
    ("fusion", "tokens", "found"), [(LookAheadWordLM, ["a", " b"], "text of token 0 is 'a', expected bytes"), (TokenFusion, [b"a"], "b'a'")]
)
def test_tokens_of_another_kind_are_refused(lms, fusion, tokens, found):
    with pytest.raises(ValueError, match=found):
        fusion(lms, tokens)


# --- what units write ---


@pytest.mark.parametrize(
    ("style", "units", "texts"),
    [
        ("sentencepiece", ["▁the", "re", "▁", "<0xC3>", "a▁b", "<0x0A>"], [" the", "re", " ", b"\xc3", "a b", " "]),
        ("byte-level", ["Ġthe", "re", "Ã", "¤", "Ġ", "Ċ", "ĉĠčĊ"], [" the", "re", b"\xc3", b"\xa4", " ", " ", "    "]),
        ("wordpiece", ["the", "##re", "#"], [" the", "re", " #"]),
        ("word-end", ["the</w>", "re", "</w>"], ["the ", "re", " "]),
        ("bpe", ["th@@", "e", "@@"], ["th", "e ", ""]),
        ("characters", ["a", "|", "'"], ["a", " ", "'"]),
    ],
)
def test_what_units_write(style, units, texts):
    expected = [text if isinstance(text, bytes) else text.encode() for text in texts]
    assert token_texts(units, style) == expected
    assert token_texts(units) == expected  # recognised
    assert token_texts(units, style, special=[0])[0] is None


def test_text_of_another_kind_becomes_the_lms():
    assert token_texts(["ĠThe", ",", "Ġ(", "Ãī", "Ã"], "byte-level", lowercase=True, ignore=",.()") == [
        b" the",
        b"",
        b" ",
        "é".encode(),
        b"\xc3",
    ]


def test_units_without_marks_need_a_style():
    with pytest.raises(ValueError, match="give the style"):
        token_texts(["a", "b"])
    with pytest.raises(ValueError, match="not one of"):
        token_texts(["a", "b"], "letters")


def test_a_line_end_ends_a_word(lms):
    units = token_texts(["Ġat", "Ċ", "Ġtea", "ĉ"], "byte-level")
    fusion = LookAheadWordLM(lms, [*units, b""], ends=[4])
    total, state = sentence_score(lms, ["at", "tea"], -10.0)
    for way in ([0, 2, 4], [0, 1, 2, 4], [0, 1, 2, 3, 1, 4]):
        assert spelled(fusion, way)[0] == pytest.approx(total + lms.end(state), abs=1e-5)


# --- the decoder's units are the LMs' own ---


def test_token_fusion_scores_symbols(lms):
    units = ["at", None, "tea", "</s>", "new"]
    fusion = TokenFusion(lms, units, ends=[3], unk_offset=-2.0)
    states = [fusion.start()]
    for unit in (0, 1, 4, 2, 3):
        score, state = fusion.score(states[-1], unit)
        if unit == 3:
            expected, after = lms.end(states[-1].lms), None
        elif unit == 1:
            expected, after = 0.0, states[-1].lms
        else:
            expected, after = lms.score(states[-1].lms, units[unit], -2.0)
        assert score == pytest.approx(expected)
        assert (state.lms is None) == (after is None)
        states.append(state)
    scores = fusion.scores(states)
    for state, row in zip(states, scores, strict=True):
        np.testing.assert_allclose(row, [fusion.score(state, unit)[0] for unit in range(5)], atol=1e-6)
    assert fusion.end(states[2]) == pytest.approx(scores[2, 3])
    assert not scores[-1].any()
    with pytest.raises(ValueError, match="breaks them up"):
        TokenFusion(LogLinearLM(lms.lms, segment=[list] * 3), units).scores([])


def test_words_beside_a_bar_are_no_characters():
    with pytest.raises(ValueError, match="do not show how they mark words"):
        style_of(["the", "cat", "|", "sat"])
    assert style_of(["<blank>", "a", "b", "|", "'"]) == "characters"
