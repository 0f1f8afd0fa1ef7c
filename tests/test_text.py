"""The text before the LM, and the warning when the LM does not know it."""

from __future__ import annotations

from attlm_fairseq.text import OOVCount, TextPipeline


def test_without_steps_only_white_space_splits():
    assert TextPipeline().words(" It's  a\u00a0test. ") == ["It's", "a", "test."]
    assert TextPipeline().words("") == []


def test_tokenisation_then_lower_case():
    pipeline = TextPipeline("en", True)
    assert pipeline.words("He said: \"I don't & won't.\"") == ["he", "said", ":", '"', "i", "don", "'t", "&", "won", "'t", ".", '"']
    assert str(pipeline) == "Moses tokenisation (en), lower case, split at white space"


def test_the_warning_names_rate_and_commonest_words():
    count = OOVCount("ngram")
    count.add([["The", "cat"], ["The", "dog"]], [(True, False), (True, True)])
    warning = count.warning()
    assert "75.0% of the words (3 of 4) are unknown to ngram" in warning
    assert "The (2), dog (1)" in warning
    count.add([["cat"] * 96], [[False] * 96])
    assert count.warning() is None
    assert OOVCount("none").warning() is None
