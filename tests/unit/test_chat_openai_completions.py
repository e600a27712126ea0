"""OpenAI's chat completions: golden replies in, golden messages out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ParsedChatCompletion
from pydantic import BaseModel, ConfigDict, Field

from deedbox.chat import Answer, Asked, openai_chat, plain, user
from deedbox.effects import provider_key
from deedbox.errors import UnreadableReply, WrongAnswers
from deedbox.tool import Tool


class Charge(BaseModel):
    """Charge the customer's default card."""

    model_config = ConfigDict(extra="forbid")

    customer: str
    cents: int = Field(description="amount in cents")


class Receipt(BaseModel):
    id: str


charge = Tool("charge_customer", args=Charge, result=Receipt, effect=provider_key(timedelta(hours=24)), title="charge")

MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "refusal": None,
    "annotations": [],
    "reasoning_content": "Both customers asked for it.",
    "tool_calls": [
        {
            "id": "call_Ab1",
            "type": "function",
            "function": {"name": "charge", "arguments": '{"customer":"cus_1","cents":4900}'},
        },
        {"id": "call_Ab2", "type": "function", "function": {"name": "charge", "arguments": '{"customer":"cus_2",'}},
    ],
}
REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1764500000,
    "model": "gpt-test",
    "choices": [{"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "tool_calls"}],
    "usage": {
        "prompt_tokens": 57,
        "completion_tokens": 40,
        "total_tokens": 97,
        "completion_tokens_details": {"reasoning_tokens": 12},
    },
    "service_tier": "default",
    "system_fingerprint": None,
}


def test_a_request_offers_the_tools() -> None:
    parameters = {
        "type": "object",
        "properties": {"customer": {"type": "string"}, "cents": {"type": "integer", "description": "amount in cents"}},
        "required": ["customer", "cents"],
        "additionalProperties": False,
    }
    function = {"name": "charge", "description": "Charge the customer's default card.", "parameters": parameters}
    assert openai_chat.tools([charge]) == [{"type": "function", "function": function}]
    strict = Tool("charge", args=Charge, result=Receipt, effect=charge.effect, strict=True)
    assert openai_chat.tools([strict]) == [{"type": "function", "function": function | {"strict": True}}]


def test_the_clients_reply_is_kept_word_for_word() -> None:
    assert plain(ChatCompletion.construct(**REPLY)) == REPLY
    assert plain(REPLY) == REPLY


def test_parallel_calls_come_in_the_replys_order() -> None:
    assert openai_chat.calls(REPLY) == [
        Asked("call_Ab1", "charge", '{"customer":"cus_1","cents":4900}'),
        Asked("call_Ab2", "charge", '{"customer":"cus_2",'),
    ]


def test_the_assistants_message_is_appended_whole() -> None:
    assert openai_chat.said(REPLY) == [MESSAGE]
    assert openai_chat.said(MESSAGE) == [MESSAGE]


def test_a_parsed_reply_is_sent_back_without_what_the_client_added() -> None:
    parsed = plain(ParsedChatCompletion[Receipt].construct(**REPLY))
    parsed["choices"][0]["message"]["parsed"] = None
    for call in parsed["choices"][0]["message"]["tool_calls"]:
        call["function"]["parsed_arguments"] = {"customer": "cus_1"}
    assert openai_chat.said(parsed) == [MESSAGE]


def test_each_call_gets_one_answer_and_all_come_together() -> None:
    assert openai_chat.answers(REPLY, [Answer('{"id":"ch_1"}'), Answer("cents: Field required", error=True)]) == [
        {"role": "tool", "tool_call_id": "call_Ab1", "content": '{"id":"ch_1"}'},
        {"role": "tool", "tool_call_id": "call_Ab2", "content": "cents: Field required"},
    ]


@pytest.mark.parametrize("number", [0, 1, 3])
def test_another_number_of_answers_is_refused(number: int) -> None:
    with pytest.raises(WrongAnswers, match=f"asks for 2 calls and {number} answers"):
        openai_chat.answers(REPLY, [Answer("x")] * number)


def test_an_error_is_never_answered_with_nothing() -> None:
    answers = openai_chat.answers(REPLY, [Answer(""), Answer(" ", error=True)])
    assert [answer["content"] for answer in answers] == ["", "The call failed and gave no reason."]


def test_a_reply_without_calls_is_text() -> None:
    final = REPLY | {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Charged."}}]}
    assert openai_chat.calls(final) == []
    assert openai_chat.answers(final, []) == []
    assert openai_chat.text(final) == "Charged."
    refused = {"role": "assistant", "content": None, "refusal": "I cannot."}
    assert openai_chat.text(refused) == "I cannot."
    assert openai_chat.text(REPLY) == ""


def test_text_in_parts_is_read_too() -> None:
    parts = {"role": "assistant", "content": [{"type": "text", "text": "Char"}, {"type": "text", "text": "ged."}]}
    assert openai_chat.text(parts) == "Charged."


def test_a_custom_tool_call_is_asked_by_its_name() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    assert openai_chat.calls({"role": "assistant", "tool_calls": [call]}) == [Asked("call_1", "shell", "ls")]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({}, "no list 'choices', but nothing"),
        ({"choices": []}, "no message"),
        ({"choices": [{"delta": {}}]}, "no message"),
        ({"content": [], "type": "message"}, "no list 'choices', but content, type"),
        ({"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "x"}}]}, "no id or name"),
        ({"role": "assistant", "tool_calls": ["x"]}, "no list 'tool_calls'"),
    ],
)
def test_what_is_no_reply_of_this_dialect_is_refused(reply: dict[str, Any], words: str) -> None:
    with pytest.raises(UnreadableReply, match=words):
        openai_chat.calls(reply)


def test_news_is_a_message_of_the_user() -> None:
    assert openai_chat.news("It is done.") == user("It is done.") == {"role": "user", "content": "It is done."}


def test_a_reply_of_another_kind_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match=r"the client's object \(pydantic\) or its JSON as a mapping, not str"):
        plain("Charged.")
