"""Phrases that the user expects."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rapidfuzz.distance import Levenshtein

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.alignment import bounded
from attlm_fairseq.nbest.corrections.corrections import without_table
from attlm_fairseq.nbest.corrections.phrase_list import MIN_SIMILARITY, OFFERED, SHARPNESS, SimilarPhrases
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.text.phrases import MAX_PHRASES, folded, punctuation, spelling_key
from attlm_fairseq.text.pipeline import NO_STEPS

SCHOOL = "\u0e42\u0e23\u0e07\u0e40\u0e23\u0e35\u0e22\u0e19"  # in Thai


def listed(tmp_path: Path, text: str) -> SimilarPhrases:
    (tmp_path / "phrases.txt").write_text(text, encoding="utf-8")
    return SimilarPhrases.load(tmp_path / "phrases.txt")


def list_of(*texts: str) -> NbestList:
    return NbestList("0", [Hypothesis(text, {"am": -float(rank)}, rank) for rank, text in enumerate(texts, 1)])


def test_a_stretch_spelled_like_a_phrase_is_offered(tmp_path: Path) -> None:
    corrections = replace(without_table(), phrase_list=listed(tmp_path, "podgorica\nskadar lake\t2\n"))
    expanded = corrections.expand(list_of("between podgorika and the skadaar lake", "nothing"))
    texts = {hypothesis.text: hypothesis.scores for hypothesis in expanded.hypotheses}
    assert texts["between podgorica and the skadar lake"]["phrases"] == 1 + 2 * 2
    assert texts["between podgorika and the skadaar lake"]["phrases"] == 0
    assert texts["between podgorica and the skadaar lake"]["corrections"] < 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我在乌鲁木其开会", "我在乌鲁木齐开会"),
        ("我 在 乌 鲁 木 其 开 会", "我 在 乌 鲁 木 齐 开 会"),
        ("我 在 乌鲁 木其 开会", "我 在 乌鲁木齐 开会"),
        ("他用学习Pyton。", "他用学习 Python。"),
        (f"\u0e40\u0e02\u0e32{SCHOOL[:-1]}\u0e13", f"\u0e40\u0e02\u0e32{SCHOOL}"),
    ],
)
def test_phrases_are_offered_inside_text_without_spaces(text, expected, tmp_path: Path) -> None:
    phrases = listed(tmp_path, f"乌鲁木齐\n学习 Python\n{SCHOOL}\n")
    expanded = replace(without_table(), phrase_list=phrases).expand(list_of(text))
    assert expanded.hypotheses[1].text == expected
    assert expanded.hypotheses[1].scores["phrases"] > expanded.hypotheses[0].scores["phrases"] == 0.0


@pytest.mark.parametrize(
    "text", ["他在乌鲁木{}第一人民医院急诊科工作", "她在上海{}通大学\uff0c学习", "「香{}中文大学」很好", "老李在中国{}行开会"]
)
def test_a_phrase_swallows_no_neighbours(text, tmp_path: Path) -> None:
    found = ("乌鲁木齐第一人民医院急诊科", "上海交通大学", "中国银行", "香港中文大学")
    right = {"他": "齐", "她": "交", "「": "港", "老": "银"}[text[0]]
    expanded = replace(without_table(), phrase_list=listed(tmp_path, "\n".join(found)))
    texts = [hypothesis.text for hypothesis in expanded.expand(list_of(text.format("草"))).hypotheses]
    assert texts[1] == text.format(right)
    assert not any(text.startswith(found) for text in texts)


def test_a_phrase_swallows_no_words(tmp_path: Path) -> None:
    expanded = replace(without_table(), phrase_list=listed(tmp_path, "Urumqi First Hospital\n"))
    for text in ("he is at Urumqy First Hospital now", "he is at urum qi First Hospital now"):
        found = expanded.expand(list_of(text)).hypotheses
        assert [hypothesis.text for hypothesis in found] == [text, "he is at Urumqi First Hospital now"]
    assert len(expanded.expand(list_of("he is at Urumqi First Hospital now")).hypotheses) == 1


def test_a_long_name_is_offered_whole(tmp_path: Path) -> None:
    name = "".join(chr(0x0E01 + 7 * place % 40) for place in range(40))
    wrong = name[:20] + "\u0e51" + name[21:]
    expanded = replace(without_table(), phrase_list=listed(tmp_path, name)).expand(list_of(f"\u0e44\u0e1b{wrong}"))
    assert [hypothesis.text for hypothesis in expanded.hypotheses][1] == f"\u0e44\u0e1b{name}"


@pytest.mark.parametrize("letters", ["abcd", "".join(map(chr, range(0x4E00, 0x4E28)))])
def test_the_closest_phrases_are_those_of_all(letters, tmp_path: Path) -> None:
    generator = random.Random(5)
    phrases = list(dict.fromkeys("".join(generator.choices(letters, k=generator.randint(2, 8))) for _ in range(300)))
    found = listed(tmp_path, "\n".join(phrases))
    for _ in range(200):
        text = "".join(generator.choices(letters, k=generator.randint(1, 9)))
        similar = {place: Levenshtein.normalized_similarity(text, phrase) for place, phrase in enumerate(phrases)}
        close = sorted(-value for value in similar.values() if value > MIN_SIMILARITY)[:OFFERED]
        offered = found._closest(text)
        assert [value for _, value in offered] == pytest.approx([-value for value in close])
        assert all(similar[place] == pytest.approx(value) for place, value in offered)


def test_a_table_without_steps_divides_phrases_as_the_list_is(tmp_path: Path) -> None:
    """Its LM knows characters, not the phrase as one word."""
    channel = replace(without_table(), text=NO_STEPS, phrase_list=listed(tmp_path, "乌鲁木齐\n"))
    found = [hypothesis.text for hypothesis in channel.expand(list_of("我 在 乌 鲁 木 其 开 会")).hypotheses]
    assert "我 在 乌 鲁 木 齐 开 会" in found
    assert not any("乌鲁木齐" in text for text in found)


def test_other_spellings_are_offered_under_the_phrase(tmp_path: Path) -> None:
    edges = list(listed(tmp_path, "Nguyen\t1\twin | noo yen\n").edges(bounded("mister noo yen"), 2, 4))
    assert [(edge.end, edge.target, edge.log_prob) for edge in edges] == [(4, ("Nguyen",), 0.0)]


def test_nothing_matches_and_nothing_changes(tmp_path: Path) -> None:
    nbest = list_of("a flight to boston", "")
    expanded = replace(without_table(), phrase_list=listed(tmp_path, "kubernetes\n東京\n")).expand(nbest)
    assert [hypothesis.text for hypothesis in expanded.hypotheses] == ["a flight to boston", ""]
    assert len({tuple(sorted((n, v) for n, v in h.scores.items() if n == "phrases")) for h in expanded.hypotheses}) == 1


def test_words_inside_phrases_are_counted_longest_first(tmp_path: Path) -> None:
    phrases = listed(tmp_path, "new york\t3\nnew\nYork City\n")
    assert phrases.count(["to", "New", "York", "city"]) == 6
    assert phrases.count(["the", "new", "york"]) == 6
    assert phrases.occurrences(["new", "york"]) == [("new",), ("new", "york")]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("podgorika.", ["Podgorica."]),
        ('("podgorika"),', ['("Podgorica"),']),
        ("Podgorica.", []),
        ("¿podgorika?", ["¿Podgorica?"]),
        ("skadaar lake!", ["Skadar Lake!"]),
        ("“skadaar lake”", ["“Skadar Lake”"]),
        ("podgorika .", ["Podgorica"]),  # a full stop that is a word stays
        ("us.", ["U.S."]),
        ("(u.s.)", ["(U.S.)"]),
        ("aat&t,", ["AT&T,"]),
        ("podgorika's", ["Podgorica's"]),
        ("Podgorica\u2019s.", []),
        ("skadaar lake's,", ["Skadar Lake's,"]),
        ("mcdonalds", ["McDonald's"]),
        ("macdonald's!", ["McDonald's!"]),
        ("McDonald's", []),
        ("東京大学。", ["東京大學。"]),
    ],
)
def test_punctuation_around_a_phrase_stays_and_does_not_count(written: str, expected: list[str], tmp_path: Path) -> None:
    phrases = listed(tmp_path, "Podgorica\nSkadar Lake\nU.S.\nAT&T\n東京大學\nMcDonald's\n")
    words = bounded(f"in {written}")
    edges = [edge for edge in phrases.edges(words, 2, len(words) - 1) if edge.log_prob > -2.6]
    assert [" ".join(edge.target) for edge in edges] == expected
    assert all(edge.end == 2 + len(edge.target) for edge in edges)
    for text in expected:
        letters = [word for word in folded(text) if any(map(str.isalpha, word))]  # each of Chinese is a word
        assert phrases.count(text.split()) == len(letters)
        assert phrases.occurrences(text.split())


def test_phrases_within_text_without_spaces_are_counted(tmp_path: Path) -> None:
    phrases = listed(tmp_path, "\u5317\u4eac\nGPT \u6a21\u578b\t2\n")
    assert phrases.count(["\u6211\u5728\u5317\u4eac\u3002"]) == phrases.count(["\u6211", "\u5728", "\u5317", "\u4eac"]) == 2
    assert phrases.count(["\u7528GPT\u6a21\u578b\u554a"]) == 6
    assert phrases.count(["\u5317", "a", "\u4eac"]) == 0


def test_punctuation_of_a_word() -> None:
    assert punctuation("«(Skadar-Lake's)»,") == ("«(", "'s)»,")
    for word in ("...", "", "\u203e", "." * 9 + "a", "a" + "." * 9, "C#", "100%", "@user", "-ing", "up-", "don't"):
        assert punctuation(word) == ("", "")
    for place in range(sys.maxunicode + 1):
        if not 0xD800 <= place < 0xE000:
            before, after = punctuation.__wrapped__(f"{chr(place)}a")
            assert len(before) <= 1
            assert after == ""


def test_similarity_is_that_of_letters(tmp_path: Path) -> None:
    found = dict(listed(tmp_path, "skadar lake\n")._closest("skadaar-lake"))
    assert found == {0: pytest.approx(1 - 1 / len("skadaarlake"))}
    assert listed(tmp_path, "skadar lake\n")._closest("lake") == ()
    assert MIN_SIMILARITY > 0.5
    assert spelling_key("\uff33kadar-Lake's") == "skadarlakes"


def test_phrases_in_another_script_are_named(tmp_path: Path) -> None:
    phrases = listed(tmp_path, "boston\n東京\nbosnia\n")
    assert [phrase.line for phrase in phrases.never_matching(["to boston please", "in"])] == [2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a\tb\tc\td", "4 fields"),
        ("boston\theavy", "weight 'heavy'"),
        ("boston\t-1", "weight '-1'"),
        ("boston\tnan", "weight 'nan'"),
        ("a b c d e f g h i", "9 words"),
        ("...", "no letter"),
        ("\t2", "no letter"),
        ("bos\0ton", "NUL"),
        ("fine\t2", "the weight of 'fine' is 2, on line 2 it is 1: expected one weight"),
        ("Fine\t3", "the weight of 'Fine' is 3, on line 2 it is 1"),
    ],
)
def test_a_wrong_line_is_named(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        listed(tmp_path, f"# names\nfine\n{line}\n")
    assert str(error.value).startswith(f"{tmp_path}/phrases.txt:3: ")
    assert said in str(error.value)


def test_a_phrase_may_have_eight_words(tmp_path: Path) -> None:
    assert listed(tmp_path, "a b c d e f g h").count(["x", *"abcdefgh"]) == 8


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n", "a\n" * (MAX_PHRASES + 1)])
def test_empty_and_endless_lists_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        listed(tmp_path, text)


def test_the_spellings_of_a_repeated_phrase_are_joined(tmp_path: Path) -> None:
    phrases = listed(tmp_path, "Nguyen\t2\twin\nKubernetes\nNguyen\t2\tnoo yen | win\n").phrases
    assert [(phrase.words, phrase.weight, phrase.keys) for phrase in phrases] == [
        (("Nguyen",), 2.0, ("nguyen", "win", "nooyen")),
        (("Kubernetes",), 1.0, ("kubernetes",)),
    ]


@pytest.mark.parametrize(
    ("phrase", "text", "end", "target", "log_prob"),
    [
        ("KLM", "fly k l m to boston", 5, ["KLM"], 0.0),
        ("\u5317\u4eac\u5927\u5b66", "a b \u5317 \u4eac \u5927 \u96ea", 7, ["\u5317", "\u4eac", "\u5927", "\u5b66"], -0.25 * SHARPNESS),
    ],
)
def test_words_of_one_letter_may_be_any_number(phrase, text, end, target, log_prob, tmp_path):
    (tmp_path / "phrases").write_text(f"{phrase}\n", encoding="utf-8")
    words = ["<s>", *text.split(), "</s>"]
    begin = words.index("k" if "k" in words else "\u5317")
    [edge] = [edge for edge in SimilarPhrases.load(tmp_path / "phrases").edges(words, begin, len(words) - 1) if edge.end == end]
    assert (list(edge.target), edge.log_prob, edge.rule[2]) == (target, log_prob, phrase)
