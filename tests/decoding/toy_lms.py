"""Language models with probabilities that a test can state, as StatefulLMs, and n-gram files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np


class ToyHistory:
    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words


class ToyLM:
    """ln p(word | words before) from a function; None among the words is the sentence end. Counts how often it is asked."""

    end = None
    order = None

    def __init__(self, words: Sequence[str], log_prob: Callable[[tuple[str, ...], str | None], float]) -> None:
        self._words = list(words)
        self._log_prob = log_prob
        self.asked = 0

    def token(self, word):
        return word if self.knows(word) else "<unk>"

    def tokens(self, words):
        return [self.token(word) for word in words]

    def knows(self, word):
        return word in self._words

    def words(self):
        return self._words

    def start(self):
        return ToyHistory(())

    def score(self, history, token):
        self.asked += 1
        return self._log_prob(history.words, token), ToyHistory((*history.words, token))

    def log_probs(self, histories, tokens):
        return np.array([[self._log_prob(history.words, token) for token in tokens] for history in histories]).reshape(len(histories), -1)


def zero_lm(words: Sequence[str]) -> ToyLM:
    """0 for whatever happens."""
    return ToyLM(words, lambda history, word: 0.0)


def biased_lm(words: Sequence[str], sentence: Sequence[str], penalty: float = -1000.0) -> ToyLM:
    """0 for the words of a sentence and its end in their places, the penalty for everything else."""

    def log_prob(history: tuple[str, ...], word: str | None) -> float:
        expected = (
            [*sentence, None][len(history)] if len(history) <= len(sentence) and list(history) == list(sentence)[: len(history)] else 0
        )
        return 0.0 if word == expected else penalty

    return ToyLM(words, log_prob)


def random_lm(words: Sequence[str], seed: int = 1) -> ToyLM:
    """A proper distribution over words, ``<unk>`` and the end that depends on the whole history."""
    events = [*words, "<unk>", None]

    def log_prob(history: tuple[str, ...], word: str | None) -> float:
        weights = Random(f"{seed} {history}")
        values = {event: weights.random() + 0.05 for event in events}
        return math.log(values[word] / math.fsum(values.values()))

    return ToyLM(words, log_prob)


def write_arpa(path: Path, words: Sequence[str], seed: int = 1) -> Path:
    """A bigram model with random probabilities, in which half of the pairs back off."""
    random = Random(seed)
    pairs = [(first, second) for first in ["<s>", *words] for second in [*words, "</s>"] if random.random() < 0.5]

    def log10() -> str:
        return f"{-0.1 - 2 * random.random():.5f}"

    lines = ["\\data\\", f"ngram 1={len(words) + 3}", f"ngram 2={len(pairs)}", "", "\\1-grams:"]
    lines += [f"{log10()}\t<unk>\t0", "-99\t<s>\t" + log10(), f"{log10()}\t</s>\t0", *(f"{log10()}\t{word}\t{log10()}" for word in words)]
    lines += ["", "\\2-grams:", *(f"{log10()}\t{first} {second}" for first, second in pairs), "", "\\end\\", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
