"""fairseq's own language models as scorers: ``transformer_lm*``, ``lstm_lm``, ``fconv_lm``, ``lightconv_lm``; adaptive inputs, too."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import MISSHAPEN, check_finite, find_dictionary, misshapen, read_plain_data
from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, UNK, Vocabulary
from attlm_fairseq.errors import InputError
from attlm_fairseq.files import sha256
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.token_lm import Encoded, TokenLM, TokenScorer

CLOSE = 1e-4  # nats between stepping and reading the whole prefix


class FairseqTokenLM(TokenLM):
    """One of fairseq's language models. A sentence begins with ``</s>``, as fairseq trains it, or ``<s> </s>`` with ``--add-bos-token``.

    A decoder with incremental states steps through them; another one reads each whole prefix again.
    """

    def __init__(self, model: Any, path: Path, *, add_bos: bool = False) -> None:
        self.model = model.eval()
        self.path = path
        self.vocabulary = Vocabulary(model.decoder.dictionary.symbols)
        self.start = (BOS, EOS) if add_bos else (EOS,)
        self.end: int | None = EOS
        limit = model.decoder.max_positions()
        self.positions = int(limit) if limit is not None and limit < 10**8 else None
        self.vocabulary_size = len(self.vocabulary)
        self.incremental = self._steps_exactly()

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        ids = [tuple(self.vocabulary.ids(words)) for words in sentences]
        return [Encoded(tokens, (1,) * len(tokens), tuple(token == UNK for token in tokens)) for tokens in ids]

    def read(self, tokens: Sequence[int], state: Any = None) -> tuple[Tensor, Any]:
        device = next(self.model.parameters()).device
        prefix, incremental = state if state is not None else (torch.empty(1, 0, dtype=torch.long, device=device), {})
        for token in tokens:  # fairseq's incremental states take one token at a time
            prefix = torch.cat((prefix, prefix.new_tensor([[token]])), dim=1)
            logits = self._last_logits(prefix, incremental) if self.incremental or token == tokens[-1] else None
        return logits, (prefix, incremental)

    def step(self, state: Any, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Any]:
        prefix, incremental = state
        if self.incremental:
            self.model.decoder.reorder_incremental_state_scripting(incremental, rows)
        prefix = torch.cat((prefix.index_select(0, rows), tokens.unsqueeze(1)), dim=1)
        return self._last_logits(prefix, incremental), (prefix, incremental)

    def state_bytes(self, state: Any) -> int:
        return _bytes(state)

    def signature(self) -> dict[str, object]:
        return {
            "kind": "fairseq",
            "checkpoint": str(self.path),
            "architecture": type(self.model).__name__,
            "sha256": sha256(self.path),
            "start": " ".join(self.vocabulary.symbols[token] for token in self.start),
            "sentence end": "</s>",
            "OOV policy": "p(<unk>), one class for all unknown words",
        }

    def _last_logits(self, prefix: Tensor, incremental: dict | None) -> Tensor:
        decoder = self.model.decoder
        output = decoder(prefix, incremental_state=incremental) if incremental is not None and self.incremental else decoder(prefix)
        features = (output[0][:, -1:], *output[1:])
        if getattr(decoder, "adaptive_softmax", None) is not None:  # its log-probabilities are logits, too
            return self.model.get_normalized_probs(features, log_probs=True)[:, 0]
        return features[0][:, 0]

    @torch.inference_mode()
    def _steps_exactly(self) -> bool:
        """Whether stepping with incremental states, rows changing places, gives what reading the whole prefixes gives."""
        from fairseq.models import FairseqIncrementalDecoder

        self.incremental = isinstance(self.model.decoder, FairseqIncrementalDecoder)
        if not self.incremental:
            return False
        device = next(self.model.parameters()).device
        last = self.vocabulary_size - 1
        _, state = self.read(self.start)
        _, state = self.step(state, torch.zeros(2, dtype=torch.long, device=device), torch.tensor([UNK, last], device=device))
        stepped, (prefix, _) = self.step(state, torch.tensor([1, 0], device=device), torch.tensor([last, UNK], device=device))
        return bool((stepped.log_softmax(1) - self._last_logits(prefix, None).log_softmax(1)).abs().max() < CLOSE)


def load_fairseq_lm(path: Path, name: str = "lm", dictionary: Path | None = None, compute: DeviceConfig = DEFAULT_DEVICE) -> TokenScorer:
    """Load a checkpoint of ``fairseq-train --task language_modeling``.

    Args:
        path: the checkpoint.
        name: the scorer's name.
        dictionary: a file of the name ``dict.txt``; None looks beside the checkpoint, then in its data folder.
        compute: device, precision and memory.

    Raises:
        InputError: fairseq is not installed, the file is not a language model, or its dictionary is missing or does not fit.
    """
    if importlib.util.find_spec("fairseq") is None:
        raise InputError("is one of fairseq's own models, which need fairseq: pip install 'attlm-fairseq[train]'", path=path)
    content = read_plain_data(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise InputError("holds no model of fairseq-train", path=path)
    config = content.get("cfg") or {"task": content.get("args"), "model": content.get("args")}  # before 2021 one Namespace
    if dictionary is None:
        dictionary = find_dictionary(path, config)
    if dictionary.name != "dict.txt":
        raise InputError("fairseq's own language models read a file of the name dict.txt; rename it", path=dictionary)
    del content
    from fairseq import checkpoint_utils
    from fairseq.models import FairseqLanguageModel

    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it tells of each dictionary and module
    try:
        with warnings.catch_warnings(action="ignore"):
            [model], options = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(dictionary.parent)})
    except ImportError as error:
        raise InputError(f"cannot be loaded: {error}", path=path) from None
    except MISSHAPEN as error:
        raise misshapen(error, path) from None
    finally:
        logger.setLevel(level)
    if not isinstance(model, FairseqLanguageModel):
        raise InputError(f"holds a {type(model).__name__}, not a language model; a translation model is given with --mt", path=path)
    check_finite(model, path)
    add_bos = bool(getattr(options.task, "add_bos_token", False))
    return TokenScorer(FairseqTokenLM(model.to(compute.device), path, add_bos=add_bos), name, compute)


def _bytes(state: Any) -> int:
    """The memory of tensors in tuples, lists and dictionaries of any depth."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    values = state.values() if isinstance(state, dict) else state if isinstance(state, tuple | list) else ()
    return sum(map(_bytes, values))
