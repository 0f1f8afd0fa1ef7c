"""Beginning with the weights of a trained language model: AMSRN's models all start from a plain LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import PlainReader, SelectionReader


@torch.no_grad()
def initialise_from(model: LanguageModel, symbols: Sequence[str], path: Path) -> str:
    """Take embeddings, LSTM and output layer of the checkpoint ``path`` into ``model``, and the reader where it is of the same kind.

    The output layer is taken whole or not at all: where it fits the features of ``model``, or as the first columns where these are AMSRN's
    ``[h_t; r_t]`` and the checkpoint's a plain LSTM's ``h_t``; into one tied to the embeddings only from another such. Everything else
    keeps its initial values. ``symbols`` are the dictionary's. Returns what was taken and what was not, for the log. Raises InputError:
    another dictionary, or sizes of embeddings or LSTM that differ.
    """
    trained = load_model(path)
    if trained.vocabulary.symbols != tuple(symbols):
        raise InputError("--init-from: its dictionary is not the one of the data folder; preprocess with --srcdict", path=path)
    weights = trained.model.state_dict()
    same_reader = type(model.reader) is type(trained.model.reader)
    columns = output_columns(model, trained.model)
    taken, kept = [], []
    for name, parameter in model.named_parameters():  # a tied output matrix is embedding.weight
        found = weights.get(name)
        part = name.split(".")[0]
        if part in ("embedding", "lstm") and (found is None or found.shape != parameter.shape):
            shape = "none" if found is None else "x".join(map(str, found.shape))
            raise InputError(
                f"--init-from: its {name} is {shape}, this model's is {'x'.join(map(str, parameter.shape))}; "
                "give both models the same --decoder-embed-dim, --decoder-hidden-size and --decoder-layers",
                path=path,
            )
        if (part == "output" and not columns) or (part == "reader" and not same_reader) or found is None:
            kept.append(name)
        elif found.shape == parameter.shape:
            parameter.copy_(found)
            taken.append(name)
        elif part == "output":
            parameter[:, :columns] = found
            taken.append(f"{name} (the first {columns} of {parameter.size(1)} columns)")
        else:
            kept.append(name)
    return f"initialised from {path}: took {', '.join(taken)}; new: {', '.join(kept) or 'nothing'}"


def output_columns(model: LanguageModel, trained: LanguageModel) -> int:
    """How many columns of the output matrix of ``model``, the first ones, can be those of ``trained``; 0 where the layer does not fit."""
    shapes, trained_shapes = ({name: weight.shape for name, weight in each.output.state_dict().items()} for each in (model, trained))
    if is_tied(model) and not is_tied(trained):
        return 0
    if shapes == trained_shapes:
        return model.reader.feature_size
    if (
        isinstance(trained.reader, PlainReader)
        and isinstance(model.reader, SelectionReader)
        and all(isinstance(each.output, nn.Linear) for each in (model, trained))
    ):
        return trained.reader.feature_size
    return 0


def is_tied(model: LanguageModel) -> bool:
    """Whether the output matrix is that of the embeddings."""
    return isinstance(model.output, nn.Linear) and model.output.weight is model.embedding.weight
