"""The language models inside pyctcdecode's decoder.

lm = PyctcdecodeLM(LogLinearLM.load({"checkpoint_best.pt": 1.0}), alpha=0.5, beta=1.5)
decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(labels), lm)
decoder.decode(log_probs)
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from pyctcdecode.constants import AVG_TOKEN_LEN, DEFAULT_ALPHA, DEFAULT_BETA, DEFAULT_UNK_LOGP_OFFSET
from pyctcdecode.language_model import AbstractLanguageModel

from attlm_fairseq.decoding.doubts import warn_of_subword_lm, warn_of_unknown, words_of
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM, State, load_stateful_lm, require_log_linear
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import remove
from attlm_fairseq.forks import one_thread_in_forks
from attlm_fairseq.numeric import LN_10, is_number

WHOLE_HISTORY = 1 << 30  # n-gram order that stands for the whole history: hypotheses that differ anywhere are not merged
PARAMETERS = {"alpha": Real, "beta": Real, "unk_score_offset": Real, "score_boundary": bool}
ATTRIBUTES, UNIGRAMS, LM = "attrs.json", "unigrams.txt", "lm{}"


class HypothesisState(NamedTuple):
    """The LM state that pyctcdecode keeps for a hypothesis."""

    lms: State

    def get_mp_safe_state(self) -> None:
        """Return None: processes of a pool do not send states back, as with pyctcdecode's own LM."""
        return


class PyctcdecodeLM(AbstractLanguageModel):
    """pyctcdecode's LanguageModel for any LM of this package: a word scores ``alpha ln p(word | words before) + beta``.

    ``unk_score_offset`` is a log10, as in pyctcdecode. It is added once to the log-probability of a word that is not in
    ``unigrams`` or that an LM does not know. It is also the score of a partial word with which no unigram begins. That score
    is not multiplied by alpha; from 6 letters on it is multiplied by length / 6.

    The last word of a hypothesis that ends in a space is empty. It is not a word, so only the sentence end is scored.
    pyctcdecode's LanguageModel scores it as an unknown word; ``score_empty_word`` does the same here.
    """

    def __init__(
        self,
        lms: LogLinearLM,
        unigrams: Collection[str] | None = None,
        alpha: float = DEFAULT_ALPHA,
        beta: float = DEFAULT_BETA,
        unk_score_offset: float = DEFAULT_UNK_LOGP_OFFSET,
        score_boundary: bool = True,
        score_empty_word: bool = False,
        order: int | None = None,
    ) -> None:
        """Take language models and the decoder's parameters.

        Args:
            lms: the language models.
            unigrams: known words; by default all words that every LM knows, and none if an LM is of subwords. If empty, each
                partial word gets the offset, as in pyctcdecode.
            alpha: weight of the language models.
            beta: score of each word.
            unk_score_offset: see above.
            score_boundary: whether the sentence end is scored; the sentence start is a context either way.
            score_empty_word: see above.
            order: ``decode`` keeps the best of hypotheses that end in the same ``order - 1`` words. By default KenLM's own if all LMs
                are KenLM's, else hypotheses that differ anywhere are kept.

        Raises:
            InputError: an LM cannot list its words and none are given.
            ValueError: a parameter of the wrong kind.
            TypeError: ``lms`` is no LogLinearLM.
        """
        require_log_linear(lms)
        if order is not None and (not isinstance(order, int) or order < 1):
            raise ValueError(f"order is the number of words of an n-gram, 1 or more, not {order!r}")
        self.lms = lms
        self._order = order or lms.order or WHOLE_HISTORY
        self.score_empty_word = score_empty_word
        self.alpha, self.beta, self.unk_score_offset, self.score_boundary = alpha, beta, unk_score_offset, score_boundary
        self.reset_params(**self.params)
        if isinstance(unigrams, str):
            raise ValueError(f"the unigrams are {unigrams!r}: expected a collection of words")
        one_thread_in_forks()
        if unigrams is None:  # of an LM of subwords the words cannot be listed, and its pieces are not words
            unigrams = set() if any(lms.segment) else {word for lm in lms.lms for word in lm.words()}
        self._unigrams = {word for word in unigrams if lms.knows(word)}
        self._sorted = sorted(self._unigrams)
        for lm, segment in zip(lms.lms, lms.segment, strict=True):
            if segment is None:
                warn_of_subword_lm(lm, words_of(lm) or ())
                warn_of_unknown(lm, list(unigrams), sum(map(lm.knows, unigrams)))

    @property
    def order(self) -> int:
        """Return the LM's order. ``decode`` merges hypotheses whose last ``order - 1`` words are equal."""
        return self._order

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters that ``reset_params`` changes."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def reset_params(self, **params: Any) -> None:
        """Change alpha, beta, unk_score_offset or score_boundary, for ``BeamSearchDecoderCTC.reset_params``.

        None leaves a parameter unchanged.

        Raises:
            ValueError: a parameter is unknown or a value has the wrong type. Then no parameter is changed.
        """
        params = {name: value for name, value in params.items() if value is not None}
        for name, value in params.items():
            if name not in PARAMETERS:
                raise ValueError(f"{name} is not a parameter of this language model: {', '.join(PARAMETERS)}")
            if PARAMETERS[name] is bool:
                if not isinstance(value, bool):
                    raise ValueError(f"{name} is True or False, not {value!r}")
            elif not is_number(value) or not math.isfinite(value):
                raise ValueError(f"{name} is a finite number, not {value!r}")
        for name, value in params.items():
            setattr(self, name, value)

    def save_to_dir(self, filepath: str | Path) -> None:
        """Save the parameters, unigrams and copies of the language models' files in a folder, for ``load_from_dir``.

        Raises:
            InputError: the folder is not empty, an LM's file has changed since it was loaded, an LM has a ``segment`` function, or the
                LMs follow other sentences (``after``): these cannot be saved.
        """
        folder = Path(filepath)
        if any(self.lms.segment):
            raise InputError("cannot hold LMs of subwords: how they break words up is a function", path=folder)
        if self.lms.follows_sentences:
            raise InputError("cannot hold the sentences before: save the LMs without `after`, or pickle them", path=folder)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError("is not empty; name a new folder", path=folder)
        try:
            for number, lm in enumerate(self.lms.lms):
                lm.save(folder / LM.format(number))
        except BaseException:
            for place in folder.iterdir():  # so that the same call can be made again
                remove(place)
            raise
        attributes = self.params | {"score_empty_word": self.score_empty_word, "order": self.order, "weights": self.lms.weights}
        attributes["precisions"] = [lm.lm.precision if isinstance(lm, StatefulNeuralLM) else None for lm in self.lms.lms]
        (folder / UNIGRAMS).write_text("".join(f"{word}\n" for word in self._sorted), encoding="utf-8")
        (folder / ATTRIBUTES).write_text(json.dumps(attributes, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load_from_dir(cls, filepath: str | Path, device: str = "cpu") -> PyctcdecodeLM:
        """Load a folder that ``save_to_dir`` wrote.

        Raises:
            InputError: a file is missing or is not what ``save_to_dir`` wrote, or a language model cannot be loaded.
        """
        folder = Path(filepath)
        try:
            unigrams = (folder / UNIGRAMS).read_text("utf-8").split("\n")[:-1]
            attributes = json.loads((folder / ATTRIBUTES).read_text("utf-8"))
            weights = attributes.pop("weights")
            precisions = attributes.pop("precisions", [None] * len(weights))  # folders of before have none
            lms = [
                load_stateful_lm(folder / LM.format(number), device, precision=precision or "float32")
                for number, precision in zip(range(len(weights)), precisions, strict=True)
            ]
            return cls(LogLinearLM(lms, weights), unigrams, **attributes)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"does not hold what save_to_dir wrote: {error}", path=folder) from None

    def get_start_state(self, history: Sequence[Sequence[str]] = ()) -> HypothesisState:  # type: ignore[override]  # its hint is list
        """Return the state of an empty hypothesis, for pyctcdecode's ``lm_start_state``.

        The LMs have read the sentences of ``history``, each a sequence of words. See ``LogLinearLM.after``.
        """
        return HypothesisState(self.lms.after(history).start() if history else self.lms.start())

    def score_partial_token(self, partial_token: str) -> float:
        """Return 0 if a unigram begins with the partial word, else the offset of an unknown word."""
        if not self.lms.lms:
            return 0.0
        place = bisect_left(self._sorted, partial_token)
        if place < len(self._sorted) and self._sorted[place].startswith(partial_token):
            return 0.0
        return self.unk_score_offset * max(1.0, len(partial_token) / AVG_TOKEN_LEN)

    def score(self, prev_state: HypothesisState, word: str, is_last_word: bool = False) -> tuple[float, HypothesisState]:
        """Return the score of a word and the state after it. The score of the last word includes the sentence end."""
        [before] = prev_state
        if not word and not self.score_empty_word:
            return (self.alpha * self.lms.end(before) if is_last_word and self.score_boundary else 0.0), prev_state
        log_prob, after = self.lms.score(before, word)
        if (self._unigrams and word not in self._unigrams) or not self.lms.knows(word):
            log_prob += self.unk_score_offset * LN_10
        if is_last_word and self.score_boundary:
            log_prob += self.lms.end(after)
        return self.alpha * log_prob + self.beta, HypothesisState(after)
