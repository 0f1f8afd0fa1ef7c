"""Times and confidences of words in the JSON of speech recognisers."""

from __future__ import annotations

import json
import math

import pytest
from cli_runs import run
from nbest_samples import read, write

from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats.json_values.words import words_of
from attlm_fairseq.nbest.word_times import filled, shared

TIMES = ((0.25, 0.5), (0.5, 1.0))


def words(*entries: dict) -> dict:
    return {"words": list(entries)}


SHAPES = {
    "Deepgram": words(
        {"word": "a", "start": 0.25, "end": 0.5, "confidence": 0.9, "punctuated_word": "A"},
        {"word": "b", "start": 0.5, "end": 1, "confidence": 0.5, "punctuated_word": "b."},
    ),
    "Whisper": {
        "segments": [
            {"text": " A", **words({"word": " A", "start": 0.25, "end": 0.5, "probability": 0.9})},
            {"text": " b.", **words({"word": " b.", "start": 0.5, "end": 1.0, "probability": 0.5})},
        ]
    },
    "WhisperX": {
        "segments": [
            words({"word": "A", "start": 0.25, "end": 0.5, "score": 0.9}, {"word": "b.", "start": 0.5, "end": 1.0, "score": 0.5}),
        ]
    },
    "AssemblyAI": words(
        {"text": "A", "start": 250, "end": 500, "confidence": 0.9}, {"text": "b.", "start": 500, "end": 1000, "confidence": 0.5}
    ),
    "Google": words(
        {"startTime": "0.250s", "endTime": "0.5s", "word": "A", "confidence": 0.9},
        {"startTime": "0.5s", "endTime": "1s", "word": "b.", "confidence": 0.5},
    ),
    "Azure": {
        "Words": [
            {"Word": "a", "Offset": 2500000, "Duration": 2500000, "Confidence": 0.9},
            {"Word": "b", "Offset": 5000000, "Duration": 5000000, "Confidence": 0.5},
        ]
    },
    "Hugging Face": {"chunks": [{"text": " A", "timestamp": [0.25, 0.5]}, {"text": " b.", "timestamp": (0.5, 1.0)}]},
    "Azure, batch": words(
        {"word": "a", "offset": "PT0.25S", "offsetInTicks": 2500000.0, "durationInTicks": 2500000.0, "confidence": 0.9},
        {"word": "b", "offset": "PT0.5S", "offsetInTicks": 5000000.0, "durationInTicks": 5000000.0, "confidence": 0.5},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_words_of_each_tool(name):
    confidences = () if name == "Hugging Face" else (0.9, 0.5)
    assert words_of(SHAPES[name], "A b.") == (TIMES, confidences)
    [nbest] = read(json.dumps([{"id": "u", "hyps": [{"text": "A b.", "score": -1, **SHAPES[name]}]}]), "json")
    assert (nbest.hypotheses[0].times, nbest.hypotheses[0].confidences) == (TIMES, confidences)
    assert [one["times"] for one in json.loads(write([nbest], "jsonl"))["hyps"]] == [[list(time) for time in TIMES]]


def test_parts_of_words_without_a_space_continue_them():
    parts = {"word": " twenty", "start": 0, "end": 1, "probability": 0.5}, {"word": "-one", "start": 1, "end": 2}
    assert words_of(words(*parts), "twenty-one") == (((0.0, 2.0),), ())  # one part has no confidence
    found = words_of(words({"word": "twenty"}, {"word": "one", "start": 1, "end": 2}, {"word": "b"}), "Twenty one b")
    assert found is not None
    assert found.times == tuple(shared((1.0, 2.0), 3))


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({}, ((), ())),
        ({"words": ["a", "b"]}, ((), ())),
        ({"words": None, "segments": [{"text": "a", "words": None}]}, ((), ())),
        ({"segments": [{"text": "a", "words": [{"word": "a"}]}, {"text": "b"}]}, ((), ())),  # not of all segments
        (words({"word": "a"}, {"word": "b", "start": "soon", "end": 2}), ((), ())),
        (words({"word": "a", "start": 2, "end": 1}, {"word": "b", "start": -1, "end": 2}), ((), ())),
        ({"chunks": [{"text": " a b", "timestamp": [0.0, 1.0]}]}, ((), ())),  # phrases
        (words({"word": "a"}), ((), ())),  # nothing is known of it
        (words({"word": "a", "start": 0, "end": 1}), None),
        (words({"word": "a", "start": 0, "end": 1}, {"word": "c"}), None),
        (words({"word": "a", "start": 0, "end": 1}, {"start": 1, "end": 2}), None),
        (words({"word": "a", "start": 0, "end": 1}, {"word": "b"}, {"word": "c"}), None),
        (words({"word": "a", "start": 10**400, "end": 1e308}, {"word": "b", "confidence": 10**400, "timestamp": [0, math.inf]}), ((), ())),
        (
            words({"word": "a", "start": 0.5, "end": 1}, {"word": ","}, {"word": " "}, {"word": "b", "start": 1, "end": 1.5}),
            (((0.5, 1.0), (1.0, 1.5)), ()),
        ),
        (
            words({"word": "a", "start": 5.0, "end": 6.0}, {"word": "b", "start": 1.0, "end": 2.0}),
            (((5.0, 5.5), (5.5, 6.0)), ()),
        ),  # not in order
        (words({"word": "a", "start": 0.0, "end": 30.0}, {"word": "b", "start": 30.0, "end": 60.0}), (((0.0, 30.0), (30.0, 60.0)), ())),
    ],
)
def test_what_is_not_known(members, found):
    assert words_of(members, "a b") == found


def test_texts_without_spaces():
    characters = [{"word": sign, "start": place, "end": place + 1.0} for place, sign in enumerate("\u4eca\u5929\u597d")]
    assert words_of(words(*characters), "\u4eca\u5929\u597d\u3002") == (((0.0, 3.0),), ())


def test_words_that_are_not_those_of_the_text_are_told():
    text = json.dumps([{"id": "u", "hyps": [{"text": "a b", **words({"word": "a", "start": 1, "end": 2})}]}])
    with collected() as told:
        assert write(read(text, "json"), "json") == text
    assert told == ["note: FILE: the words with times of a hypothesis are not those of its text: their times and confidences are not read"]


def test_times_of_whisper_come_to_ctm_and_its_confidences_are_measured(tmp_path):
    whisper = {"text": " A b.", **SHAPES["Whisper"]}
    (tmp_path / "u1.json").write_text(json.dumps(whisper))
    ctm = run("rescore", tmp_path / "u1.json", "--weight", "rank=-1", "--to", "ctm").stdout
    assert [line.split()[2:5] for line in ctm.splitlines()] == [["0.25", "0.25", "A"], ["0.50", "0.50", "b."]]
    (tmp_path / "ref").write_text("a c\n")
    options = ["--refs", tmp_path / "ref", "--metric-text", "lowercase,remove-punctuation", "--confidence", "--json"]
    found = json.loads(run("eval", tmp_path / "u1.json", *options).stdout)["confidence"]
    assert (found["words"], found["right"], found["ece"]) == (2, 0.5, pytest.approx((0.1 + 0.5) / 2))


def test_times_are_shared_and_filled():
    assert shared((0.0, 1.0), 2) == [(0.0, 0.5), (0.5, 1.0)]
    assert shared((0.0, 1.0), 0) == []
    assert filled([]) == filled([None, None]) == []
    assert filled([(0.0, 1.0), None, (1.5, 2.0)]) == [(0.0, 1.0), (1.0, 1.5), (1.5, 2.0)]  # the gap
    assert filled([(0.0, 1.0), None, (1.01, 2.0)]) == [(0.0, 0.5), (0.5, 1.0), (1.01, 2.0)]  # too short
    assert filled([None, (1.0, 2.0), None]) == shared((1.0, 2.0), 3)
