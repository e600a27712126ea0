"""OpenAI's responses: a reply is a list of items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deedbox.chat.dialect import Answer, Asked, Chat, Json, listed, paired, user, without
from deedbox.errors import UnreadableReply
from deedbox.tool import Tool

NAME = "openai responses"


def tools(tools: Iterable[Tool[..., Any, Any]]) -> list[Json]:
    """The request's `tools`; strict is always said, because here it is on unless switched off."""
    return [
        {
            "type": "function",
            "name": tool.title,
            "description": tool.description,
            "parameters": tool.json_schema,
            "strict": tool.strict,
        }
        for tool in tools
    ]


def calls(reply: Json) -> list[Asked]:
    """The function calls among the items; raises UnreadableReply."""
    return [_asked(item) for item in said(reply) if item.get("type") == "function_call"]


def said(reply: Json) -> list[Json]:
    """All items, reasoning included: a call is refused without the reasoning that led to it."""
    return [_unparsed(item) for item in listed(NAME, reply, "output")]


def answers(reply: Json, answers: Sequence[Answer]) -> list[Json]:
    """One output item for each call; raises WrongAnswers."""
    return [
        {"type": "function_call_output", "call_id": asked.id, "output": answer.words}
        for asked, answer in paired(calls(reply), answers)
    ]


def text(reply: Json) -> str:
    """What the messages among the items say, or why they would not."""
    parts = [part for item in said(reply) if item.get("type") == "message" for part in item.get("content") or ()]
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _unparsed(item: Json) -> Json:
    if item.get("type") == "message":
        return item | {"content": [without(part, "parsed") for part in item.get("content") or ()]}
    return without(item, "parsed_arguments")


def _asked(item: Json) -> Asked:
    if "call_id" not in item or "name" not in item:
        raise UnreadableReply(dialect=NAME, why=f"a function call has no call_id or name: {item}")
    return Asked(item["call_id"], item["name"], item.get("arguments", ""))


openai_responses: Chat = Chat(NAME, tools, calls, said, answers, text, user)
