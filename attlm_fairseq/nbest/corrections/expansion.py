"""From a list to the same list with candidates that it did not have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from attlm_fairseq.nbest.corrections.alignment import MAX_WORDS, bounded
from attlm_fairseq.nbest.corrections.numbers import NumberChannel
from attlm_fairseq.nbest.corrections.phrase_list import SimilarPhrases
from attlm_fairseq.nbest.corrections.phrase_table import PhraseTable, Words
from attlm_fairseq.nbest.corrections.search import LM_WEIGHT, Edge, Partial, Search, SearchLM, derivation, text_of, words_of
from attlm_fairseq.nbest.corrections.spelling import SpellingSearch
from attlm_fairseq.nbest.corrections.written import UsualForm, Written
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline

CANDIDATES = 20
RANK_WEIGHT = 0.3  # natural log for a place in the list: what a later hypothesis costs as a source
UNREACHED = -30.0  # ln p of a text from elsewhere that no derivation reaches within the beam, beyond that of keeping the 1-best
SPELLED = 0.05  # share of what phrases leave over of an unknown word's probability: the rest are names, noise, words never seen
CHANNEL, REWRITES, SOURCE_RANK = "corrections", "rewrites", "source_rank"
SEARCH_LM, SEARCH_OOV, PHRASES = "search_lm", "search_oov", "phrases"
SCORES = (CHANNEL, REWRITES, SOURCE_RANK, SEARCH_LM, SEARCH_OOV, PHRASES)


@dataclass(frozen=True)
class Channel:
    """All possible replacements of a part of a hypothesis."""

    phrases: PhraseTable
    numbers: NumberChannel
    spelling: SpellingSearch
    phrase_list: SimilarPhrases | None = None
    text: TextPipeline = NO_STEPS  # of the words that are compared
    usual: Mapping[str, UsualForm] = field(default_factory=dict)

    def words_of(self, text: str) -> Words:
        """Return the words of a text after the text steps, ``bounded``."""
        return tuple(bounded(self.text.prepared(text)))

    def edges(self, words: Sequence[str]) -> list[list[Edge]]:
        """Return, for each word, the possible replacements of the stretches that begin there. ``words`` are ``bounded``."""
        edges: list[list[Edge]] = []
        last = len(words) - 1
        for begin, (word, kept) in enumerate(zip(words, self.kept(words), strict=True)):
            here = [Edge(begin, begin + 1, (word,), kept)]
            for rule in self.phrases.matches(words, begin):
                here.append(
                    Edge(
                        begin,
                        begin + len(rule.source),
                        rule.target,
                        rule.log_prob,
                        ("phrase", " ".join(rule.source), " ".join(rule.target)),
                    )
                )
            if 0 < begin < last:
                for end, target, log_prob, way in self.numbers.options(words, begin, self.text):
                    here.append(Edge(begin, end, target, log_prob, ("number", way, " ".join(target))))
                here += self._respelled(words, begin, last)
                here += self._from_list(words, begin, last)
            edges.append(here)
        return edges

    def kept(self, words: Sequence[str]) -> list[float]:
        """Return ln p that each word stays as it is. ``words`` are ``bounded``; the boundaries always stay."""
        return [0.0, *(self.phrases.keep(word) for word in words[1:-1]), 0.0]

    def _from_list(self, words: Sequence[str], begin: int, last: int) -> Iterator[Edge]:
        """Yield the phrases of the list that may stand here, with their words after the text steps as the target."""
        for edge in self.phrase_list.edges(words, begin, last) if self.phrase_list else ():
            if not self.text.steps:
                yield edge
            elif (target := tuple(self.text.words(" ".join(edge.target)))) not in ((), tuple(words[edge.begin : edge.end])):
                yield edge._replace(target=target)

    def _respelled(self, words: Sequence[str], begin: int, last: int) -> list[Edge]:
        """Return the known words spelled like one or two unknown words, with the probability that the phrases leave over."""
        found = []
        for end in range(begin + 1, min(begin + 2, last) + 1):
            if words[end - 1] in self.spelling.vocabulary:
                break
            stretch = tuple(words[begin:end])
            left = self.left_over(stretch)
            for target, log_prob in self.spelling.options(words, begin, end) if left > 0 else ():
                found.append(Edge(begin, end, target, math.log(left) + log_prob, ("letters", " ".join(stretch), " ".join(target))))
        return found

    def left_over(self, stretch: tuple[str, ...]) -> float:
        """Return the probability that unknown words become something that no phrase gives."""
        left = 1.0
        for word in stretch:
            ruled = sum(math.exp(rule.log_prob) for rule in self.phrases.rules.get((word,), ()))
            left *= max(0.0, 1.0 - math.exp(self.phrases.keep(word)) - ruled) * SPELLED
        return left


def expand(nbest: NbestList, channel: Channel, lm: SearchLM, size: int = CANDIDATES, further: Sequence[str] = ()) -> NbestList:
    """Return the list with at most ``size`` new hypotheses, plus those of the texts ``further``, and with more scores for each.

    - ``corrections``: ln p of the best derivation of the text from an input hypothesis;
    - ``source_rank``: number of hypotheses before that input hypothesis;
    - ``rewrites``: number of pairs of adjacent words, sentence boundaries included, that are in no input hypothesis;
    - ``search_lm``: ln p of words and sentence end under the LM of the search;
    - ``search_oov``: number of words unknown to that LM;
    - ``phrases`` (with a phrase list): weighted number of words inside its phrases.

    New hypotheses follow the input ones, their ranks continue those of the list, and they take the other scores of the
    hypothesis that they come from. A text of ``further`` without a derivation counts as one of the 1-best, whose words stay,
    with a ``corrections`` that is lower by -UNREACHED. A list without hypotheses gets none.

    Raises:
        InputError: the list already has a score of one of these names, which would be lost.
    """
    if not nbest.hypotheses:
        return nbest
    refuse_to_replace(nbest, SCORES if channel.phrase_list else [name for name in SCORES if name != PHRASES])
    written = [Written.of(hypothesis.text, channel.text, channel.usual) for hypothesis in nbest.hypotheses]
    sources = [one.words for one in written]
    best = _candidates(sources, channel, lm, size)
    known = {pair for words in sources for pair in pairwise(words)}
    expanded = []
    for words, hypothesis in zip(sources, nbest.hypotheses, strict=True):
        made = _scores(hypothesis.text, words, best[words], known, channel, lm)
        expanded.append(replace(hypothesis, scores=hypothesis.scores | made))
    new = sorted(best.keys() - sources, key=lambda words: (-best[words].score, words))[:size]
    asked = {words: written[0].rewritten(words) for text in further if (words := channel.words_of(text)) not in sources}
    last = max(hypothesis.rank for hypothesis in nbest.hypotheses)
    unreached = sum(channel.kept(sources[0])) + UNREACHED  # never better than the 1-best, however long it is
    for rank, words in enumerate(dict.fromkeys([*new, *asked]), last + 1):
        found = best.get(words, _Found(-math.inf, unreached, 0))
        text = written[found.place].corrected(derivation(found.end)) if found.end is not None else asked[words]
        scores = nbest.hypotheses[found.place].scores | _scores(text, words, found, known, channel, lm)
        expanded.append(Hypothesis(text, scores, rank))
    return replace(nbest, hypotheses=expanded)


def refuse_to_replace(nbest: NbestList, made: Sequence[str]) -> None:
    """Raise InputError if a list already has one of the scores ``made``, which would be lost."""
    known_names = {name.removesuffix("_score") for hypothesis in nbest.hypotheses for name in hypothesis.scores}  # HyPoradise adds this end
    if taken := next((name for name in made if name in known_names), None):
        raise nbest.error(
            f"list {nbest.id!r} already has a score {taken!r}, which corrections would replace. If corrections were applied to these lists "
            "before, leave them out now. Otherwise give this score another name"
        )


def _scores(text: str, words: Words, found: _Found, known: Set[tuple[str, str]], channel: Channel, lm: SearchLM) -> dict[str, float]:
    """Return the scores that ``expand`` adds. ``known`` are the pairs of adjacent words in the input hypotheses."""
    made = {
        CHANNEL: found.channel,
        REWRITES: float(sum(pair not in known for pair in pairwise(words))),
        SOURCE_RANK: float(found.place),
        SEARCH_LM: lm.step(lm.start(), words[1:])[0],
        SEARCH_OOV: float(sum(not lm.knows(word) for word in words[1:-1])),
    }
    return made | ({PHRASES: channel.phrase_list.count(text.split())} if channel.phrase_list else {})


class _Found(NamedTuple):
    score: float
    channel: float
    place: int  # of the source in the list
    end: Partial | None = None  # of the derivation; None: the source as it is, or a text from elsewhere


def _candidates(sources: Sequence[Words], channel: Channel, lm: SearchLM, size: int) -> dict[Words, _Found]:
    """Return the sources and the texts that the search finds from each distinct one, all with their best derivations."""
    best: dict[str, _Found] = {}

    def add(text: str, found: float, log_prob: float, place: int, end: Partial | None = None) -> None:
        score = found - RANK_WEIGHT * place
        if text not in best or best[text].score < score:
            best[text] = _Found(score, log_prob, place, end)

    search = Search(lm, size + len(sources))
    for words in dict.fromkeys(sources):
        place = sources.index(words)
        kept = sum(channel.kept(words))  # one of its derivations, even if no beam holds it
        add(text_of(words), kept + LM_WEIGHT * lm.step(lm.start(), words[1:])[0], kept, place)
        if len(words) <= MAX_WORDS:
            for end in search.ends(channel.edges(words)):
                add(end[2], end[0], end[1], place, end)
    return {words_of(text): found for text, found in best.items()}
