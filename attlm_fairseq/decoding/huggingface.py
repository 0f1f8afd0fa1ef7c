"""The language models inside Hugging Face's ``generate``: beam search, greedy search and sampling.

    lms = LogLinearLM.load({"checkpoint_best.pt": 0.3})
    fusion = WordFusion(lms, tokenizer_surfaces(tokenizer, lowercase=True), ends=[tokenizer.eos_token_id])
    model.generate(..., logits_processor=LogitsProcessorList([FusionLogitsProcessor(fusion, prompt_length=1)]))

Shapes: B batch times beams, T tokens so far, V the model's vocabulary, U its part that the fusion has units for.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.decoding.fusion import Fusion
from attlm_fairseq.decoding.surfaces import surfaces

# fairseq-fixed brings torchaudio from PyPI, which needs CUDA's libraries: beside torch for CPUs it is installed and cannot be imported,
# and transformers' models, which then import it, cannot either. This makes it count as not installed.
try:
    import torchaudio  # noqa: F401
except ImportError:
    pass
except OSError:
    sys.modules["torchaudio"] = None

from transformers import LogitsProcessor


def tokenizer_units(tokenizer: Any) -> list[str | None]:
    """The tokens of a tokenizer by their ids, for a TokenFusion with LMs of the same tokens; None for special and added ones."""
    units = tokens_by_id(tokenizer)
    special = special_ids(tokenizer)
    return [None if index in special else unit for index, unit in enumerate(units)]


def tokenizer_surfaces(tokenizer: Any, lowercase: bool = False, ignore: str = "", style: str | None = None) -> list[bytes | None]:
    """What the tokens of a tokenizer write, by their ids, for a WordFusion; None for special and added ones. Options: :func:`surfaces`."""
    units = tokens_by_id(tokenizer)
    no_text = special_ids(tokenizer) | {index for index, unit in enumerate(units) if unit is None}
    return surfaces(["" if unit is None else unit for unit in units], style, no_text, lowercase, ignore)


def tokens_by_id(tokenizer: Any) -> list[str | None]:
    """The tokens in the order of their ids, None for an id between them that no token has."""
    ids = sorted(set(tokenizer.get_vocab().values()))
    units: list[str | None] = [None] * (ids[-1] + 1 if ids else 0)
    for index, token in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True):
        units[index] = token
    return units


def special_ids(tokenizer: Any) -> set[int]:
    """Tokens that are no text: the special ones and those added to the vocabulary, Whisper's time tokens among them."""
    return {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}


class FusionLogitsProcessor(LogitsProcessor):
    """Adds a Fusion's scores (natural log, weights applied) to the model's, for each of the fusion's U units; others stay as they are.

    ``generate`` reorders its beams without saying so: states are found by the tokens themselves, and those of hypotheses that have
    gone are forgotten. ``prompt_length`` ids at the beginning of each row are no text for the LMs: the decoder's start and task
    tokens, or a decoder-only model's padded prompt. With 0 the prompt is what the LMs have read before.

    Under beam search the model's scores are log-probabilities, and the sum is shallow fusion. Under sampling and greedy search they
    are logits; a constant that these have does not change what the sum does.
    """

    def __init__(self, fusion: Fusion, *, prompt_length: int) -> None:
        """Raises ValueError for a negative ``prompt_length``."""
        if prompt_length < 0:
            raise ValueError(f"prompt_length is a number of ids at the beginning, not {prompt_length}")
        self.fusion = fusion
        self.prompt_length = prompt_length
        self._states: dict[tuple[int, ...], Any] = {}  # after the prefixes of the last call

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Ids (B, T) and scores (B, V) -> new scores (B, V). Raises ValueError when the model has fewer tokens than the fusion."""
        if self.fusion.size > scores.size(1):
            raise ValueError(f"the fusion has {self.fusion.size} units, the model {scores.size(1)} tokens: is this the model's tokenizer?")
        prefixes = [tuple(row) for row in input_ids[:, self.prompt_length :].tolist()]
        self._states = {prefix: self._state(prefix) for prefix in dict.fromkeys(prefixes)}
        rows = {prefix: row for row, prefix in enumerate(self._states)}
        added = torch.from_numpy(self.fusion.scores(list(self._states.values())))
        added = added[[rows[prefix] for prefix in prefixes]].to(scores.dtype).to(scores.device)
        fused = scores.clone()
        fused[:, : self.fusion.size] += added
        return fused

    def _state(self, prefix: tuple[int, ...]) -> Any:
        """The state after a prefix, from the longest one known."""
        known = len(prefix)
        while known and prefix[:known] not in self._states:
            known -= 1
        state = self._states[prefix[:known]] if prefix[:known] in self._states else self.fusion.start()
        for unit in prefix[known:]:
            if unit < self.fusion.size:
                _, state = self.fusion.score(state, unit)
        return state
