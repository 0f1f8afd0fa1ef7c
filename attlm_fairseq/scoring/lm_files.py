"""Recognise the kind of a language model by the content of its file or folder, and load it as a Scorer.

torch is not imported for a KenLM file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from attlm_fairseq import magic
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.foreign_lms.sentence_frame import DEFAULT_FRAME, SentenceFrame
from attlm_fairseq.scoring.mixture import MixtureScorer
from attlm_fairseq.scoring.scorer import Scorer

LMKind = Literal["attlm", "fairseq", "huggingface", "kenlm", "masked"]

OF_FAIRSEQ = frozenset[LMKind](("attlm", "fairseq"))  # checkpoints, which have a dictionary next to them

EXPECTED = (
    "expected a checkpoint of fairseq-train, a folder of attlm export, a folder or cached name of a Hugging Face LM, "
    "or an ARPA or KenLM file"
)
HEAD = 4096  # bytes within which an ARPA file says \data\


def find_lm(name: str) -> Path:
    """Return the file or folder of an LM given as text: a path, or the name of a model in Hugging Face's local cache.

    Raises:
        InputError: ``name`` is not a path, and the cache has no model of this name or huggingface_hub is not
            installed.
    """
    if not name:
        raise InputError("the name of an LM is empty: give a file, a folder or a name in Hugging Face's cache")
    path = Path(name)
    there = os.path.exists(path)  # noqa: PTH110 - Path.exists raises for a name that is too long
    if there or name.count("/") > 1 or path.is_absolute() or path.suffix in (".pt", ".arpa", ".bin", ".gz"):
        return path
    from attlm_fairseq.scoring.foreign_lms.huggingface_files import cached_folder

    return cached_folder(name)


def lm_kind(path: Path) -> LMKind:
    """Tell the kind of LM in a file or folder by its content.

    Returns:
        ``attlm``: a checkpoint or folder of this package; ``fairseq``: a checkpoint of another of fairseq's models; ``huggingface``:
        a folder with a ``config.json`` of transformers, ``masked`` if its architecture is a masked LM; ``kenlm``: an ARPA or KenLM file.

    Raises:
        InputError: there is no such file, or it is none of these.
    """
    if path.is_dir():
        return _kind_of_folder(path)
    if path.is_fifo():
        raise InputError("is a pipe, and an LM is read more than once: write it to a file", path=path)
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except FileNotFoundError:
        raise InputError(f"there is no such file; {EXPECTED}", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    if _is_ngram(head):
        return "kenlm"
    if head.startswith(magic.TORCH):
        return _kind_of_checkpoint(path)
    if head.startswith(b"SRILM_BINARY"):
        raise InputError(f"is a binary LM of SRILM: write it as ARPA, `ngram -lm {path.name} -write-lm lm.arpa`", path=path)
    found = f"found a file that begins with {head[:12]!r}" if head else "the file is empty"
    raise InputError(f"{found}; {EXPECTED}", path=path)


def holds_ngrams(path: Path) -> bool:
    """Return whether a file begins like an ARPA or KenLM file; False if it is a pipe or cannot be read."""
    if path.is_fifo():  # what is read from it is gone
        return False
    try:
        with path.open("rb") as file:
            return _is_ngram(file.read(HEAD))
    except OSError:
        return False


def load_lm_files(
    paths: Sequence[Path],
    name: str = "lm",
    weights: Sequence[float] | None = None,
    dictionary: Path | None = None,
    frame: SentenceFrame = DEFAULT_FRAME,
    compute: DeviceConfig = DEFAULT_DEVICE,
) -> Scorer:
    """Load one LM, or an ensemble that averages the probabilities of several, of whatever kinds.

    Args:
        paths: the files or folders.
        name: the scorer's name.
        weights: the weights of an ensemble; None means equal weights.
        dictionary: ``dict.txt`` of checkpoints; None looks next to the checkpoint, then in its data folder.
        frame: what is read around each sentence, of causal LMs of Hugging Face only.
        compute: device, precision and memory.

    Raises:
        InputError: an unusable file, or an option that its kind of LM does not have.
    """
    kinds = [lm_kind(path) for path in paths]
    if frame != DEFAULT_FRAME and set(kinds) != {"huggingface"}:
        raise InputError("start, sentence end and prompt can be chosen for causal LMs of Hugging Face alone", path=paths[0])
    if dictionary is not None and not {*kinds} & OF_FAIRSEQ:
        note(f"note: {name}: the dictionary {dictionary} is for checkpoints of fairseq, and is not used")
    if compute.precision == "bfloat16" and compute.device == "cpu" and set(kinds) != {"kenlm"}:
        from attlm_fairseq.modules.kernels.products import has_bfloat16_instructions, slower_in_bfloat16

        if not has_bfloat16_instructions():
            note(f"WARNING: {name}: bfloat16: this CPU has no instructions for it. float32, the default, is faster")
        elif slower_in_bfloat16():
            note(f"WARNING: {name}: bfloat16: on this CPU products take longer than in float32, the default")
    if set(kinds) == {"attlm"}:
        from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

        return NeuralScorer.load(paths, name, weights, dictionary, compute)
    if len(paths) == 1:
        return _load_foreign(paths[0], kinds[0], name, dictionary, frame, compute)
    members = [
        load_lm_files([path], f"{name}[{number}]", None, dictionary if kind in OF_FAIRSEQ else None, frame, compute)
        for number, (path, kind) in enumerate(zip(paths, kinds, strict=True), start=1)
    ]
    return MixtureScorer(members, [1.0] * len(members) if weights is None else weights, name)


def _load_foreign(path: Path, kind: LMKind, name: str, dictionary: Path | None, frame: SentenceFrame, compute: DeviceConfig) -> Scorer:
    if kind == "kenlm":
        from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer

        return KenLMScorer(path, name)
    if kind == "huggingface":
        from attlm_fairseq.scoring.foreign_lms.huggingface_lm import load_huggingface_lm

        return load_huggingface_lm(path, name, frame, compute)
    if kind == "masked":
        from attlm_fairseq.scoring.foreign_lms.masked_lm import load_masked_lm

        return load_masked_lm(path, name, compute)
    from attlm_fairseq.scoring.foreign_lms.fairseq_lm import load_fairseq_lm

    return load_fairseq_lm(path, name, dictionary, compute)


def _is_ngram(head: bytes) -> bool:
    compressed = (magic.GZIP, magic.BZIP2, magic.XZ)  # as an ARPA file may be
    return head.startswith((magic.KENLM, *compressed)) or b"\\data\\" in head


def _kind_of_folder(folder: Path) -> LMKind:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        config = None
    if isinstance(config, dict) and "model_type" in config and "format" not in config:
        architectures = config.get("architectures")
        return "masked" if "MaskedLM" in str(architectures) or "ForPreTraining" in str(architectures) else "huggingface"
    return "attlm"  # the reader of this package explains what is wrong with the file


def _kind_of_checkpoint(path: Path) -> LMKind:
    from attlm_fairseq.checkpoints.plain_data import read_plain_data
    from attlm_fairseq.checkpoints.reading import find_family

    content = read_plain_data(path, mapped=True)
    config = content.get("cfg") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        return "fairseq" if isinstance(content, dict) and content.get("args") is not None else "attlm"
    model = config.get("model")
    try:
        find_family(str(model.get("_name") if isinstance(model, dict) else None), path)
    except InputError:
        return "fairseq"
    return "attlm"
