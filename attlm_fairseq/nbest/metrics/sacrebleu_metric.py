"""Metrics computed by sacreBLEU from texts, and TER, the one that counts edits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attlm_fairseq.nbest.metrics.metric import ErrorRate, TextMetric, each_text_once, reference_count, require_references
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline


class SacreBLEUMetric(TextMetric):
    """A sacreBLEU metric. The corpus score equals sacreBLEU's corpus score with the same options."""

    _metric: Any

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        require_references(references)
        metric = self._metric
        # sacreBLEU's public functions process the references again for every hypothesis; its internal functions allow to do it once.
        reference_info = metric._extract_reference_info([metric._preprocess_segment(self.prepared(reference)) for reference in references])

        def compare(hypothesis: str) -> Sequence[float]:
            return metric._compute_segment_statistics(metric._preprocess_segment(self.prepared(hypothesis)), reference_info)

        return each_text_once(compare, hypotheses)

    def units(self, text: str) -> Sequence[str]:
        return self._metric._preprocess_segment(text).split()

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        self._metric.num_refs = reference_count(references) or -1
        return self._metric.get_signature().format() + self._prepared_signature()


class TER(SacreBLEUMetric, ErrorRate):
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
