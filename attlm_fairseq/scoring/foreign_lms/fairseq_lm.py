"""fairseq's own language models as scorers: ``transformer_lm*``, ``lstm_lm``, ``fconv_lm``, ``lightconv_lm``; adaptive inputs, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.dictionary_files import find_dictionary
from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, UNK, Vocabulary, fingerprint
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import FileHash
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.modules.output import EventLogProbs
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.foreign_lms.fairseq_models import load_models, read_options, task_option
from attlm_fairseq.scoring.foreign_lms.token_lm import Encoded, LogitEvents, TokenLM, TokenScorer, linear_events
from attlm_fairseq.text.symbols import END

CLOSE = 1e-4  # largest difference of a feature between stepping and reading the whole prefix


class FairseqTokenLM(TokenLM):
    """One of fairseq's language models. A sentence begins with ``</s>``, as fairseq trains it, or ``<s> </s>`` with ``--add-bos-token``.

    A decoder with incremental states steps through them; another one reads each whole prefix again.
    """

    def __init__(self, model: Any, path: Path, *, add_bos: bool = False) -> None:
        from fairseq.modules import AdaptiveInput

        self.model = model.eval()
        for module in model.modules():
            if isinstance(module, AdaptiveInput):  # it puts products into a float32 tensor
                module.forward = full_float32()(module.forward)
        self.path = path
        self._hash = FileHash(path)
        self.vocabulary = Vocabulary(model.decoder.dictionary.symbols)
        self.start = (BOS, EOS) if add_bos else (EOS,)
        self.end: int | None = EOS
        limit = model.decoder.max_positions()
        self.positions = int(limit) if limit is not None and limit < 10**8 else None
        self.vocabulary_size = len(self.vocabulary)
        self.adaptive = getattr(model.decoder, "adaptive_softmax", None) is not None
        self.head = None if self.adaptive else self._linear_head()
        self.incremental = self._steps_exactly()

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        ids = [tuple(self.vocabulary.ids(words)) for words in sentences]
        return [Encoded(tokens, (1,) * len(tokens), tuple(token == UNK for token in tokens)) for tokens in ids]

    def read(self, tokens: Sequence[int], state: Any = None) -> tuple[Tensor, Any]:
        device = next(self.model.parameters()).device
        prefix, incremental = state if state is not None else (torch.empty(1, 0, dtype=torch.long, device=device), {})
        # fairseq's incremental states take one token at a time
        for some in [[token] for token in tokens] if self.incremental else [list(tokens)]:
            prefix = torch.cat((prefix, prefix.new_tensor([some])), dim=1)
            features = self._last_features(prefix, incremental)
        return features, (prefix, incremental)

    def step(self, state: Any, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Any]:
        prefix, incremental = state
        if self.incremental:
            self.model.decoder.reorder_incremental_state_scripting(incremental, rows)
        prefix = torch.cat((prefix.index_select(0, rows), tokens.unsqueeze(1)), dim=1)
        return self._last_features(prefix, incremental), (prefix, incremental)

    def state_bytes(self, state: Any) -> int:
        return _bytes(state)

    def signature(self) -> dict[str, object]:
        return {
            "kind": "fairseq",
            "checkpoint": str(self.path),
            "architecture": type(self.model).__name__,
            "sha256": self._hash.digest(),
            "dictionary": fingerprint(self.vocabulary.symbols),
            "start": " ".join(self.vocabulary.symbols[token] for token in self.start),
            "sentence end": END,
            "OOV policy": "p(<unk>), one class for all unknown words",
        }

    def events(self, precision: str) -> EventLogProbs:
        if self.head is not None:
            return linear_events(self.head.weight, self.head.bias, precision)
        if self.adaptive:
            return LogitEvents(self._adaptive_log_probs, self.vocabulary_size)
        return LogitEvents(lambda logits: logits, self.vocabulary_size)

    def _last_features(self, prefix: Tensor, incremental: dict | None) -> Tensor:
        """Read a prefix (N, T), with incremental states only its last token; return the features (N, F) at its end."""
        decoder = self.model.decoder
        states = {"incremental_state": incremental} if incremental is not None and self.incremental else {}
        output = decoder(prefix, features_only=True, **states) if self.head is not None else decoder(prefix, **states)
        return output[0][:, -1]

    def _adaptive_log_probs(self, features: Tensor) -> Tensor:
        return self.model.get_normalized_probs((features.unsqueeze(1), None), log_probs=True)[:, 0]

    @torch.inference_mode()
    @full_float32()
    def _linear_head(self) -> torch.nn.Linear | None:
        """Return the output layer if it is linear and its features are available, as in transformers; else None.

        If None, the logits serve as features.
        """
        decoder = self.model.decoder
        head = getattr(decoder, "output_projection", None)
        if not isinstance(head, torch.nn.Linear) or not hasattr(decoder, "extract_features"):
            return None
        prefix = torch.tensor([[EOS, UNK]], device=head.weight.device)
        exact = decoder(prefix)[0]
        return head if torch.allclose(head(decoder(prefix, features_only=True)[0]), exact, atol=CLOSE) else None

    @torch.inference_mode()
    @full_float32()
    def _steps_exactly(self) -> bool:
        """Return whether stepping with reordered incremental states gives the same features as reading whole prefixes."""
        from fairseq.models import FairseqIncrementalDecoder

        self.incremental = isinstance(self.model.decoder, FairseqIncrementalDecoder)
        device = next(self.model.parameters()).device
        last = self.vocabulary_size - 1
        of_start, state = self.read(self.start)
        self.feature_size = of_start.size(1)
        _, state = self.step(state, torch.zeros(2, dtype=torch.long, device=device), torch.tensor([UNK, last], device=device))
        stepped, (prefix, _) = self.step(state, torch.tensor([1, 0], device=device), torch.tensor([last, UNK], device=device))
        return self.incremental and bool((stepped - self._last_features(prefix, None)).abs().max() < CLOSE)


def load_fairseq_lm(path: Path, name: str = "lm", dictionary: Path | None = None, compute: DeviceConfig = DEFAULT_DEVICE) -> TokenScorer:
    """Load a checkpoint of ``fairseq-train --task language_modeling``.

    Args:
        path: the checkpoint.
        name: the scorer's name.
        dictionary: a file of the name ``dict.txt``; None looks next to the checkpoint, then in its data folder.
        compute: device, precision and memory.

    Raises:
        InputError: fairseq is not installed, the file is not a language model, or its dictionary is missing or does not fit.
    """
    config = read_options(path)
    if task_option(config, "source_lang") is not None:
        raise InputError("is a translation model, not a language model; --mt takes it", path=path)
    if dictionary is None:
        dictionary = find_dictionary(path, config)
    if dictionary.name != "dict.txt":
        raise InputError("fairseq's own language models read a file of the name dict.txt; rename it", path=dictionary)
    [model], options, _ = load_models([path], {"data": str(dictionary.parent)})
    from fairseq.models import FairseqLanguageModel

    if not isinstance(model, FairseqLanguageModel):
        raise InputError(f"holds a {type(model).__name__}, not a language model", path=path)
    add_bos = bool(getattr(options.task, "add_bos_token", False))
    return TokenScorer(FairseqTokenLM(model.to(compute.device), path, add_bos=add_bos), name, compute)


def _bytes(state: Any) -> int:
    """Return the bytes of all tensors in nested tuples, lists and dictionaries."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    values = state.values() if isinstance(state, dict) else state if isinstance(state, tuple | list) else ()
    return sum(map(_bytes, values))
