"""Scoring with the package's neural language models: every distinct prefix of all sentences is computed once.

Shapes: N nodes of a level or a tree, F features, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.checkpoints import TrainedModel, load_model
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.scoring.prefix_tree import PrefixTree, build_prefix_tree, split_into_blocks
from attlm_fairseq.scoring.scorer import SentenceScore
from attlm_fairseq.vocabulary import EOS, UNK

BLOCK_NODES = 16_384  # nodes computed together: bounds the features held, and wide enough for full matrix products
LOGITS = 1_048_576  # logits held at once: few enough to stay in the processor's cache until they are summed, a third faster


class NeuralScorer:
    """One or several models with one vocabulary as a Scorer; several are an ensemble.

    An ensemble's probability of an event is the mean of its members' probabilities, weighted by ``weights`` (default: equal; they
    are divided by their sum). A word outside the vocabulary is scored as ``<unk>``, whose probability stands for all unknown words
    together.
    """

    def __init__(self, models: Sequence[TrainedModel], name: str = "lm", weights: Sequence[float] | None = None) -> None:
        """Raises InputError when the models' vocabularies differ."""
        for other in models[1:]:
            if other.vocabulary != models[0].vocabulary:
                raise InputError(
                    f"its dictionary is not that of {models[0].path}; models of an ensemble share one: make it a second --lm",
                    path=other.path,
                )
        weights = [1.0] * len(models) if weights is None else list(weights)
        if len(weights) != len(models) or min(weights) < 0 or not sum(weights) > 0:
            raise ValueError(f"{len(models)} models need as many weights, none negative, not all zero: {weights}")
        self.name = name
        self.models = tuple(models)
        self.vocabulary = models[0].vocabulary
        self.log_weights = [math.log(weight / sum(weights)) if weight else -math.inf for weight in weights]

    @classmethod
    def load(
        cls,
        checkpoints: Sequence[Path],
        name: str = "lm",
        weights: Sequence[float] | None = None,
        dictionary: Path | None = None,
        device: str = "cpu",
    ) -> NeuralScorer:
        """Load the checkpoints of an ensemble, or of one model. Raises InputError."""
        return cls([load_model(path, dictionary, device) for path in checkpoints], name, weights)

    def signature(self) -> dict[str, object]:
        return {
            "kind": "neural",
            "checkpoints": [str(member.path) for member in self.models],
            "architectures": [member.architecture for member in self.models],
            "sha256": [member.sha256 for member in self.models],
            "ensemble weights": [math.exp(weight) for weight in self.log_weights],
            "vocabulary": len(self.vocabulary),
            "OOV policy": "p(<unk>), one class for all unknown words",
        }

    @torch.inference_mode()
    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        ids = [tuple(self.vocabulary.ids(words)) for words in sentences]
        distinct = sorted(set(ids))
        log_probs: dict[tuple[int, ...], tuple[float, ...]] = {}
        for begin, end in split_into_blocks(distinct, BLOCK_NODES):
            block = distinct[begin:end]
            tree = build_prefix_tree(block)
            ends = np.array([path[-1] if len(path) else 0 for path in tree.paths])
            members = [event_log_probs(member.model, tree, ends) for member in self.models]
            into_node, to_end = (
                np.logaddexp.reduce([values[kind] + weight for values, weight in zip(members, self.log_weights, strict=True)])
                for kind in (0, 1)
            )
            for sentence, path, last in zip(block, tree.paths, to_end, strict=True):
                log_probs[sentence] = (*into_node[path].tolist(), float(last))
        return [SentenceScore(log_probs[sentence], tuple(token == UNK for token in sentence)) for sentence in ids]


def event_log_probs(model: LanguageModel, tree: PrefixTree, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Natural-log probabilities, float64, of every step of a tree and of the sentence ends after the nodes ``ends`` (S,).

    The first result (N,) holds for each node the probability of its last token after its parent (the root's is 0); the second
    (S,) that of ``</s>``.
    """
    device = model.embedding.weight.device
    features, state = model.step_features(torch.full((1,), EOS, device=device), model.initial_state(1))
    levels = [features]
    for tokens, parents in zip(tree.tokens, tree.parents, strict=True):
        state = state.select(torch.from_numpy(parents).to(device))
        features, state = model.step_features(torch.from_numpy(tokens).to(device), state)
        levels.append(features)
    widths = [1, *map(len, tree.tokens)]
    starts = np.concatenate(([0], np.cumsum(widths)))
    contexts = [parents + starts[level] for level, parents in enumerate(tree.parents)]
    contexts = np.concatenate((*contexts, ends)).astype(np.int64)
    tokens = np.concatenate((*tree.tokens, np.full(len(ends), EOS))).astype(np.int64)
    values = target_log_probs(model, torch.cat(levels), torch.from_numpy(contexts).to(device), torch.from_numpy(tokens).to(device))
    values = values.double().cpu().numpy()
    return np.concatenate(([0.0], values[: tree.size - 1])), values[tree.size - 1 :]


def target_log_probs(model: LanguageModel, features: Tensor, contexts: Tensor, tokens: Tensor) -> Tensor:
    """ln p(tokens[e] | features[contexts[e]]) for events e, the softmax of a context computed once: (N, F), (E,), (E,) -> (E,)."""
    order = torch.argsort(contexts, stable=True)
    sorted_contexts, sorted_tokens = contexts[order], tokens[order]
    rows = max(1, LOGITS // model.output.out_features)
    values = features.new_empty(len(contexts))
    bounds = torch.arange(0, len(features) + rows, rows, device=contexts.device)
    cuts = torch.searchsorted(sorted_contexts, bounds).tolist()
    for begin, first, last in zip(range(0, len(features), rows), cuts, cuts[1:], strict=False):
        logits = model.output(features[begin : begin + rows])
        norms = torch.logsumexp(logits, dim=-1)
        places = sorted_contexts[first:last] - begin
        values[order[first:last]] = logits[places, sorted_tokens[first:last]] - norms[places]
    return values
