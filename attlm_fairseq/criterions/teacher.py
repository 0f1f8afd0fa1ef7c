"""Knowledge distillation (Hinton, Vinyals and Dean 2015): a language model learns from the probabilities of others.

Shapes: B rows, T positions, V vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import TrainedModel, load_model
from attlm_fairseq.errors import InputError

if TYPE_CHECKING:
    from attlm_fairseq.tasks._carried_state import CarriedState


def load_teachers(names: str, symbols: Sequence[str], task: Mapping[str, Any] | None = None) -> Teachers:
    """Load the LMs of ``--teacher``: checkpoints or folders, joined by ``:``.

    Args:
        names: the LMs.
        symbols: the student's dictionary.
        task: the options of the student's task; None if nothing is carried in its training.

    Raises:
        InputError: a name is empty, an LM cannot be loaded, its dictionary is not ``symbols``, in this order, or its training reset the
            state at sentences and the student carries it from sentence to sentence.
    """
    paths = [names] if os.path.exists(names) else names.split(":")  # noqa: PTH110 - a name with colons; Path.exists raises for one that is too long
    if not all(paths):
        raise InputError(f"--teacher {names!r}: expected a checkpoint or folder, or several joined by ':'")
    models = [load_model(Path(path)) for path in paths]
    for one in models:
        if one.vocabulary.symbols != tuple(symbols):
            raise InputError("--teacher: its dictionary is not the one of the data folder; preprocess with --srcdict", path=one.path)
        _require_same_resets(one, task or {})
    return Teachers(models)


def _require_same_resets(teacher: TrainedModel, task: Mapping[str, Any]) -> None:
    """Raise InputError if the student carries its state through documents, and the teacher's training reset it at sentences."""
    if task.get("_name") != "document_reset_lm" or str(task.get("reset")) == "segment":
        return
    if teacher.task.get("_name") == "sentence_reset_lm":
        raise InputError(
            "--teacher: was trained with --task sentence_reset_lm, which resets the state at each sentence; this training carries it on: "
            "give a teacher of --task document_reset_lm, or train with --task sentence_reset_lm",
            path=teacher.path,
        )
    own, other = (options.get("reset_every") or 0 for options in (task, teacher.task))
    if own != other and "reset_every" in teacher.task and str(teacher.task.get("reset")) != "segment":
        raise InputError(
            f"--teacher: was trained with --reset-every {other}, this training has {own}: give both the same", path=teacher.path
        )


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
                it carried in its own training, such as ``--memory-slots`` of its memory, and nothing with ``--reset segment``. A row
                whose state it does not know, as in a training that goes on within an epoch, begins with the initial state.
            place: ``rows``, ``starts`` and ``ends`` of the batch, see ``MemoryDecoder.forward``.
        """
        if not self._states and carried is not None:
            self._states = [type(carried)(one.carried) for one in self.models]
        total: Tensor | None = None
        for number, one in enumerate(self.models):
            model = one.model.to(src_tokens.device)
            if carried is None or str(one.task.get("reset")) == "segment":
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
