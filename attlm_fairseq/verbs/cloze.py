"""Answer cloze tests with LMs, and make them of texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

import numpy as np

from attlm_fairseq.batching import peeked
from attlm_fairseq.cloze.blanking import BlankingOptions, blank_words
from attlm_fairseq.cloze.questions import EXPECTED, ClozeQuestion, read_questions
from attlm_fairseq.errors import InputError, require_type, require_whole_number
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.features.combination import log_linear
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.statistics.evaluation import Row, compare
from attlm_fairseq.nbest.statistics.table import as_table
from attlm_fairseq.scoring.context.conversations import SIDE_BY_SIDE
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.verbs.arguments import FilePath, OnProgress, text_lines
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.evaluate import AGAINST
from attlm_fairseq.verbs.report import row_record
from attlm_fairseq.verbs.run import require_lms
from attlm_fairseq.verbs.text import load_scorers, note_scorers

WEIGHTED_SUM = "weighted sum"


class Accuracy:
    """Accuracy in percent. Statistics: credit for the answer (0 .. 1), 1."""

    ratio: float | None = 100.0
    name = "accuracy"
    bounds = (0.0, 100.0)

    def score(self, totals: np.ndarray) -> np.ndarray:
        return 100.0 * totals[..., 0] / totals[..., 1]


@dataclass(frozen=True)
class ClozeAnswers:
    """The answers to a cloze test; ``print`` shows the table.

    Attributes:
        rows: accuracy of each LM in percent, with its 95 % interval and how it differs from the first LM. The last row
            is the weighted sum of the LMs, if they have weights.
        questions: the questions.
        log_probs: for each row and question, ln p of the query with each candidate (words and sentence end).
        unknown: for each LM, the number of answers that contain a word that it does not know.
    """

    rows: list[Row]
    questions: list[ClozeQuestion] = field(repr=False)
    log_probs: dict[str, list[np.ndarray]] = field(repr=False)
    unknown: dict[str, int]

    def __str__(self) -> str:
        unknown = ", ".join(f"{count} to {name}" for name, count in self.unknown.items())
        return f"{as_table(self.rows, Accuracy(), AGAINST)}\n{len(self.questions)} questions; answers unknown: {unknown}"

    def as_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-serialisable dictionary: rows, and for each question the candidates that each row chose."""
        questions = [
            {
                **({} if question.line is None else {"line": question.line}),
                "answer": question.answer,
                "chosen": {name: _chosen(question, values[place]) for name, values in self.log_probs.items()},
            }
            for place, question in enumerate(self.questions)
        ]
        systems = [row_record(row) for row in self.rows]
        return {"questions": len(self.questions), "systems": systems, "unknown_answers": self.unknown, "answers": questions}


@dataclass
class _LMAnswers:
    """The answers of one LM so far: ln p of each query with each candidate, and unknown words."""

    scorer: Scorer
    text: TextPipeline
    oov: OOVCount
    log_probs: list[np.ndarray] = field(default_factory=list)
    unknown: int = 0  # answers with a word that the LM does not know

    def answer(self, questions: Sequence[ClozeQuestion]) -> None:
        contexts = [[self.text.words(sentence) for sentence in question.context] for question in questions]
        filled = [[self.text.words(question.filled(candidate)) for candidate in question.candidates] for question in questions]
        later = self.scorer.after_many([(self.scorer, context) for context in contexts])
        found = self.scorer.score_many(list(zip(later, filled, strict=True)))
        for question, words, scores in zip(questions, filled, found, strict=True):
            self.log_probs.append(np.array([score.total for score in scores]))
            right = question.candidates.index(question.answer)
            unknown = scores[right].oov
            self.oov.add([words[right]], [unknown])
            before, after = (self.text.words(part) for part in question.around)
            # a word that the answer makes with what it is joined to, as in XXXXX's, is the answer's
            begin, end = _in_common(words[right], before), _in_common(words[right][::-1], after[::-1])
            self.unknown += any(unknown[begin : len(words[right]) - end])


def _in_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of words with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def answer_cloze(
    questions: FilePath | Iterable[ClozeQuestion],
    lms: Mapping[str, LM] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    weights: Mapping[str, float] | None = None,
    seed: int = 1,
    on_progress: OnProgress = None,
) -> ClozeAnswers:
    """Answer a cloze test with every LM: the candidate that makes the whole query most probable after its context.

    Every LM carries its state, memory and caches over the context, as far as ``context_sentences`` allows. Each distinct
    prefix of the filled-in queries is scored once. If several candidates are equally probable, such as candidates that
    the LM does not know, the answer counts as 1 divided by their number if it is one of them.

    Args:
        questions: a file in the format of the Children's Book Test (``-`` is standard input), or questions.
        lms: LMs by name, as files or objects.
        config: LMs, text steps and weights: a RunConfig or the path of an ``attlm.toml``. Its ``context`` is not used:
            each question has its own.
        weights: weights of the LMs. With weights, from here or from ``config``, the weighted sum of their
            log-probabilities is one more row.
        seed: random seed for the bootstrap and the permutation test.
        on_progress: called with the number of questions answered since the last call.

    Returns:
        The accuracy of each LM, the questions and the log-probabilities of their candidates.

    Raises:
        InputError: there is no LM or no question, a file cannot be read, a translation model is among the LMs, only some LMs have
            weights, or a weight names no LM.
    """
    require_whole_number("seed", seed)
    run = run_config(config, lms=lms)
    require_lms(run)
    shares = _weights(run, run_config(weights=weights).weights if weights else {})
    if translating := [lm.name for lm in run.lms if lm.uses_source]:
        raise InputError(f"{', '.join(translating)} scores translations: a cloze question has no source sentence")
    first, opened = peeked(_opened(questions))
    if first is None:
        path = os.fspath(questions) if isinstance(questions, str | os.PathLike) else None
        raise InputError(f"there are no questions: each ends with a line of {EXPECTED}", path=path)
    answers = [_LMAnswers(lm, text, OOVCount(lm.name)) for lm, text in zip(load_scorers(run), run.texts.values(), strict=True)]
    asked: list[ClozeQuestion] = []
    while some := list(islice(opened, SIDE_BY_SIDE)):
        asked += some
        for of_lm in answers:
            of_lm.answer(some)
        if on_progress:
            on_progress(len(some))
    note_scorers([of_lm.scorer for of_lm in answers], [of_lm.text for of_lm in answers], [of_lm.oov for of_lm in answers])
    log_probs = {of_lm.scorer.name: of_lm.log_probs for of_lm in answers}
    if shares:
        columns = zip(*(log_probs[name] for name in shares), strict=True)
        log_probs[WEIGHTED_SUM] = [log_linear(of_lms, list(shares.values())) for of_lms in columns]
    unknown = {of_lm.scorer.name: of_lm.unknown for of_lm in answers}
    return ClozeAnswers(_rows(asked, log_probs, seed), asked, log_probs, unknown)


def make_cloze(text: FilePath | Iterable[str], options: BlankingOptions | None = None) -> list[ClozeQuestion]:
    """Make a cloze test of a text: in the last of every ``options.context + 1`` sentences one word is left out, and the context has it.

    Args:
        text: a file (``-`` is standard input) or lines, one sentence per line. Blank lines end documents.
        options: number of questions and candidates, size of the context, seed. See ``blanking`` for the rule.

    Returns:
        The questions. Each candidate occurs in the context and is about as frequent in the text as the answer.

    Raises:
        InputError: the file cannot be read, or no question can be made of the text.
    """
    options = BlankingOptions() if options is None else options
    require_type("value of options", options, BlankingOptions, "BlankingOptions(..)")
    lines = text_lines(text)
    sentences = [line.rstrip("\r\n") for line in (lines.lines() if isinstance(lines, TextSource) else lines)]
    made = blank_words(sentences, options)
    if not made:
        raise InputError(
            f"no question can be made: expected {options.context + 1} sentences without a blank line between them, one per line, and "
            f"{options.candidates} words that are repeated",
            path=text if isinstance(text, str | os.PathLike) else None,
        )
    return made


def _opened(questions: FilePath | Iterable[ClozeQuestion]) -> Iterator[ClozeQuestion]:
    if isinstance(questions, str | os.PathLike):
        return read_questions(TextSource(os.fspath(questions), "cloze questions"))
    return map(_question, questions)


def _question(question: ClozeQuestion) -> ClozeQuestion:
    require_type("question", question, ClozeQuestion, "a ClozeQuestion")
    return question


def _weights(run: RunConfig, given: Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each LM; empty if no LM has one.

    Raises InputError if a weight is given for a name that is not an LM, or if only some LMs have a weight.
    """
    names = [lm.name for lm in run.scored]
    if strange := [name for name in given if name not in names]:
        raise InputError(f"a weight for {', '.join(strange)}, but the LMs are {', '.join(names)}")
    weights = {name: value for name, value in (run.weights | dict(given)).items() if name in names}
    if weights and (missing := [name for name in names if name not in weights]):
        raise InputError(f"no weight for {', '.join(missing)}: give --weight {missing[0]}=NUMBER, or no weight at all")
    if given and not any(weights.values()):
        raise InputError("all weights are 0: give an LM another weight, or give none at all")
    return {name: value for name in names if (value := weights.get(name))}


def _rows(questions: Sequence[ClozeQuestion], log_probs: Mapping[str, Sequence[np.ndarray]], seed: int) -> list[Row]:
    systems = [
        (name, np.array([[_credit(question, found), 1.0] for question, found in zip(questions, values, strict=True)]))
        for name, values in log_probs.items()
    ]
    return compare(systems, Accuracy(), seed=seed, unpaired=())


def _credit(question: ClozeQuestion, log_probs: np.ndarray) -> float:
    """Return 1 for a right answer, 0 for a wrong one, 1 / n if n candidates including the answer are equally probable."""
    best = log_probs == log_probs.max()
    return float(best[question.candidates.index(question.answer)] / best.sum())


def _chosen(question: ClozeQuestion, log_probs: np.ndarray) -> list[str] | str:
    best = [candidate for candidate, value in zip(question.candidates, log_probs, strict=True) if value == log_probs.max()]
    return best[0] if len(best) == 1 else best
