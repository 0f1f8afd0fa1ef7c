"""Corpus metrics with additive statistics: each list contributes S numbers, and the score is a function of their sums.

This makes exact tuning and bootstrap resampling cheap: each hypothesis is compared with its references only once.
"""

from __future__ import annotations

import inspect
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.nbest.external_metric import PREFIX, ExternalMetric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline
from attlm_fairseq.text.unspaced import UNSPACED, ZERO_WIDTH_SPACE

PAIRS = 1 << 18  # text pairs whose statistics are in memory at once
COLUMNS = 4096  # n-grams counted at once


class ScoreOfSums(Protocol):
    """A corpus score that is a function of summed statistics: all that intervals and p-values need.

    Attributes:
        ratio: a score that is so many times the sum of the first statistic divided by that of the second says so: then the
            interval of a difference is exact. None for other scores.
    """

    ratio: float | None

    @property
    def name(self) -> str:
        """Return the name of the score."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the lowest and the highest possible score."""

    def score(self, totals: np.ndarray) -> np.ndarray:
        """Return the corpus score, in percent or a program's own unit, from statistics summed over the corpus: (..., S) -> (...)."""


class Metric(ScoreOfSums, Protocol):
    """A corpus metric of texts with additive statistics."""

    name: str
    higher_is_better: bool
    text: TextPipeline  # text steps for hypotheses and references before they are compared

    @property
    def ignores_case(self) -> bool:
        """Return whether texts that differ only in case are equal."""

    def compare_all(self, lists: Iterable[NbestList]) -> None:
        """Prepare for the statistics of all hypotheses of these lists. A metric that runs a program compares them in one run."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return the statistics of each hypothesis of one list against its references (at least one): (n, S) float64."""

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        """Return the metric's settings in sacreBLEU's form. Only the number of ``references`` of each list matters."""

    def prepared(self, text: str) -> str:
        """Return a hypothesis or reference as it is compared, after the text steps."""

    def units(self, text: str) -> Sequence[str]:
        """Return the units (words or characters) by which reports compare a prepared text: the metric's, if it counts single edits."""


class _OfText(Metric, ABC):
    """A metric of texts: the steps ``text`` are applied to hypotheses and references before they are compared."""

    def __init__(self, text: TextPipeline) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.signature([])}>"

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 100.0 if self.higher_is_better else math.inf  # an error rate can exceed 100 %: there may be more errors than words

    @property
    def ignores_case(self) -> bool:
        ours, theirs = self.statistics(["A", "a"], ["a"])
        return bool((ours == theirs).all())

    def compare_all(self, lists: Iterable[NbestList]) -> None:
        del lists  # ``statistics`` compares on the spot

    def prepared(self, text: str) -> str:
        return self.text.prepared(text)

    def _prepared_signature(self) -> str:
        return f"|text:{','.join(self.text.signature())}" if self.text.steps else ""


def corpus_score(metric: Metric, statistics: np.ndarray) -> float:
    """Return ``metric.score`` of a corpus from the statistics (n_lists, S) of its chosen hypotheses."""
    return float(metric.score(np.asarray(statistics, dtype=np.float64).sum(axis=0)))


class ErrorRate(_OfText):
    """An error rate, 100 * errors / reference length. Statistics: errors, reference length.

    If the whole corpus has no reference tokens, the score is 0 without errors and 100 with any, as in sacreBLEU's TER.
    """

    higher_is_better = False
    ratio: float | None = 100.0

    def score(self, totals: np.ndarray) -> np.ndarray:
        totals = np.asarray(totals, dtype=np.float64)
        errors, length = totals[..., 0], totals[..., 1]
        return 100.0 * np.where(length > 0, errors / np.where(length > 0, length, 1.0), errors > 0)


class Edits(NamedTuple):
    """What turns a reference into a hypothesis: numbers of tokens substituted, deleted from it and inserted into it."""

    substitutions: int
    deletions: int
    insertions: int
    length: int
    """Number of tokens of the reference."""

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions


class EditRate(ErrorRate):
    """Levenshtein distance over tokens; substitution, deletion and insertion cost 1 each.

    With several references, the one with the fewest errors counts, with its own length; on a tie the longest.
    A list with an empty reference contributes its insertions and no length.
    """

    unit: str = "tokens"
    """What the tokens are called, in the plural."""

    def __init__(self, *, text: TextPipeline = NO_STEPS, lowercase: bool = False) -> None:
        super().__init__(text)
        self.lowercase = lowercase

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        from rapidfuzz.distance import Levenshtein

        _require(references)
        encode = self._encoder()
        targets = [encode(reference) for reference in references]

        def compare(hypothesis: str) -> tuple[int, int]:
            tokens = encode(hypothesis)
            return min(((Levenshtein.distance(tokens, target), len(target)) for target in targets), key=lambda pair: (pair[0], -pair[1]))

        return _each_text_once(compare, hypotheses)

    def edits(self, hypothesis: str, references: Sequence[str]) -> Edits:
        """Return the edits of one minimal alignment with the reference that ``statistics`` counts."""
        from rapidfuzz.distance import Levenshtein

        _require(references)
        encode = self._encoder()
        tokens, targets = encode(hypothesis), [encode(reference) for reference in references]
        nearest = min(targets, key=lambda target: (Levenshtein.distance(tokens, target), -len(target)))
        counts = Counter(edit.tag for edit in Levenshtein.editops(nearest, tokens))
        return Edits(counts["replace"], counts["delete"], counts["insert"], len(nearest))

    def distances(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of edits between each two of the texts, (n, n) float64."""
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        encoded = list(map(self._encoder(), texts))
        return cdist(encoded, encoded, scorer=Levenshtein.distance, dtype=np.float64)

    def _encoder(self) -> Callable[[str], str]:
        """Return a function that encodes a text as one character per token: rapidfuzz compares strings exactly, but lists by hash."""
        alphabet: dict[str, str] = {}

        def encode(text: str) -> str:
            text = self.prepared(text)
            tokens = self.units(text.lower() if self.lowercase else text)
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
    """Word error rate. Words are separated by white space. Nothing is normalised, except case if ``lowercase`` is set."""

    name = "WER"
    unit = "words"

    def units(self, text: str) -> Sequence[str]:
        return text.split()

    def _token_signature(self) -> str:
        return "tok:whitespace"


class CER(EditRate):
    """Character error rate over Unicode code points. The space between two words is one character unless ``spaces`` is False."""

    name = "CER"
    unit = "characters"

    def __init__(self, *, text: TextPipeline = NO_STEPS, lowercase: bool = False, spaces: bool = True) -> None:
        super().__init__(text=text, lowercase=lowercase)
        self.spaces = spaces

    def units(self, text: str) -> Sequence[str]:
        return " ".join(text.split()) if self.spaces else "".join(text.replace(ZERO_WIDTH_SPACE, " ").split())

    def _token_signature(self) -> str:
        return f"tok:char|space:{'yes' if self.spaces else 'no'}"


class _SacreBLEU(_OfText):
    """A sacreBLEU metric. The corpus score equals sacreBLEU's corpus score with the same options."""

    _metric: Any

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        _require(references)
        metric = self._metric
        # sacreBLEU's public functions process the references again for every hypothesis; its internal functions allow to do it once.
        reference_info = metric._extract_reference_info([metric._preprocess_segment(self.prepared(reference)) for reference in references])

        def compare(hypothesis: str) -> Sequence[float]:
            return metric._compute_segment_statistics(metric._preprocess_segment(self.prepared(hypothesis)), reference_info)

        return _each_text_once(compare, hypotheses)

    def units(self, text: str) -> Sequence[str]:
        return self._metric._preprocess_segment(text).split()

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        self._metric.num_refs = _nrefs(references) or -1
        return self._metric.get_signature().format() + self._prepared_signature()


class NgramMetric(_SacreBLEU, ABC):
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


_WORD_OR_UNSPACED = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


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


class TER(_SacreBLEU, ErrorRate):
    """Translation edit rate (edits with block shifts), sacreBLEU's corpus_ter. Case is ignored by default, as in sacreBLEU.

    Statistics: edits to the closest reference, mean length of the references.
    """

    name = "TER"

    def __init__(
        self,
        *,
        text: TextPipeline = NO_STEPS,
        lowercase: bool = True,
        normalized: bool = False,
        no_punct: bool = False,
        asian_support: bool = False,
    ) -> None:
        from sacrebleu.metrics import TER as SacreTER  # noqa: N811

        super().__init__(text)
        self.lowercase, self.normalized, self.no_punct, self.asian_support = lowercase, normalized, no_punct, asian_support
        self._metric = SacreTER(normalized=normalized, no_punct=no_punct, asian_support=asian_support, case_sensitive=not lowercase)


METRICS: dict[str, type] = {"wer": WER, "cer": CER, "bleu": BLEU, "chrf": ChrF, "chrf++": ChrFPlusPlus, "ter": TER}


def make_metric(name: str, *, text: TextPipeline = NO_STEPS, **options: Any) -> Metric:
    """Make the metric of this name, on texts after the steps ``text``.

    Args:
        name: a key of METRICS, in any case, or ``external:COMMAND``.
        text: text steps for hypotheses and references.
        options: keyword options of the metric.

    Raises:
        InputError: the name or an option is unknown.
    """
    require_type("metric", name, str, "a name such as 'wer'")
    if name.startswith(PREFIX):
        if options:
            raise InputError(f"metric {name!r} has no option {next(iter(options))!r}")
        return ExternalMetric(name.removeprefix(PREFIX), text=text)
    if name.lower() not in METRICS:
        raise InputError(f"unknown metric {name!r}; known are {', '.join(METRICS)} and {PREFIX}COMMAND")
    metric = METRICS[name.lower()]
    known = [option for option in inspect.signature(metric).parameters if option != "text"]
    for option in options:
        if option not in known:
            raise InputError(f"metric {name!r} has no option {option!r}; its options are {', '.join(known)}")
    return metric(text=text, **options)


def _require(references: Sequence[str]) -> None:
    if isinstance(references, str) or not references:
        raise ValueError("references must be a sequence of at least one string")


def _each_text_once(compare: Any, hypotheses: Sequence[str]) -> np.ndarray:
    """Return the statistics of all hypotheses. Lists repeat texts, and comparing is slow, so each text is compared once."""
    rows = {text: compare(text) for text in dict.fromkeys(hypotheses)}
    return np.array([rows[text] for text in hypotheses], dtype=np.float64)


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


def _nrefs(references: Iterable[Sequence[str]]) -> int | None:
    """Return the number of references of each list; None if it varies."""
    counts = {len(of_list) for of_list in references}
    return counts.pop() if len(counts) == 1 else None
