"""State and memory between consecutive batches of truncated backpropagation, passed into the model and taken out of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.state import LanguageModelState

RESUME = "resume with the options and the data of before, or give --reset-dataloader to begin with the first epoch again"


class CarriedState:
    """What each model knew at the end of each row. A batch's forward pass takes the rows it continues and puts back what follows.

    One object serves one stream of batches, of training or of a validation set, and as many models as read it.
    """

    def __init__(self, slots: int = 0, memory: bool = True) -> None:
        """``slots``: how many of the newest slots a memory of slots keeps between batches, 0 for all. Without ``memory`` none is kept."""
        self.slots, self.memory = slots, memory
        self._states: dict[LanguageModel | None, tuple[Tensor, LanguageModelState]] = {}

    def take(self, model: LanguageModel, rows: Tensor, starts: Tensor) -> LanguageModelState:
        """The state of the given rows (B,), the initial one for those that start (``starts`` (B,) bool).

        Raises:
            InputError: A row that goes on is not known.
        """
        initial = model.initial_state(1)
        if bool(starts.all()):
            return model.initial_state(len(rows))
        known, state = self._states.get(model) or self._states.get(None) or (rows[:0], initial)
        places = {row: place for place, row in enumerate(known.tolist())}
        if not places.keys() >= set(rows[~starts].tolist()):
            raise InputError(f"the checkpoint has no state for documents that were being read when it was written; {RESUME}")
        wanted = [places.get(row, 0) for row in rows.tolist()]
        moved = state.map(lambda part: moved_to(part, model.embedding.weight))
        return moved.select(torch.tensor(wanted, device=rows.device)).reset(starts, initial)

    def put(self, model: LanguageModel, rows: Tensor, ends: Tensor, state: LanguageModelState) -> None:
        """What the rows (B,) know now. Nothing is kept of the others, which have ended, or of ``ends`` (B,) bool, whose document has."""
        self._states.pop(None, None)
        self._states.pop(model, None)
        going = (~ends).nonzero().squeeze(1)
        if len(going):
            state = state.detach() if len(going) == len(rows) else state.detach().select(going)
            if not self.memory:
                state = state._replace(memory=model.initial_state(len(going)).memory)
            self._states[model] = (rows[going], state.truncate(self.slots) if self.slots else state)

    def state_dict(self) -> dict[str, Any]:
        """Rows and tensors of the one model that is trained; empty where no document goes on, as at the end of an epoch."""
        for rows, state in self._states.values():
            parts = {"rows": [rows], **state._asdict()}
            # contiguous: fairseq broadcasts a resumed checkpoint as it lies
            return {name: [part.cpu().contiguous() for part in tensors] for name, tensors in parts.items()}
        return {}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken, with whichever model takes next."""
        self._states = {}
        if saved:
            if "hidden" in saved:  # as 0.1 wrote it
                saved = {"rows": [saved["rows"]], "recurrent": [saved["hidden"], saved["cell"]], "memory": saved["memory"]}
            [rows] = saved["rows"]
            self._states[None] = (rows, LanguageModelState(tuple(saved["recurrent"]), tuple(saved["memory"])))


def moved_to(part: Tensor, like: Tensor) -> Tensor:
    """The tensor on the device of ``like`` and, unless it is a mask, in its dtype."""
    return part.to(like.device) if part.dtype == torch.bool else part.to(like)
