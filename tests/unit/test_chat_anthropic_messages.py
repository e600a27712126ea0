"""Anthropic's messages: golden replies in, golden messages out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from anthropic.types import Message
from pydantic import BaseModel, ConfigDict

from deedbox.chat import Answer, Asked, anthropic_chat, plain, user
from deedbox.effects import provider_key
from deedbox.errors import UnreadableReply, WrongAnswers
from deedbox.tool import Tool


class Charge(BaseModel):
    """Charge the customer's default card."""

    model_config = ConfigDict(extra="forbid")

    customer: str
    cents: int


class Receipt(BaseModel):
    id: str


charge = Tool("charge_customer", args=Charge, result=Receipt, effect=provider_key(timedelta(hours=24)))

CONTENT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Both asked for it.", "signature": "EqQBCkYIBx=="},
    {"type": "redacted_thinking", "data": "EmwKAhgB"},
    {"type": "text", "text": "Charging both.", "citations": None},
    {"type": "tool_use", "id": "toolu_1", "name": "charge_customer", "input": {"customer": "cus_1", "cents": 4900}},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "price"}},
    {"type": "tool_use", "id": "toolu_2", "name": "charge_customer", "input": {}},
]
REPLY: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test",
    "content": CONTENT,
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 57, "output_tokens": 40, "cache_read_input_tokens": 0},
}


def test_a_request_offers_the_tools() -> None:
    offer = {
        "name": "charge_customer",
        "description": "Charge the customer's default card.",
        "input_schema": {
            "type": "object",
            "properties": {"customer": {"type": "string"}, "cents": {"type": "integer"}},
            "required": ["customer", "cents"],
            "additionalProperties": False,
        },
    }
    assert anthropic_chat.tools([charge]) == [offer]
    strict = Tool("charge_customer", args=Charge, result=Receipt, effect=charge.effect, strict=True)
    assert anthropic_chat.tools([strict]) == [offer | {"strict": True}]


def test_the_clients_reply_is_kept_word_for_word() -> None:
    assert plain(Message.construct(**REPLY)) == REPLY


def test_parallel_calls_come_in_order_and_the_servers_own_are_not_ours() -> None:
    assert anthropic_chat.calls(REPLY) == [
        Asked("toolu_1", "charge_customer", {"customer": "cus_1", "cents": 4900}),
        Asked("toolu_2", "charge_customer", {}),
    ]


def test_every_block_goes_back_thinking_with_its_signature() -> None:
    assert anthropic_chat.said(REPLY) == [{"role": "assistant", "content": CONTENT}]


def test_a_parsed_reply_is_sent_back_without_what_the_client_added() -> None:
    content = [block | {"parsed_output": None} if block["type"] == "text" else block for block in CONTENT]
    assert anthropic_chat.said(REPLY | {"content": content}) == [{"role": "assistant", "content": CONTENT}]


def test_an_empty_turn_is_not_sent_back() -> None:
    assert anthropic_chat.said(REPLY | {"content": []}) == []


def test_all_answers_are_one_message_of_the_user() -> None:
    assert anthropic_chat.answers(REPLY, [Answer('{"id":"ch_1"}'), Answer("cents: Field required", error=True)]) == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"id":"ch_1"}'},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "cents: Field required",
                    "is_error": True,
                },
            ],
        }
    ]


def test_an_error_is_never_answered_with_nothing() -> None:
    (message,) = anthropic_chat.answers(REPLY, [Answer("x"), Answer("", error=True)])
    assert message["content"][1]["content"] == "The call failed and gave no reason."


@pytest.mark.parametrize("number", [0, 1, 3])
def test_another_number_of_answers_is_refused(number: int) -> None:
    with pytest.raises(WrongAnswers, match=f"asks for 2 calls and {number} answers"):
        anthropic_chat.answers(REPLY, [Answer("x")] * number)


def test_a_reply_without_calls_is_text() -> None:
    final = REPLY | {"content": [{"type": "text", "text": "Char"}, {"type": "text", "text": "ged."}]}
    assert anthropic_chat.calls(final) == []
    assert anthropic_chat.answers(final, []) == []
    assert anthropic_chat.text(final) == "Charged."


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"choices": []}, "no list 'content', but choices"),
        ({"content": "text"}, "no list 'content'"),
        ({"content": [{"type": "tool_use", "input": {}}]}, "no id or name"),
    ],
)
def test_what_is_no_reply_of_this_dialect_is_refused(reply: dict[str, Any], words: str) -> None:
    with pytest.raises(UnreadableReply, match=words):
        anthropic_chat.calls(reply)


def test_news_is_a_message_of_the_user() -> None:
    assert anthropic_chat.news("It is done.") == user("It is done.")
