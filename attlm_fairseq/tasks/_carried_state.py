"""State and memory that truncated backpropagation carries from each batch to the next."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.plain_data import first_sentence
from attlm_fairseq.checkpoints.resuming import RESUME
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.state import EVERYTHING, Carried, LanguageModelState


class CarriedState:
    """The state of each model at the end of each row. A forward pass takes the states of its rows and puts back the new ones.

    One object serves one stream of batches (training or one validation set) and any number of models.
    """

    def __init__(self, carried: Carried = EVERYTHING) -> None:
        """Start with no states. ``carried``: what of a state goes from one batch to the next."""
        self.carried = carried
        self._states: dict[LanguageModel | None, tuple[Tensor, LanguageModelState]] = {}
        self._read = False  # whether a batch has been read

    def known(self, model: LanguageModel, rows: Tensor) -> Tensor:
        """Return for which of the rows (B,) there is a state of the model, (B,) bool."""
        known, _ = self._states.get(model, (rows[:0], None))
        return torch.isin(rows, known.to(rows.device))

    def take(self, model: LanguageModel, rows: Tensor, starts: Tensor) -> LanguageModelState:
        """Return the states of the given rows (B,). Rows for which ``starts`` (B,) is True get the initial state.

        Raises:
            InputError: a row continues, but its state is not known.
        """
        initial, read, self._read = model.initial_state(1), self._read, True
        if bool(starts.all()):
            return model.initial_state(len(rows))
        known, state = self._states.get(model) or self._states.get(None) or (rows[:0], initial)
        places = {row: place for place, row in enumerate(known.tolist())}
        if not places.keys() >= set(rows[~starts].tolist()):
            if isinstance(error := sys.exc_info()[1], FloatingPointError):  # fairseq reads a batch again to look for the cause
                raise InputError(
                    f"{first_sentence(error)}: if training has diverged, give a smaller --lr or --clip-norm, and resume from the last "
                    "checkpoint"
                )
            if read:
                raise InputError(
                    "a batch with the beginning of a document was lost, for lack of GPU memory: give a smaller --batch-size or --bptt, and "
                    "resume from the last checkpoint"
                )
            raise InputError(f"the checkpoint has no state for documents that were being read when it was written; {RESUME}")
        wanted = [places.get(row, 0) for row in rows.tolist()]
        moved = (tuple(part.to(like) for part, like in zip(*parts, strict=True)) for parts in zip(state, initial, strict=True))
        return LanguageModelState(*moved).select(torch.tensor(wanted, device=rows.device)).reset(starts, initial)

    def put(self, model: LanguageModel, rows: Tensor, ends: Tensor, state: LanguageModelState) -> None:
        """Store the states of the rows (B,), except rows whose document ends (``ends`` (B,) bool). Drop all other rows."""
        self._states.pop(None, None)
        self._states.pop(model, None)
        going = (~ends).nonzero().squeeze(1)
        if len(going):
            state = state.detach() if len(going) == len(rows) else state.detach().select(going)
            self._states[model] = (rows[going], self.carried.of(state, model))

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and tensors of the trained model; empty if no document continues, as at the end of an epoch."""
        for rows, state in self._states.values():
            parts = {"rows": [rows], **state._asdict()}
            # contiguous: fairseq broadcasts a resumed checkpoint as it lies
            return {name: [part.cpu().contiguous() for part in tensors] for name, tensors in parts.items()}
        return {}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned, for the next model that takes a state."""
        self._states, self._read = {}, False
        if saved:
            if "hidden" in saved:  # as 0.1 wrote it
                saved = {"rows": [saved["rows"]], "recurrent": [saved["hidden"], saved["cell"]], "memory": saved["memory"]}
            [rows] = saved["rows"]
            self._states[None] = (rows, LanguageModelState(tuple(saved["recurrent"]), tuple(saved["memory"])))
