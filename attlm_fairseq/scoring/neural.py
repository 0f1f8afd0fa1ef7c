"""Scoring with the package's neural language models: every distinct prefix of all sentences is computed once.

Shapes: N nodes of a level or a tree, F features, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import TrainedModel, load_model
from attlm_fairseq.checkpoints.vocabulary import EOS, UNK
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel, LanguageModelState
from attlm_fairseq.modules.output.adaptive import AdaptiveOutput
from attlm_fairseq.scoring.bfloat16_model import Bfloat16Model, piece_sizes
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, SMALLEST_MEMORY, DeviceConfig
from attlm_fairseq.scoring.prefix_tree import PrefixTree, build_prefix_tree
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.threads import side_by_side
from attlm_fairseq.scoring.tree_memory import TreeMemory, split_evenly, split_into_blocks

DEVIATION_SENTENCES = 64  # on which the effect of a lower precision is measured
PART_NODES = 256  # fewer are not worth a thread of their own
OTHER_BYTES = 48 << 20  # of the memory: logits and gathered weights
LARGEST_NORMALISER = 60.0  # e^88 is float32's largest number; of e^-60 what is lost below its smallest, e^-87, is no digit
STEP_COPIES = 6  # as many times a row's state and gates are held while a step computes, at most


@dataclass(frozen=True)
class Deviation:
    """How far the sums of sentences are from their float32 values, in nats, on a sample of the sentences scored."""

    sentences: int
    words: int
    mean: float
    largest: float

    def __str__(self) -> str:
        return (
            f"a sentence's score differs from float32 by {self.mean:.4f} nats on average, {self.largest:.4f} at most "
            f"(measured on {self.sentences} of these sentences, {self.words} words)"
        )


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

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        ids = [tuple(self.vocabulary.ids(words)) for words in sentences]
        distinct = sorted(set(ids))
        if self.compute.precision != "float32" and self.deviation is None and distinct:
            self.deviation = self._measured_deviation(distinct)
        log_probs = self._log_probs(distinct, self.compute.precision)
        return [SentenceScore(log_probs[sentence], tuple(token == UNK for token in sentence)) for sentence in ids]

    def _log_probs(self, distinct: Sequence[tuple[int, ...]], precision: str) -> dict[tuple[int, ...], tuple[float, ...]]:
        """The log-probability of each word and of the end of each of the sentences, which are sorted."""
        if not distinct:
            return {}
        on_processor = self.models[0].model.embedding.weight.device.type == "cpu"
        threads = torch.get_num_threads() if on_processor else 1
        most = max(1, self.compute.memory // SMALLEST_MEMORY)
        counts = [count for count in range(1, min(threads, most) + 1) if threads % count == 0]  # so that no thread is left over
        parts = split_evenly(distinct, counts, PART_NODES)
        memory = self.compute.memory // len(parts)
        with torch.inference_mode():
            lows = [Bfloat16Model(member.model) if precision == "bfloat16" else None for member in self.models]
        found = side_by_side(lambda part, check: self._of_part(distinct[slice(*part)], lows, memory, check), parts)
        return {sentence: values for of_part in found for sentence, values in of_part.items()}

    @torch.inference_mode()
    def _of_part(
        self, distinct: Sequence[tuple[int, ...]], lows: Sequence[Bfloat16Model | None], memory: int, check: Callable[[], None]
    ) -> dict[tuple[int, ...], tuple[float, ...]]:
        log_probs: dict[tuple[int, ...], tuple[float, ...]] = {}
        step_limit = memory // 8
        for begin, end in split_into_blocks(distinct, self.tree_memory, memory - step_limit - OTHER_BYTES):
            block = distinct[begin:end]
            tree = build_prefix_tree(block)
            ends = np.array([path[-1] if len(path) else 0 for path in tree.paths])
            members = [
                event_log_probs(member.model, tree, ends, step_limit, check, low) for member, low in zip(self.models, lows, strict=True)
            ]
            into_node, to_end = (
                np.logaddexp.reduce([values[kind] + weight for values, weight in zip(members, self.log_weights, strict=True)])
                for kind in (0, 1)
            )
            for sentence, path, last in zip(block, tree.paths, to_end, strict=True):
                log_probs[sentence] = (*into_node[path].tolist(), float(last))
        return log_probs

    def _measured_deviation(self, distinct: Sequence[tuple[int, ...]]) -> Deviation:
        sample = distinct[:: -(-len(distinct) // DEVIATION_SENTENCES)]
        exact, rounded = (self._log_probs(sample, precision) for precision in ("float32", self.compute.precision))
        differences = [abs(math.fsum(exact[sentence]) - math.fsum(rounded[sentence])) for sentence in sample]
        return Deviation(len(sample), sum(map(len, sample)), math.fsum(differences) / len(sample), max(differences))


def event_log_probs(
    model: LanguageModel, tree: PrefixTree, ends: np.ndarray, step_limit: int, check: Callable[[], None], low: Bfloat16Model | None
) -> tuple[np.ndarray, np.ndarray]:
    """Natural-log probabilities, float64, of every step of a tree and of the sentence ends after the nodes ``ends`` (S,).

    The first result (N,) holds for each node the probability of its last token after its parent (the root's is 0); the second
    (S,) that of ``</s>``. ``step_limit``: bytes for the intermediate results of a step, which takes a level in pieces. ``check``
    is called between levels and pieces, and may raise what ends this. ``low``: the model in bfloat16, if it is to be computed so.
    """
    features = tree_features(model, tree, step_limit, check, low)
    device = features.device
    widths = [1, *map(len, tree.tokens)]
    starts = np.concatenate(([0], np.cumsum(widths)))
    contexts = [parents + starts[level] for level, parents in enumerate(tree.parents)]
    contexts = np.concatenate((*contexts, ends)).astype(np.int64)
    tokens = np.concatenate((*tree.tokens, np.full(len(ends), EOS))).astype(np.int64)
    values = target_log_probs(model, features, torch.from_numpy(contexts).to(device), torch.from_numpy(tokens).to(device), check, low)
    values = values.double().cpu().numpy()
    return np.concatenate(([0.0], values[: tree.size - 1])), values[tree.size - 1 :]


def tree_features(model: LanguageModel, tree: PrefixTree, step_limit: int, check: Callable[[], None], low: Bfloat16Model | None) -> Tensor:
    """The features (N, F) of every node, the root's first: those of the word after ``</s>``, which begins each sentence."""
    device = model.embedding.weight.device
    # what a word adds to the first layer's gates does not depend on where it stands: once for each distinct word
    words, places = np.unique(np.concatenate((np.array([EOS]), *tree.tokens)), return_inverse=True)
    gates = (low or model).input_gates(torch.from_numpy(words).to(device))
    places = torch.from_numpy(places).to(device)
    step = low.step if low else partial(step_from, model)
    features = torch.empty(tree.size, model.reader.feature_size, device=device)
    features[:1], state = step(gates, places[:1], (low or model).initial_state(1), places.new_zeros(1))
    parents_of_all = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *tree.parents])).to(device)  # at once: a GPU waits for each
    begin = 1
    for parents in tree.parents:
        check()
        end = begin + len(parents)
        lstm_bytes, memory_bytes = (
            sum(part[:1].numel() * part.element_size() for part in parts) for parts in ((state.hidden, state.cell, gates), state.memory)
        )
        # the bfloat16 step overwrites its own; what it holds beside is small on a processor, and as large again elsewhere
        copies = STEP_COPIES if low is None else 1 if device.type == "cpu" else 3
        row_bytes = STEP_COPIES * memory_bytes + copies * lstm_bytes
        rows = max(1, min(step_rows(device), step_limit // row_bytes))
        states = []
        for size in piece_sizes(len(parents), rows) if low else even_sizes(len(parents), rows):
            last = begin + size
            features[begin:last], new = step(gates, places[begin:last], state, parents_of_all[begin - 1 : last - 1])
            states.append(new)
            begin = last
        state = joined(states)
        assert begin == end
    return features


def step_from(
    model: LanguageModel, input_gates: Tensor, places: Tensor, state: LanguageModelState, rows: Tensor
) -> tuple[Tensor, LanguageModelState]:
    """Features and the state after words whose gates are ``input_gates[places]`` and the state before them ``state[rows]``."""
    return model.step_inputs(input_gates.index_select(0, places), state.select(rows))


def joined(states: Sequence[LanguageModelState]) -> LanguageModelState:
    """The rows of several states, one after the other."""
    if len(states) == 1:
        return states[0]
    memory = tuple(torch.cat(parts) for parts in zip(*(state.memory for state in states), strict=True))
    return LanguageModelState(torch.cat([state.hidden for state in states]), torch.cat([state.cell for state in states]), memory)


def target_log_probs(
    model: LanguageModel,
    features: Tensor,
    contexts: Tensor,
    tokens: Tensor,
    check: Callable[[], None] = lambda: None,
    low: Bfloat16Model | None = None,
) -> Tensor:
    """ln p(tokens[e] | features[contexts[e]]) for events e, the softmax of a context computed once: (N, F), (E,), (E,) -> (E,).

    The logits of the events themselves are computed apart, in float32 even where ``low`` has the rest in bfloat16: the rounding errors of
    the many logits in a normaliser even out, that of an event's own logit would not.
    """
    values = features.new_empty(len(contexts))
    adaptive = isinstance(model.output, AdaptiveOutput)
    width = max(features.size(1), model.output.widest) if adaptive else 2 * features.size(1)  # both factors of an event's logit
    piece = max(1, logits_at_once(features.device) // width)
    pieces = [slice(begin, begin + piece) for begin in range(0, len(contexts), piece)]
    if adaptive:  # a cluster's normaliser is needed by its own events alone
        for some in pieces:
            values[some] = model.output.log_probs_of(features[contexts[some]], tokens[some])
        return values
    weight, bias = model.output.weight, model.output.bias
    norms = normalisers(weight, bias, features, check, low)
    for some in pieces:
        context, token = contexts[some], tokens[some]
        own = torch.linalg.vecdot(features.index_select(0, context), weight.index_select(0, token))  # faster than indexing
        values[some] = own + bias[token] - norms[context]
    return values


def normalisers(
    weight: Tensor, bias: Tensor, features: Tensor, check: Callable[[], None] = lambda: None, low: Bfloat16Model | None = None
) -> Tensor:
    """``ln sum_v exp(logit_v)`` (N,) for features (N, F) and an output layer (V, F), (V,).

    The sums are taken as they are, without the largest logit's being subtracted first: two passes over the logits in place of five.
    The few rows, if any, whose sums come near what float32 can hold are computed again, in the usual way.
    """
    norms = low.normalisers(features, check) if low else direct_normalisers(weight, bias, features, check)
    unsafe = (~(norms.abs() < LARGEST_NORMALISER)).nonzero().squeeze(1)  # infinite and undefined ones are, too
    columns, rows = widths_at_once(weight, features)
    for some in unsafe.split(rows):
        pieces = zip(weight.split(columns), bias.split(columns), strict=True)
        parts = [torch.logsumexp(features[some] @ piece.t() + offsets, dim=-1) for piece, offsets in pieces]
        norms[some] = torch.logsumexp(torch.stack(parts), dim=0)
    return norms


def direct_normalisers(weight: Tensor, bias: Tensor, features: Tensor, check: Callable[[], None]) -> Tensor:
    """As :func:`normalisers`, infinite or undefined where float32 cannot hold the sum: in pieces of rows and of the vocabulary.

    The pieces are as wide as the matrix product wants them, and their logits few enough to stay in the cache until they are summed.
    """
    columns, rows = widths_at_once(weight, features)
    factors = bias.exp()
    held = features.new_empty(rows * columns)  # what the system gives anew costs more than the sums
    norms = []
    for some in features.tensor_split(-(-len(features) // rows)):
        check()
        sums = features.new_zeros(len(some))
        for piece, of_piece in zip(weight.split(columns), factors.split(columns), strict=True):
            logits = held[: len(some) * len(piece)].view(len(some), len(piece))
            torch.mm(some, piece.t(), out=logits)
            sums.addmv_(logits.exp_(), of_piece)
        norms.append(sums.log_())
    return torch.cat(norms)


def widths_at_once(weight: Tensor, features: Tensor) -> tuple[int, int]:
    """Words of the vocabulary and rows of features whose logits are held at once."""
    columns = min(len(weight), 2048 if features.device.type == "cpu" else 4096)
    return columns, min(logits_at_once(features.device) // columns, len(features))


def step_rows(device: torch.device) -> int:
    """Rows of a matrix product: enough for its full speed, and on a processor few enough for its cache."""
    return 768 if device.type == "cpu" else 16_384


def even_sizes(length: int, most: int) -> list[int]:
    """Sizes of as few pieces as have at most so many each, none much smaller than another."""
    pieces = -(-length // most)
    return [length // pieces + (number < length % pieces) for number in range(pieces)]


def logits_at_once(device: torch.device) -> int:
    """Logits held at once. With what is computed from them they fit into ``OTHER_BYTES``."""
    return 1 << (21 if device.type == "cpu" else 22)
