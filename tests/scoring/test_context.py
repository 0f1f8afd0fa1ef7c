"""Scores after other sentences: of every kind of LM, many histories at once, and along the documents of a text."""

from __future__ import annotations

import re

import pytest
import torch
from foreign_lms import WORDS
from lm_files import VARIANTS, write_arpa, write_checkpoint
from scorers import KINDS, make_scorer

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.modules.families import FAMILIES as NAMES
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.context import conversations
from attlm_fairseq.scoring.context.context_walk import SENTENCES_AT_ONCE, SentenceWindow, in_order, turns
from attlm_fairseq.scoring.context.conversations import ContextSpec, parse_context
from attlm_fairseq.scoring.mixture import MixtureScorer
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.text_file import score_text
from attlm_fairseq.text import TextPipeline

DOCUMENTS = [
    ["the cat sat on the mat", "a dog ran", "the cat ran"],
    ["a mat"],
    ["the zebra sat", "the cat sat", "a dog sat on a cat", "the dog"],
]
SENTENCES = [["the", "cat", "sat"], ["a", "zebra", "ran"], [], ["the", "cat"]]
HISTORIES = [[], [["the", "dog", "ran"]], [["a", "mat"], [], ["the", "zebra", "sat", "on", "a", "mat"]], [["a"]]]


@pytest.mark.parametrize("kind", KINDS)
def test_many_histories_at_once_are_as_each_alone(kind, tmp_path):
    scorer = make_scorer(kind, tmp_path)
    later = scorer.after_many([(scorer, history) for history in HISTORIES])
    alone = [scorer.after(history).score(SENTENCES) for history in HISTORIES]
    together = scorer.score_many([(one, SENTENCES) for one in later] + [(later[1], [])])
    assert together.pop() == []
    abs_error = 0.05 if "bfloat16" in kind else 1e-5
    for one, other in zip(together, alone, strict=True):
        for score, expected in zip(one, other, strict=True):
            assert score.log_probs == pytest.approx(expected.log_probs, abs=abs_error)
            assert score.oov == expected.oov
    again = scorer.after_many([(one, [["the"]]) for one in later])
    for one, history in zip(again, HISTORIES, strict=True):
        for score, expected in zip(one.score(SENTENCES[:1]), scorer.after([*history, ["the"]]).score(SENTENCES[:1]), strict=True):
            assert score.log_probs == pytest.approx(expected.log_probs, abs=abs_error)


@pytest.mark.parametrize("variant", [*NAMES, *VARIANTS])
def test_a_document_scores_as_its_concatenation(variant, tmp_path):
    """Every family: the log-probabilities of ``--context`` are those of one forward pass over the document."""
    options = VARIANTS.get(variant, {"_name": variant})
    scorer = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS, **options)])
    lines = [line for document in DOCUMENTS for line in (*document, "")]
    scored = list(score_text(lines, [scorer], [TextPipeline()], context=ContextSpec("blank")).lines)
    assert [line.text for line in scored] == [line for line in lines if line]
    found = iter(scored)
    for document in DOCUMENTS:
        ids = [token for line in document for token in (*scorer.vocabulary.ids(line.split()), 2)]
        features, read = scorer.models[0].model.extract_features(torch.tensor([[2, *ids[:-1]]]))
        read = read and read.map(lambda part: part[0])
        log_probs = scorer.models[0].model.output.log_probs_of(features[0], torch.tensor(ids), read).tolist()
        values = [value for _ in document for value in next(found).scores[0].log_probs]
        assert values == pytest.approx(log_probs, abs=1e-5)


def test_all_is_one_document_read_as_it_comes(tmp_path):
    scorer = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS)])
    lms = [scorer, KenLMScorer(write_arpa(tmp_path / "lm.arpa", WORDS))]
    read = []
    text = [*DOCUMENTS[0], "", *DOCUMENTS[2]] * SENTENCES_AT_ONCE
    lines = (read.append(line) or line for line in text)
    scored = score_text(lines, lms, [TextPipeline()] * 2, context=ContextSpec("all")).lines
    first = [next(scored) for _ in range(4)]
    assert len(read) == SENTENCES_AT_ONCE < len(text)
    assert first[3].text == ""  # a sentence like others
    history = [line.split() for line in DOCUMENTS[0]]
    assert first[3].scores[0].total == pytest.approx(scorer.after(history).score([[]])[0].total, abs=1e-5)
    for line in (*first, *scored):
        assert line.scores[1] == lms[1].score([line.text.split()])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_walk_scores_each_sentence_after_those_before_it(kind, tmp_path):
    """In one pass what ``score`` and ``after`` say sentence by sentence, also by a wrapper; no sentences change nothing."""
    scorer = make_scorer(kind, tmp_path)
    begun = scorer.after(HISTORIES[1])
    document = [*SENTENCES, [], *SENTENCES[::-1]]
    abs_error = 0.05 if "bfloat16" in kind else 1e-5
    for lm in (scorer, MixtureScorer([scorer], [1.0]) if scorer.left_to_right and scorer.scores_end else scorer):
        others = lm.after(HISTORIES[1])
        found, other, nothing = lm.walk([(lm, document), (others, SENTENCES[:2]), (others, [])])
        assert (nothing.scores, nothing.features, nothing.later) == ([], [], others)
        for walked, later, sentences in ((found, scorer, document), (other, begun, SENTENCES[:2])):
            assert [part.shape for part in walked.features] == [(len(score.log_probs), 0) for score in walked.scores]
            for words, score in zip(sentences, walked.scores, strict=True):
                [expected] = later.score([words])
                assert score.log_probs == pytest.approx(expected.log_probs, abs=abs_error)
                assert score.oov == expected.oov
                later = later.after([words])
            [expected], [score] = later.score(SENTENCES[:1]), walked.later.score(SENTENCES[:1])
            assert score.log_probs == pytest.approx(expected.log_probs, abs=abs_error)


@pytest.mark.parametrize(
    ("variant", "trained", "signature"),
    [
        ("combined", {"memory_slots": 3}, {"memory slots": [3]}),
        ("combined", {"reset": "memory"}, {"memory kept between sentences": [False]}),
        ("attentive_lstm_lm", {"reset": "memory"}, {"memory kept between sentences": [False]}),
        ("averaging_lstm_lm", {"reset": "memory"}, {"memory kept between sentences": [False]}),
        ("ngram_rnn_lm", {"reset": "memory"}, {"memory kept between sentences": [False]}),
    ],
)
def test_the_memory_is_carried_as_in_training(tmp_path, variant, trained, signature):
    """At each sentence end, whether sentences are read one by one or together, also after a history that was read before."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, **VARIANTS.get(variant, {"_name": variant}))
    content = torch.load(path, weights_only=False)
    content["cfg"]["task"] |= {"_name": "document_reset_lm", "memory_slots": 0, "reset": "document", **trained}
    torch.save(content, tmp_path / "limited.pt")
    whole, limited = (NeuralScorer.load([tmp_path / name]) for name in ("lm.pt", "limited.pt"))
    document = [line.split() for line in DOCUMENTS[2]]
    model = limited.models[0].model
    state, expected = model.initial_state(1), []
    for words in document:
        ids = [2, *limited.vocabulary.ids(words)]
        features, _, state = model.read(torch.tensor([ids]), state)
        expected.append(model.output.log_probs_of(features[0], torch.tensor([*ids[1:], 2])).tolist())
        state = state.truncate(3) if "memory_slots" in trained else state._replace(memory=model.initial_state(1).memory)
    one_by_one = [limited.after(document[:number]).score([words])[0] for number, words in enumerate(document)]
    for found in (limited.walk([(limited, document)])[0].scores, one_by_one):
        assert [list(score.log_probs) for score in found] == [pytest.approx(values, abs=1e-5) for values in expected]
    assert whole.walk([(whole, document)])[0].scores[-1].total != pytest.approx(one_by_one[-1].total, abs=1e-5)
    [limited_later, whole_later] = (lm.after(document) for lm in (limited, whole))
    kept = trained.get("memory_slots", 0)
    assert limited_later.tree_memory.words_before == kept < whole_later.tree_memory.words_before  # what a row is taken to need
    low = NeuralScorer.load([tmp_path / "limited.pt"], compute=DeviceConfig(precision="bfloat16")).after(document[:-1])
    assert low.score(document[-1:])[0].total == pytest.approx(one_by_one[-1].total, abs=0.1)
    assert low.deviation.mean > 0
    assert whole.signature() | signature == limited.signature() | {key: whole.signature()[key] for key in ("checkpoints", "sha256")}


@pytest.mark.parametrize(
    ("trained", "told"),
    [
        (
            {"reset": "segment"},
            "--reset segment, which carries nothing; here .*: compare with --context-sentences 0, and with fairseq-eval-lm",
        ),
        ({"reset": "document", "reset_every": 3}, "--reset-every 3; here .*: compare with --context-sentences 2, and with fairseq-eval-lm"),
        ({"reset": "document", "reset_every": 0}, None),
    ],
)
def test_more_context_than_in_training_is_told(tmp_path, trained, told):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(path, weights_only=False)
    content["cfg"]["task"] |= {"_name": "document_reset_lm", **trained}
    torch.save(content, path)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in DOCUMENTS[2]))
    for context, expected in ((None, None), ("all", told)):
        with collected() as notes:
            attlm.perplexity(tmp_path / "text", config=attlm.run_config(lms={"lm": path}, context=context))
        of_resets = [line for line in notes if "was trained with" in line]
        assert [bool(re.search(f"^WARNING: lm was trained with {expected}", line)) for line in of_resets] == ([True] if expected else [])
    scorer = NeuralScorer.load([path])
    scorer.score([["a"]])
    assert not scorer.notes()
    scorer.after_many([(scorer.after([["a"], ["b"]]), [["a"]])])  # as rescoring does
    assert bool(scorer.notes()) == bool(told)
    spec = attlm.LMSpec.of(path, name="lm", context_sentences=0 if "reset_every" not in trained else 2)
    with collected() as notes:
        attlm.perplexity(tmp_path / "text", config=attlm.run_config(lms={"lm": spec}, context="all"))
    assert not any("was trained with" in line for line in notes)


def test_a_window_tells_the_last_sentences_alone(tmp_path):
    scorer = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS)])
    history = [line.split() for line in DOCUMENTS[2]]
    for sentences in (0, 1, 2, 9):
        window = SentenceWindow(scorer, sentences)
        found = window.after(history[:1]).after(history[1:])
        expected = scorer.after(history[len(history) - sentences :] if sentences < len(history) else history)
        assert [score.total for score in found.score(SENTENCES)] == pytest.approx([s.total for s in expected.score(SENTENCES)], abs=1e-5)
    assert window.signature()["sentences of context"] == 9
    ngram = SentenceWindow(KenLMScorer(write_arpa(tmp_path / "lm.arpa", WORDS)), 2)
    assert ngram.after(history) is ngram


def test_documents_in_any_order_have_the_same_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(conversations, "SIDE_BY_SIDE", 2)
    scorer = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS, **VARIANTS["combined"])])

    def scores(documents):
        lines = [line for document in documents for line in (*document, "", " ")]
        scored = score_text(lines, [scorer], [TextPipeline()], context=ContextSpec("blank")).lines
        return {line.text: line.scores for line in scored}

    assert scores(DOCUMENTS) == scores(DOCUMENTS[::-1]) == scores([DOCUMENTS[1], DOCUMENTS[0], DOCUMENTS[2]])


def test_turns_go_on_while_a_conversation_has_one():
    assert list(turns([[1, 2, 3], [], [4]])) == [{0: 1, 2: 4}, {0: 2}, {0: 3}]
    assert list(in_order([(2, "c"), (0, "a"), (1, "b"), (3, "d")])) == ["a", "b", "c", "d"]


def test_conversations_by_id_file_or_order(tmp_path):
    ids = ["a-1", "b-1", "a-2", "b-0"]
    assert ContextSpec("all").conversations(ids) == {"": [0, 1, 2, 3]}
    assert parse_context("id:^[a-z]").conversations(ids) == {"a": [0, 2], "b": [1, 3]}
    assert parse_context("id:^([a-z])-(.)").conversations(ids) == {"a\0001": [0], "b\0001": [1], "a\0002": [2], "b\0000": [3]}
    (tmp_path / "map").write_text("b-1 y 2.5\na-1 x 1\n\na-2 x 0\nb-0 y 1e1\n")
    spec = parse_context("file:map", tmp_path)
    assert spec.conversations(ids) == {"x": [2, 0], "y": [1, 3]}
    assert spec.numbers(ids).tolist() == [0, 1, 0, 1]
    (tmp_path / "map").write_text("b-1 y 2.5 3\na-1 x 1.00 2\na-2 x 0 1\nb-0 y 10 11\n")  # Kaldi's segments
    assert spec.conversations(ids) == {"x": [2, 0], "y": [1, 3]}
    (tmp_path / "map").write_text("b-1 y\na-1 x\na-2 x\nb-0 y\n")
    assert spec.conversations(ids) == {"x": [0, 2], "y": [1, 3]}


@pytest.mark.parametrize("text", ["", "every", "id:", "id:(", "file", "all:1", "blank:x"])
def test_what_is_not_a_context_is_refused(text):
    with pytest.raises(InputError):
        parse_context(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a-1\n", "map:1: found 'a-1', expected list-id conversation"),
        ("a-1 x 1\na-2 x\n", "map:2: found 'a-2 x', expected list-id conversation time"),
        ("a-1 x\na-2 x 3\n", "map:2: .*on every line or on none"),
        ("a-1 x 1 2\na-2 x 3\n", "map:1: found 'a-1 x 1 2', expected list-id conversation"),
        ("a-1 x soon 2\n", "map:1: found the time 'soon'"),
        ("a-1 x soon\n", "map:1: found the time 'soon'"),
        ("a-1 x\na-1 y\n", "map:2: has the list 'a-1' a second time"),
        ("a-1 x\n", "names no conversation for list 'a-2'"),
    ],
)
def test_what_is_wrong_in_a_file_of_conversations(content, message, tmp_path):
    (tmp_path / "map").write_text(content)
    with pytest.raises(InputError, match=message):
        ContextSpec("file", str(tmp_path / "map")).conversations(["a-1", "a-2"])


def test_tabs_separate_ids_with_spaces(tmp_path):
    (tmp_path / "map").write_text("\na 1\tx y\t2\na 2\tx y\t1\n")
    assert ContextSpec("file", str(tmp_path / "map")).conversations(["a 1", "a 2"]) == {"x y": [1, 0]}
    (tmp_path / "map").write_text("a 1\tx\nb\ty\n")  # by white space, some lines would have a time
    assert ContextSpec("file", str(tmp_path / "map")).conversations(["a 1", "b"]) == {"x": [0], "y": [1]}
    for mixed in ("a\t\tx  2\nb\tx 1\n", "a x\t2\nb x\t1\n"):  # tabs among the white space
        (tmp_path / "map").write_text(mixed)
        assert ContextSpec("file", str(tmp_path / "map")).conversations(["a", "b"]) == {"x": [1, 0]}
    (tmp_path / "map").write_text("a 1 x 2\na 2 x 1\n")
    with pytest.raises(InputError, match="if an id has spaces, separate the fields by tabs"):
        ContextSpec("file", str(tmp_path / "map")).conversations(["a 1", "a 2"])
    (tmp_path / "map").write_text("a 1 x\n")
    with pytest.raises(
        InputError, match="expected a number after list id and conversation; if an id has spaces, separate the fields by tabs"
    ):
        ContextSpec("file", str(tmp_path / "map")).conversations(["a 1"])


def test_ids_of_another_unicode_form_are_the_same(tmp_path):
    composed, decomposed = "caf\u00e9-1", "cafe\u0301-1"
    (tmp_path / "map").write_text(f"b x 2\n{decomposed} x 1\n")
    found = ContextSpec("file", str(tmp_path / "map")).conversations(["b", composed])
    assert found == {"x": [1, 0]}
    (tmp_path / "map").write_text(f"{composed} x\n{decomposed} y\n")  # there each form is an id of its own
    assert ContextSpec("file", str(tmp_path / "map")).conversations([composed, decomposed]) == {"x": [0], "y": [1]}


def test_documents_know_the_lines_of_their_file():
    documents = [list(document) for group in parse_context("blank").documents(["", "a", "b", " ", "", "c", ""]) for document in group]
    assert documents == [[(0, 2, "a"), (1, 3, "b")], [(2, 6, "c")]]
    same = [[line.text for line in document] for group in parse_context("blank").documents(["a", "", "2", "", "a"]) for document in group]
    assert sorted(same) == [["2"], ["a"], ["a"]]


def test_many_documents_of_one_text_take_linear_time():
    lines = ["yes", ""] * 30_000  # with a name for each that is longer by one character: minutes, and a gigabyte
    assert sum(len(group) for group in parse_context("blank").documents(lines)) == 30_000


def test_ids_and_documents_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="does not match the list id 'b'"):
        parse_context("id:a").conversations(["a", "b"])
    with pytest.raises(InputError, match="for lists give --context all"):
        parse_context("blank").conversations(["a"])
    with pytest.raises(InputError, match="lines of text have no ids"):
        list(parse_context("id:a").documents(["a b"]))
