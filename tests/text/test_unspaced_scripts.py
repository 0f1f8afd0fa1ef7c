"""Scripts without spaces between words: their characters, with the marks that belong to them."""

from __future__ import annotations

import random
import time
import unicodedata

import pytest

from attlm_fairseq.nbest.corrections.alignment import bounded
from attlm_fairseq.nbest.corrections.written import Written
from attlm_fairseq.nbest.metrics.edit_rates import CER
from attlm_fairseq.text import text_pipeline
from attlm_fairseq.text.steps import _ZEROS
from attlm_fairseq.text.unspaced import CHARACTER, divided, is_unspaced, joined, joins_words, rejoined, tightened

CHARACTERS = [
    *("\u0e01\u0e31\u0e49", "\u0e44", "\u0e99\u0e33", "\u1780\u17b6\u17c6", "\u1000\u103c\u1038"),
    *("\u304b\u3099", "\u304c", "\u8fbb\U000e0100", "\u5b57", "\u3002", "ab1", "e\u0301", ", ", " "),
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ไปกรุงเทพ", ["ไ", "ป", "ก", "รุ", "ง", "เ", "ท", "พ"]),
        ("น้ำพื่", ["น้ำ", "พื่"]),
        ("\u0e9a\u0ecd\u0ec8\u0ec0\u0e9b\u0eb1\u0e99", ["\u0e9a\u0ecd\u0ec8", "\u0ec0", "\u0e9b\u0eb1", "\u0e99"]),  # Lao
        ("\u1780\u17b6\u1781x", ["\u1780\u17b6", "\u1781", "x"]),  # Khmer
        ("か\u3099がは\u309a", ["か\u3099", "が", "は\u309a"]),
        ("\u8fbb\U000e0100\u5b57", ["\u8fbb\U000e0100", "\u5b57"]),  # a variant of a Chinese character
        ("학교에 e\u0301a हिन्दी", ["학교에", "e\u0301a", "हिन्दी"]),
    ],
)
def test_a_character_has_its_marks(text, words):
    assert text_pipeline("characters").words(text) == words


def test_nothing_is_lost_when_characters_are_divided_and_joined():
    generator = random.Random(4)
    for _ in range(500):
        text = "".join(generator.choices(CHARACTERS, k=generator.randrange(20)))
        alone = divided(text).split()
        assert "".join(alone) == "".join(text.split())
        assert all(CHARACTER.fullmatch(word) or not CHARACTER.search(word) for word in alone)
        assert "".join(joined(text).split()) == "".join(text.split())
        assert divided(joined(divided(text))).split() == alone
        assert not is_unspaced(divided(text))
        for like in ([text], ["ab"], ["字字 a"]):
            assert divided(rejoined(" ".join(alone), like)).split() == alone


def test_a_divided_text_is_joined_like_others():
    text = "我 用 iPhone 学 习 new york"
    assert rejoined(text, ["我 用 iPhone"]) == text
    assert rejoined(text, ["他", "我用 iPhone"]) == rejoined(text, ["他在"]) == "我用 iPhone 学习 new york"
    assert rejoined(text, ["我用iPhone学"]) == tightened(text) == "我用iPhone学习new york"


def test_capitals_of_turkish():
    lower, upper = (text_pipeline(f"{step}:tr").words for step in ("lowercase", "uppercase"))
    assert lower("I\u015eIK \u0130stanbul I\u0307zmir") == ["\u0131\u015f\u0131k", "istanbul", "izmir"]
    assert upper("\u0131\u015f\u0131k istanbul") == ["I\u015eIK", "\u0130STANBUL"]
    assert text_pipeline("lowercase").words("I\u015eIK") == ["i\u015fik"]
    assert text_pipeline("lowercase:az") != text_pipeline("lowercase")


def test_marks_between_thousands_of_other_digits_are_no_spaces():
    words = text_pipeline("remove-punctuation").words
    for zero in _ZEROS:
        digits = str.maketrans("0123456789", "".join(chr(ord(zero) + value) for value in range(10)))
        for mark in ",\u066c\uff0c" if zero == "\uff10" else ",\u066c":
            number = f"1{mark}234{mark}567".translate(digits)
            assert words(f"a {number} b") == ["a", "1234567".translate(digits), "b"]
            assert words(f"0{mark}234".translate(digits)) == "0 234".translate(digits).split()
    assert [unicodedata.decimal(zero) for zero in _ZEROS] == [0] * 13
    assert words("98\uff0c100 \u0967\uff0c\u0968\u0969\u096a") == ["98", "100", "\u0967", "\u0968\u0969\u096a"]


def test_an_apostrophe_joins_letters_but_no_characters():
    assert text_pipeline("remove-punctuation,characters").words("\u8bf4\u2018\u597d\u2019\u7136 don\u2019t") == ["说", "好", "然", "don't"]


def test_zero_width_spaces_are_spaces():
    khmer = "\u1781\u17d2\u1789\u17bb\u17c6\u200b\u1791\u17c5"
    assert text_pipeline("characters").words(khmer) == text_pipeline("characters").words(khmer.replace("\u200b", ""))
    assert CER(spaces=False).statistics([khmer], [khmer.replace("\u200b", "")])[0][0] == 0
    assert Written.of(khmer, text_pipeline("characters")).rewritten(tuple(bounded(text_pipeline("characters").prepared(khmer)))) == khmer


@pytest.mark.parametrize("text", ["cafe\u0301 \u5b57", "caf\u00e9 \u5b57", "\u263a\ufe0f \u5b57", "\u5b57 a", "\ud55c \u5b57"])
def test_only_spaces_between_characters_are_removed(text):
    assert joined(text) == text
    assert joined(f"{text} \u5b57") == f"{text}\u5b57" or not CHARACTER.search(text[-1])


def test_long_texts_take_no_quadratic_time():
    for text in ("\u0e19" + "\u0e33" * 200_000, " " * 200_000, "\u3000" * 200_000, "\u5b57 a" * 100_000):
        began = time.process_time()
        for function in (divided, joined, tightened, is_unspaced, joins_words):
            function(text)
        assert time.process_time() - began < 20  # seconds; a quadratic one takes minutes
