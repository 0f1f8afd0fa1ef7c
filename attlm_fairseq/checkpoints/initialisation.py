"""Initialisation from a trained language model. All of AMSRN's models start from a plain LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.checkpoints.weight_checks import size_of
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import ProjectedReader, Reader


@torch.no_grad()
def initialise_from(model: LanguageModel, symbols: Sequence[str], path: Path) -> str:
    """Copy embeddings, LSTM, projection and output layer of the checkpoint ``path``, and the reader if it is of the same kind.

    The output layer is copied whole or not at all. It fits if the features of ``model`` have the same size. It also fits the
    first columns of AMSRN's layer over ``[h_t; r_t]``, if the checkpoint is a plain LSTM with ``h_t``. A layer tied to the
    embeddings is copied only from a tied layer. All other weights keep their initial values. ``symbols`` are the
    dictionary's.

    Returns:
        What was copied and what was not, for the log.

    Raises:
        InputError: the dictionary or the sizes of embeddings or LSTM differ.
    """
    trained = load_model(path, any_start=True)
    if trained.vocabulary.symbols != tuple(symbols):
        raise InputError("--init-from: its dictionary is not the one of the data folder; preprocess with --srcdict", path=path)
    weights = trained.model.state_dict()
    same_reader = kind_of(model.reader) is kind_of(trained.model.reader)
    columns = output_columns(model, trained.model)
    own = dict(model.named_parameters())  # a tied output matrix is embedding.weight
    for name in (*own, *weights):
        found, parameter = weights.get(name), own.get(name)
        if name.split(".")[0] in ("embedding", model.body) and size_of(found) != size_of(parameter):
            raise InputError(
                f"--init-from: its {name} is {size_of(found)}, this model's is {size_of(parameter)}; "
                "give both models the same recurrence, --decoder-embed-dim, --decoder-hidden-size, --decoder-top-size and --decoder-layers",
                path=path,
            )
    taken, kept = [], []
    for name, parameter in own.items():
        found = weights.get(name)
        part = name.split(".")[0]
        of_reader = part == "reader" and not name.startswith("reader.projection.")
        if (part == "output" and not columns) or (of_reader and not same_reader) or found is None:
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


def kind_of(reader: Reader) -> type[Reader]:
    """Return the kind of a reader; of one that reads a projection, the kind of the reader itself."""
    return type(reader.inner if isinstance(reader, ProjectedReader) else reader)


def output_columns(model: LanguageModel, trained: LanguageModel) -> int:
    """Return how many of the first columns of ``model``'s output layer can be copied from ``trained``; 0 if the layer does not fit."""
    if model.tied and not trained.tied:
        return 0
    sizes = [{name: weight.shape for name, weight in each.output.state_dict().items()} for each in (model, trained)]
    if sizes[0] == sizes[1]:
        return model.feature_size
    columns = trained.reader.feature_size
    states_alone = trained.reader.starts_with_state and columns == trained.recurrence.hidden_size
    if not states_alone or not model.reader.starts_with_state or sizes[0].keys() != sizes[1].keys():
        return 0
    own_and_first = [(sizes[0][name], sizes[1][name]) for name in sizes[0]]
    fits = all(own == first or (own[:-1], first[-1]) == (first[:-1], columns) for own, first in own_and_first)
    return columns if fits else 0
