"""Numbers that are said in another way."""

from __future__ import annotations

import math

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.corrections.alignment import align_list, bounded
from attlm_fairseq.nbest.corrections.numbers import (
    NumberChannel,
    Spoken,
    check_language,
    is_row,
    learn_numbers,
    number_words,
    opposite,
    shape,
)
from attlm_fairseq.text.pipeline import text_pipeline

num2words = pytest.importorskip("num2words")


@pytest.mark.parametrize(
    ("text", "value", "ending", "words"),
    [
        ("one thousand, nine hundred and ninety-two flights", 1992, "", 6),
        ("seven hundred and thirty-seven", 737, "", 4),
        ("twenty-fiveth of may", 25, "th", 1),
        ("fourpm", 4, "pm", 1),
        ("nine hundred and", 900, "", 2),
        ("five", 5, "", 1),
    ],
)
def test_spelled_numbers_are_read(text: str, value: int, ending: str, words: int) -> None:
    assert number_words("en").read(text.split(), 0) == (words, value, ending)


@pytest.mark.parametrize("text", ["flights one", "and five", "", "o", "-"])
def test_other_words_are_no_numbers(text: str) -> None:
    assert number_words("en").read(text.split(" "), 0) is None


def test_every_number_is_read_back() -> None:
    words = number_words("en")
    for value in range(0, 10000, 7):
        spelled = num2words.num2words(value).split()
        assert words.read(spelled, 0)[:2] == (len(spelled), value)


def test_ways_of_a_number() -> None:
    ways = set(map(" ".join, number_words("en").ways(1992, "").values()))
    assert {"nineteen ninety two", "one nine nine two", "one thousand nine hundred ninety two"} <= ways
    assert "nine oh seven" in set(map(" ".join, number_words("en").ways(907, "").values()))
    assert {"four p m", "four pm", "fourth"} <= set(map(" ".join, number_words("en").ways(4, "pm").values()))
    assert "twelve hundred" in set(map(" ".join, number_words("en").ways(1200, "").values()))


@pytest.mark.parametrize("language", ["en", "de", "fr", "ja"])
def test_tables_may_have_every_way(language: str) -> None:
    words = number_words(language)
    for value in range(0, 10000, 3):
        for ending in ("", "th", "p.m", "+x"):
            ways = words.ways(value, ending)
            assert all(is_row(shape(Spoken(1, value, ending)), way) for way in ways)
    for kind, way in (("5", "pairs"), ("0", "pairs"), ("4", "seventy"), ("4", "pairs-"), ("400x", "pairs"), ("4+long", "pairs"), ("4", "")):
        assert not is_row(kind, way)


def test_probabilities_of_ways_are_counted_by_shape() -> None:
    lists = [("in nineteen hundred", "in nineteen hundred"), ("flight seven hundred and thirty-seven", "flight seven thirty seven")]
    lists += [("a five hundred and twelve", "a five twelve"), ("a six hundred and thirteen b", "a six one three b")]
    channel = learn_numbers([pair for hypothesis, reference in lists for pair in align_list([hypothesis], [reference])])
    assert channel.log_probs["3"]["pairs"] == pytest.approx(math.log(2 / 4))
    assert channel.log_probs["3"]["digits-oh"] == pytest.approx(math.log(1 / 4))
    options = list(channel.options(["the", "eight", "hundred", "and", "forty-one"], 1))
    assert {(end, " ".join(words)) for end, words, _, _ in options} == {(5, "eight forty one"), (5, "eight four one")}
    assert not list(channel.options(["the", "eight"], 0))


def test_shape_tells_digits_zeros_and_endings_apart() -> None:
    read = number_words("en").read
    assert [shape(read(text.split(), 0)) for text in ("ten", "one hundred", "one hundred and one", "fivepm")] == ["2", "300", "30x", "1+pm"]


def test_opposite_words_of_the_reference() -> None:
    pair = align_list(["a b c d"], ["a x y c e"])[0]
    assert pair.hypothesis == bounded("a b c d")
    assert opposite(pair, 2, 3) == ("x", "y")
    assert opposite(pair, 1, 4) == ("a", "x", "y", "c")
    assert opposite(pair, 3, 4) == ("c",)  # from the end of a block on
    pair = align_list(["a b b2 c"], ["a x c"])[0]
    assert opposite(pair, 2, 3) is None
    assert opposite(pair, 2, 4) == ("x",)
    pair = align_list(["a b"], ["a x b"])[0]
    assert (opposite(pair, 1, 2), opposite(pair, 2, 3)) == (("a", "x"), ("x", "b"))  # what was left out belongs to both


def test_an_unknown_language_knows_no_numbers() -> None:
    assert number_words("xx") is None
    assert learn_numbers(align_list(["five"], ["fifth"]), "xx") == NumberChannel()
    with pytest.raises(InputError, match=r"--language xx: num2words does not know it; expected one of .*, de, "):
        check_language("xx")
    with pytest.raises(InputError, match="--language estonian: num2words does not know it"):
        check_language("estonian")  # it would be Spanish to num2words
    for regional in ("de_AT", "en_US.UTF-8", "de-Latn-AT"):
        check_language(regional)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("AT NINE HUNDRED SEVEN", ""),
        ("At nine hundred seven.", "remove-punctuation,uppercase"),
        ("AT nine hundred seven", "lowercase"),
    ],
)
def test_numbers_of_capitals_are_learned_and_said_in_capitals(text: str, steps: str) -> None:
    pipeline = text_pipeline(steps)
    reference = text.replace("NINE HUNDRED SEVEN", "NINE OH SEVEN").replace("nine hundred seven", "nine oh seven")
    channel = learn_numbers(align_list([text], [reference], pipeline), steps=pipeline)
    assert channel.log_probs == {"30x": {"digits-oh": pytest.approx(math.log(0.5))}}
    words = bounded(pipeline.prepared(text))
    assert [target for _, target, *_ in channel.options(words, 2, pipeline)] == [tuple(pipeline.prepared(reference).split()[1:])]


@pytest.mark.parametrize("language", ["cs", "pl", "ko", "am"])  # no ordinals; IndexError, KeyError and TypeError of some numbers
def test_numbers_that_num2words_cannot_spell_are_left_out(language: str) -> None:
    words = number_words(language)
    assert words is not None
    assert all(words.cardinals[value] for value in range(101))
    assert words.read(words.cardinals[12], 0)[1] == 12
    missing = next(value for value, ordinal in enumerate(words.ordinals) if not ordinal or not words.cardinals[value])
    assert "ordinal" not in words.ways(missing, "") or words.ordinals[missing]
    with collected() as told:
        check_language(language)
    assert ["no ordinal numbers" in line for line in told] == ([] if any(words.ordinals) else [True])


@pytest.mark.parametrize(("language", "first", "second"), [("fr", "vingt", "deux"), ("en", "twenty", "five")])
def test_a_comma_alone_ends_a_number(language, first, second):
    read = number_words(language).read(["<s>", first, ",", second, "</s>"], 1)
    assert (read.end, read.value) == (2, 20)
