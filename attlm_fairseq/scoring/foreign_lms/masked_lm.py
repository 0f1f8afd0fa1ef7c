"""Masked language models of Hugging Face (such as BERT) as scorers, by pseudo-log-likelihood.

A token's score is ``ln p(token | the sentence with this token masked)`` (Salazar et al. 2020). If a word has several
tokens, those to the right of the token are masked too (within-word left-to-right, Kauf & Ivanova 2023): otherwise the
rest of a rare word gives it away. The sum over a sentence is not a log-probability: use it as a feature with a weight,
not in a mixture.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attlm_fairseq.batching import padded_batches
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import FileHash
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.deviation import Deviation, measured_on
from attlm_fairseq.scoring.foreign_lms.history_room import last_that_fit, score_after
from attlm_fairseq.scoring.foreign_lms.huggingface_files import cached_folder, load_pretrained, model_files
from attlm_fairseq.scoring.foreign_lms.huggingface_lm import most_positions
from attlm_fairseq.scoring.foreign_lms.huggingface_tokens import encode_words, line_end
from attlm_fairseq.scoring.foreign_lms.segmented import joined
from attlm_fairseq.scoring.foreign_lms.token_lm import Encoded, autocast
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

LAYER_COPIES = 12  # a layer's intermediate results take about this many times the memory of its hidden states
LOGIT_COPIES = 3


class MaskedInput(NamedTuple):
    """The masked input for token ``number`` of a sentence, which is at index ``place`` of ``tokens``."""

    tokens: list[int]
    place: int
    sentence: Encoded
    number: int


class MaskedLMScorer(Scorer):
    """Pseudo-log-likelihoods, natural log, summed over the tokens of each word. The sentence end is not scored: its value is 0."""

    @property
    def left_to_right(self) -> bool:
        return False

    @property
    def scores_end(self) -> bool:
        return False

    def __init__(self, model: Any, tokenizer: Any, folder: Path, name: str = "mlm", compute: DeviceConfig = DEFAULT_DEVICE) -> None:
        """Wrap a masked LM. Raises InputError if the tokenizer has no mask token."""
        if tokenizer.mask_token_id is None:
            raise InputError("its tokenizer has no mask token; give a masked LM such as BERT", path=folder)
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.folder = folder
        self.name = name
        self.compute = compute
        self.deviation: Deviation | None = None
        self._history: tuple[Encoded, ...] = ()
        self._positions = most_positions(model)
        self._hashes = list(map(FileHash, model_files(folder)))
        empty = tokenizer("")["input_ids"]
        half = (len(empty) + 1) // 2
        self._before, self._after = empty[:half], empty[half:]
        self._between = line_end(tokenizer)

    def signature(self) -> dict[str, object]:
        return {
            "kind": "huggingface masked LM",
            "folder": str(self.folder),
            "architecture": type(self.model).__name__,
            "sha256": {found.path.name: found.digest() for found in self._hashes},
            "score": "pseudo-log-likelihood, the tokens of a word from left to right",
            "sentence end": "not scored",
            "OOV policy": "p(unknown token)",
            "precision": self.compute.precision,
        }

    def notes(self) -> list[str]:
        deviation = [f"{self.name}: {self.deviation}"] if self.deviation else []
        return [*deviation, f"{self.name}: pseudo-log-likelihoods of a masked LM; the sentence end is not scored"]

    def after(self, history: Sequence[Sequence[str]]) -> Scorer:
        """Return the LM with these sentences, a line each, before each sentence. The history is cut to half of the LM's positions."""
        if not history:
            return self
        kept = [*self._history, *encode_words(self.tokenizer, history)]
        while self._positions is not None and self._size_of(kept) > self._positions // 2:
            del kept[0]
        return self.with_history(kept)

    def with_history(self, history: Iterable[Encoded]) -> MaskedLMScorer:
        later = copy.copy(self)
        later._history = tuple(history)
        return later

    def _size_of(self, history: Iterable[Encoded]) -> int:
        return sum(len(sentence.tokens) + len(self._between) for sentence in history)

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        encoded = encode_words(self.tokenizer, sentences)
        distinct = sorted(set(encoded), key=lambda sentence: (sentence.tokens, sentence.lengths))
        kept = [self._history_before(len(sentence)) for sentence in encoded]
        if any(number < len(self._history) for number in kept):
            return score_after(self, sentences, kept)
        if self.compute.precision != "float32" and self.deviation is None and distinct:
            self.deviation = measured_on(distinct, self._log_probs, self.compute.precision)
        found = self._log_probs(distinct, self.compute.precision)
        return [joined(SentenceScore((*found[sentence], 0.0), sentence.unknown), sentence.lengths) for sentence in encoded]

    def _history_before(self, length: int) -> int:
        """Return the number of sentences of the history, the last ones, with which the LM can read a sentence of ``length`` tokens."""
        if self._positions is None:
            return len(self._history)
        room = self._positions - len(self._before) - len(self._after) - length
        return last_that_fit([self._size_of([sentence]) for sentence in self._history], room)

    @torch.inference_mode()
    @full_float32()
    def _log_probs(self, distinct: Sequence[Encoded], precision: str) -> dict[Encoded, list[float]]:
        """Return the pseudo-log-likelihood of each token of each sentence."""
        found = {sentence: [0.0] * len(sentence) for sentence in distinct}
        padding = self.tokenizer.pad_token_id or 0
        device = self.model.device
        with autocast(self.compute.device, precision):
            for batch in self._batches([masked for sentence in distinct for masked in self._masked(sentence)]):
                longest = max(len(masked.tokens) for masked in batch)
                short = [longest - len(masked.tokens) for masked in batch]
                rows = torch.tensor([[*masked.tokens, *[padding] * few] for masked, few in zip(batch, short, strict=True)], device=device)
                real = torch.tensor([[1] * (longest - few) + [0] * few for few in short], device=device)
                places = torch.tensor([masked.place for masked in batch], device=device)
                targets = torch.tensor([masked.sentence.tokens[masked.number] for masked in batch], device=device)
                logits = self.model(input_ids=rows, attention_mask=real).logits[torch.arange(len(batch), device=device), places].float()
                values = (logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(dim=1)).double().tolist()
                for masked, value in zip(batch, values, strict=True):
                    found[masked.sentence][masked.number] = value
        return found

    def _masked(self, sentence: Encoded) -> Iterator[MaskedInput]:
        """Yield the input for each token of a sentence. Raises InputError for a sentence that is longer than the LM can read."""
        before = [*self._before, *(token for earlier in self._history for token in (*earlier.tokens, *self._between))]
        limit = self._positions
        size = len(before) + len(sentence) + len(self._after)
        if limit is not None and size > limit:
            raise InputError(f"{self.name}: a sentence has {len(sentence)} tokens, with others {size}, the LM reads at most {limit}")
        begin = 0
        for length in sentence.lengths:
            end = begin + length
            for number in range(begin, end):
                masked = [*sentence.tokens[:number], *[self.tokenizer.mask_token_id] * (end - number), *sentence.tokens[end:]]
                yield MaskedInput([*before, *masked, *self._after], len(before) + number, sentence, number)
            begin = end

    def _batches(self, masked: Iterable[MaskedInput]) -> Iterator[list[MaskedInput]]:
        """Yield batches of inputs of similar length that fit the memory."""
        config = self.model.config
        position = 4 * (LAYER_COPIES * config.hidden_size + LOGIT_COPIES * config.vocab_size)  # bytes
        by_length = sorted(masked, key=lambda one: len(one.tokens))
        return padded_batches(by_length, lambda one: len(one.tokens), self.compute.memory // position)


def load_masked_lm(name_or_folder: str | Path, name: str = "mlm", compute: DeviceConfig = DEFAULT_DEVICE) -> MaskedLMScorer:
    """Load a masked LM of Hugging Face from a folder or the local cache; see ``load_huggingface_lm``.

    Raises:
        InputError: transformers is not installed, the folder is not that of a model in safetensors, or its tokenizer
            has no mask token.
    """
    folder = Path(name_or_folder) if Path(name_or_folder).is_dir() else cached_folder(str(name_or_folder))
    model, tokenizer = load_pretrained("AutoModelForMaskedLM", folder)
    return MaskedLMScorer(model.to(compute.device), tokenizer, folder, name, compute)
