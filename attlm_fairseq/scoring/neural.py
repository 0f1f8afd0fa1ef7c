"""Scoring with the package's neural language models: every distinct prefix of all sentences is computed once.

Shapes: N nodes of a level or a tree, S sentences, F features.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import TrainedModel, load_model
from attlm_fairseq.checkpoints.vocabulary import EOS, UNK
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.state import LanguageModelState
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, SMALLEST_MEMORY, DeviceConfig
from attlm_fairseq.scoring.deviation import Deviation, measured_on
from attlm_fairseq.scoring.prefix_tree import PrefixTree, build_prefix_tree
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.scoring_models import Bfloat16Model, Float32Model, ScoringModel
from attlm_fairseq.scoring.threads import side_by_side
from attlm_fairseq.scoring.tree_memory import TreeMemory, split_evenly, split_into_blocks

PART_NODES = 256  # fewer are not worth a thread of their own
OTHER_BYTES = 48 << 20  # of the memory: logits and gathered weights
STEP_ROWS = {"cpu": 768, "cuda": 16_384}  # of a matrix product: enough for its full speed, on a CPU few enough for its cache


class NeuralScorer(Scorer):
    """One or several models with one vocabulary as a Scorer; several are an ensemble.

    An ensemble's probability of an event is the mean of its members' probabilities, weighted by ``weights`` (default: equal; they
    are divided by their sum). A word outside the vocabulary is scored as ``<unk>``, whose probability stands for all unknown words
    together.

    ``compute.precision`` ``bfloat16`` rounds what enters the matrix products and what comes out of them; gates, cells, memories, features,
    the scored events' own logits and all sums stay in float32. ``deviation`` then tells what that did to the first sentences scored.
    """

    def __init__(
        self,
        models: Sequence[TrainedModel],
        name: str = "lm",
        weights: Sequence[float] | None = None,
        compute: DeviceConfig = DEFAULT_DEVICE,
    ) -> None:
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
        self.compute = compute
        self.tree_memory = TreeMemory([member.model for member in models])
        self.deviation: Deviation | None = None
        self._history: tuple[int, ...] = ()  # </s> and the words of each sentence before
        self._before: dict[str, list[LanguageModelState]] = {}  # by precision: of each model, the state after the history
        self._scoring: dict[str, list[ScoringModel]] = {}  # by precision; shared with the scorers after other histories

    @classmethod
    def load(
        cls,
        checkpoints: Sequence[Path],
        name: str = "lm",
        weights: Sequence[float] | None = None,
        dictionary: Path | None = None,
        compute: DeviceConfig = DEFAULT_DEVICE,
    ) -> NeuralScorer:
        """Load the checkpoints of an ensemble, or of one model. Raises InputError."""
        return cls([load_model(path, dictionary, compute.device) for path in checkpoints], name, weights, compute)

    def signature(self) -> dict[str, object]:
        return {
            "kind": "neural",
            "checkpoints": [str(member.path) for member in self.models],
            "architectures": [member.architecture for member in self.models],
            "sha256": [member.sha256 for member in self.models],
            "ensemble weights": [math.exp(weight) for weight in self.log_weights],
            "vocabulary": len(self.vocabulary),
            "OOV policy": "p(<unk>), one class for all unknown words",
            "precision": self.compute.precision,
        }

    def notes(self) -> list[str]:
        return [f"{self.name}: {self.deviation}"] if self.deviation else []

    def after(self, history: Sequence[Sequence[str]]) -> Scorer:
        """Return the LM with its recurrent state and memory carried over these sentences, each begun by ``</s>``.

        This is the stream of sentences that ``document_reset_lm`` trains on; an LM that was trained to begin each sentence with an empty
        memory has not seen such a state. A memory without a bound grows with the history.
        """
        if not history:
            return self
        later = copy.copy(self)
        new = [token for words in history for token in (EOS, *self.vocabulary.ids(words))]
        later._history = (*self._history, *new)
        precision = self.compute.precision
        models, states = self._models(precision), self._states(precision)
        later._before = {precision: [read_tokens(model, new, state) for model, state in zip(models, states, strict=True)]}
        later.tree_memory = self.tree_memory.after(len(new))
        return later

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        ids = [tuple(self.vocabulary.ids(words)) for words in sentences]
        distinct = sorted(set(ids))
        if self.compute.precision != "float32" and self.deviation is None and distinct:
            self.deviation = measured_on(distinct, self._log_probs, self.compute.precision)
        log_probs = self._log_probs(distinct, self.compute.precision)
        return [SentenceScore(log_probs[sentence], tuple(token == UNK for token in sentence)) for sentence in ids]

    def _log_probs(self, distinct: Sequence[tuple[int, ...]], precision: str) -> dict[tuple[int, ...], tuple[float, ...]]:
        """The log-probability of each word and of the end of each of the sentences, which are sorted."""
        if not distinct:
            return {}
        on_cpu = self.models[0].model.embedding.weight.device.type == "cpu"
        threads = torch.get_num_threads() if on_cpu else 1
        most = max(1, self.compute.memory // SMALLEST_MEMORY)
        counts = [count for count in range(1, min(threads, most) + 1) if threads % count == 0]  # so that no thread is left over
        parts = split_evenly(distinct, counts, PART_NODES)
        memory = self.compute.memory // len(parts)
        models = list(zip(self._models(precision), self._states(precision), strict=True))
        found = side_by_side(lambda part, check: self._of_part(distinct[slice(*part)], models, memory, check), parts)
        return {sentence: values for of_part in found for sentence, values in of_part.items()}

    @torch.inference_mode()
    def _models(self, precision: str) -> list[ScoringModel]:
        """Return the models as they run in this precision."""
        if precision not in self._scoring:
            kind = Bfloat16Model if precision == "bfloat16" else Float32Model
            self._scoring[precision] = [kind(member.model) for member in self.models]
        return self._scoring[precision]

    def _states(self, precision: str) -> list[LanguageModelState]:
        """Return each model's state after the history."""
        if precision not in self._before:
            self._before[precision] = [read_tokens(model, self._history) for model in self._models(precision)]
        return self._before[precision]

    @torch.inference_mode()
    def _of_part(
        self,
        distinct: Sequence[tuple[int, ...]],
        models: Sequence[tuple[ScoringModel, LanguageModelState]],
        memory: int,
        check: Callable[[], None],
    ) -> dict[tuple[int, ...], tuple[float, ...]]:
        log_probs: dict[tuple[int, ...], tuple[float, ...]] = {}
        step_limit = memory // 8
        for begin, end in split_into_blocks(distinct, self.tree_memory, memory - step_limit - OTHER_BYTES):
            block = distinct[begin:end]
            tree = build_prefix_tree(block)
            ends = np.array([path[-1] if len(path) else 0 for path in tree.paths])
            members = [event_log_probs(model, tree, ends, step_limit, check, before) for model, before in models]
            into_node, to_end = (
                np.logaddexp.reduce([values[kind] + weight for values, weight in zip(members, self.log_weights, strict=True)])
                for kind in (0, 1)
            )
            for sentence, path, last in zip(block, tree.paths, to_end, strict=True):
                log_probs[sentence] = (*into_node[path].tolist(), float(last))
        return log_probs


def event_log_probs(
    model: ScoringModel,
    tree: PrefixTree,
    ends: np.ndarray,
    step_limit: int,
    check: Callable[[], None],
    before: LanguageModelState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Natural-log probabilities, float64, of every step of a tree and of the sentence ends after the nodes ``ends`` (S,).

    The first result (N,) holds for each node the probability of its last token after its parent (the root's is 0); the second
    (S,) that of ``</s>``. ``step_limit``: bytes for the intermediate results of a step, which takes a level in pieces. ``check``
    is called between levels and pieces, and may raise what ends this. ``before``: the state before the sentences, one row.
    """
    features = tree_features(model, tree, step_limit, check, before)
    widths = [1, *map(len, tree.tokens)]
    starts = np.concatenate(([0], np.cumsum(widths)))
    contexts = [parents + starts[level] for level, parents in enumerate(tree.parents)]
    contexts = np.concatenate((*contexts, ends)).astype(np.int64)
    tokens = np.concatenate((*tree.tokens, np.full(len(ends), EOS))).astype(np.int64)
    of_events = torch.from_numpy(contexts).to(model.device), torch.from_numpy(tokens).to(model.device)
    values = model.events(features, *of_events, check).double().cpu().numpy()
    return np.concatenate(([0.0], values[: tree.size - 1])), values[tree.size - 1 :]


@torch.inference_mode()
def read_tokens(model: ScoringModel, tokens: Sequence[int], state: LanguageModelState | None = None) -> LanguageModelState:
    """Return the state, one row, after reading tokens after ``state`` (None: the initial one), which stays as it is."""
    state = model.initial_state(1) if state is None else state.map(Tensor.clone)
    if not tokens:
        return state
    distinct, places = np.unique(np.array(tokens, dtype=np.int64), return_inverse=True)
    words = model.inputs(torch.from_numpy(distinct).to(model.device))
    row = torch.zeros(1, dtype=torch.int64, device=model.device)
    for place in torch.from_numpy(places).to(model.device).split(1):
        _, state = model.step_rows(words, place, state, row)
    return state


def tree_features(
    model: ScoringModel, tree: PrefixTree, step_limit: int, check: Callable[[], None], before: LanguageModelState | None = None
) -> Tensor:
    """The features (N, F) of every node, the root's first: those of the word after ``</s>``, which begins each sentence."""
    # what a word contributes does not depend on where it stands: once for each distinct word
    distinct, places = np.unique(np.concatenate((np.array([EOS]), *tree.tokens)), return_inverse=True)
    words = model.inputs(torch.from_numpy(distinct).to(model.device))
    places = torch.from_numpy(places).to(model.device)
    features = torch.empty(tree.size, model.feature_size, device=model.device)
    state = model.initial_state(1) if before is None else before.map(Tensor.clone)
    features[:1], state = model.step_rows(words, places[:1], state, places.new_zeros(1))
    # all parents at once: a GPU waits for each copy
    parents_of_all = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *tree.parents])).to(model.device)
    begin = 1
    for parents in tree.parents:
        check()
        rows = max(1, min(STEP_ROWS["cpu" if model.device.type == "cpu" else "cuda"], step_limit // model.step_bytes(state, words)))
        states = []
        for size in model.piece_sizes(len(parents), rows):
            last = begin + size
            features[begin:last], new = model.step_rows(words, places[begin:last], state, parents_of_all[begin - 1 : last - 1])
            states.append(new)
            begin = last
        state = LanguageModelState.cat(states)
    return features
