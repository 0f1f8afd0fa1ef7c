"""Loading models and tokenizers of Hugging Face from a folder or the local cache. Nothing is downloaded.

Nothing hidden in a folder runs: ``trust_remote_code`` stays off and weights are read from safetensors alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch

from attlm_fairseq.checkpoints.weight_checks import check_finite
from attlm_fairseq.errors import InputError
from attlm_fairseq.forks import one_thread_in_forks
from attlm_fairseq.one_at_a_time import LOADING
from attlm_fairseq.scoring.foreign_lms.stored_weights import STORED, compute_in_float32, names_in_bfloat16
from attlm_fairseq.transformers_import import hide_broken_torchaudio

# Before it, config.json can have code of the hub downloaded and run in spite of trust_remote_code (CVE-2026-4372, CVE-2026-5241).
SAFE_TRANSFORMERS = (5, 5)
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


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


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model on which its scores depend."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".model", ".spm", ".txt"))


def _gist(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:300]
