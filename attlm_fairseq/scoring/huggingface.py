"""Causal language models of Hugging Face as scorers, from a folder or the local cache. Nothing is downloaded.

Nothing hidden in a folder runs: ``trust_remote_code`` stays off and weights are read from safetensors alone.

A sentence is its words joined by single spaces, cut by the model's own tokenizer. It begins with a start token, perhaps followed by a
prompt, and ends, unless there is none, with an end token. The log-probability of a word is the sum over the tokens that end in it.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from operator import or_
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.weight_checks import check_finite
from attlm_fairseq.errors import InputError, beginning, require_words
from attlm_fairseq.files.hashes import FileHash
from attlm_fairseq.forks import one_thread_in_forks
from attlm_fairseq.modules.output import EventLogProbs
from attlm_fairseq.one_at_a_time import LOADING
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.sentence_frame import DEFAULT_FRAME, SentenceFrame
from attlm_fairseq.scoring.stored_weights import STORED, compute_in_float32, names_in_bfloat16
from attlm_fairseq.scoring.token_lm import Encoded, LogitEvents, TokenLM, TokenScorer, linear_events
from attlm_fairseq.text.symbols import encodable
from attlm_fairseq.transformers_import import hide_broken_torchaudio

NO_END = "none"  # the value of `end` for an LM whose sentence end is not scored
CLOSE = 1e-3  # largest difference in nats between stepping with the key-value cache and one pass over the text
# Before it, config.json can have code of the hub downloaded and run in spite of trust_remote_code (CVE-2026-4372, CVE-2026-5241).
SAFE_TRANSFORMERS = (5, 5)
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


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
        self.head = self._linear_head()
        self.feature_size = self.vocabulary_size if self.head is None else self.head.in_features
        self._check_causal()
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
    def _linear_head(self) -> torch.nn.Linear | None:
        """Return the output layer if the logits are exactly its product with the last hidden states; else None.

        If None, the logits serve as features.
        """
        head = self.model.get_output_embeddings()
        tokens = torch.tensor([self.start], device=self.model.device)
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

    @torch.inference_mode()
    def _check_causal(self) -> None:
        """Raise InputError if stepping with a reordered key-value cache differs from one pass over the texts."""
        device = self.model.device
        some = [self.start[0], (self.start[0] + 1) % self.vocabulary_size, (self.start[0] + 2) % self.vocabulary_size]
        texts = torch.tensor([[some[0], some[1], some[2]], [some[0], some[2], some[1]]], device=device)
        whole = self.model(input_ids=texts, use_cache=False).logits.log_softmax(-1)
        try:
            first, state = self.read(self.start)
            _, state = self.step(state, torch.tensor([0, 0], device=device), texts[[1, 0], 1])
            last, _ = self.step(state, torch.tensor([1, 0], device=device), texts[:, 2])
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(f"cannot be scored step by step: {error}", path=self.folder) from None
        head = self.head or torch.nn.Identity()
        exact = torch.cat((head(first).log_softmax(-1) - whole[:1, 0], head(last).log_softmax(-1) - whole[:, 2]))
        if not exact.abs().max() < CLOSE:
            raise InputError("is not causal: a token's probability changes with the tokens after it (load_masked_lm?)", path=self.folder)


def line_end(tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens of a line end, which keep the words of two sentences apart; none if the tokenizer leaves it out, as BERT's does."""
    return tuple(tokenizer("\n", add_special_tokens=False)["input_ids"])


def encode_words(tokenizer: Any, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
    """Tokenize sentences, whose words are joined by single spaces."""
    if not sentences:
        return []
    for words in sentences:
        require_words(words)
    texts = [encodable(" ".join(words)) for words in sentences]
    named = (getattr(tokenizer, f"{name}_token") for name in ("bos", "eos", "sep", "cls", "pad", "mask"))
    special = [token for token in named if token]  # others, such as <laugh>, are words of the texts that the LM was trained on
    cut: dict[int, tuple[list[int], list[tuple[int, int]]]] = {}
    for as_letters in (False, True):  # "</s>" that a text has is a word like any other, not the end of a sentence
        places = [place for place, text in enumerate(texts) if as_letters == any(token in text for token in special)]
        given = [texts[place] for place in places]
        if given:
            found = tokenizer(given, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=as_letters)
            cut |= zip(places, zip(found["input_ids"], found["offset_mapping"], strict=True), strict=True)
    unknown = None if tokenizer.unk_token in special else tokenizer.unk_token
    return [_with_unknown(encoded(words, *cut[place], tokenizer.unk_token_id), words, unknown) for place, words in enumerate(sentences)]


def _with_unknown(sentence: Encoded, words: Sequence[str], unknown: str | None) -> Encoded:
    """Return the sentence with its words ``<unk>``, or what the tokenizer calls it, as unknown, though they may be cut as letters."""
    if unknown is None or unknown not in words:
        return sentence
    of_words = [word == unknown for word, length in zip(words, sentence.lengths, strict=True) for _ in range(length)]
    return replace(sentence, unknown=tuple(map(or_, sentence.unknown, of_words)))


def most_positions(model: Any) -> int | None:
    """Return the largest number of tokens that a model can read; None means no limit."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not limit:
        return None
    # RoBERTa and its kin number positions from the padding's index + 1
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    unused = [table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None]
    return int(limit) - max(unused, default=0)


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model on which its scores depend."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".model", ".spm", ".txt"))


def encoded(words: Sequence[str], tokens: Sequence[int], offsets: Sequence[tuple[int, int]], unknown: int | None) -> Encoded:
    """Assign each token of ``" ".join(words)`` to the word in which it ends, by its ``offsets`` in the text."""
    ends = []  # the text position after each word
    position = 0
    for word in words:
        position += len(word)
        ends.append(position)
        position += 1
    lengths = [0] * len(words)
    place = 0
    for _, end in offsets:
        while place + 1 < len(words) and end > ends[place]:
            place += 1
        lengths[place] += 1
    return Encoded(tuple(tokens), tuple(lengths), tuple(token == unknown for token in tokens))


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


def load_pretrained(kind: str, folder: Path, keep_bfloat16: bool = False) -> tuple[Any, Any]:
    """Load a model, of the ``Auto..`` class ``kind``, and its tokenizer; code in the folder is not run, pickled weights are refused.

    The model computes in float32. With ``keep_bfloat16``, matrices that are stored in bfloat16 stay so in memory (``stored_weights``).

    Raises:
        InputError: transformers is not installed, or the folder is not usable.
    """
    config = read_config(folder)
    architectures = config.get("architectures") or []
    named, translates = ", ".join(map(str, architectures)), kind == "AutoModelForSeq2SeqLM"
    if bool(config.get("is_encoder_decoder")) != translates:
        expected = "an encoder-decoder model, such as Marian or NLLB" if translates else "an LM; --mt takes translation models"
        raise InputError(f"is {named}, expected {expected}", path=folder)
    if kind == "AutoModelForCausalLM" and "MaskedLM" in named:
        raise InputError(f"is {named}, not a causal LM; load_masked_lm loads masked ones", path=folder)
    if not any(folder.glob("*.safetensors")):
        pickled = [name for name in PICKLED if (folder / name).exists()]
        found = f"its weights are pickled ({', '.join(pickled)}), which could run code when loaded" if pickled else "it has no weights"
        raise InputError(f"{found}; give a folder with model.safetensors (save_pretrained of transformers writes it)", path=folder)
    stored = names_in_bfloat16(folder) if keep_bfloat16 else frozenset()
    with LOADING:
        model, loaded, tokenizer = _loaded(kind, folder, STORED if stored else torch.float32)
        if stored and not compute_in_float32(model, stored):
            del model, loaded, tokenizer  # two would not fit into the memory
            model, loaded, tokenizer = _loaded(kind, folder, torch.float32)
    if missing := sorted(loaded["missing_keys"]) or [str(key) for key in loaded.get("mismatched_keys", ())]:
        raise InputError(f"its weights lack {len(missing)} of the model's, such as {missing[0]}", path=folder)
    if not tokenizer.is_fast and not translates:
        raise InputError("its tokenizer does not say where in a text its tokens are; save it with a tokenizer.json", path=folder)
    if len(tokenizer) > (size := model.get_input_embeddings().weight.size(0)):
        raise InputError(f"its tokenizer has {len(tokenizer)} tokens, its model only {size}", path=folder)
    check_finite(model, folder)
    return model, tokenizer


def _loaded(kind: str, folder: Path, dtype: torch.dtype) -> tuple[Any, dict[str, Any], Any]:
    """Return the model with weights of this type, transformers' record of loading it, and the tokenizer.

    Only one thread may do this at a time, because transformers changes torch and itself while it loads.

    Raises InputError if transformers is not installed or cannot load them.
    """
    transformers = _import_transformers(folder)
    one_thread_in_forks()
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    safe = {"local_files_only": True, "trust_remote_code": False}
    try:
        with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safe)
            model, loaded = getattr(transformers, kind).from_pretrained(
                folder, use_safetensors=True, dtype=dtype, attn_implementation="eager", output_loading_info=True, **safe
            )
    except Exception as error:  # broken files make transformers raise almost anything
        raise InputError(f"cannot be loaded by transformers: {_gist(error)}", path=folder) from None
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
    return model, loaded, tokenizer


def _import_transformers(folder: Path) -> Any:
    """Raises InputError if it is missing, or if it can run code that ``config.json`` names (see ``SAFE_TRANSFORMERS``)."""
    hide_broken_torchaudio()
    try:
        import transformers
    except ImportError:
        raise InputError("is a model of Hugging Face, which needs transformers: pip install 'attlm-fairseq[hf]'", path=folder) from None
    major, minor = transformers.__version__.split(".")[:2]
    if (int(major), int(minor)) < SAFE_TRANSFORMERS:
        wanted = ".".join(map(str, SAFE_TRANSFORMERS))
        found = f"transformers {transformers.__version__} can run code that a model names"
        raise InputError(f"{found}; install transformers {wanted} or later", path=folder)
    return transformers


def read_config(folder: Path) -> Mapping[str, Any]:
    """Read the folder's ``config.json``.

    Raises:
        InputError: the file cannot be read, is not JSON or names no ``model_type``.
    """
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"has no readable config.json of a model of Hugging Face ({error})", path=folder) from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise InputError("its config.json names no model_type of Hugging Face", path=folder)
    return config


def cached_folder(name: str) -> Path:
    """Find a model by its name in Hugging Face's local cache.

    Raises:
        InputError: huggingface_hub is not installed, or the cache has no model of this name.
    """
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, local_files_only=True))
    except ImportError:
        known = "huggingface_hub is not installed"
    except Exception as error:  # the hub raises many types of errors for invalid names
        known = type(error).__name__
    raise InputError(f"{name}: there is no such file or folder, and no model of this name in Hugging Face's local cache ({known})")


def _gist(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:300]
