"""Knowledge distillation (Hinton, Vinyals and Dean 2015): a language model learns from the probabilities of others.

Shapes: B rows, T positions, V vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import TrainedModel, load_model
from attlm_fairseq.errors import InputError

if TYPE_CHECKING:
    from attlm_fairseq.tasks._carried_state import CarriedState


def load_teachers(names: str, symbols: Sequence[str]) -> Teachers:
    """Load the LMs of ``--teacher``: checkpoints or folders, joined by ``:``.

    Raises:
        InputError: a name is empty, an LM cannot be loaded, or its dictionary is not ``symbols``, in this order.
    """
    paths = [names] if os.path.exists(names) else names.split(":")  # noqa: PTH110 - a name with colons; Path.exists raises for one that is too long
    if not all(paths):
        raise InputError(f"--teacher {names!r}: expected a checkpoint or folder, or several joined by ':'")
    models = [load_model(Path(path)) for path in paths]
    for one in models:
        if one.vocabulary.symbols != tuple(symbols):
            raise InputError("--teacher: its dictionary is not the one of the data folder; preprocess with --srcdict", path=one.path)
    return Teachers(models)


class Teachers:
    """Language models without dropout that read the batches of a training. They predict the mean of their probabilities."""

    def __init__(self, models: Sequence[TrainedModel]) -> None:
        """Take at least one model, all with the student's dictionary."""
        self.models = models
        self._states: list[CarriedState] = []  # of each model, for the training's rows

    @torch.no_grad()
    def probabilities(self, src_tokens: Tensor, carried: CarriedState | None = None, **place: Tensor) -> Tensor:
        """Return the probabilities (B, T, V) of the word after each of ``src_tokens`` (B, T).

        Args:
            src_tokens: see above.
            carried: the student's states before the batch, or None if every row begins with the initial state. A teacher carries what
                it carried in its own training, such as ``--memory-slots`` of its memory. A row whose state it does not know, as in a
                training that goes on within an epoch, begins with the initial state.
            place: ``rows``, ``starts`` and ``ends`` of the batch, see ``MemoryDecoder.forward``.
        """
        if not self._states and carried is not None:
            self._states = [type(carried)(one.carried) for one in self.models]
        total: Tensor | None = None
        for number, one in enumerate(self.models):
            model = one.model.to(src_tokens.device)
            if carried is None:
                features, read = model.extract_features(src_tokens)
            else:
                states = self._states[number]
                before = states.take(model, place["rows"], place["starts"] | ~states.known(model, place["rows"]))
                features, read, after = model.read(src_tokens, before)
                states.put(model, place["rows"], place["ends"], after)
            found = model.output.log_probs(features, read).exp_()
            total = found if total is None else total.add_(found)
        assert total is not None, "there is at least one teacher"
        return total.div_(len(self.models))
