"""Causal language models of Hugging Face as scorers, from a folder or the local cache. Nothing is downloaded.

Nothing hidden in a folder runs: ``trust_remote_code`` stays off and weights are read from safetensors alone.

A sentence is its words joined by single spaces, cut by the model's own tokenizer. It begins with a start token, perhaps followed by a
prompt, and ends, unless there is none, with an end token. The log-probability of a word is the sum over the tokens that end in it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.errors import InputError, beginning
from attlm_fairseq.files.hashes import FileHash
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.modules.output import EventLogProbs
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.foreign_lms.huggingface_files import cached_folder, load_pretrained, model_files
from attlm_fairseq.scoring.foreign_lms.huggingface_tokens import encode_words, line_end
from attlm_fairseq.scoring.foreign_lms.sentence_frame import DEFAULT_FRAME, SentenceFrame
from attlm_fairseq.scoring.foreign_lms.token_lm import Encoded, LogitEvents, TokenLM, TokenScorer, linear_events
from attlm_fairseq.text.symbols import encodable

NO_END = "none"  # the value of `end` for an LM whose sentence end is not scored
CLOSE = 1e-3  # largest difference in nats between stepping with the key-value cache and one pass over the text


class HuggingFaceTokenLM(TokenLM):
    """A causal LM of transformers with its tokenizer."""

    cuts_words = True

    def __init__(self, model: Any, tokenizer: Any, folder: Path, frame: SentenceFrame = DEFAULT_FRAME) -> None:
        """Choose what is read around each sentence.

        Args:
            model: an ``AutoModelForCausalLM``.
            tokenizer: its tokenizer, one that states offsets.
            folder: where both come from.
            frame: start, end and prompt.

        Raises:
            InputError: no such token, no start token, a prompt that is longer than the model can read, or a model that is not causal.
        """
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.folder = folder
        self._hashes = list(map(FileHash, model_files(folder)))
        start = frame.start or tokenizer.bos_token or tokenizer.eos_token
        if start is None:
            raise InputError(
                "its tokenizer has neither a bos nor an eos token: name the token before each sentence with --sentence-start", path=folder
            )
        end = frame.end or tokenizer.eos_token or NO_END
        self.start_text, self.end_text, self.prompt = start, end, frame.prompt or ""
        self.start = (self._token(start),)
        self.end = None if end == NO_END else self._token(end)
        self.between = line_end(tokenizer)
        text_config = model.config.get_text_config()
        self.positions = most_positions(model)
        arguments = inspect.signature(model.forward).parameters
        self.cache_name = "cache" if "cache" in arguments else "past_key_values"  # the second before transformers 5.24
        self.vocabulary_size = int(text_config.vocab_size)
        try:
            self.head = self._linear_head()
            self.feature_size = self.vocabulary_size if self.head is None else self.head.in_features
            self._check_causal()
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise InputError(f"cannot be scored step by step: {error}", path=self.folder) from None
        self.start += self._prompt_ids()

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        return encode_words(self.tokenizer, sentences)

    def read(self, tokens: Sequence[int], state: Any = None) -> tuple[Tensor, Any]:
        return self._forward(torch.tensor([list(tokens)], device=self.model.device), state)

    def step(self, state: Any, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Any]:
        state.reorder_cache(rows)
        return self._forward(tokens.unsqueeze(1), state)

    def state_bytes(self, state: Any) -> int:
        return sum(
            value.numel() * value.element_size() for layer in state.layers for value in vars(layer).values() if isinstance(value, Tensor)
        )

    def signature(self) -> dict[str, object]:
        return {
            "kind": "huggingface",
            "folder": str(self.folder),
            "architecture": type(self.model).__name__,
            "sha256": {found.path.name: found.digest() for found in self._hashes},
            "start": self.start_text,
            "sentence end": "not scored" if self.end is None else self.end_text,
            "OOV policy": "words are cut into known pieces" if self.tokenizer.unk_token_id is None else "a word with an unknown piece",
        } | ({"prompt": self.prompt} if self.prompt else {})

    def notes(self) -> list[str]:
        ending = "the sentence end is not scored" if self.end is None else f"each sentence ends with {self.end_text!r}"
        prompt = f" and a prompt of {len(self.start) - 1} tokens, {beginning(self.prompt.split())}" if self.prompt else ""
        return [f"each sentence begins with {self.start_text!r}{prompt}, {ending}"]

    def events(self, precision: str) -> EventLogProbs:
        if self.head is not None:
            return linear_events(self.head.weight, self.head.bias, precision)
        return LogitEvents(lambda logits: logits, self.vocabulary_size)

    def _forward(self, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        before = {self.cache_name: cache}
        if self.head is not None:
            output = self.model.base_model(input_ids=tokens, use_cache=True, **before)
            return output.last_hidden_state[:, -1], getattr(output, self.cache_name)
        output = self.model(input_ids=tokens, use_cache=True, logits_to_keep=1, **before)
        return output.logits[:, -1], getattr(output, self.cache_name)

    @torch.inference_mode()
    @full_float32()
    def _linear_head(self) -> torch.nn.Linear | None:
        """Return the output layer if the logits are exactly its product with the last hidden states; else None.

        If None, the logits serve as features.
        """
        head = self.model.get_output_embeddings()
        tokens = torch.tensor([self._some_tokens()], device=self.model.device)
        if not isinstance(head, torch.nn.Linear) or self.model.base_model is self.model:
            return None
        hidden = self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        fits = hidden.size(-1) == head.in_features and torch.allclose(head(hidden), self.model(input_ids=tokens).logits, atol=CLOSE)
        return head if fits else None

    def _token(self, text: str) -> int:
        """Return the single token of a text. Raises InputError if it is not a single token."""
        ids = self._tokens(text)
        if len(ids) != 1 or (ids[0] == self.tokenizer.unk_token_id and text != self.tokenizer.unk_token):
            raise InputError(
                f"{text!r} is {len(ids)} tokens of its vocabulary, expected one as start or end of a sentence", path=self.folder
            )
        return ids[0]

    def _tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(encodable(text), add_special_tokens=False)["input_ids"])

    def _prompt_ids(self) -> tuple[int, ...]:
        """Return the tokens of the prompt. Raises InputError if they leave no room for a sentence."""
        added = self.tokenizer.added_tokens_decoder.items()
        special = {*self.tokenizer.all_special_ids, *(token for token, known in added if known.special)}
        ids = self._tokens(self.prompt)
        if ids and not self.prompt.endswith("\n") and ids[-1] not in special:
            ids = self._tokens(f"{self.prompt}\n")
        if self.positions is not None and len(ids) + len(self.start) >= self.positions:
            found = f"the prompt has {len(ids)} tokens, and the LM reads at most {self.positions}"
            raise InputError(f"{found} with a sentence: shorten it", path=self.folder)
        return ids

    def _some_tokens(self) -> list[int]:
        """Return three tokens, the start first. The embedding of one may be zero, as that of padding is, and would tell nothing."""
        return [(self.start[0] + place) % self.vocabulary_size for place in range(3)]

    @torch.inference_mode()
    @full_float32()
    def _check_causal(self) -> None:
        """Raise InputError if stepping with a reordered key-value cache differs from one pass over the texts."""
        device = self.model.device
        some = self._some_tokens()
        texts = torch.tensor([[some[0], some[1], some[2]], [some[0], some[2], some[1]]], device=device)
        whole = self.model(input_ids=texts, use_cache=False).logits.log_softmax(-1)
        first, state = self.read(self.start)
        _, state = self.step(state, torch.tensor([0, 0], device=device), texts[[1, 0], 1])
        last, _ = self.step(state, torch.tensor([1, 0], device=device), texts[:, 2])
        head = self.head or torch.nn.Identity()
        exact = torch.cat((head(first).log_softmax(-1) - whole[:1, 0], head(last).log_softmax(-1) - whole[:, 2]))
        if not exact.abs().max() < CLOSE:
            raise InputError("is not causal: a token's probability changes with the tokens after it (load_masked_lm?)", path=self.folder)


def most_positions(model: Any) -> int | None:
    """Return the largest number of tokens that a model can read; None means no limit."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not limit:
        return None
    # RoBERTa and its kin number positions from the padding's index + 1
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    unused = [table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None]
    return int(limit) - max(unused, default=0)


def load_huggingface_lm(
    name_or_folder: str | Path, name: str = "lm", frame: SentenceFrame = DEFAULT_FRAME, compute: DeviceConfig = DEFAULT_DEVICE
) -> TokenScorer:
    """Load a causal LM of Hugging Face from a folder or the local cache; nothing is downloaded.

    Args:
        name_or_folder: a folder with ``config.json``, ``*.safetensors`` and a tokenizer, or the name of a model in the local cache.
        name: the scorer's name.
        frame: what is read around each sentence.
        compute: device, precision and memory.

    Raises:
        InputError: transformers is not installed, the folder is not that of a causal LM in safetensors, or as in ``HuggingFaceTokenLM``.
    """
    folder = Path(name_or_folder) if Path(name_or_folder).is_dir() else cached_folder(str(name_or_folder))
    model, tokenizer = load_pretrained("AutoModelForCausalLM", folder, keep_bfloat16=compute.precision == "bfloat16")
    return TokenScorer(HuggingFaceTokenLM(model.to(compute.device), tokenizer, folder, frame), name, compute)
