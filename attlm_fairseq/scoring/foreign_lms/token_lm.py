"""Any left-to-right token LM as a Scorer. Each distinct prefix of the sentences is computed once, for any architecture.

The sentences form a prefix tree. The LM steps through it level by level. The prefixes of one length are the rows of a
batch, without padding; each row has the state (key-value cache, recurrent state) of the prefix without its last token.
The features of all prefixes are collected, and the output layer, most of the work of small LMs, is applied to all at once.

Shapes: N rows of a level or nodes of a tree, E events, F features, V vocabulary.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.errors import InputError, beginning
from attlm_fairseq.modules.kernels.low_precision import rounded
from attlm_fairseq.modules.kernels.softmax_events import SoftmaxEvents, no_check
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.modules.output import EventLogProbs
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.deviation import Deviation, measured_on
from attlm_fairseq.scoring.foreign_lms.history_room import last_that_fit, score_after
from attlm_fairseq.scoring.foreign_lms.segmented import joined
from attlm_fairseq.scoring.prefix_tree import PrefixTree, build_prefix_tree
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.tree_memory import split_into_blocks
from attlm_fairseq.scoring.unknown_words.advice import advise_written_text

NODE_COPIES = 2  # features of all nodes, and of those that events need
STATE_COPIES = 2  # a step needs the states before and after it
LOGITS_AT_ONCE = 1 << 22
SAMPLE_SENTENCES = 64  # sentences on which text normalisation is tried


@dataclass(frozen=True)
class Encoded:
    """A sentence as tokens.

    Attributes:
        tokens: the ids of the n words' tokens, without start and end.
        lengths: of each word, how many of the tokens are its own; they sum to ``len(tokens)``.
        unknown: of each token, whether it is the LM's unknown token.
    """

    tokens: tuple[int, ...]
    lengths: tuple[int, ...]
    unknown: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.tokens)


class TokenLM(ABC):
    """A left-to-right LM over token ids that can be stepped.

    Attributes:
        start: the tokens before each sentence.
        end: the token of the sentence end; None if the LM has none, and the end is not scored.
        positions: maximum number of tokens that the LM can read, including the start; None for no limit.
        vocabulary_size: V.
        feature_size: F, the input size of the output layer.
        between: the tokens after an earlier sentence of a context, if the LM has no sentence end.
        cuts_words: whether it cuts words into known pieces, so that no word is unknown.
    """

    start: tuple[int, ...]
    end: int | None
    positions: int | None
    vocabulary_size: int
    feature_size: int
    between: tuple[int, ...] = ()
    cuts_words: bool = False

    @abstractmethod
    def encode(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Turn sentences of words into tokens."""

    @abstractmethod
    def read(self, tokens: Sequence[int], state: Any = None) -> tuple[Tensor, Any]:
        """Read tokens after ``state`` (None: from the beginning); return the last one's features (1, F) and the state.

        ``state`` is used up.
        """

    @abstractmethod
    def step(self, state: Any, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Any]:
        """Read one token after each of the rows ``rows`` (N,) of ``state``; return features (N, F) and the state. Uses ``state`` up."""

    @abstractmethod
    def events(self, precision: str) -> EventLogProbs:
        """Return the output layer: log-probabilities of single tokens given features."""

    @abstractmethod
    def state_bytes(self, state: Any) -> int:
        """Return the memory of a state."""

    @abstractmethod
    def signature(self) -> dict[str, object]:
        """Return kind and files with their SHA-256."""

    def notes(self) -> list[str]:
        """Return what the user should know about the LM."""
        return []


class TokenScorer(Scorer):
    """A ``TokenLM`` as a Scorer. A word's log-probability is the sum over its tokens, natural log.

    ``compute.precision`` ``bfloat16`` rounds the matrix products' operands (torch's autocast); log-softmax and sums stay in float32.
    """

    def __init__(self, lm: TokenLM, name: str = "lm", compute: DeviceConfig = DEFAULT_DEVICE) -> None:
        self.lm = lm
        self.name = name
        self.compute = compute
        self.deviation: Deviation | None = None
        self._history: tuple[tuple[int, ...], ...] = ()
        self._started: dict[str, tuple[Tensor, Any]] = {}  # by precision: features and state after the start, of all histories
        self._root: dict[str, tuple[Tensor, Any]] = {}  # the same after start and history
        self._sample: list[Sequence[str]] = []  # of the sentences scored, for the advice
        self._advice: str | None = None  # None: not sought yet

    @property
    def scores_end(self) -> bool:
        return self.lm.end is not None

    def signature(self) -> dict[str, object]:
        return self.lm.signature() | {"vocabulary": self.lm.vocabulary_size, "precision": self.compute.precision}

    def notes(self) -> list[str]:
        deviation = [f"{self.name}: {self.deviation}"] if self.deviation else []
        if self._advice is None and self._sample:
            self._advice = (self.lm.cuts_words and not self._history and advise_written_text(self, self._sample)) or ""
        return deviation + [f"{self.name}: {note}" for note in (*self.lm.notes(), *filter(None, [self._advice]))]

    def after(self, history: Sequence[Sequence[str]]) -> Scorer:
        """Return the LM after these sentences: the start, then each sentence with its end (without one: a line end), as one text.

        If a history takes more than half of the LM's positions, its oldest sentences are left out.
        """
        if not history:
            return self
        end = self.lm.between if self.lm.end is None else (self.lm.end,)
        kept = [*self._history, *(sentence.tokens + end for sentence in self.lm.encode(history))]
        while self.lm.positions is not None and sum(map(len, kept)) > self.lm.positions // 2:
            del kept[0]
        return self.with_history(kept)

    def with_history(self, history: Iterable[tuple[int, ...]]) -> TokenScorer:
        later = TokenScorer(self.lm, self.name, self.compute)
        later._history, later.deviation, later._started = tuple(history), self.deviation, self._started
        return later

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        if not self._sample:
            self._sample = [words for words in sentences if words][:: max(1, len(sentences) // SAMPLE_SENTENCES)]
        encoded = self.lm.encode(sentences)
        distinct = sorted({sentence.tokens for sentence in encoded})
        kept = [self._history_before(len(sentence), words) for sentence, words in zip(encoded, sentences, strict=True)]
        if any(number < len(self._history) for number in kept):
            return score_after(self, sentences, kept)
        if self.compute.precision != "float32" and self.deviation is None and distinct:
            self.deviation = measured_on(distinct, self._log_probs, self.compute.precision)
        found = self._log_probs(distinct, self.compute.precision)
        return [joined(SentenceScore(found[sentence.tokens], sentence.unknown), sentence.lengths) for sentence in encoded]

    def _history_before(self, length: int, words: Sequence[str]) -> int:
        """Return the number of sentences of the history, the last ones, with which the LM can read a sentence of ``length`` tokens.

        Raises InputError if the sentence alone, which is ``words``, is too long.
        """
        if self.lm.positions is None:
            return len(self._history)
        room = self.lm.positions - len(self.lm.start) - length
        if room < 0 and length:
            others = f"with those before it {length + len(self.lm.start)}, " if len(self.lm.start) > 1 else ""
            raise InputError(
                f"{self.name}: the sentence {beginning(words)} has {length} tokens, {others}the LM reads at most {self.lm.positions}; "
                "leave such lists out or split them"
            )
        return last_that_fit(list(map(len, self._history)), room if length else room - 1)  # one more token can be read in any case

    @torch.inference_mode()
    @full_float32()
    def _log_probs(self, distinct: Sequence[tuple[int, ...]], precision: str) -> dict[tuple[int, ...], tuple[float, ...]]:
        """Return the log-probabilities of the tokens and the end of each of the sentences, which are sorted."""
        found: dict[tuple[int, ...], tuple[float, ...]] = {}
        if not distinct:
            return found
        events = self.lm.events(precision)
        with autocast(self.compute.device, precision):
            if precision not in self._root:
                self._root[precision] = self._after_history(precision)
            root = self._root[precision]
            for begin, end in split_into_blocks(distinct, self._memory(root), self.compute.memory):
                found |= self._of_block(distinct[begin:end], root, events)
        return found

    def _after_history(self, precision: str) -> tuple[Tensor, Any]:
        if precision not in self._started:
            self._started[precision] = self.lm.read(self.lm.start)
        read = [token for sentence in self._history for token in sentence]  # none after an empty sentence whose end is not scored
        return self.lm.read(read, copy.deepcopy(self._started[precision][1])) if read else self._started[precision]

    def _of_block(
        self, block: Sequence[tuple[int, ...]], root: tuple[Tensor, Any], events: EventLogProbs
    ) -> dict[tuple[int, ...], tuple[float, ...]]:
        tree = build_prefix_tree(block)
        starts = np.concatenate(([0], np.cumsum([1, *map(len, tree.tokens)])))
        last = np.array([path[-1] if len(path) else 0 for path in tree.paths], dtype=np.int64)
        scored_ends = last if self.lm.end is not None else last[:0]
        contexts = np.concatenate((*(parents + starts[level] for level, parents in enumerate(tree.parents)), scored_ends))
        tokens = np.concatenate((*tree.tokens, np.full(len(scored_ends), self.lm.end or 0)))
        needed, places = np.unique(contexts, return_inverse=True)  # last tokens have no event if the end is not scored
        features = self._features(tree, starts, root)
        device = features.device
        rows, at, words = (torch.from_numpy(part.astype(np.int64)).to(device) for part in (needed, places, tokens))
        found = events(features.index_select(0, rows), at, words)
        values = found.double().cpu().numpy()
        into_node, to_end = np.concatenate(([0.0], values[: tree.size - 1])), values[tree.size - 1 :]
        ends = to_end if self.lm.end is not None else np.zeros(len(block))
        return {sentence: (*into_node[path].tolist(), float(end)) for sentence, path, end in zip(block, tree.paths, ends, strict=True)}

    def _features(self, tree: PrefixTree, starts: np.ndarray, root: tuple[Tensor, Any]) -> Tensor:
        """Return the features (N, F) of every node of the tree, in float32."""
        of_root, state = copy.deepcopy(root)
        features = of_root.new_empty(tree.size, of_root.size(1), dtype=torch.float32)
        features[:1] = of_root
        for level, (parents, tokens) in enumerate(zip(tree.parents, tree.tokens, strict=True), start=1):
            rows, new = (torch.from_numpy(part).to(features.device) for part in (parents, tokens))
            of_level, state = self.lm.step(state, rows, new)
            features[starts[level] : starts[level + 1]] = of_level
        return features

    def _memory(self, root: tuple[Tensor, Any]) -> StepMemory:
        """Measure the memory of a row at the root and its growth by one token."""
        at_root = self.lm.state_bytes(root[1])
        start = torch.tensor(self.lm.start[-1:], device=root[0].device)
        _, state = self.lm.step(copy.deepcopy(root[1]), torch.zeros_like(start), start)
        token = max(0, self.lm.state_bytes(state) - at_root)
        return StepMemory(STATE_COPIES * at_root, STATE_COPIES * token, node=NODE_COPIES * 4 * self.lm.feature_size + 64)


def autocast(device: str, precision: str) -> AbstractContextManager:
    """Return the context in which torch's matrix products are in this precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=getattr(torch, precision))


class LogitEvents:
    """Computes log-probabilities of single tokens for any output layer, one piece of the contexts at a time."""

    def __init__(self, logits: Callable[[Tensor], Tensor], vocabulary_size: int) -> None:
        """Use ``logits``, which maps features (N, F) to logits (N, V)."""
        self.logits = logits
        self.rows = max(1, LOGITS_AT_ONCE // vocabulary_size)

    def __call__(
        self, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check, read: Read | None = None
    ) -> Tensor:
        """Return ``ln p(words[e] | features[contexts[e]])`` (E,) for features (N, F), contexts (E,) and words (E,)."""
        values = features.new_empty(len(contexts), dtype=torch.float32)
        order = contexts.argsort()
        bounds = torch.searchsorted(contexts[order], torch.arange(0, len(features) + self.rows, self.rows, device=contexts.device)).tolist()
        for piece, (begin, end) in enumerate(pairwise(bounds)):
            check()
            some, offset = order[begin:end], piece * self.rows
            logits = self.logits(features[offset : offset + self.rows]).float()
            own = contexts[some] - offset
            values[some] = logits[own, words[some]] - logits.logsumexp(dim=1)[own]
        return values


def linear_events(weight: Tensor, bias: Tensor | None, precision: str) -> EventLogProbs:
    """Return the events of ``softmax(W f + b)`` for weights (V, F)."""
    low = None if precision == "float32" else rounded(weight, getattr(torch, precision))
    zeros = weight.new_zeros(len(weight), dtype=torch.float32)
    return SoftmaxEvents(weight, zeros if bias is None else bias.float(), low)


@dataclass(frozen=True)
class StepMemory:
    """Bytes of one row of a level: ``fixed`` plus ``token`` for each of its tokens. See ``split_into_blocks``."""

    fixed: int
    token: int
    node: int  # of the tree itself, for each of its nodes
    word: int = 0

    def state(self, depth: int) -> int:
        """Return the bytes of a row after ``depth`` tokens."""
        return self.fixed + depth * self.token
