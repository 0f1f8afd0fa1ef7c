"""Scoring with preceding sentences as context, in several conversations at once, for texts and n-best lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar, cast

import numpy as np

from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore
from attlm_fairseq.text import TextPipeline

Item = TypeVar("Item")

SENTENCES_AT_ONCE = 64  # of each document of a text


def turns(conversations: Sequence[Iterable[Item]]) -> Iterator[dict[int, Item]]:
    """Yield the first items of all conversations, keyed by the conversation's index, then the second items, and so on."""
    return ({place: item for place, [item] in stretch.items()} for stretch in stretches(conversations, 1))


def stretches(conversations: Sequence[Iterable[Item]], length: int) -> Iterator[dict[int, list[Item]]]:
    """Yield the first ``length`` items of all conversations, keyed by the conversation's index, then the next ones, and so on."""
    going_on = {place: iter(items) for place, items in enumerate(conversations)}
    while going_on:
        found = {place: list(islice(items, length)) for place, items in going_on.items()}
        going_on = {place: items for place, items in going_on.items() if found[place]}
        if going_on:
            yield {place: found[place] for place in going_on}


def in_order(numbered: Iterable[tuple[int, Item]]) -> Iterator[Item]:
    """Yield items in the order of their numbers 0, 1, .., each as soon as all earlier items have arrived."""
    there: dict[int, Item] = {}
    following = 0
    for number, item in numbered:
        there[number] = item
        while following in there:
            yield there.pop(following)
            following += 1


class ContextWalk:
    """Walks through conversations from their beginnings: ``score`` one turn of each, then ``advance`` by the chosen texts.

    Conversations do not depend on each other, so LMs score them together.
    """

    def __init__(self, scorers: Sequence[Scorer], texts: Sequence[TextPipeline]) -> None:
        """Start with no conversations. ``texts`` has the text normalisation of each LM."""
        self.scorers = tuple(scorers)
        self.texts = tuple(texts)
        self._later: list[dict[int, Scorer]] = [{} for _ in scorers]  # by conversation: the LM after what was said so far

    def score(self, turn: Mapping[int, Sequence[str]]) -> list[list[tuple[list[Sentence], list[SentenceScore]]]]:
        """Score the texts of each conversation in the context of its earlier sentences.

        Args:
            turn: texts by the number of their conversation.

        Returns:
            For each LM and each conversation of the turn, in order: the texts' words and their scores.
        """
        found = []
        for scorer, pipeline, later in zip(self.scorers, self.texts, self._later, strict=True):
            sentences: list[list[Sentence]] = [[pipeline.words(text) for text in texts] for texts in turn.values()]
            requests = [(later.get(place, scorer), words) for place, words in zip(turn, sentences, strict=True)]
            found.append(list(zip(sentences, scorer.score_many(requests), strict=True)))
        return found

    def advance(self, said: Mapping[int, str]) -> None:
        """Append one text to the history of each of these conversations. Silence, a text without words, leaves no trace."""
        for scorer, pipeline, later in zip(self.scorers, self.texts, self._later, strict=True):
            words = {place: pipeline.words(text) for place, text in said.items()}
            requests = {place: (later.get(place, scorer), [sentence]) for place, sentence in words.items() if sentence}
            later.update(zip(requests, scorer.after_many([*requests.values()]), strict=True))


class SentenceWindow(Scorer):
    """An LM whose context is limited to the last K sentences. With K = 0 it scores each sentence on its own."""

    def __init__(self, scorer: Scorer, sentences: int, recent: Sequence[Sentence] = (), later: Scorer | None = None) -> None:
        """Limit ``scorer`` to ``sentences`` = K. ``later`` is ``scorer`` after ``recent``, the last K sentences."""
        self.scorer = scorer
        self.name = scorer.name
        self.sentences = sentences
        self.recent = tuple(recent)
        self.members = (scorer if later is None else later,)

    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        return self.members[0].score(sentences)

    def exact(self) -> Scorer:
        scorer = self.scorer.exact()
        return self if scorer is self.scorer else SentenceWindow(scorer, self.sentences, self.recent, self.members[0].exact())

    def score_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        return self.scorer.score_many([(window.members[0], sentences) for window, sentences in requests])

    def score_with_features(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[SentenceScore, np.ndarray]]]:
        return self.scorer.score_with_features([(window.members[0], sentences) for window, sentences in requests])

    def after(self, history: Sequence[Sentence]) -> Scorer:
        return self.after_many([(self, history)])[0]

    def after_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[Scorer]:
        windows = [cast(SentenceWindow, window) for window, _ in requests]
        histories = [(*window.recent, *history) for window, (_, history) in zip(windows, requests, strict=True)]
        recents = [history[max(0, len(history) - self.sentences) :] for history in histories]
        later = self.scorer.after_many([(self.scorer, recent) for recent in recents])
        changed = [SentenceWindow(self.scorer, self.sentences, recent, one) for recent, one in zip(recents, later, strict=True)]
        return [window if one.members[0] is window.members[0] else one for window, one in zip(windows, changed, strict=True)]

    def signature(self) -> dict[str, object]:
        return self.scorer.signature() | {"sentences of context": self.sentences}


def with_window(scorer: Scorer, sentences: int | None) -> Scorer:
    """Return the LM with at most ``sentences`` preceding sentences as context; None means no limit."""
    return scorer if sentences is None else SentenceWindow(scorer, sentences)
