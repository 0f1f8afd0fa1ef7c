"""Metrics that count n-grams: BLEU and chrF."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.nbest.metrics.sacrebleu_metric import SacreBLEUMetric
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline
from attlm_fairseq.text.unspaced import UNSPACED

PAIRS = 1 << 18  # text pairs whose statistics are in memory at once
COLUMNS = 4096  # n-grams counted at once
_WORD_OR_UNSPACED = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


class NgramMetric(SacreBLEUMetric, ABC):
    """A sacreBLEU n-gram metric. Its statistics between many texts are computed as matrix products."""

    ratio = None

    @abstractmethod
    def _orders(self, text: str) -> Sequence[Mapping[Any, int]]:
        """Return the count of each n-gram of a text, one mapping per order."""

    @abstractmethod
    def _of_pairs(self, own: np.ndarray, others: np.ndarray, matched: np.ndarray) -> np.ndarray:
        """Return statistics (n, k, S) from n-gram counts: (O, n, 1) of hypotheses, (O, 1, k) of references, (O, n, k) matched."""

    def among(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the statistics of every text against each text as its only reference: (n, k, S), for k references at a time.

        Two texts that contain an n-gram c and d times match it min(c, d) times. With one 0/1 column for each n-gram and
        each t, "the text has the n-gram at least t times", the number of matches is a product of matrices.
        """
        counts = [list(of_order) for of_order in zip(*map(self._orders, texts), strict=True)]
        sizes = np.array([[sum(of_text.values()) for of_text in of_order] for of_order in counts], dtype=np.float64)
        matched = np.empty((len(counts), len(texts), len(texts)), dtype=np.float32)
        for order, of_order in enumerate(counts):
            matched[order] = _matches(of_order)
        at_once = max(1, PAIRS // len(texts))
        for begin in range(0, len(texts), at_once):
            some = slice(begin, begin + at_once)
            yield self._of_pairs(sizes[:, :, None], sizes[:, None, some], matched[:, :, some])


class BLEU(NgramMetric):
    """BLEU-4 with exponential smoothing, sacreBLEU's corpus_bleu.

    Statistics: length, closest reference length, matched n-grams (n = 1..4), n-grams (n = 1..4).
    ``tokenize`` is a sacreBLEU tokenizer that needs no download: 13a (default), none, intl, char, zh, ja-mecab,
    ko-mecab.
    """

    name = "BLEU"
    higher_is_better = True

    def __init__(self, *, text: TextPipeline = NO_STEPS, tokenize: str = "13a", lowercase: bool = False) -> None:
        from sacrebleu.metrics import BLEU as SacreBLEU  # noqa: N811

        super().__init__(text)
        require_type("BLEU tokenizer", tokenize, str, "its name, such as '13a'")
        self.lowercase = lowercase
        downloading = ("spm", "flores", "spBLEU")
        if tokenize.startswith(downloading):
            raise InputError(
                f"BLEU tokenizer {tokenize!r} would download a model: give a copy of it, with --bleu-tokenize none and "
                "--metric-text sentencepiece:FILE"
            )
        known = [name for name in SacreBLEU.TOKENIZERS if not name.startswith(downloading)]
        if tokenize not in known:
            raise InputError(f"unknown BLEU tokenizer {tokenize!r}; known are {', '.join(known)}")
        self.tokenize = tokenize
        try:
            self._metric = SacreBLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        except (ImportError, RuntimeError) as error:
            raise InputError(f"BLEU tokenizer {tokenize!r} needs a package that is not installed: {error}") from error

    def _orders(self, text: str) -> list[dict[tuple[str, ...], int]]:
        found = self._metric._extract_reference_info([self._metric._preprocess_segment(self.prepared(text))])["ref_ngrams"]
        return [{ngram: count for ngram, count in found.items() if len(ngram) == order} for order in range(1, 5)]

    def _of_pairs(self, own: np.ndarray, others: np.ndarray, matched: np.ndarray) -> np.ndarray:
        own, others = (np.broadcast_to(numbers, matched.shape) for numbers in (own, others))
        return np.stack([own[0], others[0], *matched, *own], axis=-1)  # a text has as many words as unigrams

    def score(self, totals: np.ndarray, *, effective_order: bool = False) -> np.ndarray:
        """Return BLEU in percent, (.., 10) -> (..), with sacreBLEU's smoothing ``exp``: the k-th order without a match counts 1 / 2^k.

        Without any match the score is 0.

        Args:
            totals: the summed statistics.
            effective_order: as in sacreBLEU's sentence BLEU, leave out the orders that a text of fewer than 4 words
                lacks. If False, the score is 0 if some order has no n-gram.
        """
        totals = np.asarray(totals, dtype=np.float64)
        length, reference_length, matched, ngrams = totals[..., 0], totals[..., 1], totals[..., 2:6], totals[..., 6:10]
        present = ngrams > 0
        halvings = np.cumsum(present & (matched == 0), axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_precisions = np.where(matched == 0, -np.log(2.0) * halvings, np.log(matched)) - np.log(ngrams)
            log_precision = np.where(present, log_precisions, 0.0).sum(axis=-1) / present.sum(axis=-1)
            log_brevity = np.where(length < reference_length, 1.0 - reference_length / length, 0.0)
            score = 100.0 * np.exp(log_precision + log_brevity)
        counts = matched.any(axis=-1) & (effective_order | present.all(axis=-1))
        return np.where(counts, score, 0.0)


class ChrF(NgramMetric):
    """chrF: character n-grams up to order 6. Equals sacreBLEU's corpus_chrf.

    Statistics: for each order the n-grams of the hypothesis, of the reference, and matched.
    """

    name = "chrF"
    higher_is_better = True

    def __init__(
        self,
        *,
        text: TextPipeline = NO_STEPS,
        char_order: int = 6,
        word_order: int = 0,
        beta: int = 2,
        lowercase: bool = False,
        whitespace: bool = False,
    ) -> None:
        from sacrebleu.metrics import CHRF

        super().__init__(text)
        self.char_order, self.word_order, self.beta = char_order, word_order, beta
        self.lowercase, self.whitespace = lowercase, whitespace
        self._metric = CHRF(char_order=char_order, word_order=word_order, beta=beta, lowercase=lowercase, whitespace=whitespace)

    def units(self, text: str) -> Sequence[str]:
        return _WORD_OR_UNSPACED.findall(text)  # words, not characters: a report that marks single characters is unreadable

    def _orders(self, text: str) -> list[Mapping[str, int]]:
        return self._metric._extract_reference_info([self._metric._preprocess_segment(self.prepared(text))])["ref_ngrams"][0]

    def _of_pairs(self, own: np.ndarray, others: np.ndarray, matched: np.ndarray) -> np.ndarray:
        own, others = np.broadcast_arrays(np.where(others > 0, own, 0.0), others + 0 * own)
        return np.stack([own, others, matched], axis=-1).transpose(1, 2, 0, 3).reshape(*matched.shape[1:], -1)

    def score(self, totals: np.ndarray) -> np.ndarray:
        totals = np.asarray(totals, dtype=np.float64)
        hypothesis, reference, matched = totals[..., 0::3], totals[..., 1::3], totals[..., 2::3]
        counted = (hypothesis > 0) & (reference > 0)
        orders = np.maximum(counted.sum(axis=-1), 1)
        precision = np.where(counted, matched / np.where(counted, hypothesis, 1.0), 0.0).sum(axis=-1) / orders
        recall = np.where(counted, matched / np.where(counted, reference, 1.0), 0.0).sum(axis=-1) / orders
        factor = self.beta**2
        denominator = factor * precision + recall
        return 100.0 * (1 + factor) * precision * recall / np.where(denominator > 0, denominator, 1.0)


class ChrFPlusPlus(ChrF):
    """chrF++: chrF with word n-grams up to order 2."""

    name = "chrF++"

    def __init__(self, *, text: TextPipeline = NO_STEPS, lowercase: bool = False, whitespace: bool = False) -> None:
        super().__init__(text=text, word_order=2, lowercase=lowercase, whitespace=whitespace)


def _matches(counts: Sequence[Mapping[Any, int]]) -> np.ndarray:
    """Return how many n-grams each two of n texts share, (n, n) float32, from their n-gram counts. Exact below 2^24."""
    columns: dict[tuple[Any, int], int] = {}
    places = [
        (row, columns.setdefault((ngram, at_least), len(columns)))
        for row, of_text in enumerate(counts)
        for ngram, count in of_text.items()
        for at_least in range(count)
    ]
    rows, found = np.array(places, dtype=np.int64).reshape(-1, 2).T
    matched = np.zeros((len(counts), len(counts)), dtype=np.float32)
    for begin in range(0, len(columns), COLUMNS):
        some = (found >= begin) & (found < begin + COLUMNS)
        present = np.zeros((len(counts), min(COLUMNS, len(columns) - begin)), dtype=np.float32)
        present[rows[some], found[some] - begin] = 1.0
        matched += present @ present.T
    return matched
