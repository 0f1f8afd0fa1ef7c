"""Responses of servers of LLMs in OpenAI's form, as vLLM and llama.cpp give them, too: ``choices`` with texts or messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats.json_values.members import own_member, with_members
from attlm_fairseq.nbest.formats.json_values.text import dumped
from attlm_fairseq.numeric import is_number

MESSAGE = "message"
OF_BATCH = ("custom_id", "response")  # of a line of a batch
Steps = tuple[str | int, ...]


def text_of_message(choice: Mapping[str, Any]) -> str | None:
    """Return the text of a choice of a chat; None if it has none, such as a refusal."""
    message = choice.get(MESSAGE)
    text = message.get("content") if isinstance(message, dict) else None
    return text if isinstance(text, str) else None


def token_logprobs(value: Any) -> list[tuple[Steps, float]]:
    """Return the log-probabilities of a text's tokens, each with the steps to it: a list, or that of a completion or a chat.

    Empty if there is anything else.
    """
    steps: Steps = ()
    if isinstance(value, dict):
        key = "token_logprobs" if "token_logprobs" in value else "content"
        steps, value = (key,), value.get(key)
    if not isinstance(value, list):
        return []
    if value and all(isinstance(token, dict) for token in value):
        found: Sequence[tuple[Steps, Any]] = [((*steps, place, "logprob"), token.get("logprob")) for place, token in enumerate(value)]
    else:
        found = [((*steps, place), number) for place, number in enumerate(value)]
    return [*found] if all(is_number(number) for _, number in found) else []


def has_no_tokens(value: Any) -> bool:
    """Return whether a value is the log-probabilities of a text without tokens."""
    return value == [] or (isinstance(value, dict) and value.get("token_logprobs", value.get("content")) == [])


def response_of_batch(text: str, value: Mapping[str, Any], path: str, line: int) -> str:
    """Return the text of the response in a line of a batch, with the id of the request.

    Raises:
        InputError: the request has failed.
    """
    response = value["response"]
    if not isinstance(response, dict) or not isinstance(response.get("body"), dict) or "choices" not in response["body"]:
        raise InputError(
            f"the request {value['custom_id']!r} has no response with choices ({dumped(value.get('error'))[:200]}): send it again, or "
            "leave the line out",
            path=path,
            line=line,
        )
    return with_members(own_member(own_member(text, "response"), "body"), {"id": dumped(value["custom_id"])})
