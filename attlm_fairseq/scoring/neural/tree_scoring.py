"""Scoring a prefix tree with one model: every node, that is, every distinct prefix of its sentences, is computed once.

Shapes: N nodes, S sentences, F features.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import EOS
from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.modules.state import LanguageModelState
from attlm_fairseq.scoring.neural.scoring_models import ScoringModel
from attlm_fairseq.scoring.prefix_tree import PrefixTree


def event_log_probs(
    model: ScoringModel, tree: PrefixTree, ends: np.ndarray, step_limit: int, check: Callable[[], None], before: LanguageModelState
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score every event of a prefix tree.

    Args:
        model: the model.
        tree: the tree, see ``tree_features``.
        ends: the nodes (S,) at which sentences end.
        step_limit: bytes for the intermediate results of a step; larger levels are computed in pieces.
        check: called between levels and pieces; an exception that it raises ends the scoring.
        before: the states before the tree, see ``tree_features``.

    Returns:
        ln p of each node's last token given its parent (N,), in float64, 0 for the root and the histories; ln p of ``</s>``
        after each of ``ends`` (S,); the features of the nodes (N, F).
    """
    features, read = tree_features(model, tree, step_limit, check, before)
    starts = np.concatenate(([0], np.cumsum([1, *map(len, tree.tokens)])))
    words = range(1, len(tree.tokens))  # the levels of words
    contexts = np.concatenate((*(tree.parents[level] + starts[level] for level in words), ends)).astype(np.int64)
    tokens = np.concatenate((*(tree.tokens[level] for level in words), np.full(len(ends), EOS))).astype(np.int64)
    of_events = torch.from_numpy(contexts).to(model.device), torch.from_numpy(tokens).to(model.device)
    values = model.events(features, *of_events, check, read).double().cpu().numpy()
    first, steps = starts[2], tree.size - starts[2]
    return np.concatenate((np.zeros(first), values[:steps])), values[steps:], features.cpu().numpy()


@torch.inference_mode()
def tree_features(
    model: ScoringModel,
    tree: PrefixTree,
    step_limit: int,
    check: Callable[[], None],
    before: LanguageModelState,
) -> tuple[Tensor, Read | None]:
    """Compute the features of every node of a prefix tree.

    Args:
        model: the model.
        tree: the tree. Its root has no token. On its first level, a token is the index of a history, that is, a row of
            ``before``; there the model reads ``</s>``, which begins each sentence.
        step_limit: see ``event_log_probs``.
        check: see ``event_log_probs``.
        before: the states after the histories.

    Returns:
        Features (N, F), 0 for the root, and what the reader has read (weights (N, M)) if the output layer needs it.
    """
    # input projections do not depend on the position: compute them once per distinct word
    tokens = [np.full(len(tree.tokens[0]), EOS), *tree.tokens[1:]]
    distinct, places = np.unique(np.concatenate(tokens), return_inverse=True)
    words = model.inputs(torch.from_numpy(distinct).to(model.device))
    places = torch.from_numpy(places).to(model.device)
    features = torch.zeros(tree.size, model.feature_size, device=model.device, dtype=torch.float32)
    state = before
    # one copy for all levels: a GPU waits for every copy
    parents_of_all = torch.from_numpy(np.concatenate([tree.tokens[0], *tree.parents[1:]])).to(model.device)
    begin, reads = 1, []
    for parents in tree.parents:
        check()
        rows = max(1, min(limits_of(model.device).step_rows, step_limit // model.step_bytes(state, words)))
        states = []
        for size in model.piece_sizes(len(parents), rows):
            last = begin + size
            stepped = model.step_rows(words, places[begin - 1 : last - 1], state, parents_of_all[begin - 1 : last - 1])
            features[begin:last] = stepped.features
            reads.append(stepped.read)
            states.append(stepped.state)
            begin = last
        state = LanguageModelState.cat(states)
    known = [read for read in reads if read is not None]
    return features, Read.cat([known[0].map(lambda part: torch.zeros_like(part[:1])), *known]) if known else None
