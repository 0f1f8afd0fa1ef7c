"""estimate_ngram against modified Kneser-Ney written out for bigrams, and what it does with text that cannot be used."""

from __future__ import annotations

import gzip
import io
import math
import os
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.ngrams.kenlm_programs import find_program
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram
from attlm_fairseq.verbs.text import perplexity

try:
    LMPLZ = find_program("lmplz")
except InputError as error:
    pytest.skip(str(error), allow_module_level=True)

FALLBACK = (0.5, 1.0, 1.5)  # discounts of n-grams seen once, twice, oftener


def random_sentences(count: int, vocabulary: int = 30) -> list[list[str]]:
    """Words by Zipf's law, lengths 0 to 7."""
    source = random.Random(1)
    ranks = range(1, vocabulary + 1)
    words, weights = [f"w{rank}" for rank in ranks], [1 / rank for rank in ranks]
    return [source.choices(words, weights, k=source.randint(0, 7)) for _ in range(count)]


SENTENCES = random_sentences(60)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(words) + "\n" for words in SENTENCES), encoding="utf-8")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def bigram_model(sentences: list[list[str]]):
    """p(word | history) of interpolated modified Kneser-Ney with the fallback's discounts, straight from its definition."""
    bigrams = Counter(pair for words in sentences for pair in zip(["<s>", *words], [*words, "</s>"], strict=True))
    followers, continuations = defaultdict(Counter), Counter()
    for (history, word), count in bigrams.items():
        followers[history][word] = count
        continuations[word] += 1
    vocabulary = {word for words in sentences for word in words} | {"</s>", "<unk>"}

    def discount(count: int) -> float:
        return FALLBACK[min(count, 3) - 1] if count else 0.0

    def interpolated(counts: Counter, word: str, lower: float) -> float:
        total = counts.total()
        return (counts[word] - discount(counts[word])) / total + sum(map(discount, counts.values())) / total * lower

    def probability(history: str, word: str) -> float:
        unigram = interpolated(continuations, word, 1 / len(vocabulary))
        return interpolated(followers[history], word, unigram) if followers[history] else unigram

    return probability, vocabulary


def test_probabilities_are_those_of_the_definition(tmp_path):
    # Few words: the discounts of no order can be estimated, so that all of them are the fallback's.
    sentences = [["a", "b", "a"], ["a", "c"], ["c", "c", "c"], [], ["b"]] * 2
    report = estimate_ngram((" ".join(words) for words in sentences), tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True))
    assert report.fallback_orders == (1, 2)
    probability, vocabulary = bigram_model(sentences)
    scorer = KenLMScorer(tmp_path / "lm.arpa")
    for history in sorted(vocabulary - {"</s>", "<unk>"}):
        for word in sorted(vocabulary - {"</s>"}):
            log_probs = scorer.score([[history, word]])[0].log_probs
            assert log_probs[0] == pytest.approx(math.log(probability("<s>", history)), abs=1e-5)
            assert log_probs[1] == pytest.approx(math.log(probability(history, word)), abs=1e-5)
        assert scorer.score([[history]])[0].log_probs[-1] == pytest.approx(math.log(probability(history, "</s>")), abs=1e-5)


@pytest.mark.parametrize("order", [2, 4])
def test_probabilities_sum_to_one_after_every_history(text, tmp_path, order):
    estimate_ngram(text, tmp_path / "lm.arpa", order, NgramOptions(discount_fallback=True))
    scorer = KenLMScorer(tmp_path / "lm.arpa")
    words = [*sorted({word for sentence in SENTENCES for word in sentence}), "<unk>"]
    for history in ([], SENTENCES[1][:1], SENTENCES[1][:3], SENTENCES[2][:5], ["w1", "unseen"], ["unseen", "w2"]):
        events = [score.log_probs[len(history)] for score in scorer.score([[*history, word] for word in words])]
        end = scorer.score([history])[0].log_probs[-1]
        assert math.fsum(map(math.exp, [*events, end])) == pytest.approx(1.0, abs=1e-5)


def test_report_states_what_was_estimated_from_what(text, tmp_path):
    report = estimate_ngram(text, tmp_path / "lm.arpa", 3, NgramOptions(discount_fallback=True))
    padded = [["<s>", *words, "</s>"] for words in SENTENCES]
    distinct = [len({tuple(words[i : i + n]) for words in padded for i in range(len(words) - n + 1)}) for n in (1, 2, 3)]
    assert report.ngrams == (distinct[0] + 1, *distinct[1:])  # and <unk>
    assert report.path == tmp_path / "lm.arpa"
    assert report.order == 3
    assert report.sentences == len(SENTENCES)
    assert report.words == sum(map(len, SENTENCES))
    assert report.skipped_symbols == 0
    assert str(report).startswith(f"{report.ngrams[0]} 1-grams, {report.ngrams[1]} 2-grams, {report.ngrams[2]} 3-grams, from ")


def test_discounts_are_estimated_where_the_text_allows_it(tmp_path):
    sentences = [" ".join(words) for words in random_sentences(2000, vocabulary=3000)]
    models = []
    for fallback in (False, True):
        report = estimate_ngram(sentences, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=fallback))
        assert report.fallback_orders == ()
        models.append((tmp_path / "lm.arpa").read_bytes())
    assert models[0] == models[1]


def test_every_kind_of_text_gives_the_same_model(text, tmp_path, monkeypatch):
    compressed = tmp_path / "text.gz"
    compressed.write_bytes(gzip.compress(text.read_bytes(), mtime=0))
    windows = tmp_path / "windows.txt"
    windows.write_bytes(text.read_bytes().replace(b"\n", b"\r\n").replace(b" ", " \u3000\t".encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    models = []
    marked, unnamed = tmp_path / "marked.txt", tmp_path / "compressed"
    marked.write_bytes(b"\xef\xbb\xbf" + text.read_bytes())  # a byte order mark is not part of the first word
    unnamed.write_bytes(compressed.read_bytes())
    for source in (text, str(text), compressed, unnamed, windows, marked, Path("-"), text.read_text().splitlines()):
        output = tmp_path / f"lm{len(models)}.arpa"
        estimate_ngram(source, output, 3, NgramOptions(discount_fallback=True))
        models.append(output.read_bytes())
    assert set(models) == {models[0]}


def test_binary_model_scores_the_same_and_is_reproducible(text, tmp_path):
    outputs = [tmp_path / name for name in ("lm.arpa", "lm.bin", "again.bin")]
    reports = [estimate_ngram(text, output, 3, NgramOptions(discount_fallback=True)) for output in outputs]
    assert reports[0].ngrams == reports[1].ngrams
    assert KenLMScorer(outputs[1]).score(SENTENCES) == KenLMScorer(outputs[0]).score(SENTENCES)
    assert outputs[1].read_bytes() == outputs[2].read_bytes()


def test_vocabulary_pad_makes_an_unknown_word_less_likely(text, tmp_path):
    unknown = []
    for pad in (None, 10_000):
        estimate_ngram(text, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True, vocabulary_pad=pad))
        unknown.append(KenLMScorer(tmp_path / "lm.arpa").score([["unseen"]])[0].log_probs[0])
    assert unknown[1] < unknown[0] - 3


RARE = {"w9", "w14", "w30"}
WITH_UNK = [["<unk>" if word in RARE else word for word in words] for words in random_sentences(300)]


@pytest.mark.parametrize(("order", "suffix"), [(2, "arpa"), (4, "bin")])
def test_unk_in_the_text_is_an_event_and_probabilities_sum_to_one(tmp_path, order, suffix):
    """Against the model in which another word stands for it: p(<unk> | h) = p(that word | h) + p(<unk> | h), all else as there."""
    lines = [" ".join(words) for words in WITH_UNK]
    report = estimate_ngram(lines, tmp_path / f"lm.{suffix}", order, NgramOptions(unk_in_text=True, discount_fallback=True))
    count = sum(words.count("<unk>") for words in WITH_UNK)
    assert count > 50
    assert (report.words, report.unknown_words) == (sum(map(len, WITH_UNK)), count)
    assert f"{count} of the words are <unk>" in str(report)
    other = estimate_ngram(
        [line.replace("<unk>", "rare") for line in lines], tmp_path / "other.arpa", order, NgramOptions(discount_fallback=True)
    )
    assert report.ngrams == (other.ngrams[0] - 1, *other.ngrams[1:])
    scorer, reference = KenLMScorer(tmp_path / f"lm.{suffix}"), KenLMScorer(tmp_path / "other.arpa")

    def rare(words: list[str]) -> list[str]:
        return ["rare" if word in {"<unk>", "unseen"} else word for word in words]

    def brute_force(words: list[str]) -> list[float]:
        """ln p of the words and the end, from the reference."""
        values = list(reference.score([rare(words)])[0].log_probs)
        for place, word in enumerate(words):
            if word in {"<unk>", "unseen"}:
                of_none = reference.score([[*rare(words[:place]), "unseen"]])[0].log_probs[place]
                values[place] = math.log(math.exp(values[place]) + math.exp(of_none))
        return values

    sentences = [*WITH_UNK[:60], ["unseen", "w1", "unseen"], ["<unk>"] * 5, []]
    for words, score in zip(sentences, scorer.score(sentences), strict=True):
        assert score.log_probs == pytest.approx(brute_force(words), abs=1e-5)
    vocabulary = sorted({word for words in WITH_UNK for word in words})
    for history in ([], ["<unk>"], ["w1", "<unk>"], ["<unk>", "<unk>", "w2"], ["unseen", "w1"], WITH_UNK[1][:3], ["w28", "w27", "<unk>"]):
        events = [score.log_probs[len(history)] for score in scorer.score([[*history, word] for word in vocabulary])]
        end = scorer.score([history])[0].log_probs[-1]
        assert math.fsum(map(math.exp, [*events, end])) == pytest.approx(1.0, abs=1e-5)

    (tmp_path / "test.txt").write_text("".join(" ".join(words) + "\n" for words in sentences))
    [found] = perplexity(tmp_path / "test.txt", {"lm": tmp_path / f"lm.{suffix}"})
    total = math.fsum(value for words in sentences for value in brute_force(words))
    assert found.ppl == pytest.approx(math.exp(-total / (sum(map(len, sentences)) + len(sentences))), rel=1e-5)
    assert found.oov == sum(word in {"<unk>", "unseen"} for words in sentences for word in words)


def test_unk_in_capitals_is_the_same_as_kenlm_reads_it_so(tmp_path):
    small, capitals = (["a b <unk>", "a c", f"{unknown} b"] for unknown in ("<unk>", "<UNK>"))
    with pytest.raises(InputError, match=r"the text:1: found the word <UNK>, .* count it as a word with --unk-in-text"):
        estimate_ngram([line.upper() for line in small], tmp_path / "lm.arpa", 2)
    for text, name in ((small, "small"), (capitals, "capitals")):
        options = NgramOptions(discount_fallback=True, unk_in_text=True)
        assert estimate_ngram(text, tmp_path / f"{name}.arpa", 2, options).unknown_words == 2
    assert (tmp_path / "small.arpa").read_bytes() == (tmp_path / "capitals.arpa").read_bytes()
    report = estimate_ngram(capitals, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True, skip_symbols=True))
    assert (report.words, report.skipped_symbols) == (5, 2)


def test_unk_in_the_text_with_other_options(tmp_path):
    text = ["a b", "a <unk> <s> c"]
    with pytest.raises(InputError, match="count it as a word with --unk-in-text"):
        estimate_ngram(text, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True))
    with pytest.raises(InputError, match=r"the text:2: found the word <s>, which an n-gram model keeps for itself; .* --skip-symbols"):
        estimate_ngram(text, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True, unk_in_text=True))
    for wrong in (-3, 0, "10"):
        with pytest.raises(InputError, match=r"the value of vocabulary_pad is .*: expected a whole number, 1 or more"):
            NgramOptions(vocabulary_pad=wrong)
    with pytest.raises(InputError, match="--vocabulary-pad shares"):
        estimate_ngram(text, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True, unk_in_text=True, vocabulary_pad=1000))
    report = estimate_ngram(text, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True, unk_in_text=True, skip_symbols=True))
    assert (report.words, report.skipped_symbols, report.unknown_words) == (5, 1, 1)
    assert "\x01" not in (tmp_path / "lm.arpa").read_text()
    for unk_in_text in (True, False):  # without <unk> in the text the option changes nothing
        estimate_ngram(["a b", "a c"], tmp_path / f"{unk_in_text}.arpa", 2, NgramOptions(discount_fallback=True, unk_in_text=unk_in_text))
    assert (tmp_path / "True.arpa").read_bytes() == (tmp_path / "False.arpa").read_bytes()


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<unk>"])
def test_reserved_words_are_refused_or_left_out_and_counted(tmp_path, symbol):
    path = tmp_path / "text.txt"
    path.write_text(f"a b\na {symbol} c {symbol}\n")
    with pytest.raises(InputError) as error:
        estimate_ngram(path, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True))
    assert str(error.value).startswith(f"{path}:2: found the word {symbol},")
    assert "--skip-symbols" in str(error.value)
    assert not (tmp_path / "lm.arpa").exists()

    report = estimate_ngram(path, tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True, skip_symbols=True))
    assert (report.skipped_symbols, report.words) == (2, 4)
    estimate_ngram(["a b", "a c"], tmp_path / "without.arpa", 2, NgramOptions(discount_fallback=True))
    assert (tmp_path / "lm.arpa").read_bytes() == (tmp_path / "without.arpa").read_bytes()


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        (b"a b\nb \xff a\n", 2, "not UTF-8: found 0xff at byte 3"),
        (b"a b\n\nb\0c\n", 3, "NUL"),
        (b"\n \n", None, "no words"),
        (b"", None, "empty"),
        (b"a b\n", None, "--discount-fallback"),
    ],
)
def test_unusable_text_is_one_clear_line_and_changes_nothing(tmp_path, content, line, found):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    output = tmp_path / "lm.arpa"
    output.write_text("what was there")
    with pytest.raises(InputError) as error:
        estimate_ngram(path, output, 3)
    message = str(error.value)
    assert message.startswith(f"{path}: " if line is None else f"{path}:{line}: ")
    assert found in message
    assert "\n" not in message
    assert output.read_text() == "what was there"
    assert names(tmp_path) == ["lm.arpa", "text.txt"]


@pytest.mark.parametrize(
    ("content", "found"),
    [(None, "No such file"), (gzip.compress(b"a b\n" * 9999, mtime=0)[:60], "cut short")],
)
def test_unreadable_files_are_named(tmp_path, content, found):
    path = tmp_path / "text.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^{path}.*{found}"):
        estimate_ngram(path, tmp_path / "lm.arpa", 2)


@pytest.mark.parametrize(
    ("output", "order", "options", "found"),
    [
        ("lm.arpa", 1, {}, "2 to 6, not 1"),
        ("lm.arpa", 7, {}, "2 to 6, not 7"),
        ("lm.txt", 3, {}, "must end in .arpa"),
        ("absent/lm.arpa", 3, {}, "folder does not exist"),
        ("lm.arpa", 3, {"options": NgramOptions(memory="much")}, "Failed to parse much"),
        ("lm.arpa", 3, {"lmplz": Path("absent/lmplz")}, "absent/lmplz: cannot be run"),
    ],
)
def test_impossible_requests_are_one_clear_line(text, tmp_path, output, order, options, found):
    with pytest.raises(InputError) as error:
        estimate_ngram(text, tmp_path / output, order, **options)
    assert found in str(error.value)
    assert names(tmp_path) == ["text.txt"]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(text, tmp_path):
    (tmp_path / "models").mkdir()
    link, pipe = tmp_path / "lm.arpa", tmp_path / "pipe.arpa"
    link.symlink_to(tmp_path / "models" / "real.arpa")
    estimate_ngram(text, link, 2, NgramOptions(discount_fallback=True))
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["real.arpa"]
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"pipe\.arpa: is not a regular file"):
        estimate_ngram(text, pipe, 2, NgramOptions(discount_fallback=True))
    assert pipe.is_fifo()


def test_a_full_disk_is_the_outputs_and_not_the_texts(text, tmp_path):
    full = tmp_path / "lmplz"
    full.write_text("#!/bin/sh\ncat >/dev/null\necho 'write.cc threw FDException: No space left on device in /x' >&2\nexit 1\n")
    full.chmod(0o755)
    with pytest.raises(InputError, match=r"lm\.arpa: cannot be written: No space left on device"):
        estimate_ngram(text, tmp_path / "lm.arpa", 3, lmplz=full)


def test_a_killed_lmplz_is_told_from_bad_text(text, tmp_path):
    killed = tmp_path / "lmplz"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    with pytest.raises(InputError, match="was killed"):
        estimate_ngram(text, tmp_path / "lm.arpa", 3, lmplz=killed)


def test_an_error_while_the_text_is_read_reaches_the_caller(tmp_path):
    def lines():
        yield from ["a b"] * 20_000
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_ngram(lines(), tmp_path / "lm.arpa", 3)
    assert names(tmp_path) == []
