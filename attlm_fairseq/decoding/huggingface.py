"""The language models inside Hugging Face's ``generate``: beam search, greedy search and sampling.

    lms = LogLinearLM.load({"checkpoint_best.pt": 0.3})
    fusion = LookAheadWordLM(lms, tokenizer_texts(tokenizer, lowercase=True), ends=[tokenizer.eos_token_id])
    model.generate(..., logits_processor=LogitsProcessorList([FusionLogitsProcessor(fusion, prompt_length=1)]))

Shapes: B batch times beams, T tokens so far, V the model's vocabulary, U its first tokens, which the fusion scores.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from attlm_fairseq.decoding.shallow_fusion import ShallowFusion, check_fusion
from attlm_fairseq.decoding.token_texts import NO_WORD, token_texts
from attlm_fairseq.transformers_import import hide_broken_torchaudio

hide_broken_torchaudio()

from transformers import LogitsProcessor  # noqa: E402


def tokenizer_tokens(tokenizer: Any) -> list[str | None]:
    """Return the tokens of a tokenizer in id order, for a TokenFusion of LMs with the same tokens.

    Special and added tokens are None, but for the unknown token: it is a word that the LMs score.
    """
    units = tokens_by_id(tokenizer)
    special = special_ids(tokenizer)
    return [None if index in special else unit for index, unit in enumerate(units)]


def tokenizer_texts(tokenizer: Any, lowercase: bool = False, ignore: str = "", style: str | None = None) -> list[bytes | None]:
    """Return the texts of a tokenizer's tokens in id order, for a LookAheadWordLM.

    Special and added tokens are None, but for the unknown token: it is a word that no LM knows. For the options see ``token_texts``.
    """
    units = tokens_by_id(tokenizer)
    unknown = unknown_id(tokenizer)
    no_text = special_ids(tokenizer) | {index for index, unit in enumerate(units) if unit is None or index == unknown}
    texts = token_texts(["" if unit is None else unit for unit in units], style, no_text, lowercase, ignore)
    if unknown is not None:
        texts[unknown] = NO_WORD
    return texts


def tokens_by_id(tokenizer: Any) -> list[str | None]:
    """Return the tokens in id order, with None for unused ids."""
    ids = sorted(set(tokenizer.get_vocab().values()))
    units: list[str | None] = [None] * (ids[-1] + 1 if ids else 0)
    for index, token in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True):
        units[index] = token
    return units


def special_ids(tokenizer: Any) -> set[int]:
    """Return the ids of tokens that are not text: special tokens and added tokens, such as Whisper's time tokens."""
    return {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder} - {unknown_id(tokenizer)}


def unknown_id(tokenizer: Any) -> int | None:
    """Return the id of the unknown token; None if there is none or it has another role, too, as in GPT-2."""
    others = {getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "pad", "sep", "cls", "mask")}
    return None if tokenizer.unk_token_id in others else tokenizer.unk_token_id


class FusionLogitsProcessor(LogitsProcessor):
    """Adds a ShallowFusion's scores (natural log, weights applied) to the scores of the model's first U tokens.

    ``generate`` does not report how it reorders its beams, so LM states are looked up by the token ids of the prefix. States of
    dropped hypotheses are deleted.

    The LMs skip the first ``prompt_length`` ids of each row: the decoder's start and task tokens, or a decoder-only model's
    padded prompt. With 0 the LMs read the prompt too.

    Under beam search the model's scores are log-probabilities, and the sum is shallow fusion. Under sampling and greedy
    search they are logits. These differ from log-probabilities by a constant, which does not change the choice of the token.
    """

    def __init__(self, fusion: ShallowFusion, *, prompt_length: int) -> None:
        """Use a fusion after a prompt.

        Args:
            fusion: the language models' scores.
            prompt_length: the number of ids at the beginning of each row that the LMs skip.

        Raises:
            TypeError: ``fusion`` is not a ShallowFusion.
            ValueError: ``prompt_length`` is not an integer of at least 0.
        """
        check_fusion(fusion)
        if isinstance(prompt_length, bool) or not isinstance(prompt_length, SupportsIndex) or operator.index(prompt_length) < 0:
            raise ValueError(
                f"prompt_length is how many ids at the beginning of each row are not text for the LMs: 1 for Bart, the prompt's length for "
                f"a decoder-only model, 0 for none; not {prompt_length!r}"
            )
        self.fusion: ShallowFusion = fusion
        self.prompt_length = operator.index(prompt_length)
        self._states: dict[tuple[int, ...], Any] = {}  # after the prefixes of the last call

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (B, V) plus the fusion's scores, for the ids so far (B, T).

        Raises:
            ValueError: the model lacks tokens that the fusion scores (it may lack added ones, such as ``[PAD]``), or the rows are shorter
                than ``prompt_length``.
        """
        if input_ids.size(1) < self.prompt_length:
            raise ValueError(f"prompt_length is {self.prompt_length}, but generate was given rows of {input_ids.size(1)} ids")
        prefixes = [tuple(row) for row in input_ids[:, self.prompt_length :].tolist()]
        states = self._states = {prefix: self._state(prefix) for prefix in dict.fromkeys(prefixes)}
        rows = {prefix: row for row, prefix in enumerate(states)}
        added = torch.from_numpy(self.fusion.scores(list(states.values())))
        size = min(self.fusion.size, scores.size(1))
        if size < self.fusion.size and (max(self.fusion.ends, default=0) >= size or bool(added[:, size:].any())):
            raise ValueError(f"the fusion has {self.fusion.size} tokens, the model {scores.size(1)}: is this the model's tokenizer?")
        added = added[[rows[prefix] for prefix in prefixes], :size].to(scores.dtype).to(scores.device)
        fused = scores.clone()
        fused[:, :size] += added
        return fused

    def _state(self, prefix: tuple[int, ...]) -> Any:
        """Return the state after a prefix, computed from the longest prefix with a known state."""
        states = self._states  # another thread may replace it
        known = len(prefix)
        while known and prefix[:known] not in states:
            known -= 1
        state = states[prefix[:known]] if prefix[:known] in states else self.fusion.start()
        begun = any(token not in self.fusion.ends for token in prefix[:known])
        for token in prefix[known:]:
            begun = begun or token not in self.fusion.ends
            if token < self.fusion.size and begun:  # in a prompt, and in front of rows with longer ones, the end token also pads and begins
                _, state = self.fusion.score(state, token)
        return state

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_states": {}}  # a copy starts without cached states
