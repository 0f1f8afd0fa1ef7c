# ruff: noqa: RUF001 - Chinese text
"""The text before the LM: every step with the library that does it, their order, and the warning when the LM does not know the words."""

from __future__ import annotations

import io
import os
import re
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTruecaser
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.unknown_words.advice import advise
from attlm_fairseq.scoring.unknown_words.oov import EXAMPLES, OOVCount
from attlm_fairseq.text import Step, TextPipeline, describe_pipelines, parse_step, parse_steps, remarks, split_texts
from attlm_fairseq.text.steps import DOTLESS, KINDS

CORPUS = [
    "the lower house of parliament in London met on Monday .",
    "on Monday the house is low , lower than the lowest tower of London .",
    "we don't know who is in the tower in London , said the newest member .",
] * 20


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Real models of the three libraries, made from the same small corpus."""
    folder = tmp_path_factory.mktemp("text")
    with (folder / "codes").open("w", encoding="utf-8") as codes:
        learn_bpe(io.StringIO("\n".join(CORPUS)), codes, 60)
    with (folder / "sp.model").open("wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=45, model_type="unigram", minloglevel=2
        )
    (folder / "normalizer.json").write_text('{"colour": "color"}')
    (folder / "map").write_text("house\thome\nuh\t\n")
    MosesTruecaser().train([line.split() for line in CORPUS], save_to=str(folder / "truecase"))
    return folder


@cache
def sentencepiece_model(path: Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


@cache
def pipeline_of(*steps: str, folder: Path | None) -> TextPipeline:
    return parse_steps(steps, folder)


def words(steps: list[str], text: str, folder: Path | None = None) -> list[str]:
    return pipeline_of(*steps, folder=folder).words(text)


def test_without_steps_only_white_space_splits():
    assert TextPipeline().words(" It's  a\u00a0test. ") == ["It's", "a", "test."]
    assert TextPipeline().words("") == []
    assert str(TextPipeline()) == "split at white space"


@pytest.mark.parametrize(
    ("steps", "text", "expected"),
    [
        (["tokenize:en", "lowercase"], "He said: \"I don't & won't.\"", "he said : \" i don 't & won 't . \""),
        (["uppercase"], "straße i", "STRASSE I"),
        (["lowercase"], "\u0130ST ÄÖ", "i\u0307st äö"),
        (["unicode:nfc"], "e\u0301 \ufb01n", "é \ufb01n"),
        (["unicode:nfkc"], "e\u0301 \ufb01n \uff21\u00a0b", "é fin A b"),
        (["unicode:nfd"], "é", "e\u0301"),
        (["normalize-punctuation:en"], "\u201cIt\u2019s\u201d \u2013 so", '"It\'s" - so'),
        (["remove-punctuation"], "Well, I don't - \u201cknow\u201d; rock 'n' roll dogs' U.S. $5 c++ don\u2019t a_b", None),
        (["detokenize:en"], "Hello , world ! it &apos;s me", "Hello, world! it's me"),
        (["unescape"], "it &apos;s &lt;b&gt; &amp;amp; &#124; &#91; &quot;", "it 's <b> &amp; | [ \""),
        (["join-subwords:bpe"], "lo@@ wer ho@@ u@@ se a@@", "lower house a"),
        (["join-subwords:sentencepiece"], "\u2581lo wer \u2581house", "lower house"),
        (["join-subwords:sentencepiece"], "lo wer \u2581house", "lower house"),
        (["join-subwords:sentencepiece"], "\u2581 \u2581", ""),
        (["join-subwords:bpe"], "@@ @@", ""),
        (["join-subwords:wordpiece"], "un ##relat ##ed ## words", "unrelated ## words"),
        (["join-subwords:wordpiece"], "##ed words", "ed words"),
        (["characters"], "我们 use attlm，在2026年。", "我 们 use attlm ， 在 2026 年 。"),
        (["characters"], "東京タワーの１２\u3000한국 사람 \U00020000x", "東 京 タ ワ ー の １ ２ 한국 사람 \U00020000 x"),
        (["unicode:nfkc", "characters"], "１９９８年，ＧＤＰ", "1998 年 ,GDP"),
        (["join-characters"], "我 们 use attlm ， 在 2026 年  。 한국 사람", "我们 use attlm ，在 2026 年。 한국 사람"),
        (["characters", "join-characters"], "北京 大学", "北京大学"),
        (["whisper"], "Wär [noise] e\u0301 -- IT'S!", "wär é it s"),
    ],
)
def test_steps(steps, text, expected):
    if expected is None:
        expected = "Well I don't know rock n roll dogs U S $5 c++ don't a b"
    assert " ".join(words(steps, text)) == expected


@pytest.mark.parametrize("mark", KINDS["join-subwords"].choices)
@pytest.mark.parametrize("text", ["the cat sat", "cat", "", " a  b "])
def test_joining_leaves_words_as_they_are(mark, text):
    """References are often plain where hypotheses are in subwords: the same step has to suit both."""
    assert words([f"join-subwords:{mark}"], text) == text.split()


def test_the_order_is_the_given_one():
    assert words(["tokenize:en", "remove-punctuation"], "don't") == ["don", "t"]
    assert words(["remove-punctuation", "tokenize:en"], "don't") == ["don", "'t"]
    pipeline = parse_steps(["unicode:nfc", "tokenize:en", "lowercase"])
    assert str(pipeline) == "unicode:nfc -> tokenize:en -> lowercase -> split at white space"


def test_truecasing_is_that_of_sacremoses(models):
    text = "The House of london Met on MONDAY . In"
    found = words(["truecase:truecase"], text, models)
    assert found == MosesTruecaser(load_from=str(models / "truecase")).truecase(text)
    assert found == ["the", "house", "of", "London", "met", "on", "Monday", ".", "in"]


def test_segmentation_is_that_of_the_libraries(models):
    text = " the  lowest newest tower\u00a0of Berlin "
    with (models / "codes").open(encoding="utf-8") as codes:
        expected = BPE(codes).segment("the lowest newest tower of Berlin").split()
    assert words(["bpe:codes"], text, models) == expected
    assert words(["sentencepiece:sp.model"], text, models) == sentencepiece_model(models / "sp.model").encode(
        "the lowest newest tower of Berlin", out_type=str
    )
    odd = models / os.fsdecode(b"\xff.model")  # a name that is not UTF-8
    odd.write_bytes((models / "sp.model").read_bytes())
    assert words([f"sentencepiece:{odd.name}"], text, models) == words(["sentencepiece:sp.model"], text, models)
    assert words(["lowercase", "bpe:codes"], "LONDON", models) == words(["bpe:codes"], "london", models)


any_text = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=40) | st.text(
    "ab@\u2581 '\u2019.,&<|>\n\t", max_size=40
)


@settings(max_examples=150, deadline=None)
@given(any_text)
def test_removing_marks_undoes_segmentation(models, text):
    text = " ".join(text.replace("@", "").replace("\u2581", "").split())
    assert words(["join-subwords:bpe"], " ".join(words(["bpe:codes"], text, models))) == text.split()
    normalised = sentencepiece_model(models / "sp.model").normalize(text)
    joined = words(["join-subwords:sentencepiece"], " ".join(words(["sentencepiece:sp.model"], text, models)))
    assert joined == normalised.replace("\u2581", " ").split()


@settings(max_examples=150, deadline=None)
@given(any_text)
def test_any_text_passes_every_step(models, text):
    files = {"truecase": "truecase", "bpe": "codes", "replace": "map", "sentencepiece": "sp.model", "whisper-english": "normalizer.json"}
    for name, kind in KINDS.items():
        arguments = list(kind.choices) or {"LANG": ["en", "de"], "FILE": [files.get(name)], "": [""]}[kind.argument]
        arguments += [""] if kind.optional else []
        for argument in arguments:
            found = words([f"{name}:{argument}" if argument else name], text, models)
            assert all(word and not re.search(r"\s", word) for word in found)
            if name in ("lowercase", "truecase") and argument not in DOTLESS:
                assert "".join(found).lower() == "".join(text.split()).lower()
            if name == "unicode":
                assert found == unicodedata.normalize(argument.upper(), text).split()
            if name == "remove-punctuation":
                assert not any(unicodedata.category(c)[0] == "P" for word in found for c in word.replace("'", ""))


def test_whisper_english_is_the_normaliser_of_published_error_rates(models, tmp_path):
    assert " ".join(words(["whisper-english:normalizer.json"], "Mr. Smith's colour, uh, isn't twenty-one!", models)) == (
        "mister smith is color is not 21"
    )
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match=r"x.json: is not the normalizer.json of a Whisper model: expected an object, word to word"):
        words(["whisper-english:x.json"], "a", tmp_path)
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"x.json: not valid JSON \(.*\): expected the normalizer.json of a Whisper model"):
        words(["whisper-english:x.json", "lowercase"], "a b", tmp_path)
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match=r"x.json: not valid JSON \(.*\): expected the normalizer.json of a Whisper model"):
        words(["whisper-english:x.json"], "a b", tmp_path)


def test_half_a_surrogate_pair_is_no_reason_to_stop(models):
    for step in ("sentencepiece:sp.model", "bpe:codes", "truecase:truecase", "unicode:nfkc", "tokenize:en"):
        assert words([step], "a \ud800 b", models)


def test_lms_that_share_a_pipeline_share_its_work(models):
    calls = []

    class Counting(TextPipeline):
        def words(self, text):
            calls.append(text)
            return super().words(text)

    lower, bpe = Counting((Step("lowercase"),)), parse_steps(["bpe:codes"], models)
    columns = split_texts([lower, bpe, Counting((Step("lowercase"),)), TextPipeline()], ["A b", "A b", "c"])
    assert columns == [
        [["a", "b"], ["a", "b"], ["c"]],
        [["A", "b"], ["A", "b"], ["c"]],
        [["a", "b"], ["a", "b"], ["c"]],
        [["A", "b"]] * 2 + [["c"]],
    ]
    assert calls == ["A b", "c"]
    assert describe_pipelines({"x": lower, "y": bpe, "z": Counting((Step("lowercase"),))}) == [
        "text for x, z: lowercase -> split at white space",
        f"text for y: bpe:{models}/codes -> split at white space",
    ]


def test_the_signature_has_the_hashes_of_files(models):
    assert re.fullmatch(r"truecase:\S+ \(sha256 [0-9a-f]{64}\)", parse_steps(["truecase:truecase"], models).signature()[0])
    assert parse_steps(["unicode:nfc"]).signature() == ["unicode:nfc"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("shout", "'shout' is not a text step; known are unicode:FORM, normalize-punctuation:LANG, remove-punctuation, "),
        ("lowercase:en", r"text step 'lowercase:en': expected lowercase\[:tr\|az\]$"),
        ("truecase", "text step 'truecase': expected truecase:FILE"),
        ("unicode:utf8", "expected unicode: and one of nfc, nfkc, nfd, nfkd"),
        ("tokenize:english", "'english' is not a language code of two or three letters"),
    ],
)
def test_wrong_steps_are_named(step, message):
    with pytest.raises(InputError, match=message):
        parse_step(step)


def test_languages_without_rules_are_told_once():
    general = "sacremoses has no rules of its own for"
    for language in ("en", "de", "zh", "ja", "ko", "yue", "mni"):
        assert remarks([parse_steps([f"tokenize:{language}"])]) == []
    assert remarks([parse_steps(["tokenize:jp", "lowercase"]), parse_steps(["tokenize:jp"]), parse_steps(["tokenize:tr"])]) == [
        f"note: tokenize:jp: {general} 'jp' and takes general ones; did you mean tokenize:ja?",
        f"note: tokenize:tr: {general} 'tr' and takes general ones",
    ]


def test_subwords_come_last():
    with pytest.raises(InputError, match="text step bpe:codes: cutting into subwords comes last, but lowercase follows"):
        parse_steps(["bpe:codes", "lowercase"])


def test_a_byte_order_mark_before_bpe_codes_changes_nothing(models, tmp_path):
    """subword-nmt alone would read other codes: those of version 0.1, with a pair more."""
    codes = (models / "codes").read_bytes()
    assert codes.startswith(b"#version: 0.2\n")
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + codes)
    text = "the lowest newest tower of Berlin"
    assert words(["bpe:marked"], text, tmp_path) == words(["bpe:codes"], text, models)


def test_files_that_are_no_models_are_one_line(tmp_path):
    (tmp_path / "bad").write_bytes(b"one two three\n")
    (tmp_path / "latin1").write_bytes(b"\xe9 \xe9\n")
    (tmp_path / "empty").touch()
    (tmp_path / "newer").write_text("#version: 0.3\nt h\n")
    (tmp_path / "wordy").write_text("#version: two\nt h\n")
    for step, message in [
        ("truecase:bad", "bad: is not a truecasing model as Moses writes it: .*non-integer count"),
        ("truecase:latin1", "latin1: is not a truecasing model"),
        ("truecase:absent", "absent: cannot be read: No such file"),
        ("bpe:bad", "bad: is not a file of BPE codes as subword-nmt writes it: .*invalid line 1"),
        ("bpe:latin1", "latin1: is not a file of BPE codes"),
        ("bpe:newer", "newer: is not a file of BPE codes that subword-nmt reads: its #version is not 0.1 or 0.2"),
        ("bpe:wordy", "wordy: is not a file of BPE codes as subword-nmt writes it: it is not UTF-8 or its version is not a number"),
        ("bpe:absent", "absent: is not a file"),
        ("sentencepiece:bad", "bad: is not a sentencepiece model"),
        ("sentencepiece:empty", "empty: is not a sentencepiece model"),
        ("sentencepiece:.", "is not a file"),
    ]:
        with pytest.raises(InputError, match=message) as error:
            parse_steps([step], tmp_path).load()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("step", "package"), [("sentencepiece:sp.model", "sentencepiece"), ("bpe:codes", "subword_nmt")])
def test_a_missing_package_is_one_line(models, monkeypatch, step, package):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(InputError, match=f"needs the package {package.replace('_', '-')}, which is not installed: pip install"):
        parse_steps([step], models).load()


def test_the_warning_names_rate_and_commonest_words():
    count = OOVCount("ngram")
    count.add([["The", "cat"], ["The", "dog"]], [(True, False), (True, True)])
    warning = count.warning()
    assert "75.0% of the words (3 of 4) are unknown to ngram" in warning
    assert "The (2), dog (1)" in warning
    count.add([["cat"] * 96], [[False] * 96])
    assert count.warning() is None
    count.add([["a", "b", "c", "d"]], [[True, True, False, False]] * 1)
    assert count.warning() is None  # 5 of 104
    name = OOVCount("lm")
    name.add([["call", "zoe", "now"]], [[False, True, False]])
    assert name.warning() is None  # a name in one utterance is no sign of another text
    rare = OOVCount("lm")
    rare.add([["<unk>"] * 4 + ["a"]], [[True] * 4 + [False]])
    assert (rare.rate, rare.warning()) == (0.8, None)  # unknown on purpose
    rare.add([["x", "y", "z", "a", "a"]], [[True] * 3 + [False] * 2])
    assert "30.0% of the words (3 of 10)" in rare.warning()
    assert OOVCount("none").warning() is None


@pytest.mark.parametrize(
    ("text", "steps", "advice"),
    [
        ("THE CAT SAT", [], "With --text lowercase it would know 100% of these"),
        ("the, cat sat!", [], "With --text remove-punctuation it would know 100% of these"),
        ("The, CAT, sat!", [], "With --text remove-punctuation,lowercase it would know 100% of these"),
        ("london LONDON", ["lowercase"], "With --text lowercase,uppercase it would know 100% of these"),
        ("paris", [], "With --text truecase:MODEL it would know 100% of these"),
        ("\uff54\uff48\uff45", [], "With --text unicode:nfkc it would know 100% of these"),
        ("caf\u00e9", [], "With --text unicode:nfd it would know 100% of these"),
        ("gnu zebra", [], None),
        ("\u732b\u306e\u732b", [], "With --text characters it would know 100% of these"),
        ("th@@ e c@@ at s@@ at", [], "With --text join-subwords:bpe it would know 100% of the words"),
        ("\u2581the \u2581c at s at", [], "With --text join-subwords:sentencepiece it would know 50% of the words"),
        ("th ##e c ##at gnu", [], "With --text join-subwords:wordpiece it would know 67% of the words"),
        ("T@@ HE C@@ AT", [], "With --text join-subwords:bpe,lowercase it would know 100% of the words"),
        ("T@@ HE C@@ AT", ["lowercase"], "With --text lowercase,join-subwords:bpe it would know 100% of the words"),
        ("THE CAT SAT THE CAT SAT THE gn@@ u", [], "With --text lowercase it would know 78% of these"),
        ("gn@@ u", [], None),
        ("\u2581 \u2581", [], None),
        ("the cat", [], None),
    ],
)
def test_the_warning_advises_the_step_that_helps(text, steps, advice):
    class Known(Scorer):
        name = "lm"

        def score(self, sentences):
            known = {"the", "cat", "sat", "LONDON", "Paris", "\u732b", "\u306e", "cafe\u0301"}
            return [SentenceScore((-1.0,) * (len(words) + 1), tuple(word not in known for word in words)) for words in sentences]

        def signature(self):
            return {}

    pipeline = parse_steps(steps)
    count, scorer = OOVCount("lm"), Known()
    count.add([pipeline.words(text)], [scorer.score([pipeline.words(text)])[0].oov])
    assert advise(count, scorer, pipeline) == advice


def test_the_examples_of_unknown_words_are_few_and_add_up():
    count, other = OOVCount("lm"), OOVCount("lm")
    count.add([["a", "gnu"], ["a"]], [(False, True), (False,)])
    other.add([["gnu"]] * 1000, [(True,)] * 1000)
    count.merge(other)
    assert count.examples == ["a gnu", *["gnu"] * (EXAMPLES - 1)]


def test_a_long_unknown_word_does_not_fill_the_warning():
    count = OOVCount("lm")
    count.add([["x" * 1_000_000, "y" * 40]], [[True, True]])
    assert f"{'x' * 40}.. (1), {'y' * 40} (1)" in count.warning()


@pytest.mark.parametrize(
    ("step", "text", "expected"),
    [
        ("remove-punctuation", "cafe\u0301's", ["cafe\u0301's"]),
        ("remove-punctuation", "\u0939\u093f\u0928\u094d\u0926\u0940's", ["\u0939\u093f\u0928\u094d\u0926\u0940's"]),
        ("remove-punctuation", "'a' b' 's", ["a", "b", "s"]),
        ("remove-punctuation", "1,234, 12,345,678 1,23,456 1,234.5", ["1234", "12345678", "123456", "1234", "5"]),
        ("remove-punctuation", "1,23 1,2345 a,123 0,125", ["1", "23", "1", "2345", "a", "123", "0", "125"]),
        ("remove-punctuation", "1234,567 1,234,5 1.234,567", ["1234", "567", "1", "234", "5", "1", "234", "567"]),
        ("remove-punctuation", "1,\u200f234 don\u2060't \u06dd1", ["1234", "don't", "\u06dd1"]),
        ("remove-punctuation", "\u200fa\u00adb \ufeffc\u200bd", ["ab", "cd"]),
        ("remove-punctuation", "\u0645\u06cc\u200c\u0631\u0648\u0645", ["\u0645\u06cc\u200c\u0631\u0648\u0645"]),
        ("characters", "\uffe5500\u5143", ["\uffe5", "500", "\u5143"]),
    ],
)
def test_marks_and_full_width_signs(step, text, expected, models):
    assert words([step], text, models) == expected
