"""Responses of servers of LLMs, alone and in batches, and the same from Python."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from nbest_samples import CHAT, COMPLETIONS, read, write

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError


def batch(*responses: dict, **others: object) -> str:
    lines = [
        {"id": f"batch_req_{place}", "custom_id": f"utt {place}", "response": {"status_code": 200, "body": body}, "error": None}
        for place, body in enumerate(responses)
    ]
    return "".join(json.dumps(line | others) + "\n" for line in lines)


def found(lists: list[attlm.NbestList]) -> list[tuple[str, list[tuple[str, dict[str, float]]]]]:
    return [(nbest.id, [(one.text, one.scores) for one in nbest.hypotheses]) for nbest in lists]


OF_COMPLETIONS = [("a b", {"logprob": -0.75}), ("a", {"logprob": -1.5})]
OF_CHAT = [("a b", {"logprob": -0.75}), ("", {"logprob": -3.0})]


def test_choices_are_hypotheses_and_their_tokens_make_the_score():
    assert found(read(COMPLETIONS, "json")) == [("cmpl-1", OF_COMPLETIONS)]
    assert found(read(CHAT, "json")) == [("chatcmpl-1", OF_CHAT), ("chatcmpl-2", [("c", {})])]


@pytest.mark.parametrize(
    "logprobs", [None, {}, {"content": None}, {"token_logprobs": [None, -1.0]}, {"content": [{"token": "a"}]}, {"content": []}, 3.5]
)
def test_log_probabilities_that_are_not_all_there_are_no_score(logprobs):
    assert found(read(json.dumps({"id": "u", "choices": [{"text": "a", "logprobs": logprobs}]}), "json")) == [("u", [("a", {})])]


def test_a_batch_is_read_by_the_ids_of_its_requests(caplog):
    one, several = json.loads(COMPLETIONS), [json.loads(line) for line in CHAT.splitlines()]
    for text, expected in (
        (batch(one), [("utt 0", OF_COMPLETIONS)]),
        (batch(*several), [("utt 0", OF_CHAT), ("utt 1", [("c", {})])]),
    ):
        caplog.clear()
        with caplog.at_level("INFO"):
            lists = read(text, "json")
        assert found(lists) == expected
        assert [record.message for record in caplog.records] == [
            "note: FILE: the responses of a batch, which are written without what is around them"
        ]
        again = write(lists, "json")
        assert [json.loads(line)["choices"] for line in again.splitlines()] == [
            json.loads(line)["response"]["body"]["choices"] for line in text.splitlines()
        ]
        assert found(read(again, "json")) == expected


@pytest.mark.parametrize("response", [None, {"status_code": 400}, {"status_code": 400, "body": {"error": "x"}}])
def test_a_failed_request_is_one_line(response):
    text = batch(json.loads(COMPLETIONS)) + batch({}, response=response, error={"message": "too many"})
    message = (
        r"FILE:2: the request 'utt 0' has no response with choices \(\{\"message\": \"too many\"\}\): send it again, or leave the line out"
    )
    with pytest.raises(InputError, match=message):
        read(text, "json")


@pytest.mark.parametrize("lines", [1, 2])
@pytest.mark.parametrize("first", ["id", "custom_id", "response"])
def test_lines_of_a_batch_may_be_long(lines, first):
    text = "word " * 20000
    body = {"choices": [{"message": {"content": text}, "logprobs": {"content": [{"token": "x", "logprob": -0.5}] * 1000}}]}
    values = [json.loads(line) for line in batch(*[body] * lines).splitlines()]
    written = "".join(json.dumps({first: value[first]} | value) + "\n" for value in values)
    assert [nbest.id for nbest in read(written, "json", piece=1 << 16)] == [f"utt {place}" for place in range(lines)]


def test_what_has_another_text_or_other_hypotheses_is_no_response():
    assert found(read(json.dumps([{"id": "u", "text": "a", "choices": ["b", "c"]}]), "json")) == [("u", [("a", {})])]
    assert found(read(json.dumps([{"id": "u", "custom_id": "x", "response": ["y"], "hyps": ["a"]}]), "json")) == [("u", [("a", {})])]
    words = {"words": ["a", "b"], "message": {"content": "c"}}
    assert found(read(json.dumps([{"id": "u", "nbest": [words]}]), "json")) == [("u", [("a b", {})])]


def test_no_choices_are_silence():
    assert found(read('{"id": "u", "choices": []}\n', "json")) == [("u", [("", {})])]
    assert found(attlm.from_openai([{"choices": []}])) == found(attlm.from_vllm([SimpleNamespace(outputs=())])) == [("0", [("", {})])]


def test_a_refusal_is_one_line():
    text = json.dumps({"id": "u", "choices": [{"message": {"content": "a"}}, {"message": {"content": None}}]}) + "\n"
    with pytest.raises(
        InputError, match=r"choices\[1\] is .*: expected a hypothesis: .* \(a refusal has no text: leave such a choice out\)"
    ):
        read(text, "json")


def test_rescored_choices_keep_their_place():
    lists = read(COMPLETIONS, "json")
    for hypothesis, value in zip(lists[0].hypotheses, (-2.0, -1.0), strict=True):
        hypothesis.lm_scores, hypothesis.total = {"lm": value}, value
    lists[0].hypotheses.reverse()
    written = json.loads(write(lists, "json"))
    assert [(one["index"], one["lm"], one["total"]) for one in written["choices"]] == [(1, -1.0, -1.0), (0, -2.0, -2.0)]
    assert written["usage"] == {"total_tokens": 9}


def test_outputs_of_vllm():
    outputs = [
        SimpleNamespace(request_id="9", outputs=[SimpleNamespace(index=0, text=" a b", token_ids=(1, 2), cumulative_logprob=-0.75)]),
        SimpleNamespace(request_id="10", outputs=[SimpleNamespace(text="c", cumulative_logprob=None), SimpleNamespace(text="d")]),
    ]
    assert found(attlm.from_vllm(outputs, ids=["x", "y"])) == [("x", [(" a b", {"logprob": -0.75})]), ("y", [("c", {}), ("d", {})])]
    with pytest.raises(InputError, match="from_vllm: found a SimpleNamespace: expected a list with one result per utterance"):
        attlm.from_vllm(outputs[0])
    with pytest.raises(InputError, match="from_vllm: found a str: expected a RequestOutput of vLLM, with outputs"):
        attlm.from_vllm(["a"])
    with pytest.raises(InputError, match="from_vllm: list 0"):
        attlm.from_vllm([SimpleNamespace(outputs=[SimpleNamespace(text="a", cumulative_logprob=float("nan"))])])


def test_responses_of_the_client_of_openai():
    values = [json.loads(COMPLETIONS), json.loads(CHAT.splitlines()[0])]
    responses = [values[0], SimpleNamespace(model_dump=lambda: values[1])]
    assert found(attlm.from_openai(responses)) == [("0", OF_COMPLETIONS), ("1", OF_CHAT)]
    with pytest.raises(InputError, match="from_openai: found a SimpleNamespace: expected a list with one result per utterance"):
        attlm.from_openai(responses[1])
    with pytest.raises(InputError, match="from_openai: found a dict: expected a response with choices"):
        attlm.from_openai([{"error": "x"}])
