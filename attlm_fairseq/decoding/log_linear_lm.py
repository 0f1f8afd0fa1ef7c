"""A weighted sum of several language models, which a decoder adds to its own scores.

Shapes: N states, K words.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attlm_fairseq.checkpoints.plain_data import is_checkpoint
from attlm_fairseq.decoding.cache import CACHE_BYTES, SharedByCopies
from attlm_fairseq.decoding.doubts import name_of
from attlm_fairseq.decoding.stateful_lm import StatefulLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.errors import InputError, is_word, not_a_word, require_words
from attlm_fairseq.numeric import is_finite
from attlm_fairseq.scoring.ngrams.kenlm import KenLM
from attlm_fairseq.text.symbols import UNKNOWN

FORBIDS = -100.0  # offsets of unknown words below this are no estimates of their probability

Files = Mapping[str, float] | Mapping[Path, float] | Mapping[str | Path, float] | str | Path

State = tuple[Any, ...]
"""One history for each language model: an immutable value that stands for the words so far."""


def require_unknown(lm: object, weight: float) -> None:
    """Raise InputError for an n-gram LM without a probability of ``<unk>`` and with a negative weight: it would reward what it lacks."""
    if weight < 0 and isinstance(lm, KenLM) and lm.lacks_unknown:
        raise InputError(
            f"has no probability for <unk>, and the weight {weight:g}: words that it lacks would gain from it; estimate it with "
            "`attlm ngram`, or give no negative weight",
            path=lm.path,
        )


class LogLinearLM(SharedByCopies):
    """Computes ``sum_k weight_k ln p_k(word | words before)`` over neural LMs and KenLM, each with its own vocabulary.

    A negative weight subtracts an LM: the source-domain LM in the density ratio method, or the decoder's internal LM in
    internal-LM subtraction. The sums are not a normalised distribution. An LM with weight 0 is not evaluated.

    A subword LM needs ``segment``, which splits a word into the LM's subwords. The word's log-probability is their sum.
    """

    def __init__(
        self,
        lms: Sequence[StatefulLM],
        weights: Sequence[float] | None = None,
        segment: Sequence[Callable[[str], Sequence[str]] | None] | None = None,
    ) -> None:
        """Combine language models.

        Args:
            lms: the language models.
            weights: one weight per LM; by default all are 1.
            segment: for each LM, a function that splits a word into the LM's subwords, or None for a word LM. By default
                all are word LMs.

        Raises:
            TypeError: ``lms`` is no list, an LM is none, or ``segment`` is a function or holds anything but functions and None.
            ValueError: there are not as many weights or segmentations as LMs, or a weight is not a finite number.
            InputError: an n-gram LM without ``<unk>`` has a negative weight.
        """
        if hasattr(lms, "score"):
            raise TypeError(f"lms is {lms!r:.80}: expected a list of LMs")
        for lm in lms:
            if not all(hasattr(lm, name) for name in ("start", "token", "knows", "score", "log_probs")):
                raise TypeError(f"an LM is {lm!r:.80}: expected a StatefulNeuralLM or KenLM; LogLinearLM.load takes files")
        if weights is not None and not isinstance(weights, Iterable):
            raise TypeError(f"weights is {weights!r:.80}: expected a list, one for each LM")
        if callable(segment):
            raise TypeError("segment is a function: expected a list with one for each LM, or None in it for an LM of words")
        weights = [1.0] * len(lms) if weights is None else list(weights)
        segment = [None] * len(lms) if segment is None else list(segment)
        if not len(lms) == len(weights) == len(segment):
            raise ValueError(f"{len(lms)} LMs need as many weights ({len(weights)}) and segmentations ({len(segment)})")
        if not all(split is None or callable(split) for split in segment):
            raise TypeError(f"segment is {segment!r:.80}: expected a function or None for each LM")
        if not all(map(is_finite, weights)):
            raise ValueError(f"the weights of LMs are finite numbers: {weights}")
        for lm, weight in zip(lms, weights, strict=True):
            require_unknown(lm, weight)
        used = [place for place, weight in enumerate(weights) if weight]
        self.lms = tuple(lms[place] for place in used)
        self.weights = tuple(float(weights[place]) for place in used)
        self.segment = tuple(segment[place] for place in used)
        self._starts: State | None = None  # after other sentences, see ``after``

    def __repr__(self) -> str:
        terms = [f"{weight:g} * {name_of(lm)}" for lm, weight in zip(self.lms, self.weights, strict=True)]
        return f"<{type(self).__name__}: {' + '.join(terms) or 0}>"

    @classmethod
    def load(
        cls,
        lm: Files,
        device: str = "cpu",
        cache_bytes: int = CACHE_BYTES,
        precision: str = "float32",
    ) -> LogLinearLM:
        """Load language models from files.

        Args:
            lm: neural models (checkpoints, folders of ``attlm export``) and KenLM files, recognised by content: a mapping from
                paths to weights, or one path with weight 1. Decoders take no ensembles: give each LM a weight.
            device: where neural models run.
            cache_bytes: the size of each neural model's cache in bytes, see ``StatefulNeuralLM``.
            precision: the precision of neural models' weights, see ``DecoderLM.load``.

        Raises:
            InputError: a file is missing or invalid, or an n-gram LM without ``<unk>`` has a negative weight.
            ValueError: a file is given twice, a weight is not a finite number, or the precision of a neural model is unknown or
                does not go with the device (int8 is for CPUs).
            TypeError: an argument is neither a path nor a mapping of paths.
        """
        files = weighted(lm)
        return cls([load_stateful_lm(path, device, cache_bytes, precision) for path in files], list(files.values()))

    @property
    def follows_sentences(self) -> bool:
        """Whether ``start`` is the state after other sentences, see ``after``."""
        return self._starts is not None

    def start(self) -> State:
        """Return the state of an empty sentence."""
        return tuple(lm.start() for lm in self.lms) if self._starts is None else self._starts

    def after(self, history: Sequence[Sequence[str]]) -> LogLinearLM:
        """Return the LMs for sentences that follow those of ``history``, as ``Scorer.after`` does. The caches are shared.

        Args:
            history: the preceding sentences, oldest first, each a sequence of words. ``lms.after(a).after(b)`` equals
                ``lms.after([*a, *b])``.

        Returns:
            The LMs; only ``start`` differs. N-gram LMs score sentences independently.

        Raises:
            InputError: a sentence is a string, or a word is empty or has white space.
        """
        said = []
        for words in history:
            require_words(words)
            said.append(tuple(words))
            for word in said[-1]:
                if not is_word(word):
                    raise not_a_word(word)
        starts = []
        for lm, segment, start in zip(self.lms, self.segment, self.start(), strict=True):
            sentences = [[lm.token(part) for word in words for part in parts(word, segment)] for words in said]
            starts.append(lm.after(start, sentences))
        later = LogLinearLM(self.lms, self.weights, self.segment)
        later._starts = tuple(starts)
        return later

    def __reduce__(self) -> tuple:
        starts = [None if start is lm.start() else start for lm, start in zip(self.lms, self.start(), strict=True)]
        return _restored, (self.lms, self.weights, self.segment, starts)

    def score(self, state: State, word: str, unk_offset: float = 0.0) -> tuple[float, State]:
        """Return the weighted sum of ln p(word) and the state after the word.

        An LM that does not know the word contributes ``ln p(<unk>) + unk_offset``. An offset below FORBIDS, such as -inf,
        forbids the word. It is then ignored for LMs with a negative weight: a word must not gain from being forbidden.

        Raises:
            TypeError: the word is no text, such as the id of a token.
            ValueError: the offset is nan or inf, or there is not one history for each LM.
        """
        if not isinstance(word, str):
            raise TypeError(f"the word is {word!r:.60}: expected a text, such as 'word'; a DecoderLM takes ids")
        if not unk_offset < math.inf:
            raise ValueError(f"unk_offset is {unk_offset}: expected a number, or -inf")
        total = 0.0
        after = []
        for lm, weight, segment, history in zip(self.lms, self.weights, self.segment, state, strict=True):
            log_prob, offset = 0.0, self.unknown_offset(weight, unk_offset)
            for part in parts(word, segment):
                value, history = lm.score(history, lm.token(part))
                log_prob += value if lm.knows(part) else value + offset
            total += weight * log_prob
            after.append(history)
        return total, tuple(after)

    @property
    def order(self) -> int | None:
        """Return the number of words that a score depends on, itself included; None if on the whole history, as with neural LMs."""
        orders = [None if segment else lm.order for lm, segment in zip(self.lms, self.segment, strict=True)]
        finite = [order for order in orders if order is not None]
        return max(finite, default=1) if len(finite) == len(orders) else None

    @staticmethod
    def unknown_offset(weight: float, unk_offset: float) -> float:
        """Return the offset of an unknown word's log-probability in an LM with this weight."""
        return 0.0 if weight < 0 and unk_offset < FORBIDS else unk_offset

    def end(self, state: State) -> float:
        """Return the weighted sum of ln p(</s>)."""
        lms = zip(self.lms, self.weights, state, strict=True)
        return sum((weight * lm.score(history, lm.end)[0] for lm, weight, history in lms), 0.0)

    def knows(self, word: str) -> bool:
        """Return whether every LM knows the word or, for a subword LM, all of its subwords."""
        return all(all(map(lm.knows, parts(word, segment))) for lm, segment in zip(self.lms, self.segment, strict=True))


def _restored(lms: Any, weights: Any, segment: Any, starts: Sequence[Any]) -> LogLinearLM:
    """Return LMs as they were before they were pickled. ``starts``: their histories after other sentences, None for an LM without."""
    restored = LogLinearLM(lms, weights, segment)
    if any(start is not None for start in starts):
        restored._starts = tuple(lm.start() if start is None else start for lm, start in zip(lms, starts, strict=True))
    return restored


def require_log_linear(lms: object) -> None:
    """Raise TypeError for anything but a LogLinearLM, such as a file."""
    if not isinstance(lms, LogLinearLM):
        raise TypeError(f"the language models are a LogLinearLM, such as LogLinearLM.load('lm.arpa') returns, not a {type(lms).__name__}")


def weighted(files: Files) -> dict[Path, float]:
    if isinstance(files, str | os.PathLike):
        return {Path(files): 1.0}
    if not isinstance(files, Mapping):
        raise TypeError(
            f"language models are a path or a mapping of paths to weights, such as {{'lm.pt': 0.3}}, not {type(files).__name__}"
        )
    found = {Path(path): weight for path, weight in files.items()}
    if len(found) < len(files):
        raise ValueError(f"language models: a file is given twice in {', '.join(map(str, files))}")
    return found


def load_stateful_lm(path: Path, device: str = "cpu", cache_bytes: int = CACHE_BYTES, precision: str = "float32") -> StatefulLM:
    """Load a checkpoint, a folder of ``attlm export`` or a KenLM file, recognised by content.

    Raises:
        InputError: a file is missing or invalid.
        ValueError: the LM is neural, and the precision is unknown, or it is int8 and the device is not a CPU.
    """
    if ":" in str(path) and not path.exists():
        raise InputError("there is no such file, and decoders take no ensembles joined by ':': give each LM a weight of its own", path=path)
    if path.is_dir() or is_checkpoint(path):
        return StatefulNeuralLM.load(path, device=device, cache_bytes=cache_bytes, precision=precision)
    return KenLM(path)


def parts(word: str, segment: Callable[[str], Sequence[str]] | None) -> Sequence[str]:
    """Return the units that an LM looks up for a word: its subwords if ``segment`` is given, else the word.

    ``<unk>`` is not a spelling, so it is never split. A word that ``segment`` splits into nothing, such as a sign that its normalisation
    takes out, is ``<unk>``.
    """
    return [word] if segment is None or word == UNKNOWN else list(segment(word)) or [UNKNOWN]
