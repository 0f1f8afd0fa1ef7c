"""How ``fairseq-generate`` and ``fairseq-interactive`` continue sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._special_words import special_word


def refuse_typed_symbols(lines: Sequence[Tensor], dictionary: Dictionary) -> None:
    """Raise InputError if a typed line, token ids (n + 1,) ending in ``</s>``, has special symbols."""
    for line in lines:
        if word := special_word(line):
            text = " ".join(dictionary[int(token)] for token in line[:-1])
            raise InputError(
                f"found the word {word!r}, which fairseq keeps for itself, in the line {text!r}, as it was read: leave it out or "
                "write it otherwise"
            )


def refuse_unused_lm(options: Any, others: Mapping[str, Any] | None) -> None:
    """Raise InputError for a language model to add that fairseq-interactive does not load."""
    if getattr(options, "lm_path", None) and not (others or {}).get("lm_model"):
        raise InputError(
            "--lm-path has no effect in fairseq-interactive with --task sentence_reset_lm: use fairseq-generate, or leave it out"
        )


def continuations(generator: Any, models: list, sample: Mapping[str, Any], prefixes: Tensor | None, eos: int) -> Any:
    """Return what fairseq's generator adds to prefixes (B, T): to the sentences themselves, or to as much as ``--prefix-size`` says."""
    if prefixes is not None and prefixes.size(1) and (prefixes[:, 0] == eos).any():
        raise InputError("--prefix-size: a blank line has no words to begin with: give --blank-lines skip")  # fairseq's search fails
    with torch.no_grad():
        if prefixes is None:
            prefixes = sample["net_input"]["src_tokens"][:, 1:]  # without the </s> that starts every sentence
        return generator.generate(models, sample, prefix_tokens=prefixes if prefixes.size(1) else None, bos_token=eos)
