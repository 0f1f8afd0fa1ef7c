"""fairseq's decoder interface around the plain torch ``LanguageModel``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from attlm_fairseq.checkpoints.reading import FINGERPRINT
from attlm_fairseq.checkpoints.vocabulary import fingerprint_numbers
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, Loss, LossTerms
from attlm_fairseq.modules.kernels.products import has_bfloat16_instructions
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.modules.state import LanguageModelState


class IncrementalDecoder(FairseqIncrementalDecoder):
    """fairseq's decoder interface around a ``LanguageModel``. The model's state is kept in fairseq's incremental state."""

    def __init__(self, dictionary: Any, model: LanguageModel) -> None:
        super().__init__(dictionary)
        # A fingerprint of the dictionary, stored with the weights, so that loading detects another dictionary.
        self.register_buffer(FINGERPRINT.removeprefix("decoder."), torch.tensor(fingerprint_numbers(dictionary.symbols)))
        self.model = model

    def _next_features(
        self, tokens: Tensor, incremental_state: dict, first_state: Callable[[], LanguageModelState]
    ) -> tuple[Tensor, Read | None]:
        """Read the new tokens of (B, T): all in the first call, then the last one. Return its features (B, F) and ``Read``."""
        cached = self.get_incremental_state(incremental_state, "language_model")
        if cached is None:
            state, unread = first_state(), tokens
        else:
            state, unread = cached["state"], tokens[:, -1:]
        for token in unread.unbind(1):
            features, read, state = self.model.step_features(self.model.inputs(token), state)
        self.set_incremental_state(incremental_state, "language_model", {"state": state})
        return features, read

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        """Select the rows ``new_order`` (N,) of the state, including the reader's memory."""
        cached = self.get_incremental_state(incremental_state, "language_model")
        if cached is not None:
            self.set_incremental_state(incremental_state, "language_model", {"state": cached["state"].select(new_order)})

    def max_positions(self) -> int:
        """Return a very large number: there is no limit, but fairseq needs a number."""
        return torch.iinfo(torch.int32).max


class Taught(NamedTuple):
    """What a student learns from its teacher: ``q``, (B, T, V), which replaces the words of the text with a weight from 0 to 1."""

    probabilities: Tensor
    weight: float


class MemoryDecoder(IncrementalDecoder):
    """The decoder of language models."""

    def __init__(self, dictionary: Any, model: LanguageModel, compute_dtype: str = "float32") -> None:
        super().__init__(dictionary, model)
        self.compute_dtype = compute_dtype

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: None = None,
        incremental_state: dict | None = None,
        need_weights: bool = False,
        target: Tensor | None = None,
        terms: LossTerms = PLAIN_LOSS,
        taught: Taught | None = None,
        carried: Any = None,
        rows: Tensor | None = None,
        starts: Tensor | None = None,
        ends: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return logits, or the loss of targets.

        The loss is computed here, not in the criterion, because DistributedDataParallel only sees what ``forward`` does.

        Args:
            prev_output_tokens: tokens (B, T).
            encoder_out: unused; fairseq passes it.
            incremental_state: fairseq's state. Only tokens that it has not seen are read; logits are those of the last token.
            need_weights: also return the attention weights.
            target: the words to predict (B, T); padding is not counted.
            terms: the additional terms of the loss.
            taught: the probabilities of a teacher, to learn from besides the targets.
            carried: the ``CarriedState`` with which rows begin, and which stores their states afterwards.
            rows: the rows of ``carried``, (B,).
            starts: whether a row begins from the initial state instead, (B,).
            ends: whether a row's document ends here, so that its state is not stored, (B,).
            unused: other arguments of fairseq.

        Returns:
            Logits (B, T, V); (B, 1, V) with an incremental state. With targets the loss instead, a sum over them in natural
            log. A dictionary with ``attn``: weights (B, T, M) or None. With targets it also has the ``loss`` as a ``Loss``,
            the top layer's ``states`` (B, T, H), and the reader's ``features`` (B, T, F) after dropout.
        """
        with torch.autocast(prev_output_tokens.device.type, torch.bfloat16, enabled=self.low(prev_output_tokens.device)):
            if incremental_state is not None:
                features, read = self._next_features(
                    prev_output_tokens, incremental_state, lambda: self.model.initial_state(len(prev_output_tokens))
                )
                return self._logits(features, read).unsqueeze(1), {"attn": None}
            before = None if carried is None else carried.take(self.model, rows, starts)
            outputs, features, read, after = self.model.outputs(prev_output_tokens, before, need_weights)
            extra: dict[str, Any] = {"attn": read.weights if read and need_weights else None}
            if target is None:
                result = self._logits(features, read)
            else:
                loss = self._loss(features, read, target, terms, taught)
                result = loss.total
                extra |= {"loss": loss, "states": self.model.states(outputs), "features": features[..., : self.model.reader.feature_size]}
            if carried is not None:  # last of all: in validation, fairseq reads a batch again after a lack of GPU memory
                carried.put(self.model, rows, ends, after)
            return result, extra

    def low(self, device: torch.device) -> bool:
        """Return whether products are in bfloat16: where it is asked for, except on CPUs that have no instructions for it."""
        return self.compute_dtype == "bf16" and (device.type != "cpu" or has_bfloat16_instructions())

    def _loss(self, features: Tensor, read: Read | None, target: Tensor, terms: LossTerms, taught: Taught | None) -> Loss:
        """Return the loss of the targets (B, T) without padding. The loss that a teacher gives is a part of its ``total`` alone."""
        counted = target != self.dictionary.pad()
        loss = self.model.output.loss(features[counted], target[counted], read and read.at(counted), terms, counted)
        if taught is None:
            return loss
        # all positions at once: locked dropout of a mixture has one mask for each row
        log_probs = self.model.output.log_probs(features, read)
        log_probs = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # a layer may exclude words: 0 ln 0 = 0
        soft = -(log_probs * (taught.probabilities * counted.unsqueeze(2))).sum()
        return loss._replace(total=(1 - taught.weight) * loss.total + taught.weight * soft)

    def _logits(self, features: Tensor, read: Read | None) -> Tensor:
        """Compute logits, in eval mode in float32: bfloat16's 8-bit mantissa is too coarse for probabilities."""
        with torch.autocast(features.device.type, torch.bfloat16, enabled=self.training and self.low(features.device)):
            return self.model.output(features if self.training else features.to(self.model.embedding.weight.dtype), read)
