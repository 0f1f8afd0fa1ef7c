"""Reading of token sequences that are known in advance, such as running text: many positions at once.

Shapes: T tokens of a sequence, N rows of a batch, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from attlm_fairseq.checkpoints.vocabulary import EOS
from attlm_fairseq.modules.kernels.softmax_events import no_check
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.modules.state import LanguageModelState
from attlm_fairseq.scoring.neural.scoring_models import ScoringModel

PIECE = 64  # the most positions that are read at once


class ReadSequence(NamedTuple):
    """ln p (T,) of the token after each position and the features (T, F) of each, if requested; the state (one row) after the last."""

    log_probs: np.ndarray
    features: np.ndarray
    state: LanguageModelState


@torch.inference_mode()
@full_float32()
def read_sequences(
    model: ScoringModel, sequences: Sequence[Sequence[int]], states: Sequence[LanguageModelState], events: bool = True
) -> list[ReadSequence]:
    """Read sequences in parallel, up to ``PIECE`` positions at once.

    Args:
        model: the model.
        sequences: the tokens of each, possibly none.
        states: the state (one row) before each sequence.
        events: whether log-probabilities and features are requested; without them both are empty.

    Returns:
        For each sequence the natural-log probability of the token after each position, where ``</s>`` follows the last one,
        with the features; and the state after its last token.
    """
    found = [ReadSequence(np.empty(0), np.empty((0, model.feature_size), dtype=np.float32), state) for state in states]
    rows = sorted((row for row, tokens in enumerate(sequences) if tokens), key=lambda row: -len(sequences[row]))
    if not rows:
        return found
    parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {row: [] for row in rows}
    state = LanguageModelState.stack([states[row] for row in rows])
    # all rows of a piece have its length, so that no position is padding and states are those after the last token
    ends = {len(sequences[row]) for row in rows}
    for begin, end in pairwise(sorted({0, *ends, *range(PIECE, max(ends), PIECE)})):
        rows = [row for row in rows if len(sequences[row]) >= end]
        tokens = torch.tensor([sequences[row][begin:end] for row in rows], device=model.device)
        stepped = model.read(tokens, state.map(lambda part: part[: len(rows)]))  # noqa: B023 - called here
        state = stepped.state
        if events:
            following = torch.tensor([[*sequences[row][begin + 1 : end + 1], EOS][: end - begin] for row in rows], device=model.device)
            places = torch.arange(tokens.numel(), device=model.device)
            values = model.events(stepped.features, places, following.flatten(), no_check, stepped.read)
            log_probs, features = values.double().cpu().numpy(), stepped.features.cpu().numpy()
            for row, *piece in zip(rows, np.split(log_probs, len(rows)), np.split(features, len(rows)), strict=True):
                parts[row].append((piece[0], piece[1]))
        for place, row in enumerate(rows):
            if len(sequences[row]) == end:
                found[row] = found[row]._replace(state=state.row(place).without_unused_slots())
    if events:
        for row, pieces in parts.items():
            found[row] = found[row]._replace(
                log_probs=np.concatenate([p for p, _ in pieces]), features=np.concatenate([f for _, f in pieces])
            )
    return found
