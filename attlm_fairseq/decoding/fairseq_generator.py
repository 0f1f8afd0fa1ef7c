"""fairseq's sequence generator with language models: shallow fusion that keeps the LMs' states.

At every position, ``</s>`` included, the generator maximises ``ln p_translation + sum_k weight_k ln p_k``. fairseq's own
``--lm-path`` computes the same for one LM, but reads every prefix from its start; scores and hypotheses are equal.

The search is fairseq's own. ``fairseq_ensemble`` adds the LMs' scores to the translation models' log-probabilities. The LMs'
states are reordered together with those of the translation models and dropped at the end of the batch.

Shapes: K language models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.search import BeamSearch, Sampling, Search
from fairseq.sequence_generator import EnsembleModelWithAlignment, SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import EOS, Vocabulary
from attlm_fairseq.decoding.fairseq_ensemble import FusedEnsemble, FusedEnsembleWithAlignment
from attlm_fairseq.decoding.fairseq_lms import FusedLM
from attlm_fairseq.decoding.fairseq_search import FastBeamSearch, FewTokensBeamSearch, FusedSampling
from attlm_fairseq.decoding.fusion_report import FusionReport
from attlm_fairseq.decoding.vocabulary_map import fit_vocabulary
from attlm_fairseq.errors import InputError


class FusedGenerator(SequenceGenerator):
    """fairseq's generator with language models. Each hypothesis also has ``lm_scores`` (K, positions), natural log.

    ``report`` describes the LMs' effect on the hypotheses so far.
    """

    model: FusedEnsemble
    search: Search

    def __init__(self, models: Sequence, dictionary: Any, *, lms: Sequence[FusedLM], **options: Any) -> None:
        super().__init__(models, dictionary, **options)
        if self.eos != EOS:
            raise InputError(
                f"the model ends its sentences with {dictionary[self.eos]}, language models with {dictionary[EOS]}: decode without --lms"
            )
        symbols = Vocabulary(dictionary.symbols)
        for fused in lms:
            fit_vocabulary(fused.lm, symbols, fused.name)  # a program may have made it without
        plain_beam = type(self.search) is BeamSearch
        few_tokens = [fused for fused in lms if plain_beam and fused.ngram is not None and fused.weight > 0]
        every_token = [fused for fused in lms if fused not in few_tokens]
        self.ngrams = [(fused.ngram, fused.weight) for fused in few_tokens if fused.ngram is not None]
        kind = FusedEnsembleWithAlignment if isinstance(self.model, EnsembleModelWithAlignment) else FusedEnsemble
        self.model = kind(list(self.model.models), every_token).eval()
        if plain_beam:
            self.search = FewTokensBeamSearch(dictionary, self.ngrams) if self.ngrams else FastBeamSearch(dictionary)
        elif type(self.search) is Sampling:
            self.search = FusedSampling(dictionary, self.search.sampling_topk, self.search.sampling_topp)
        self.lms = [*every_token, *few_tokens]  # in the order of `lm_scores`
        self.report = FusionReport([(fused.name, fused.weight) for fused in self.lms])
        self.without_lms: SequenceGenerator | None = None

    def generate(
        self, models: Sequence, sample: dict, prefix_tokens: Tensor | None = None, **options: Any
    ) -> list[list[dict[str, Tensor]]]:
        """Return the hypotheses of each sentence, best first. Language tags that ``prefix_tokens`` forces are not shown to the LMs."""
        self.tags = int(prefix_tokens is not None and self._begins_with_tags(prefix_tokens))
        self.model.tags = self.tags
        if isinstance(self.search, FewTokensBeamSearch):
            self.search.tags = self.tags
        hypotheses = super().generate(models, sample, prefix_tokens=prefix_tokens, **options)
        self.report.add(hypotheses, self.len_penalty if self.normalize_scores else 0.0)
        if self.without_lms is not None:
            self.report.compare(hypotheses, self.without_lms.generate(models, sample, prefix_tokens=prefix_tokens, **options))
        return hypotheses

    def _begins_with_tags(self, prefix_tokens: Tensor) -> bool:
        """Whether all sentences begin with a symbol that the output does not show: a language tag."""
        tags = self.symbols_to_strip_from_output - {self.eos}
        return prefix_tokens.numel() > 0 and tags.issuperset(prefix_tokens[:, 0].tolist())

    def _prefix_tokens(self, step: int, lprobs: Tensor, scores: Tensor, tokens: Tensor, prefix_tokens: Tensor, beam_size: int) -> tuple:
        """Handle a forced prefix that ends the sentence: fairseq then copies the first hypothesis to all; so must the LMs."""
        found = super()._prefix_tokens(step, lprobs, scores, tokens, prefix_tokens, beam_size)
        rows = torch.arange(len(tokens), device=tokens.device).view(-1, beam_size)
        self.model.become(torch.where(prefix_tokens[:, step : step + 1] == self.eos, rows[:, :1], rows).flatten())
        return found

    def finalize_hypos(
        self, step: int, bbsz_idx: Tensor, eos_scores: Tensor, tokens: Tensor, scores: Tensor, finalized: list, finished: list, *rest: Any
    ) -> list[int]:
        before = [len(hypotheses) for hypotheses in finalized]
        open_sentences = [sentence for sentence, done in enumerate(finished) if not done]
        newly_finished = super().finalize_hypos(step, bbsz_idx, eos_scores, tokens, scores, finalized, finished, *rest)
        lm_scores = self.model.ended(bbsz_idx).transpose(1, 2)
        for row, of_row in zip(bbsz_idx.tolist(), lm_scores, strict=True):
            sentence = open_sentences[row // self.beam_size]
            if before[sentence] < len(finalized[sentence]):  # fairseq keeps at most beam-size hypotheses per sentence
                hypothesis = finalized[sentence][before[sentence]]
                taken = hypothesis["tokens"].tolist()[self.tags :]
                ngram = [of_row.new_tensor([0.0] * self.tags + lm.sequence(taken)) for lm, _ in self.ngrams]
                hypothesis["lm_scores"] = torch.stack([*of_row, *ngram])
                before[sentence] += 1
        return newly_finished


class FusedGeneratorWithAlignment(FusedGenerator, SequenceGeneratorWithAlignment):
    """``FusedGenerator`` for ``--print-alignment``."""
