"""KenLM's n-gram models: a StatefulLM for decoders, and a Scorer.

Shapes: N histories, K words.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from weakref import WeakValueDictionary

import kenlm
import numpy as np

from attlm_fairseq.errors import InputError, is_word, not_a_word, require_words
from attlm_fairseq.files.hashes import FileHash
from attlm_fairseq.numeric import LN_10
from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm, read_ngram_counts, read_unigrams
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.text.symbols import END, START, UNKNOWN

MISSING_LOG10 = -50.0  # up to this there is no probability: KenLM's -100 if a file lacks <unk>, SRILM's -99 for 0, with any back-off
MAX_LOG_PROB = 1e-3  # ln p of a word or sentence above this is more than rounding; quantised models stay below 0, too


class NgramHistory:
    """The state of an n-gram model after ``<s> w_1 .. w_n``. Equal KenLM states are the same object."""

    __slots__ = ("__weakref__", "state")

    def __init__(self, state: kenlm.State) -> None:
        self.state = state

    def __deepcopy__(self, memo: dict) -> NgramHistory:
        return self


class KenLM:
    """An n-gram model as a ``StatefulLM``.

    KenLM takes about a microsecond per word, so a distribution takes V microseconds. Unknown words are scored as ``<unk>``.
    So are ``<s>``, ``</s>``, words that KenLM cannot look up (an empty word, or a word with a space), and words to which the file
    gives no probability (-99).
    """

    def __init__(self, path: Path | str, words: Sequence[str] | None = None) -> None:
        """Load an ARPA or binary file.

        Args:
            path: the file.
            words: the model's vocabulary; needed only to list the words of a binary file.

        Raises:
            InputError: the file is missing or broken, or has no sentence end.
        """
        self.path = Path(path)
        self._words = words
        self.model = load_kenlm(self.path)
        if END not in self.model:
            raise InputError(f"has no {END}, so it cannot score the end of a sentence: estimate it from sentences", path=self.path)
        self.file = FileHash(self.path.absolute())
        self.order: int = self.model.order
        self._histories: WeakValueDictionary[kenlm.State, NgramHistory] = WeakValueDictionary()
        state = kenlm.State()
        self.model.BeginSentenceWrite(state)
        self._start = self._history(state)
        # of the model alone: a cache of a method would keep this object, and the whole model, until Python looks for cycles
        self.token = lru_cache(maxsize=1 << 16)(partial(_token, self.model))

    def __reduce__(self) -> tuple:
        return _loaded_again, (self.file, self._words)

    def __deepcopy__(self, memo: dict) -> KenLM:
        return self  # immutable, so copies share it

    @property
    def end(self) -> str:
        return END

    @property
    def unknown_log10(self) -> float:
        """Return log10 p(``<unk>``) without a history."""
        state = kenlm.State()
        self.model.NullContextWrite(state)
        return float(self.model.BaseScore(state, UNKNOWN, kenlm.State()))

    @property
    def lacks_unknown(self) -> bool:
        """Return whether the file has no probability for ``<unk>``."""
        return self.unknown_log10 <= MISSING_LOG10

    def tokens(self, words: Sequence[str]) -> list[str]:
        return [self.token(word) for word in words]

    def knows(self, word: str) -> bool:
        return self.token(word) != UNKNOWN

    def words(self) -> Sequence[str]:
        """Return the words given to the constructor, or else those of the ARPA file. Raises InputError for a binary file."""
        words = [word for word in (read_unigrams(self.file.path) if self._words is None else self._words) if self.knows(word)]
        if not words:
            raise InputError("has no words besides its special symbols", path=self.path)
        return words

    def start(self) -> NgramHistory:
        return self._start

    def after(self, start: NgramHistory, sentences: Sequence[Sequence[str]]) -> NgramHistory:
        """Return ``start``: sentences are scored independently."""
        return start

    def score(self, history: NgramHistory, token: str) -> tuple[float, NgramHistory]:
        """Return ln p(token | history), and the history that ends in the token. Raises InputError if it is above 0."""
        following = kenlm.State()
        log10 = self.model.BaseScore(history.state, token, following)
        return require_log_prob(log10 * LN_10, self.path), self._history(following)

    def log_probs(self, histories: Sequence[NgramHistory], tokens: Sequence[str]) -> np.ndarray:
        """Return ln p of each of K tokens after each of N histories, float64 (N, K). Raises InputError if one is above 0."""
        following = kenlm.State()
        score = self.model.BaseScore
        rows = {history: np.array([score(history.state, token, following) for token in tokens]) * LN_10 for history in set(histories)}
        for row in rows.values():
            require_log_prob(row.max(initial=0.0), self.path)
        return np.stack([rows[history] for history in histories]) if rows else np.empty((0, len(tokens)))

    def save(self, place: Path) -> None:
        """Copy the file. Raises InputError if it has changed since it was loaded."""
        self.file.require_unchanged()
        shutil.copyfile(self.file.path, place)

    def _history(self, state: kenlm.State) -> NgramHistory:
        history = self._histories.get(state)
        if history is None:
            history = self._histories[state] = NgramHistory(state)
        return history


def _token(model: kenlm.Model, word: str) -> str:
    """Return the word as KenLM looks it up, or ``<unk>`` for a word that is unknown or has no probability by itself.

    A decoder that subtracts the model would look for words without a probability.
    """
    found = lookup(word)
    if found is None or found not in model:
        return UNKNOWN
    state = kenlm.State()
    model.NullContextWrite(state)
    return found if model.BaseScore(state, found, kenlm.State()) > MISSING_LOG10 else UNKNOWN


def _loaded_again(file: FileHash, words: Sequence[str] | None) -> KenLM:
    """Return a pickled model. Raises InputError if its file is not the one that was loaded: n-grams are not pickled."""
    file.require_unchanged()
    return KenLM(file.path, words)


class KenLMScorer(Scorer):
    """An n-gram model as a Scorer: ``ln p(w_i | <s> w_1 .. w_{i-1})`` and ``ln p(</s> | ..)``, each word looked up as given.

    Unknown words are scored as ``<unk>``, whose probability applies to each of them. So are ``<s>`` and ``</s>`` among the
    words of a sentence: KenLM would otherwise take them for its symbols. Words to which the model gives no probability, as SRILM
    writes it (-99), keep that score and count as unknown.
    """

    def __init__(self, path: Path, name: str = "kenlm") -> None:
        """Load an ARPA or binary file. Raises InputError if it is missing or broken."""
        self.name = name
        self.path = path
        self.lm = KenLM(path)
        self.order = self.lm.order
        self.ngrams = read_ngram_counts(path)
        self._met_unknown = False

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score each sentence. Raises InputError for a word that is empty or holds a space, tab or line end."""
        return [self._score_sentence(words) for words in sentences]

    def _score_sentence(self, words: Sequence[str]) -> SentenceScore:
        # Word by word rather than as one string: then as many words come back as went in, whatever they are made of.
        require_words(words)
        model = self.lm.model
        state, following = kenlm.State(), kenlm.State()
        model.BeginSentenceWrite(state)
        log_probs: list[float] = []
        oov: list[bool] = []
        for word in words:
            token = lookup(word) if isinstance(word, str) else None
            if token is None:
                raise not_a_word(word)
            event = model.BaseFullScore(state, token, following)
            log_probs.append(event.log_prob * LN_10)
            oov.append(event.oov or event.log_prob <= MISSING_LOG10)
            state, following = following, state
        self._met_unknown = self._met_unknown or any(oov)
        log_probs.append(model.BaseScore(state, END, following) * LN_10)
        require_log_prob(sum(log_probs), self.path, f"a sentence of {len(words)} words")
        return SentenceScore(tuple(log_probs), tuple(oov))

    def notes(self) -> list[str]:
        return self.oov_notes()

    def oov_notes(self) -> list[str]:
        """Return one line if an unknown word was scored, since the last call, by a model without a probability for it."""
        met, self._met_unknown = self._met_unknown, False  # a program's next run tells only of its own words
        if not met or not self.lm.lacks_unknown:
            return []
        return [
            f"WARNING: {self.name}: {self.path.name} has no probability for <unk>, so each unknown word gets ln p = "
            f"{self.lm.unknown_log10 * LN_10:.0f}, which outweighs all else: use `--oov {self.name}=penalty:-12` (SRILM leaves such words "
            "out, as penalty:0 does), or estimate the LM with `attlm ngram`"
        ]

    def signature(self) -> dict[str, object]:
        return {
            "kind": "kenlm",
            "model": str(self.path),
            "sha256": self.lm.file.digest(),
            "order": self.order,
            "ngrams": list(self.ngrams),
            "vocabulary": self.ngrams[0],
            "OOV policy": "p(<unk>) for each unknown word, and for <s> and </s> as words",
            "ln p(<unk>)": self.lm.unknown_log10 * LN_10,
        }


def require_log_prob(log_prob: float, path: Path, event: str = "a word") -> float:
    """Return a natural logarithm of a probability. Raises InputError if it is above 0 or nan, which names the file and the event."""
    if not log_prob < MAX_LOG_PROB:
        found = f"gives ln p = {log_prob:.4g} to {event}, expected at most 0"
        raise InputError(f"{found}: its probabilities or back-offs are damaged; estimate it again", path=path)
    return log_prob


@lru_cache(maxsize=1 << 16)
def lookup(word: str) -> str | None:
    """Return the word for KenLM's vocabulary, whether or not a model has it.

    Returns:
        ``<unk>`` for ``<s>`` and ``</s>``, and for words that KenLM's C strings cannot hold; None for words that KenLM
        would split or skip (an empty word, or one with a space, tab or line end).
    """
    if not is_word(word):
        return None
    unencodable = any("\ud800" <= character <= "\udfff" for character in word)
    # KenLM takes no subclass of str, such as numpy.str_
    return UNKNOWN if word in (START, END) or "\0" in word or unencodable else str.__str__(word)
