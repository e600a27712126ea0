"""OpenAI's responses: golden replies in, golden items out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from deedbox.chat import Answer, Asked, openai_responses, plain, user
from deedbox.effects import provider_key
from deedbox.errors import UnreadableReply, WrongAnswers
from deedbox.tool import Tool


class Charge(BaseModel):
    """Charge the customer's default card."""

    customer: str
    cents: int


class Receipt(BaseModel):
    id: str


charge = Tool("charge_customer", args=Charge, result=Receipt, effect=provider_key(timedelta(hours=24)))

REASONING: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Two charges."}],
    "encrypted_content": "gAAAAB",
}
FIRST: dict[str, Any] = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "charge_customer",
    "arguments": '{"customer":"cus_1","cents":4900}',
}
SECOND = FIRST | {"id": "fc_2", "call_id": "call_2", "arguments": '{"customer":"cus_2","cents":100}'}
SAID: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [
        {"type": "output_text", "text": "Charging ", "annotations": [], "logprobs": []},
        {"type": "output_text", "text": "both.", "annotations": [], "logprobs": []},
    ],
}
REPLY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1764500000.0,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-test",
    "output": [REASONING, SAID, FIRST, SECOND],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def test_a_request_offers_the_tools_and_always_says_whether_they_are_strict() -> None:
    assert openai_responses.tools([charge]) == [
        {
            "type": "function",
            "name": "charge_customer",
            "description": "Charge the customer's default card.",
            "parameters": {
                "type": "object",
                "properties": {"customer": {"type": "string"}, "cents": {"type": "integer"}},
                "required": ["customer", "cents"],
            },
            "strict": False,
        }
    ]


def test_the_clients_reply_is_kept_word_for_word() -> None:
    assert plain(Response.construct(**REPLY)) == REPLY


def test_parallel_calls_come_in_the_replys_order() -> None:
    assert openai_responses.calls(REPLY) == [
        Asked("call_1", "charge_customer", '{"customer":"cus_1","cents":4900}'),
        Asked("call_2", "charge_customer", '{"customer":"cus_2","cents":100}'),
    ]


def test_every_item_goes_back_reasoning_included() -> None:
    assert openai_responses.said(REPLY) == [REASONING, SAID, FIRST, SECOND]


def test_a_parsed_reply_is_sent_back_without_what_the_client_added() -> None:
    message = SAID | {"content": [part | {"parsed": None} for part in SAID["content"]]}
    parsed = REPLY | {"output": [REASONING, message, FIRST | {"parsed_arguments": {"cents": 1}}]}
    assert openai_responses.said(parsed) == [REASONING, SAID, FIRST]


def test_each_call_gets_one_answer_and_all_come_together() -> None:
    assert openai_responses.answers(REPLY, [Answer('{"id":"ch_1"}'), Answer("", error=True)]) == [
        {"type": "function_call_output", "call_id": "call_1", "output": '{"id":"ch_1"}'},
        {"type": "function_call_output", "call_id": "call_2", "output": "The call failed and gave no reason."},
    ]
    with pytest.raises(WrongAnswers, match="asks for 2 calls and 1 answers"):
        openai_responses.answers(REPLY, [Answer("x")])


def test_text_is_what_the_messages_say() -> None:
    assert openai_responses.text(REPLY) == "Charging both."
    refusal = SAID | {"content": [{"type": "refusal", "refusal": "I cannot."}]}
    assert openai_responses.text(REPLY | {"output": [refusal]}) == "I cannot."
    assert openai_responses.text(REPLY | {"output": []}) == ""


def test_a_reply_without_calls_needs_no_answers() -> None:
    assert openai_responses.answers(REPLY | {"output": [SAID]}, []) == []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({}, "no list 'output', but nothing"),
        ({"choices": []}, "no list 'output', but choices"),
        ({"output": [{"type": "function_call", "id": "fc_1"}]}, "no call_id or name"),
    ],
)
def test_what_is_no_reply_of_this_dialect_is_refused(reply: dict[str, Any], words: str) -> None:
    with pytest.raises(UnreadableReply, match=words):
        openai_responses.calls(reply)


def test_news_is_a_message_of_the_user() -> None:
    assert openai_responses.news("It is done.") == user("It is done.")
