"""Shallow fusion of word LMs into a decoder of subwords or letters, with look-ahead over a prefix tree of the words.

This is the look-ahead word LM of Hori, Cho and Watanabe, "End-to-end speech recognition with word-based RNN language models"
(SLT 2018).

Shapes: N states, U tokens of the decoder, W words of a language model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from attlm_fairseq.decoding.cache import CACHE_BYTES, HistoryCache, SharedByCopies
from attlm_fairseq.decoding.doubts import warn_of_spelling, warn_of_subword_lm
from attlm_fairseq.decoding.lexicon_tree import LexiconTree, range_sums
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM, State, require_log_linear
from attlm_fairseq.decoding.shallow_fusion import check_options, check_texts, with_lms
from attlm_fairseq.text.symbols import UNKNOWN

UNK_OFFSET = -10.0  # as if p(<unk>) were shared by e^10 = 22,000 unseen words
SPACE = b" "


class WordState(NamedTuple):
    """The LMs' state after the complete words (None after the sentence end), and the letters of the word in progress."""

    lms: State | None
    partial: bytes = b""
    paid: float = 0.0
    """The sum of the scores that the tokens of the partial word already got: its look-ahead score."""

    @property
    def opened(self) -> State:
        """Return the LMs' state of a hypothesis that has not ended."""
        if self.lms is None:
            raise ValueError("the hypothesis has ended")
        return self.lms


class LookAheadWordLM(SharedByCopies):
    """Fuses word LMs into a decoder of subwords or letters. It is a ``ShallowFusion``.

    A partial word w' after the history h has the look-ahead score ``sum_k weight_k ln P_k(w' | h)``. P_k is the sum of the
    LM's probabilities of all its words that begin with w'. A token's score is the change of the look-ahead score. The space
    that ends the word gets the remainder. So the scores of a word's tokens sum to exactly
    ``sum_k weight_k ln p_k(word | h)``, for any segmentation of the word. Without ``look_ahead``, the whole score is added at
    the end of the word.

    A word that an LM does not know scores ``ln p_k(<unk> | h) + unk_offset``. A partial word scores the same from the first
    token that leaves the prefix tree. ``unk_offset`` is the log-probability of one word among all unseen words. With 0, each
    unseen word is as likely as the whole class; with ``-inf``, words outside the LMs' vocabulary are forbidden.
    """

    def __init__(
        self,
        lms: LogLinearLM,
        texts: Sequence[bytes | None],
        ends: Collection[int] = (),
        unk_offset: float = UNK_OFFSET,
        look_ahead: bool = True,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """Build the prefix trees of the LMs' words.

        Args:
            lms: word LMs.
            texts: the text of each token from ``token_texts``, None for a token without text.
            ends: the tokens that end a sentence.
            unk_offset: added to ln p(``<unk>``) for a word that an LM does not know.
            look_ahead: whether to score partial words; if False, a word's score is added at its end.
            cache_bytes: the size of the cache of each LM's probabilities, in bytes.

        Raises:
            ValueError: look-ahead is requested with a subword LM, a text is not bytes, an end is not a token, or the offset
                is nan or inf.
            InputError: an LM cannot list its words.
            TypeError: ``lms`` is no LogLinearLM.
        """
        require_log_linear(lms)
        check_options(ends, len(texts), unk_offset)
        check_texts(texts)
        if look_ahead and any(lms.segment):
            raise ValueError("look-ahead needs the probability of every word, which an LM of subwords does not have: use look_ahead=False")
        self.lms = lms
        self.size = len(texts)
        self.texts = list(texts)
        self.ends = frozenset(ends)
        self.unk_offset = unk_offset
        self.look_ahead = look_ahead
        self.cache_bytes = cache_bytes
        members = lms.lms if look_ahead else ()
        self._trees = [LexiconTree(lm.words()) for lm in members]
        # the tree's words in its order, and the unknown word last
        self._words = [lm.tokens([*(word.decode() for word in tree.words), UNKNOWN]) for lm, tree in zip(members, self._trees, strict=True)]
        for lm, tree in zip(members, self._trees, strict=True):
            words = [word.decode() for word in tree.words]
            warn_of_subword_lm(lm, words)
            warn_of_spelling(lm, words, self.texts)
        self._probabilities = [HistoryCache(cache_bytes) for _ in members]
        self._sort_tokens()
        self._continuations = lru_cache(maxsize=1 << 12)(self._make_continuations)

    def _sort_tokens(self) -> None:
        """Sort the tokens by their effect: they continue, begin, complete or end a word."""
        within: dict[bytes, list[int]] = defaultdict(list)
        begin, complete = within.copy(), within.copy()
        self._spaces: list[int] = []  # tokens that only end a word
        self._other: list[int] = []  # tokens with a space in the middle: few, scored one by one
        for token, text in enumerate(self.texts):
            if token in self.ends or not text:
                continue
            core = text.strip(SPACE)
            kind = {core: within, SPACE + core: begin, core + SPACE: complete}.get(text)
            if not core:
                self._spaces.append(token)
            elif kind is None or SPACE in core:
                self._other.append(token)
            else:
                kind[core].append(token)
        self._within, self._begin, self._complete = TokenKind(within), TokenKind(begin), TokenKind(complete, whole=True)

    def __reduce__(self) -> tuple:
        return LookAheadWordLM, (self.lms, self.texts, self.ends, self.unk_offset, self.look_ahead, self.cache_bytes)

    def start(self) -> WordState:
        return WordState(self.lms.start())

    def after(self, history: Sequence[Sequence[str]]) -> LookAheadWordLM:
        """Return the fusion for sentences that follow those of ``history``, sequences of words of the LMs. See ``LogLinearLM.after``."""
        return with_lms(self, self.lms.after(history))

    def score(self, state: WordState, token: int) -> tuple[float, WordState]:
        if token in self.ends:
            return self.end(state), WordState(None)
        if not 0 <= token < len(self.texts):
            raise IndexError(f"token {token}: expected 0 to {len(self.texts) - 1}")
        text = self.texts[token]
        if state.lms is None or not text:
            return 0.0, state
        total = 0.0
        for place, part in enumerate(text.split(SPACE)):
            if place:
                value, state = self._close(state)
                total += value
            if part:
                partial = state.partial + part
                score = self._partial_score(state.opened, partial)
                total += due(score, state.paid)
                state = WordState(state.lms, partial, score)
        return total, state

    def end(self, state: WordState) -> float:
        if state.lms is None:
            return 0.0
        value, closed = self._close(state)
        return value + self.lms.end(closed.opened)

    def scores(self, states: Sequence[WordState]) -> np.ndarray:
        # of each state two distributions are needed, before and after the end of its word: as many states as the cache has room for
        row = 8 * max(map(len, self._words), default=1)
        at_once = max(1, self.cache_bytes // (2 * row))
        return np.concatenate([self._scores(states[first : first + at_once]) for first in range(0, max(1, len(states)), at_once)])

    def _scores(self, states: Sequence[WordState]) -> np.ndarray:
        total = np.zeros((len(states), self.size))
        opened = [place for place, state in enumerate(states) if state.lms is not None]
        self._compute(states[place].opened for place in opened)
        closing = bool(self.ends or self._begin.tokens or self._spaces or self._other)
        closed = {place: self._close(states[place]) if closing else (0.0, states[place]) for place in opened}
        if closing:
            self._compute(state.opened for _, state in closed.values())
        for place in opened:
            state, row = states[place], total[place]
            rest, after = closed[place]
            self._fill(row, self._within, state)
            self._fill(row, self._complete, state)
            self._fill(row, self._begin, after, rest)
            row[self._spaces] = rest
            for token in self._other:
                row[token] = self.score(state, token)[0]
            if self.ends:
                row[list(self.ends)] = rest + self.lms.end(after.opened)
        return total

    def _close(self, state: WordState) -> tuple[float, WordState]:
        """Return the remaining score of the word in progress, if any, and the state after its end."""
        if not state.partial:
            return 0.0, state
        value, lms = self.lms.score(state.opened, letters(state.partial), self.unk_offset)
        return due(value, state.paid), WordState(lms)

    def _partial_score(self, lms: State, partial: bytes) -> float:
        """Return ``sum_k weight_k ln P_k(partial | h)``."""
        total = 0.0
        for member, tree in enumerate(self._trees):
            probabilities, unknown = self._word_probabilities(member, lms[member])
            begin, end = tree.range(partial)
            below = float(probabilities[begin:end].sum()) if begin < end else None
            total += self.lms.weights[member] * (unknown if below is None else math.log(below) if below > 0 else -math.inf)
        return total

    def _fill(self, row: np.ndarray, kind: TokenKind, state: WordState, before: float = 0.0) -> None:
        """Write the scores of all tokens of a kind into ``row`` (U,), plus ``before``, the score due before the token."""
        if not len(kind.places):
            return
        if kind.whole and not self.look_ahead:
            for text, same in kind.tokens.items():
                row[same] = due(self.lms.score(state.opened, letters(state.partial + text), self.unk_offset)[0], state.paid)
            return
        total = np.zeros(self.size)
        for member in range(len(self._trees)):
            weight = self.lms.weights[member]
            probabilities, unknown = self._word_probabilities(member, state.opened[member])
            tokens, begins, ends = self._continuations(member, state.partial, kind)
            values = np.full(self.size, weight * unknown)
            with np.errstate(divide="ignore"):
                values[tokens] = weight * np.log(range_sums(probabilities, begins, ends))
            total += values
        row[kind.places] = before + due(total[kind.places], state.paid)

    def _make_continuations(self, member: int, prefix: bytes, kind: TokenKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return tuple(self._trees[member].continuations(prefix, kind.tokens, kind.whole).T)

    def _compute(self, states: Iterable[State]) -> None:
        """Compute all distributions of the states in one batch, before they are needed one by one."""
        states = list(states)
        for member, lm in enumerate(self.lms.lms if states else ()):
            histories = list(dict.fromkeys(state[member] for state in states))
            if not self.look_ahead:
                lm.log_probs(histories, lm.tokens([]))
            elif missing := [history for history in histories if self._probabilities[member].get(history) is None]:
                for history, row in zip(missing, lm.log_probs(missing, self._words[member]), strict=True):
                    self._keep(member, history, row)

    def _word_probabilities(self, member: int, history: Any) -> tuple[np.ndarray, float]:
        """Return p of an LM's words in the order of its tree, (W,) in float64, and the score of an unknown word."""
        value = self._probabilities[member].get(history)
        if value is None:
            value = self._keep(member, history, self.lms.lms[member].log_probs([history], self._words[member])[0])
        return value

    def _keep(self, member: int, history: Any, log_probs: np.ndarray) -> tuple[np.ndarray, float]:
        probabilities = np.exp(log_probs[:-1], dtype=np.float64)
        value = (probabilities, float(log_probs[-1]) + self.lms.unknown_offset(self.lms.weights[member], self.unk_offset))
        self._probabilities[member].put(history, value, probabilities.nbytes)
        return value


class TokenKind:
    """Tokens with the same effect: they continue, begin or complete a word. ``whole``: only complete words are scored."""

    def __init__(self, tokens: dict[bytes, list[int]], whole: bool = False) -> None:
        self.tokens = dict(tokens)  # by their letters
        self.places = np.array(sorted(token for same in tokens.values() for token in same), dtype=np.int64)
        self.whole = whole


def due(score: Any, paid: float) -> Any:
    return score - paid if paid > -math.inf else 0.0


def letters(text: bytes) -> str:
    """Return the word that the bytes spell. If they are not valid UTF-8, return a word that no LM knows."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return UNKNOWN
