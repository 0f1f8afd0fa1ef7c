from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU as SacreBLEU  # noqa: N811
from sacrebleu.metrics import CHRF as SacreCHRF  # noqa: N811
from sacrebleu.metrics import TER as SacreTER  # noqa: N811

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.metrics import ngram_metrics
from attlm_fairseq.nbest.metrics.making import METRICS, make_metric
from attlm_fairseq.nbest.metrics.metric import corpus_score
from attlm_fairseq.nbest.metrics.ngram_metrics import BLEU, ChrF
from attlm_fairseq.nbest.tuning.oracle import oracle
from attlm_fairseq.text import parse_steps

DATA = Path(__file__).parents[3] / "shared" / "data" / "nbest"


def random_corpus(seed: int, lists: int = 60, references: int = 3) -> tuple[list[str], list[list[str]]]:
    """Hypotheses that resemble their references, some empty, some with punctuation and capitals."""
    generator = random.Random(seed)
    words = ["the", "The", "cat,", "cat", "sat", "on", "a", "mat", ".", "don't", "3.5", "日本", "ende?", "é"]
    hypotheses, targets = [], []
    for i in range(lists):
        sentence = generator.choices(words, k=generator.randrange(1, 14))
        noisy = lambda: " ".join(w if generator.random() < 0.7 else generator.choice(words) for w in sentence if generator.random() < 0.9)  # noqa: B023, E731
        targets.append(["" if i % 17 == 5 and generator.random() < 0.5 else noisy() for _ in range(references)])
        hypotheses.append("" if i % 11 == 3 else noisy())
    return hypotheses, targets


def edits_by_hand(a: list[str], b: list[str]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def total(metric, hypotheses, references) -> np.ndarray:
    return np.sum([metric.statistics([h], r)[0] for h, r in zip(hypotheses, references, strict=True)], axis=0)


@pytest.mark.parametrize(("pairs", "columns"), [(1, 1), (7, 3), (1 << 18, 4096)])
@pytest.mark.parametrize("metric", [BLEU(), BLEU(tokenize="char", lowercase=True), ChrF(), ChrF(word_order=2, whitespace=True)])
def test_statistics_between_texts_are_those_of_one_by_one(metric, pairs, columns, monkeypatch):
    monkeypatch.setattr(ngram_metrics, "PAIRS", pairs)
    monkeypatch.setattr(ngram_metrics, "COLUMNS", columns)
    texts = ["", "a", "a a a b", "b a a", "The end. The end.", "the end, the", "我喜欢", "x"]
    found = np.concatenate(list(metric.among(texts)), axis=1)
    assert found.tolist() == np.stack([metric.statistics(texts, [truth]) for truth in texts], axis=1).tolist()
    assert np.concatenate(list(metric.among([""])), axis=1).tolist() == metric.statistics([""], [""])[:, None].tolist()


@pytest.mark.parametrize("references", [1, 3])
@pytest.mark.parametrize(("name", "tokens"), [("wer", str.split), ("cer", lambda text: list(" ".join(text.split())))])
def test_error_rates_against_dynamic_programming(name, tokens, references):
    hypotheses, targets = random_corpus(1, references=references)
    metric = make_metric(name)
    errors = length = 0
    for hypothesis, of_list in zip(hypotheses, targets, strict=True):
        pairs = [(edits_by_hand(tokens(hypothesis), tokens(reference)), len(tokens(reference))) for reference in of_list]
        best = min(pairs, key=lambda pair: (pair[0], -pair[1]))
        assert metric.statistics([hypothesis], of_list).tolist() == [list(best)]
        errors, length = errors + best[0], length + best[1]
    assert float(metric.score(total(metric, hypotheses, targets))) == pytest.approx(100 * errors / length, abs=1e-12)


def test_wer_of_a_list():
    statistics = make_metric("wer").statistics(["a b c", "", " a  x c d ", "a b c"], ["a b c"])
    assert statistics.tolist() == [[0, 3], [3, 3], [2, 3], [0, 3]]


def test_wer_empty_references_and_empty_corpora():
    metric = make_metric("wer")
    assert metric.statistics(["", "a b"], [""]).tolist() == [[0, 0], [2, 0]]
    assert metric.score(np.array([[0, 0], [2, 0], [2, 4]])).tolist() == [0, 100, 50]


def test_the_order_of_references_does_not_matter():
    """Of two references with as many errors the longer one counts, as it makes the lower rate."""
    for references in (["a b", "a b c d"], ["a b c d", "a b"]):
        assert make_metric("wer").statistics(["a b c"], references).tolist() == [[1, 4]]
    hypotheses, targets = random_corpus(4)
    turned = [of_list[::-1] for of_list in targets]
    for name in ("wer", "cer"):  # the others do as sacreBLEU does
        metric = make_metric(name)
        assert total(metric, hypotheses, targets).tolist() == total(metric, hypotheses, turned).tolist()


def test_wer_case_and_cer_spaces():
    assert make_metric("wer").statistics(["The Cat"], ["the cat"]).tolist() == [[2, 2]]
    assert make_metric("wer", lowercase=True).statistics(["The Cat"], ["the cat"]).tolist() == [[0, 2]]
    assert make_metric("cer").statistics(["ab cd"], ["abc d"]).tolist() == [[2, 5]]
    assert make_metric("cer", spaces=False).statistics(["ab cd"], ["abc d"]).tolist() == [[0, 4]]


def test_wer_of_many_different_words_is_exact():
    words = [f"w{i}" for i in range(70_000)]  # more than there are characters below the surrogates
    assert make_metric("wer").statistics([" ".join(words[:-3])], [" ".join(words)]).tolist() == [[3, 70_000]]


OPTIONS = [
    ("bleu", {}, SacreBLEU(force=True)),
    ("bleu", {"tokenize": "none", "lowercase": True}, SacreBLEU(tokenize="none", lowercase=True, force=True)),
    ("bleu", {"tokenize": "char"}, SacreBLEU(tokenize="char", force=True)),
    ("bleu", {"tokenize": "intl"}, SacreBLEU(tokenize="intl", force=True)),
    ("chrf", {}, SacreCHRF()),
    ("chrf", {"word_order": 2, "lowercase": True}, SacreCHRF(word_order=2, lowercase=True)),
    ("chrf++", {}, SacreCHRF(word_order=2)),
    ("chrf++", {"whitespace": True}, SacreCHRF(word_order=2, whitespace=True)),
    ("chrf", {"char_order": 4, "beta": 1, "whitespace": True}, SacreCHRF(char_order=4, beta=1, whitespace=True)),
    ("ter", {}, SacreTER()),
    ("ter", {"lowercase": False, "normalized": True, "no_punct": True}, SacreTER(case_sensitive=True, normalized=True, no_punct=True)),
]


@pytest.mark.parametrize(("name", "options", "sacre"), OPTIONS)
@pytest.mark.parametrize("references", [1, 3])
def test_equals_sacrebleu(name, options, sacre, references):
    hypotheses, targets = random_corpus(2, references=references)
    metric = make_metric(name, **options)
    expected = sacre.corpus_score(hypotheses, [list(stream) for stream in zip(*targets, strict=True)])
    assert 0 < expected.score < 100
    assert float(metric.score(total(metric, hypotheses, targets))) == pytest.approx(expected.score, abs=1e-9)
    assert metric.signature(targets) == sacre.get_signature().format()


@pytest.mark.parametrize(("name", "options", "sacre"), [OPTIONS[0], OPTIONS[4], OPTIONS[7]])
def test_equals_sacrebleu_with_varying_numbers_of_references(name, options, sacre):
    hypotheses, targets = random_corpus(3)
    targets = [of_list[: 1 + i % 3] for i, of_list in enumerate(targets)]
    streams = [[of_list[k] if k < len(of_list) else None for of_list in targets] for k in range(3)]
    metric = make_metric(name, **options)
    expected = sacre.corpus_score(hypotheses, streams).score
    assert float(metric.score(total(metric, hypotheses, targets))) == pytest.approx(expected, abs=1e-9)
    assert "nrefs:var" in metric.signature(targets)


def test_bleu_of_a_million_rows_equals_sacrebleu_row_by_row():
    generator = np.random.default_rng(4)
    rows = 1_000_000
    ngrams = np.maximum(generator.integers(0, 40, size=(rows, 1)) - np.arange(4), 0)
    matched = np.floor(ngrams * generator.random((rows, 4)) ** 2)
    statistics = np.concatenate([ngrams[:, :1], generator.integers(0, 40, size=(rows, 1)), matched, ngrams], axis=1)
    scores = make_metric("bleu").score(statistics)
    assert scores.shape == (rows,)
    sample = generator.choice(rows, size=4000, replace=False)
    for row in sample:
        length, reference_length, *counts = statistics[row].tolist()
        expected = SacreBLEU.compute_bleu(counts[:4], counts[4:], int(length), int(reference_length), smooth_method="exp").score
        assert scores[row] == pytest.approx(expected, abs=1e-9)
    assert (scores[sample] == 0).any()
    assert (scores[sample] > 0).any()


@pytest.mark.parametrize("name", list(METRICS))
def test_score_is_vectorised_over_leading_axes(name):
    metric = make_metric(name)
    hypotheses, targets = random_corpus(5, lists=12)
    statistics = np.array([metric.statistics([h], r)[0] for h, r in zip(hypotheses, targets, strict=True)]).reshape(3, 4, -1)
    scores = metric.score(statistics)
    assert scores.shape == (3, 4)
    assert all(scores[i, j] == metric.score(statistics[i, j]) for i in range(3) for j in range(4))
    assert metric.score(np.zeros(statistics.shape[-1])) == 0
    assert metric.higher_is_better == (name in ("bleu", "chrf", "chrf++"))


@pytest.mark.parametrize("name", list(METRICS))
def test_duplicates_and_their_order(name):
    metric = make_metric(name)
    alone = [metric.statistics([text], ["the cat sat"])[0].tolist() for text in ("the cat", "a cat sat down", "the cat")]
    assert metric.statistics(["the cat", "a cat sat down", "the cat"], ["the cat sat"]).tolist() == alone


def test_edit_rate_signatures():
    assert make_metric("wer").signature([["a"], ["b"]]).startswith("nrefs:1|case:mixed|tok:whitespace|rapidfuzz:")
    assert (
        make_metric("cer", lowercase=True, spaces=False).signature([["a"], ["b", "c"]]).startswith("nrefs:var|case:lc|tok:char|space:no|")
    )
    assert make_metric("bleu").signature([["a", "b"]]) == f"nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"


def test_unknown_names_and_options():
    with pytest.raises(InputError, match="unknown metric 'rouge'; known are wer, cer, bleu, chrf, chrf\\+\\+, ter and external"):
        make_metric("rouge")
    with pytest.raises(InputError, match="metric 'wer' has no option 'tokenize'; its options are lowercase"):
        make_metric("wer", tokenize="13a")
    with pytest.raises(InputError, match="unknown BLEU tokenizer '13b'; known are none, zh, 13a"):
        make_metric("bleu", tokenize="13b")
    with pytest.raises(InputError, match="the BLEU tokenizer is 3"):
        make_metric("bleu", tokenize=3)
    with pytest.raises(InputError, match="'flores200' would download a model: give a copy of it, with --bleu-tokenize none"):
        make_metric("bleu", tokenize="flores200")
    assert make_metric("BLEU").name == "BLEU"


@pytest.mark.parametrize("references", [[], "a string"])
def test_references_must_be_a_sequence(references):
    for name in METRICS:
        with pytest.raises(ValueError, match="at least one string"):
            make_metric(name).statistics(["a"], references)


@pytest.mark.parametrize(
    ("file", "first_best", "best"),
    [("atis-train", 7.66, 5.06), ("librispeech-test-clean", 1.79, 0.89), ("commonvoice-test", 15.44, 11.32)],
)
def test_known_word_error_rates(file, first_best, best):
    path = DATA / f"{file}.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        lists = json.load(lines)
    metric = make_metric("wer")
    statistics = [metric.statistics(item["input"], [item["output"]]) for item in lists]
    assert round(corpus_score(metric, np.array([of_list[0] for of_list in statistics])), 2) == first_best
    assert round(corpus_score(metric, oracle(statistics, metric)), 2) == best


def test_known_bleu():
    path = DATA / "bn-en.hiero.nbest.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    lists: dict[str, list[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            number, text, *_ = line.split(" ||| ")
            lists.setdefault(number, []).append(text)
    streams = [(DATA / f"bn-en.ref.{k}").read_text(encoding="utf-8").splitlines() for k in range(4)]
    references = list(zip(*streams, strict=True))
    assert len(references) == len(lists) == 100
    metric = make_metric("bleu", tokenize="none", lowercase=True)
    statistics = [metric.statistics(texts, of_list) for texts, of_list in zip(lists.values(), references, strict=True)]
    first_best = corpus_score(metric, np.array([of_list[0] for of_list in statistics]))
    assert round(first_best, 2) == 24.17
    expected = SacreBLEU(tokenize="none", lowercase=True, force=True).corpus_score([texts[0] for texts in lists.values()], streams).score
    assert first_best == pytest.approx(expected, abs=1e-9)
    best = oracle(statistics, metric)
    chosen = [texts[of_list.tolist().index(row.tolist())] for texts, of_list, row in zip(lists.values(), statistics, best, strict=True)]
    expected = SacreBLEU(tokenize="none", lowercase=True, force=True).corpus_score(chosen, streams).score
    assert corpus_score(metric, best) == pytest.approx(expected, abs=1e-9)
    assert expected >= 27.95  # known from choosing sentence by sentence; choosing for the corpus is better


@pytest.mark.parametrize("name", METRICS)
def test_text_steps_of_a_metric_are_for_hypotheses_and_references_alike(name):
    """NFC against NFD, and pieces against words: the same after the steps, and the score says which."""
    hypotheses, reference = ["the caf\u00e9 is ope@@ n now", "a caf\u00e9"], "the cafe\u0301 is open now"
    text = parse_steps(["join-subwords:bpe", "unicode:nfc"])
    prepared, plain = make_metric(name, text=text), make_metric(name)
    mended = ["the caf\u00e9 is open now", "a caf\u00e9"]
    assert (prepared.statistics(hypotheses, [reference]) == plain.statistics(mended, ["the caf\u00e9 is open now"])).all()
    assert (prepared.statistics(hypotheses, [reference]) != plain.statistics(hypotheses, [reference])).any()
    assert "|text:join-subwords:bpe,unicode:nfc" in prepared.signature([[reference]])
    assert "text:" not in plain.signature([[reference]])


def test_spbleu_is_bleu_of_the_pieces_of_a_model(tmp_path):
    import sentencepiece

    draw = random.Random(3)
    lines = [" ".join(draw.choices(["the", "cat", "sat", "houses", "running", "paris"], k=8)) for _ in range(200)]
    (tmp_path / "text").write_text("\n".join(lines), encoding="utf-8")
    trainer = sentencepiece.SentencePieceTrainer
    trainer.train(input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=22, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    pieces = [" ".join(model.encode(line, out_type=str)) for line in lines]
    metric = make_metric("bleu", tokenize="none", text=parse_steps([f"sentencepiece:{tmp_path / 'm.model'}"]).load())
    statistics = np.array([metric.statistics([one], [other])[0] for one, other in zip(lines[:50], lines[50:100], strict=True)])
    expected = SacreBLEU(tokenize="none", force=True).corpus_score(pieces[:50], [pieces[50:100]]).score
    assert corpus_score(metric, statistics) == pytest.approx(expected, abs=1e-9)
