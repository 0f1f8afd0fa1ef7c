"""Corpus metrics as sums of statistics: what a list contributes is added up, and the score is a function of the sums.

This is what makes exact tuning and bootstrap resampling cheap: each hypothesis is compared with its references once.
S is the number of statistics of a metric.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.text.pipeline import TextPipeline


class Metric(Protocol):
    """A corpus metric with additive statistics."""

    name: str
    higher_is_better: bool
    text: TextPipeline  # what hypotheses and references go through before they are compared

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """The statistics of each hypothesis of one list against the references of that list (at least one): (n, S) float64."""
        ...

    def score(self, totals: np.ndarray) -> np.ndarray:
        """The corpus score in percent from statistics summed over the corpus: (..., S) -> (...)."""
        ...

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        """How the score is computed, in sacreBLEU's way. ``references`` are those of each list; only their number counts."""
        ...

    def prepared(self, text: str) -> str:
        """A hypothesis or reference as it is compared."""
        ...


class _OfText:
    """Text steps that hypotheses and references go through before they are compared; none by default."""

    text = TextPipeline()

    def prepared(self, text: str) -> str:
        return self.text.prepared(text)

    def _prepared_signature(self) -> str:
        return f"|text:{','.join(self.text.signature())}" if self.text.steps else ""


def corpus_score(metric: Metric, statistics: np.ndarray) -> float:
    """The score in percent of a corpus given the statistics of its chosen hypotheses, (n_lists, S)."""
    return float(metric.score(np.asarray(statistics, dtype=np.float64).sum(axis=0)))


class ErrorRate(_OfText, ABC):
    """Statistics (errors, reference length), summed; score 100 * errors / length.

    With no reference tokens in the whole corpus the score is 0 without errors and 100 with any, as in sacreBLEU's TER.
    """

    name: str
    higher_is_better = False

    @abstractmethod
    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray: ...

    def score(self, totals: np.ndarray) -> np.ndarray:
        totals = np.asarray(totals, dtype=np.float64)
        errors, length = totals[..., 0], totals[..., 1]
        return 100.0 * np.where(length > 0, errors / np.where(length > 0, length, 1.0), errors > 0)


class EditRate(ErrorRate):
    """Levenshtein distance over tokens, substitution, deletion and insertion costing 1 each.

    With several references the one with the fewest errors counts, with its own length; on a tie the longest, whatever their order.
    A list with an empty reference contributes its insertions and no length.
    """

    def __init__(self, *, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    @abstractmethod
    def _tokens(self, text: str) -> Sequence[str]: ...

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        from rapidfuzz.distance import Levenshtein

        _require(references)
        encode = self._encoder()
        targets = [encode(reference) for reference in references]

        def compare(hypothesis: str) -> tuple[int, int]:
            tokens = encode(hypothesis)
            return min(((Levenshtein.distance(tokens, target), len(target)) for target in targets), key=lambda pair: (pair[0], -pair[1]))

        return _each_text_once(compare, hypotheses)

    def distances(self, texts: Sequence[str]) -> np.ndarray:
        """The edits between each two of the texts, (n, n) float64."""
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        encoded = list(map(self._encoder(), texts))
        return cdist(encoded, encoded, scorer=Levenshtein.distance, dtype=np.float64)

    def _encoder(self) -> Callable[[str], str]:
        """Texts as strings of one character a token: rapidfuzz compares strings exactly and lists by hash."""
        alphabet: dict[str, str] = {}

        def encode(text: str) -> str:
            text = self.prepared(text)
            tokens = self._tokens(text.lower() if self.lowercase else text)
            return "".join([alphabet.setdefault(token, chr(len(alphabet))) for token in tokens])

        return encode

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        import rapidfuzz

        case = "lc" if self.lowercase else "mixed"
        parts = f"nrefs:{_nrefs(references) or 'var'}|case:{case}|{self._token_signature()}{self._prepared_signature()}"
        return f"{parts}|rapidfuzz:{rapidfuzz.__version__}"

    @abstractmethod
    def _token_signature(self) -> str: ...


class WER(EditRate):
    """Word error rate. Words are what whitespace separates; nothing is normalised but, where asked, case."""

    name = "WER"

    def _tokens(self, text: str) -> Sequence[str]:
        return text.split()

    def _token_signature(self) -> str:
        return "tok:whitespace"


class CER(EditRate):
    """Character error rate over Unicode code points. The space between two words is one character unless ``spaces`` is False."""

    name = "CER"

    def __init__(self, *, lowercase: bool = False, spaces: bool = True) -> None:
        super().__init__(lowercase=lowercase)
        self.spaces = spaces

    def _tokens(self, text: str) -> Sequence[str]:
        return (" " if self.spaces else "").join(text.split())

    def _token_signature(self) -> str:
        return f"tok:char|space:{'yes' if self.spaces else 'no'}"


class _SacreBLEU(_OfText):
    """The statistics of a sacreBLEU metric; the corpus score equals sacreBLEU's corpus score of the same options."""

    _metric: Any

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        _require(references)
        metric = self._metric
        # sacreBLEU's public functions go through its references again for every hypothesis; its parts do not have to.
        reference_info = metric._extract_reference_info([metric._preprocess_segment(self.prepared(reference)) for reference in references])

        def compare(hypothesis: str) -> Sequence[float]:
            return metric._compute_segment_statistics(metric._preprocess_segment(self.prepared(hypothesis)), reference_info)

        return _each_text_once(compare, hypotheses)

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        self._metric.num_refs = _nrefs(references) or -1
        return self._metric.get_signature().format() + self._prepared_signature()


class BLEU(_SacreBLEU):
    """BLEU-4 with exponential smoothing, sacreBLEU's corpus_bleu.

    Statistics: length, closest reference length, matched n-grams (n = 1..4), n-grams (n = 1..4).
    ``tokenize`` is a sacreBLEU tokenizer that needs no download: 13a (default), none, intl, char, zh, ja-mecab, ko-mecab.
    """

    name = "BLEU"
    higher_is_better = True

    def __init__(self, *, tokenize: str = "13a", lowercase: bool = False) -> None:
        from sacrebleu.metrics import BLEU as SacreBLEU  # noqa: N811

        known = [name for name in SacreBLEU.TOKENIZERS if not name.startswith(("spm", "flores", "spBLEU"))]  # these fetch a model
        if tokenize not in known:
            raise InputError(f"unknown BLEU tokenizer {tokenize!r}; known are {', '.join(known)}")
        try:
            self._metric = SacreBLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        except (ImportError, RuntimeError) as error:
            raise InputError(f"BLEU tokenizer {tokenize!r} needs a package that is not installed: {error}") from error

    def score(self, totals: np.ndarray) -> np.ndarray:
        totals = np.asarray(totals, dtype=np.float64)
        length, reference_length, matched, ngrams = totals[..., 0], totals[..., 1], totals[..., 2:6], totals[..., 6:10]
        none = matched == 0
        halvings = np.cumsum(none, axis=-1)  # the k-th order without a match counts 1 / 2^k matches
        with np.errstate(divide="ignore", invalid="ignore"):
            log_precisions = np.where(none, -np.log(2.0) * halvings, np.log(matched)) - np.log(ngrams)
            log_brevity = np.where(length < reference_length, 1.0 - reference_length / length, 0.0)
            score = 100.0 * np.exp(log_precisions.mean(axis=-1) + log_brevity)
        # Without any match, or without any n-gram of some order, sacreBLEU's score is 0.
        return np.where(none.all(axis=-1) | (ngrams == 0).any(axis=-1), 0.0, score)


class ChrF(_SacreBLEU):
    """chrF (character n-grams up to 6; with ``word_order=2`` chrF++), sacreBLEU's corpus_chrf.

    Statistics: for each order n-grams of the hypothesis, of the reference, and matched.
    """

    name = "chrF"
    higher_is_better = True

    def __init__(
        self, *, char_order: int = 6, word_order: int = 0, beta: int = 2, lowercase: bool = False, whitespace: bool = False
    ) -> None:
        from sacrebleu.metrics import CHRF

        self.beta = beta
        self._metric = CHRF(char_order=char_order, word_order=word_order, beta=beta, lowercase=lowercase, whitespace=whitespace)

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


class TER(_SacreBLEU, ErrorRate):
    """Translation edit rate (edits with block shifts), sacreBLEU's corpus_ter; like there, case does not count unless asked.

    Statistics: edits to the closest reference, mean length of the references.
    """

    name = "TER"

    def __init__(self, *, lowercase: bool = True, normalized: bool = False, no_punct: bool = False, asian_support: bool = False) -> None:
        from sacrebleu.metrics import TER as SacreTER  # noqa: N811

        self._metric = SacreTER(normalized=normalized, no_punct=no_punct, asian_support=asian_support, case_sensitive=not lowercase)


METRICS: dict[str, type] = {"wer": WER, "cer": CER, "bleu": BLEU, "chrf": ChrF, "ter": TER}


def make_metric(name: str, *, text: TextPipeline | None = None, **options: Any) -> Metric:
    """The metric of that name (a key of METRICS, in any case) with its options, of texts that have gone through the steps ``text``.

    Raises InputError for an unknown name or option.
    """
    if name.lower() not in METRICS:
        raise InputError(f"unknown metric {name!r}; known are {', '.join(METRICS)}")
    metric = METRICS[name.lower()]
    known = metric.__init__.__kwdefaults__
    for option in options:
        if option not in known:
            raise InputError(f"metric {name!r} has no option {option!r}; its options are {', '.join(known)}")
    made = metric(**options)
    if text is not None:
        made.text = text
    return made


def _require(references: Sequence[str]) -> None:
    if isinstance(references, str) or not references:
        raise ValueError("references must be a sequence of at least one string")


def _each_text_once(compare: Any, hypotheses: Sequence[str]) -> np.ndarray:
    """Rows of statistics; lists repeat hypotheses, and comparing is the expensive part."""
    rows = {text: compare(text) for text in dict.fromkeys(hypotheses)}
    return np.array([rows[text] for text in hypotheses], dtype=np.float64)


def _nrefs(references: Iterable[Sequence[str]]) -> int | None:
    """The number of references of each list, None where it varies."""
    counts = {len(of_list) for of_list in references}
    return counts.pop() if len(counts) == 1 else None
