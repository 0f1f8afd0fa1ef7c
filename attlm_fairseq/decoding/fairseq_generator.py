"""Language models inside fairseq's sequence generator: shallow fusion that keeps the LMs' states instead of reading every prefix anew.

At every position, the sentence end included, the generator maximises ``ln p_translation + sum_k weight_k ln p_k``, as fairseq's own
``--lm-path`` does for one LM: same scores, same hypotheses. Nothing of fairseq's search is repeated here; the LMs are added where the
translation models' probabilities are computed, follow the beam where those models' states do, and are forgotten with the batch.

Shapes: N rows of the batch (sentences times beam), K language models, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel
from fairseq.search import BeamSearch
from fairseq.sequence_generator import (
    EnsembleModel,
    EnsembleModelWithAlignment,
    SequenceGenerator,
    SequenceGeneratorWithAlignment,
)
from torch import Tensor

from attlm_fairseq.checkpoints.reading import check_finite, find_dictionary, is_checkpoint, read_plain_data
from attlm_fairseq.checkpoints.vocabulary import EOS, Vocabulary
from attlm_fairseq.decoding.decoder_lm import DecoderLM, SteppedLM
from attlm_fairseq.decoding.kenlm_lm import EMPTY, KenLMDecoderLM
from attlm_fairseq.decoding.vocabulary_map import fit_vocabulary
from attlm_fairseq.errors import InputError, NoDictionaryError
from attlm_fairseq.modules.memory import READERS

PIECE = 64  # values whose maximum is taken together where a few of very many are looked for


@dataclass(frozen=True)
class FusedLM:
    """A language model in the decoder's vocabulary, and how much it counts."""

    name: str
    lm: SteppedLM
    weight: float


class FairseqLM:
    """One of fairseq's own language models (``transformer_lm``, ``lstm_lm``, ..) as a :class:`SteppedLM`.

    fairseq changes its incremental states in place: here a state is used up when it is stepped or selected from.
    """

    def __init__(self, model: FairseqLanguageModel) -> None:
        self.model = model.eval()
        self.vocabulary = Vocabulary(model.decoder.dictionary.symbols)
        self.eos = EOS
        self.incremental = isinstance(model.decoder, FairseqIncrementalDecoder)

    def start(self, rows: int = 1) -> tuple[Tensor, dict]:
        return torch.empty(rows, 0, dtype=torch.long), {}

    @torch.inference_mode()
    def step(self, states: tuple[Tensor, dict], tokens: Tensor) -> tuple[Tensor, tuple[Tensor, dict]]:
        prefix, incremental = states
        prefix = torch.cat((prefix.to(tokens.device), tokens.unsqueeze(1)), dim=1)
        output = self.model.decoder(prefix, incremental_state=incremental) if self.incremental else self.model(prefix)
        return self.model.get_normalized_probs(output, log_probs=True)[:, -1].float(), (prefix, incremental)

    def select(self, states: tuple[Tensor, dict], rows: Tensor) -> tuple[Tensor, dict]:
        prefix, incremental = states
        if self.incremental:
            self.model.decoder.reorder_incremental_state_scripting(incremental, rows)
        return prefix[rows], incremental


class FusedEnsemble(EnsembleModel):
    """fairseq's ensemble of translation models with language models added to its log-probabilities.

    The LMs' states live from one ``forward_encoder``, with which a batch begins, to the next.
    """

    def __init__(self, models: Sequence, lms: Sequence[FusedLM]) -> None:
        super().__init__(models)
        self.lms = list(lms)
        self.forget()

    def forget(self) -> None:
        self.states: list[Any] | None = None  # each LM's, after the distinct hypotheses of the last step
        self.last: list[Tensor] = []  # each LM's ln p (distinct hypotheses, V) of that step
        self.distinct = torch.empty(0, dtype=torch.long)  # which of those each of its rows is
        self.order: Tensor | None = None  # its rows that are the rows of the next
        self.scores = torch.empty(0)  # ln p of the tokens taken so far: (N, positions, K)

    def forward_encoder(self, net_input: dict[str, Tensor]) -> Any:
        self.forget()
        return super().forward_encoder(net_input)

    def forward_decoder(self, tokens: Tensor, encoder_outs: Any, incremental_states: Any, temperature: float = 1.0) -> tuple:
        log_probs, attention = super().forward_decoder(tokens, encoder_outs, incremental_states, temperature)
        newest = tokens[:, -1]
        first = self.states is None
        if first:
            self.states = [fused.lm.start() for fused in self.lms]
            self.scores = log_probs.new_zeros(len(tokens), 0, len(self.lms), dtype=torch.float)
            before = torch.zeros_like(newest)
        else:
            rows = torch.arange(len(tokens), device=tokens.device) if self.order is None else self.order
            self.scores = torch.cat((self.scores[rows], self.of_tokens(rows, newest)), dim=1)
            before = self.distinct[rows]
        # LMs do not see the source: hypotheses of the same words, whosever translations they are, are one row of theirs
        vocabulary = log_probs.size(1)
        kept, self.distinct = (before * vocabulary + newest).unique(return_inverse=True)
        parents, taken = kept.div(vocabulary, rounding_mode="floor"), kept % vocabulary
        self.last = []
        for place, fused in enumerate(self.lms):
            states = self.states[place] if first else fused.lm.select(self.states[place], parents)
            lm_log_probs, self.states[place] = fused.lm.step(states, taken)
            self.last.append(lm_log_probs)
            lm_log_probs = lm_log_probs.to(log_probs)
            at_once = 32 if tokens.device.type == "cpu" else len(tokens)  # few stay in a processor's cache until they are added
            for sums, some in zip(log_probs.split(at_once), self.distinct.split(at_once), strict=True):
                sums.add_(lm_log_probs.index_select(0, some), alpha=fused.weight)  # in place: they are nobody else's
        self.order = None
        return log_probs, attention

    def reorder_incremental_state(self, incremental_states: Any, new_order: Tensor) -> None:
        """Take the rows ``new_order``: beams that moved, without the sentences that have left the batch."""
        super().reorder_incremental_state(incremental_states, new_order)
        self.order = new_order

    def become(self, rows: Tensor) -> None:
        """Have each row of the last step be the hypothesis that ``rows`` (N,) names, with its tokens and probabilities."""
        self.distinct, self.scores = self.distinct[rows], self.scores[rows]

    def ended(self, rows: Tensor) -> Tensor:
        """ln p of each token and the sentence end, for hypotheses that end now: rows (n,) -> (n, positions, K)."""
        return torch.cat((self.scores[rows], self.of_tokens(rows, torch.full_like(rows, EOS))), dim=1)

    def of_tokens(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """ln p of one token for each of the rows (n,) of the last step: (n, 1, K)."""
        found = [last[self.distinct[rows], tokens] for last in self.last]
        return torch.stack(found, dim=-1).unsqueeze(1) if found else self.scores.new_zeros(len(rows), 1, 0)


class FusedEnsembleWithAlignment(FusedEnsemble, EnsembleModelWithAlignment):
    """The same where ``--print-alignment`` asks for alignments."""


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``rows.topk(count)`` of (S, n): values and places (S, count), the largest first. On a processor it takes a third of the time.

    The largest values are in those pieces of a row that have the largest maxima, no more pieces than values.
    """
    pieces = rows.size(1) // PIECE
    if rows.device.type != "cpu" or pieces <= count:
        return tuple(rows.topk(count))
    chosen = rows[:, : pieces * PIECE].unflatten(1, (pieces, PIECE)).amax(dim=-1).topk(count, sorted=False).indices
    within = (chosen.unsqueeze(-1) * PIECE + torch.arange(PIECE)).flatten(1)
    left_over = torch.arange(pieces * PIECE, rows.size(1)).expand(len(rows), -1)
    places = torch.cat((within, left_over), dim=1)
    best = rows.gather(1, places).topk(count)
    return best.values, places.gather(1, best.indices)


class FastBeamSearch(BeamSearch):
    """fairseq's beam search, with :func:`largest`."""

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Tensor | None,
        prev_output_tokens: Tensor | None = None,
        original_batch_idxs: Tensor | None = None,
        candidate_multiple: int = 2,
    ) -> tuple[Tensor, Tensor, Tensor]:
        totals = lprobs[:, :1] if step == 0 else lprobs + scores[:, :, step - 1].unsqueeze(-1)  # at first all hypotheses are alike
        totals = totals.reshape(len(totals), -1)
        count = min(candidate_multiple * lprobs.size(1), totals.size(1) - 1)
        values, places = self.best(totals, count, lprobs.size(), prev_output_tokens)
        return values, places % lprobs.size(2), places // lprobs.size(2)

    def best(self, totals: Tensor, count: int, size: Sequence[int], tokens: Tensor | None) -> tuple[Tensor, Tensor]:
        """The largest of totals (S, beam V), and their places: (S, count). ``size`` is (S, beam, V); ``tokens`` (S beam, T) were taken."""
        return largest(totals, count)


class FewTokensBeamSearch(FastBeamSearch):
    """Beam search with n-gram models that are asked only for the tokens that can still be among the best.

    An n-gram model adds at most 0, its weight being positive: a token whose score without it is below the scores with it of as many
    tokens as the search takes cannot be one of them. What is found is what asking for all would find.
    """

    def __init__(self, dictionary: Any, lms: Sequence[FusedLM]) -> None:
        super().__init__(dictionary)
        self.lms = list(lms)

    def best(self, totals: Tensor, count: int, size: Sequence[int], tokens: Tensor | None) -> tuple[Tensor, Tensor]:
        _, beam, vocabulary = size
        before = [[last_tokens(row, fused.lm.context) for row in tokens.tolist()] for fused in self.lms]
        fused_totals = torch.full_like(totals, -math.inf)
        for sentence, row in enumerate(totals):
            known: dict[int, float] = {}  # place in the row -> what the n-gram models add
            asked = 2 * count
            while True:
                best, places = (found[0] for found in largest(row.unsqueeze(0), min(asked, len(row))))
                for place in places.tolist():
                    if place not in known:
                        hypothesis, token = sentence * beam + place // vocabulary, place % vocabulary
                        added = (fused.weight * fused.lm.score(of[hypothesis], token) for fused, of in zip(self.lms, before, strict=True))
                        known[place] = sum(added)
                fused_best = (best + best.new_tensor([known[place] for place in places.tolist()])).topk(count).values
                if asked >= len(row) or fused_best[-1] >= best[-1]:
                    break
                asked *= 4
            found = list(known)
            fused_totals[sentence, found] = row[found] + row.new_tensor(list(known.values()))
        return largest(fused_totals, count)


def last_tokens(tokens: Sequence[int], count: int) -> tuple[int, ...]:
    """The last tokens as a state of :class:`KenLMDecoderLM`."""
    kept = tokens[-count:]
    return (*[EMPTY] * (count - len(kept)), *kept)


class FusedGenerator(SequenceGenerator):
    """fairseq's generator with language models. Each hypothesis has ``lm_scores`` (K, positions) besides what fairseq gives it.

    ``report`` tells, whenever asked, what the LMs did to the hypotheses so far.
    """

    def __init__(self, models: Sequence, dictionary: Any, *, lms: Sequence[FusedLM], **options: Any) -> None:
        super().__init__(models, dictionary, **options)
        plain_beam = type(self.search) is BeamSearch
        self.few_tokens = [fused for fused in lms if plain_beam and isinstance(fused.lm, KenLMDecoderLM) and fused.weight > 0]
        every_token = [fused for fused in lms if fused not in self.few_tokens]
        kind = FusedEnsembleWithAlignment if isinstance(self.model, EnsembleModelWithAlignment) else FusedEnsemble
        self.model = kind(list(self.model.models), every_token).eval()
        if plain_beam:
            self.search = FewTokensBeamSearch(dictionary, self.few_tokens) if self.few_tokens else FastBeamSearch(dictionary)
        self.lms = [*every_token, *self.few_tokens]  # in the order of `lm_scores`
        self.report = FusionReport([(fused.name, fused.weight) for fused in self.lms])

    def generate(self, models: Sequence, sample: dict, **options: Any) -> list[list[dict[str, Tensor]]]:
        hypotheses = super().generate(models, sample, **options)
        self.report.add(hypotheses, self.len_penalty if self.normalize_scores else 0.0)
        return hypotheses

    def _prefix_tokens(self, step: int, lprobs: Tensor, scores: Tensor, tokens: Tensor, prefix_tokens: Tensor, beam_size: int) -> tuple:
        """Where a forced prefix ends the sentence, all hypotheses become the first one, for the LMs too."""
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
            if before[sentence] < len(finalized[sentence]):  # a sentence takes no more hypotheses than the beam is wide
                hypothesis = finalized[sentence][before[sentence]]
                ngram = [of_row.new_tensor(fused.lm.sequence(hypothesis["tokens"].tolist())) for fused in self.few_tokens]
                hypothesis["lm_scores"] = torch.stack([*of_row, *ngram])
                before[sentence] += 1
        return newly_finished


class FusedGeneratorWithAlignment(FusedGenerator, SequenceGeneratorWithAlignment):
    """The same where ``--print-alignment`` asks for alignments."""


class FusionReport:
    """What the language models did: sums over the best hypotheses, and how often they chose them."""

    def __init__(self, lms: Sequence[tuple[str, float]]) -> None:
        """``lms`` are names and weights in the order of the hypotheses' ``lm_scores``."""
        self.lms = list(lms)
        self.sentences = 0
        self.tokens = 0
        self.sums = [0.0] * (len(self.lms) + 1)  # the translation model's and each LM's
        self.chosen = 0
        self.compared = 0
        self.differ = 0

    def add(self, hypotheses: Sequence[Sequence[dict[str, Tensor]]], len_penalty: float) -> None:
        """Count a batch: for each sentence its hypotheses, best first."""
        weights = torch.tensor([weight for _, weight in self.lms])
        for of_sentence in hypotheses:
            if not of_sentence:
                continue
            lm = torch.stack([hypothesis["lm_scores"].sum(dim=1).cpu() for hypothesis in of_sentence])  # (hypotheses, K)
            total = torch.stack([hypothesis["positional_scores"].float().sum().cpu() for hypothesis in of_sentence])
            translation = total - lm @ weights
            lengths = torch.tensor([len(hypothesis["tokens"]) for hypothesis in of_sentence], dtype=torch.float)
            self.sentences += 1
            self.tokens += int(lengths[0])
            self.sums = [have + more for have, more in zip(self.sums, [translation[0].item(), *lm[0].tolist()], strict=True)]
            self.chosen += int((translation / lengths**len_penalty).argmax()) != 0

    def compare(self, hypotheses: Sequence[Sequence[dict]], without: Sequence[Sequence[dict]]) -> None:
        """Count in how many sentences the best hypothesis is another than that of decoding without the LMs."""
        for fused, plain in zip(hypotheses, without, strict=True):
            if fused and plain:
                self.compared += 1
                self.differ += not torch.equal(fused[0]["tokens"].cpu(), plain[0]["tokens"].cpu())

    def __str__(self) -> str:
        """Two lines; natural log, means over the tokens of the best hypotheses with their ends."""
        if not self.sentences:
            return "language models: no sentence was decoded"
        names = ["the translation model", *(f"{name} (weight {weight:g})" for name, weight in self.lms)]
        means = ", ".join(f"{name} {value / max(1, self.tokens):.4f}" for name, value in zip(names, self.sums, strict=True))
        lines = [
            f"language models: mean ln p of a token of the best hypothesis, sentence ends included: {means}",
            f"language models: put another hypothesis of the beam first in {share(self.chosen, self.sentences)}",
        ]
        if self.compared:
            lines[-1] += f"; the best one differs from decoding without them in {share(self.differ, self.compared)}"
        return "\n".join(lines)


def share(count: int, of: int) -> str:
    return f"{count} of {of} sentences ({count / of:.1%})"


def parse_lms(text: str, option: str = "--lms") -> list[tuple[Path, float]]:
    """``PATH=WEIGHT:PATH=WEIGHT..`` as files and weights; the ``option`` is for messages. Raises InputError."""
    lms = []
    for part in text.split(":"):
        path, equals, weight = part.rpartition("=")
        try:
            lms.append((Path(path), float(weight)))
        except ValueError:
            equals = ""
        if not equals or not path or not math.isfinite(lms[-1][1]):
            raise InputError(f"{option}: found {part!r}, expected PATH=WEIGHT, such as lm.pt=0.3, several joined by ':'")
    return lms


def load_lm(
    path: Path,
    vocabulary: Vocabulary,
    *,
    dictionary: Path | None = None,
    by_symbol: bool = False,
    fallback: Path | None = None,
    device: str = "cpu",
) -> SteppedLM:
    """A language model for a decoder with this vocabulary: a checkpoint or folder of this package, a checkpoint of another of fairseq's
    language models, or a KenLM file.

    A checkpoint's dictionary is ``dictionary``, or the ``dict.txt`` beside it or in its data folder, or else ``fallback``. Raises
    InputError: unusable files, or a dictionary that differs from the decoder's (unless ``by_symbol``, see :class:`MappedLM`).
    """
    if path.is_dir():
        return fit_vocabulary(DecoderLM.load(path, dictionary, device), vocabulary, path, by_symbol)
    if not is_checkpoint(path):
        return KenLMDecoderLM(path, vocabulary)
    content = read_plain_data(path)
    config = content.get("cfg") or {"task": content.get("args"), "model": content.get("args")}  # before 2021 fairseq saved one Namespace
    if dictionary is None:
        try:
            dictionary = find_dictionary(path, config)
        except NoDictionaryError:
            if fallback is None or not fallback.is_file():
                raise
            dictionary = fallback
    model = config.get("model")
    if str(model.get("_name") if isinstance(model, dict) else None).startswith(tuple(READERS)):
        return fit_vocabulary(DecoderLM.load(path, dictionary, device), vocabulary, path, by_symbol)
    if dictionary.name != "dict.txt":
        raise InputError("fairseq's own language models read a file of the name dict.txt; rename it", path=dictionary)
    [model], _ = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(dictionary.parent)})
    if not isinstance(model, FairseqLanguageModel):
        raise InputError(f"holds a {type(model).__name__}, not a language model", path=path)
    check_finite(model, path)
    return fit_vocabulary(FairseqLM(model.to(device)), vocabulary, path, by_symbol)
