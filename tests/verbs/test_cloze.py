"""Cloze tests: answers are those of scores by hand, the format is the Children's Book Test's, and texts become such tests."""

from __future__ import annotations

import json
import random
import re
from collections import Counter

import numpy as np
import pytest
from cli_runs import refused, run
from lm_files import write_arpa, write_checkpoint
from scorers import KINDS, WORDS, make_scorer

import attlm_fairseq as attlm
from attlm_fairseq.cloze.questions import BLANK, read_questions
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

QUESTION = "1 the cat sat\n2 a dog ran\n3 the XXXXX ran on a mat\tdog\t\tcat|dog|mat\n"


def questions(count: int = 5, candidates: int = 4) -> list[attlm.ClozeQuestion]:
    """Questions of the words that the small LMs know."""
    draw = random.Random(5)

    def sentence(length: int) -> list[str]:
        return draw.choices(WORDS, k=length)

    made = []
    for number in range(count):
        some = tuple(draw.sample(WORDS, candidates))
        query = " ".join([*sentence(number % 3), BLANK, *sentence(3)])
        context = tuple(" ".join(sentence(draw.randint(0, 6))) for _ in range(number))
        made.append(attlm.ClozeQuestion(context, query, draw.choice(some), some))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_the_most_probable_query_after_its_context(kind, tmp_path):
    scorer = make_scorer(kind, tmp_path)
    asked = questions()
    found = attlm.answer_cloze(asked, {"lm": scorer})
    abs_error = 0.05 if "bfloat16" in kind else 1e-4
    for question, log_probs in zip(asked, found.log_probs["lm"], strict=True):
        after = scorer.after([sentence.split() for sentence in question.context])
        for candidate, value in zip(question.candidates, log_probs, strict=True):
            [expected] = after.score([question.query.replace(BLANK, candidate).split()])
            assert value == pytest.approx(expected.total, abs=abs_error)
    right = [
        question.candidates[int(values.argmax())] == question.answer for question, values in zip(asked, found.log_probs["lm"], strict=True)
    ]
    assert found.rows[0].interval.score == pytest.approx(100 * np.mean(right))


class Favourite(Scorer):
    """An LM that likes one word, and the words that stand in its context."""

    name = "favourite"

    def __init__(self, word: str, context: tuple[str, ...] = ()) -> None:
        self.word, self.context = word, context

    def score(self, sentences):
        return [
            SentenceScore((*(-1.0 if word == self.word or word in self.context else -2.0 for word in words), 0.0), (False,) * len(words))
            for words in sentences
        ]

    def after(self, history):
        return Favourite(self.word, (*self.context, *(word for words in history for word in words)))

    def signature(self):
        return {"kind": "favourite"}


def test_equally_probable_candidates_share_the_credit():
    one = attlm.ClozeQuestion((), "XXXXX", "a", ("a", "b", "c"))
    other = attlm.ClozeQuestion(("b",), "XXXXX", "a", ("a", "b"))
    found = attlm.answer_cloze([one, one, other], {"none": Favourite("z"), "a": Favourite("a"), "b": Favourite("b")})
    assert [row.interval.score for row in found.rows] == pytest.approx([100 * (2 / 3) / 3, 100 * 2.5 / 3, 0.0])
    assert [answer["chosen"] for answer in found.as_dict()["answers"]] == [
        {"none": ["a", "b", "c"], "a": "a", "b": "b"},
        {"none": ["a", "b", "c"], "a": "a", "b": "b"},
        {"none": "b", "a": ["a", "b"], "b": "b"},
    ]


def test_lms_are_compared_with_the_first_and_summed_by_weights():
    asked = [attlm.ClozeQuestion((), "XXXXX", answer, ("a", "b", "c")) for answer in "a" * 30 + "b" * 20]
    found = attlm.answer_cloze(asked, {"a": Favourite("a"), "b": Favourite("b")}, weights={"a": 0.1, "b": 0.2})
    first, second, weighted = found.rows
    assert (first.interval.score, second.interval.score, weighted.interval.score) == pytest.approx((60, 40, 40))
    assert first.interval.low < 50 < first.interval.high < 75
    assert first.comparison is None
    assert second.comparison.difference.score == pytest.approx(-20)
    assert 0.05 < second.comparison.p_value < 0.3  # two-sided sign test of 30 against 20: 0.20
    np.testing.assert_allclose(found.log_probs["weighted sum"][0], [-0.5, -0.4, -0.6])
    with pytest.raises(InputError, match="no weight for b: give --weight b=NUMBER"):
        attlm.answer_cloze(asked, {"a": Favourite("a"), "b": Favourite("b")}, weights={"a": 1})
    with pytest.raises(InputError, match="a weight for c, but the LMs are a"):
        attlm.answer_cloze(asked, {"a": Favourite("a")}, weights={"c": 1})


def test_the_command_prints_what_the_library_finds(folder):
    (folder / "questions").write_text(QUESTION + "\n" + QUESTION.replace("dog\t", "mat\t") + QUESTION)
    lms = ["--lm", "lm.pt", "--kenlm", "lm.arpa", "--unigram-cache", "kenlm=100:0.5"]
    output = run("cloze", "questions", *lms, "--weight", "lm=0.5", "--weight", "kenlm=0.5")
    found = attlm.answer_cloze("questions", {"lm": "lm.pt", "kenlm": attlm.LMSpec.of_files("kenlm", ["lm.arpa"])})
    assert run("cloze", "questions", *lms[:4]).stdout == f"{found}\n"
    assert re.search(rf"^lm +{found.rows[0].interval.score:.2f} ", output.stdout, re.M)
    assert re.search(r"^kenlm .*, p = [\d.]+$", output.stdout, re.M)
    assert output.stdout.endswith("3 questions; answers unknown: 0 to lm, 0 to kenlm\n")
    record = json.loads(run("cloze", "-", "--lm", "lm.pt", "--json", stdin=QUESTION).stdout)
    assert (record["questions"], record["answers"][0]["line"], record["answers"][0]["answer"]) == (1, 3, "dog")


def test_what_the_lms_have_to_say_is_printed(folder):
    (folder / "questions").write_text(QUESTION)
    for command in (["cloze", "questions"], ["fit", "questions", "--find", "temperature"]):
        assert "differs from float32 by" in run(*command, "--lm", "lm.pt", "--precision", "bfloat16").stderr


def test_context_reaches_the_lm_as_far_as_it_is_let(folder):
    (folder / "questions").write_text(QUESTION)
    lm = attlm.load_lm("lm.pt")
    for sentences, history in ((0, []), (1, [["a", "dog", "ran"]]), (2, [["the", "cat", "sat"], ["a", "dog", "ran"]])):
        spec = attlm.LMSpec("lm", checkpoints=(folder / "lm.pt",), context_sentences=sentences)
        [values] = attlm.answer_cloze("questions", {"lm": spec}).log_probs["lm"]
        filled = [f"the {word} ran on a mat".split() for word in ("cat", "dog", "mat")]
        assert values == pytest.approx([score.total for score in lm.after(history).score(filled)], abs=1e-5)
    assert "each cloze question has its own context" in refused("cloze", "questions", "--lm", "lm.pt", "--context", "all")


def test_unknown_answers_are_counted(folder):
    (folder / "questions").write_text("1 a zebra ran\n2 the XXXXX sat\tzebra\t\tcat|zebra|lion\n")
    assert attlm.answer_cloze("questions", {"lm": "lm.pt"}).unknown == {"lm": 1}
    (folder / "questions").write_text("1 a cat ran\n2 the XXXXX's mat\tdog\t\tcat|dog\n")  # the LM knows dog, not dog's
    assert attlm.answer_cloze("questions", {"lm": "lm.pt"}).unknown == {"lm": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty: expected cloze questions"),
        ("2 a cat\n", ":1: found '2 a cat', expected 1, a space and a sentence"),
        ("1 a cat\n\n2 XXXXX\ta\t\ta|b\n", ":2: found ''"),
        ("1 a cat\n2 a dog\n", "ends after 2 sentences of context"),
        ("1 a XXXXX\tcat\tcat|dog\n", ":1: found 3 fields between tabs"),
        ("1 a XXXXX\tcat\t7\tcat|dog\n", ":1: found 4 fields between tabs"),
        ("1 a mat\tcat\t\tcat|dog\n", ":1: the query has XXXXX 0 times, expected once"),
        ("1 XXXXX XXXXX\tcat\t\tcat|dog\n", ":1: the query has XXXXX 2 times"),
        ("1 a XXXXX\tcow\t\tcat|dog\n", ":1: the answer 'cow' is not one of the candidates 'cat|dog'"),
        ("1 a XXXXX\tcat\t\tcat\n", ":1: expected two or more candidates"),
    ],
)
def test_what_is_no_cloze_test_is_refused_in_one_line(folder, text, told):
    (folder / "questions").write_text(text)
    assert told in refused("cloze", "questions", "--lm", "lm.pt")


def test_questions_are_read_as_they_are_written():
    asked = questions()
    text = "".join(map(str, asked))
    read = list(read_questions(TextSource("questions", text=text)))
    assert [(one.context, one.query, one.answer, one.candidates) for one in read] == [
        (one.context, one.query, one.answer, one.candidates) for one in asked
    ]
    assert [text.split("\n")[one.line - 1].partition("\t")[2].split("\t")[0] for one in read] == [one.answer for one in asked]


@pytest.fixture
def text(tmp_path) -> list[str]:
    """Two documents whose frequent words are in every sentence, and whose other words repeat within a few sentences."""
    draw = random.Random(3)
    common = [f"f{place}" for place in range(100)]
    topics = ["".join(draw.choices("abcdefgh", k=7)) for _ in range(400)]
    lines = [" ".join(draw.choices(common, k=30) + draw.choices(topics[place : place + 30], k=6) + ["12", "u.s."]) for place in range(300)]
    return [*lines[:130], "", *lines[130:]]


def test_blanked_words_obey_the_rule(text):
    options = attlm.BlankingOptions(context=20, candidates=10)
    made = attlm.make_cloze(text, options)
    assert len(made) == 130 // 21 + 170 // 21
    counts = Counter(word for line in text for word in line.split())
    for question in made:
        first = text.index(question.context[0])
        last = question.query.replace(BLANK, question.answer)
        assert [*question.context, last] == text[first : first + 21]
        assert "" not in text[first : first + 21]  # no question lies across two documents
        before = {word for sentence in question.context for word in sentence.split()}
        assert set(question.candidates) <= {word for word in before if word.isalpha()}
        assert len(question.candidates) == 10
        assert question.query.split().count(BLANK) == 1
        assert last.split().count(question.answer) == 1
        others = set(question.candidates) - {question.answer}
        assert not others & set(last.split())
        farthest = max(abs(np.log(counts[word] / counts[question.answer])) for word in others)
        left_out = {word for word in before if word.isalpha()} - set(question.candidates) - set(last.split())
        assert all(abs(np.log(counts[word] / counts[question.answer])) >= farthest - 1e-9 for word in left_out)


def test_blanking_depends_on_the_seed_alone(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("\n".join(text) + "\n")
    run("blank", "text", "-o", "one")
    run("blank", "text", "-o", "other", "--seed", "2")
    again = run("blank", "-", stdin=(tmp_path / "text").read_text()).stdout
    assert (tmp_path / "one").read_text() == again != (tmp_path / "other").read_text()
    some = "".join(map(str, attlm.make_cloze("text", attlm.BlankingOptions(questions=5))))
    assert some.count(BLANK) == 5
    assert all(block in again for block in some.split("\n\n"))
    made = attlm.make_cloze(text)
    assert len({question.query.split()[-3] for question in made}) > 3
    marked = [line + " XXXXXX" if line == made[0].query.replace(BLANK, made[0].answer) else line for line in text]
    assert 0 < len(attlm.make_cloze(marked)) < len(made)  # a sentence with the mark of a blank is no query


def test_a_test_that_is_made_can_be_answered(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("\n".join(text) + "\n")
    run("blank", "text", "-o", "questions")
    words = sorted({word for line in text for word in line.split()})
    write_checkpoint(tmp_path / "lm.pt", words)
    write_arpa(tmp_path / "lm.arpa", words[::8])
    (tmp_path / "nothing").write_text("\n\n")
    told = refused("cloze", "nothing", "--kenlm", "lm.arpa")
    assert "nothing: there are no questions: each ends with a line of a sentence with XXXXX" in told
    run("cloze", "questions", "--lm", "lm.pt", "--kenlm", "lm.arpa")
    assert "no question can be made: expected 41 sentences without a blank line" in refused("blank", "questions", "--context", "40")
    assert "would overwrite the text" in refused("blank", "text", "-o", "text")
