"""Make a cloze test of any text. The rule is deterministic, and the frequency of a candidate says little about the answer.

- Blocks of ``context + 1`` consecutive sentences of a document are questions; the last sentence of a block is the query.
- A word can be the answer if it consists of letters, occurs once in the query and also in the context, and is not one of
  the ``COMMON`` most frequent words of the text. A hash of the seed, the line and the word chooses one.
- The other candidates are the words of the context, not of the query, whose frequency in the text is closest to that of
  the answer, under the same conditions. So every candidate occurs in the context.
- Blocks without such an answer, with too few candidates, or with the mark of a blank in the last sentence are no questions.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attlm_fairseq.cloze.questions import BLANK, ClozeQuestion
from attlm_fairseq.errors import require_whole_number

COMMON = 100  # most frequent words, mostly function words, that are no candidates


@dataclass(frozen=True)
class BlankingOptions:
    """How to make questions.

    Attributes:
        questions: maximum number of questions, spread evenly over the text; 0 means all.
        context: number of sentences before each query.
        candidates: number of candidates of each question.
        seed: the same seed gives the same questions.
    """

    questions: int = 0
    context: int = 20
    candidates: int = 10
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least in (("questions", 0), ("context", 1), ("candidates", 2), ("seed", 0)):
            require_whole_number(name, getattr(self, name), least)


def blank_words(sentences: Sequence[str], options: BlankingOptions) -> list[ClozeQuestion]:
    """Return the questions of a text, one sentence per line. Blank lines end documents."""
    counts = Counter(word for sentence in sentences for word in sentence.split())
    common = {word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:COMMON]}
    rare = {word: count for word, count in counts.items() if _of_letters(word) and word not in common and word != BLANK}
    found = [_question(block, begin, rare, options) for begin, block in _blocks(sentences, options.context + 1)]
    made = [question for question in found if question is not None]
    wanted = min(options.questions or len(made), len(made))
    return [made[place * len(made) // wanted] for place in range(wanted)]


def _of_letters(word: str) -> bool:
    """Return whether a word consists of letters and the marks that go with them, as vowel signs do."""
    return word[0].isalpha() and all(unicodedata.category(letter)[0] in "LM" for letter in word)


def _blocks(sentences: Sequence[str], size: int) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield blocks of consecutive sentences that are not blank, with the index of their first."""
    begin = 0
    for place, sentence in enumerate(sentences):
        if not sentence.strip():
            begin = place + 1
        elif place + 1 - begin == size:
            yield begin, sentences[begin : place + 1]
            begin = place + 1


def _question(block: Sequence[str], begin: int, rare: dict[str, int], options: BlankingOptions) -> ClozeQuestion | None:
    def draw(word: str) -> str:
        return hashlib.sha256(f"{options.seed}\t{begin}\t{word}".encode()).hexdigest()

    *context, last = (sentence.split() for sentence in block)
    before = {word for sentence in context for word in sentence if word in rare}
    answer = min((word for word in before if last.count(word) == 1), key=draw, default=None)
    if answer is None or any(BLANK in word for word in last):
        return None

    def distance(word: str) -> tuple[float, str]:
        return abs(math.log(rare[word] / rare[answer])), draw(word)

    others = sorted(before.difference(last), key=distance)[: options.candidates - 1]
    if len(others) < options.candidates - 1:
        return None
    query = " ".join(BLANK if word == answer else word for word in last)
    return ClozeQuestion(tuple(map(" ".join, context)), query, answer, tuple(sorted([answer, *others], key=draw)))
