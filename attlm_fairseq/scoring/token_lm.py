"""Any left-to-right LM over tokens as a Scorer: each distinct prefix of the sentences is one step of the LM, whatever its architecture.

The sentences form a prefix tree. The LM steps through it level by level: all prefixes of one length are the rows of one batch, each
row with the state (key-value cache, recurrent state) of the prefix without its last token. Equal lengths need no padding.

Shapes: N rows of a level, V vocabulary.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.deviation import Deviation, measured_on
from attlm_fairseq.scoring.prefix_tree import build_prefix_tree
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.segmented import joined
from attlm_fairseq.scoring.tree_memory import split_into_blocks

LOGIT_COPIES = 3  # logits, their float32 copy and what logsumexp holds
STATE_COPIES = 2  # a step holds the rows before and the rows after it


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


class TokenLM(ABC):
    """A left-to-right LM over token ids that can be stepped.

    Attributes:
        start: the tokens before each sentence.
        end: the token of the sentence end; None if the LM has none, and the end is not scored.
        positions: how many tokens the LM can read, the start included; None for any number.
        vocabulary_size: V.
    """

    start: tuple[int, ...]
    end: int | None
    positions: int | None
    vocabulary_size: int

    @abstractmethod
    def encode(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Turn sentences of words into tokens."""

    @abstractmethod
    def read(self, tokens: Sequence[int], state: Any = None) -> tuple[Tensor, Any]:
        """Read tokens after ``state`` (None: from the beginning); return the last one's logits (1, V) and the state. Uses ``state`` up."""

    @abstractmethod
    def step(self, state: Any, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Any]:
        """Read one token after each of the rows ``rows`` (N,) of ``state``; return the logits (N, V) and the state. Uses ``state`` up."""

    @abstractmethod
    def state_bytes(self, state: Any) -> int:
        """Return the memory of a state."""

    @abstractmethod
    def signature(self) -> dict[str, object]:
        """Return kind and files with their SHA-256."""

    def notes(self, sample: Sequence[Sequence[str]]) -> list[str]:
        """Return what the user should know about the LM, given some of the sentences that it scored."""
        return []


class TokenScorer(Scorer):
    """A :class:`TokenLM` as a Scorer. A word's log-probability is the sum over its tokens, natural log.

    ``compute.precision`` ``bfloat16`` rounds the matrix products' operands (torch's autocast); log-softmax and sums stay in float32.
    """

    def __init__(self, lm: TokenLM, name: str = "lm", compute: DeviceConfig = DEFAULT_DEVICE) -> None:
        self.lm = lm
        self.name = name
        self.compute = compute
        self.deviation: Deviation | None = None
        self._history: tuple[tuple[int, ...], ...] = ()
        self._root: dict[str, tuple[Tensor, Any]] = {}  # by precision: logits and state after start and history
        self._sample: list[Sequence[str]] = []

    def signature(self) -> dict[str, object]:
        return self.lm.signature() | {"vocabulary": self.lm.vocabulary_size, "precision": self.compute.precision}

    def notes(self) -> list[str]:
        deviation = [f"{self.name}: {self.deviation}"] if self.deviation else []
        return deviation + [f"{self.name}: {note}" for note in self.lm.notes(self._sample)]

    def after(self, history: Sequence[Sequence[str]]) -> Scorer:
        """Return the LM after these sentences: start, then each sentence with its end, as one text.

        Of a history that takes more than half of the LM's positions the oldest sentences are left out.
        """
        if not history:
            return self
        end = () if self.lm.end is None else (self.lm.end,)
        kept = [*self._history, *(sentence.tokens + end for sentence in self.lm.encode(history))]
        while self.lm.positions is not None and sum(map(len, kept)) > self.lm.positions // 2:
            del kept[0]
        later = TokenScorer(self.lm, self.name, self.compute)
        later._history = tuple(kept)
        return later

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        if not self._sample:
            self._sample = [words for words in sentences if words][:: max(1, len(sentences) // 64)]
        encoded = self.lm.encode(sentences)
        distinct = sorted({sentence.tokens for sentence in encoded})
        self._check_lengths(distinct)
        if self.compute.precision != "float32" and self.deviation is None and distinct:
            self.deviation = measured_on(distinct, self._log_probs, self.compute.precision)
        found = self._log_probs(distinct, self.compute.precision)
        return [joined(SentenceScore(found[sentence.tokens], sentence.unknown), sentence.lengths) for sentence in encoded]

    def _check_lengths(self, distinct: Sequence[tuple[int, ...]]) -> None:
        """Raise InputError for a sentence that is longer than the LM can read."""
        if self.lm.positions is None:
            return
        before = len(self.lm.start) + sum(map(len, self._history))
        if distinct and (longest := max(map(len, distinct))) + before > self.lm.positions:
            raise InputError(
                f"{self.name}: a sentence has {longest} tokens{f' after {before} others' if before > 1 else ''}, the LM reads at most "
                f"{self.lm.positions}; leave such lists out or split them"
            )

    @torch.inference_mode()
    def _log_probs(self, distinct: Sequence[tuple[int, ...]], precision: str) -> dict[tuple[int, ...], tuple[float, ...]]:
        """Return the log-probabilities of the tokens and the end of each of the sentences, which are sorted."""
        found: dict[tuple[int, ...], tuple[float, ...]] = {}
        if not distinct:
            return found
        with self._autocast(precision):
            if precision not in self._root:
                self._root[precision] = self._after_history()
            for begin, end in split_into_blocks(distinct, self._memory(self._root[precision]), self.compute.memory):
                found |= self._of_block(distinct[begin:end], *copy.deepcopy(self._root[precision]))
        return found

    def _after_history(self) -> tuple[Tensor, Any]:
        logits, state = self.lm.read(self.lm.start)
        return self.lm.read([token for sentence in self._history for token in sentence], state) if self._history else (logits, state)

    def _of_block(self, block: Sequence[tuple[int, ...]], logits: Tensor, state: Any) -> dict[tuple[int, ...], tuple[float, ...]]:
        tree = build_prefix_tree(block)
        device = logits.device
        starts = np.concatenate(([0], np.cumsum([1, *map(len, tree.tokens)])))
        into_node, to_end = np.zeros(tree.size), np.zeros(len(block))
        of_length: dict[int, list[int]] = {}
        for number, sentence in enumerate(block):
            of_length.setdefault(len(sentence), []).append(number)
        for level in range(len(tree.tokens) + 1):
            logits = logits.float()
            norms = logits.logsumexp(dim=1)
            if self.lm.end is not None and (ending := of_length.get(level)):
                rows = torch.tensor([tree.paths[number][-1] - starts[level] if level else 0 for number in ending], device=device)
                to_end[ending] = (logits[rows, self.lm.end] - norms[rows]).double().cpu().numpy()
            if level == len(tree.tokens):
                break
            parents, tokens = (torch.from_numpy(values[level]).to(device) for values in (tree.parents, tree.tokens))
            into_node[starts[level + 1] : starts[level + 2]] = (logits[parents, tokens] - norms[parents]).double().cpu().numpy()
            if self.lm.end is None and level + 1 == len(tree.tokens):
                break  # nothing follows the last tokens
            logits, state = self.lm.step(state, parents, tokens)
        return {sentence: (*into_node[path].tolist(), float(end)) for sentence, path, end in zip(block, tree.paths, to_end, strict=True)}

    def _memory(self, root: tuple[Tensor, Any]) -> StepMemory:
        """Measure what a row holds: at the root, and how much more after one token."""
        at_root = self.lm.state_bytes(root[1])
        _, state = self.lm.step(copy.deepcopy(root[1]), torch.zeros(1, dtype=torch.long, device=root[0].device), root[0].argmax(dim=1))
        logits = 4 * LOGIT_COPIES * self.lm.vocabulary_size
        return StepMemory(STATE_COPIES * at_root + logits, STATE_COPIES * max(0, self.lm.state_bytes(state) - at_root))

    def _autocast(self, precision: str) -> AbstractContextManager:
        if precision == "float32":
            return nullcontext()
        return torch.autocast(torch.device(self.compute.device).type, dtype=getattr(torch, precision))


@dataclass(frozen=True)
class StepMemory:
    """Bytes of one row of a level: ``fixed`` plus ``token`` for each of its tokens. See :func:`split_into_blocks`."""

    fixed: int
    token: int
    node: int = 64  # of the tree itself
    word: int = 0

    def state(self, depth: int) -> int:
        """Return the bytes of a row after ``depth`` tokens."""
        return self.fixed + depth * self.token
