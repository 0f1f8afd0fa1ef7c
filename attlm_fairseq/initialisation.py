"""Beginning with the weights of a trained language model: AMSRN's models all start from a plain LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from attlm_fairseq.checkpoints import load_model
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel


@torch.no_grad()
def initialise_from(model: LanguageModel, symbols: Sequence[str], path: Path) -> str:
    """Take embeddings, LSTM and output layer of the checkpoint ``path`` into ``model``, and the reader where it is the same one.

    Where the features are wider than the checkpoint's, as AMSRN's ``[h_t; r_t]`` beside ``h_t``, its output matrix is the first columns.
    Everything else keeps its initial values. ``symbols`` are the dictionary's. Returns what was taken and what was not, for the log.
    Raises InputError: another dictionary, or sizes of embeddings or LSTM that differ.
    """
    trained = load_model(path)
    if trained.vocabulary.symbols != tuple(symbols):
        raise InputError("--init-from: its dictionary is not the one of the data folder; preprocess with --srcdict", path=path)
    weights = trained.model.state_dict()
    taken, kept = [], []
    for name, parameter in model.state_dict().items():
        found = weights.get(name)
        if found is not None and found.shape == parameter.shape:
            parameter.copy_(found)
            taken.append(name)
        elif found is not None and name == "output.weight" and found.size(1) < parameter.size(1):
            parameter[:, : found.size(1)] = found
            taken.append(f"{name} (the first {found.size(1)} of {parameter.size(1)} columns)")
        elif name.startswith(("embedding", "lstm")):
            shape = "none" if found is None else "x".join(map(str, found.shape))
            raise InputError(
                f"--init-from: its {name} is {shape}, this model's is {'x'.join(map(str, parameter.shape))}; "
                "give both models the same --decoder-embed-dim, --decoder-hidden-size and --decoder-layers",
                path=path,
            )
        else:
            kept.append(name)
    return f"initialised from {path}: took {', '.join(taken)}; new: {', '.join(kept) or 'nothing'}"
