"""Anthropic's messages: a reply is a list of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deedbox.chat.dialect import Answer, Asked, Chat, Json, listed, paired, user, without
from deedbox.errors import UnreadableReply
from deedbox.tool import Tool

NAME = "anthropic"


def tools(tools: Iterable[Tool[..., Any, Any]]) -> list[Json]:
    """The request's `tools`."""
    return [_tool(tool) for tool in tools]


def calls(reply: Json) -> list[Asked]:
    """The tool_use blocks, the server's own tools aside; raises UnreadableReply."""
    return [_asked(block) for block in listed(NAME, reply, "content") if block.get("type") == "tool_use"]


def said(reply: Json) -> list[Json]:
    """The blocks whole, thinking with its signature included; nothing for an empty turn, which may not be sent back."""
    content = [without(block, "parsed_output") for block in listed(NAME, reply, "content")]
    return [{"role": "assistant", "content": content}] if content else []


def answers(reply: Json, answers: Sequence[Answer]) -> list[Json]:
    """One user message with a tool_result for each call; raises WrongAnswers."""
    results = [_result(asked, answer) for asked, answer in paired(calls(reply), answers)]
    return [{"role": "user", "content": results}] if results else []


def text(reply: Json) -> str:
    """What the text blocks say."""
    return "".join(
        str(block.get("text", "")) for block in listed(NAME, reply, "content") if block.get("type") == "text"
    )


def _tool(tool: Tool[..., Any, Any]) -> Json:
    offer = {"name": tool.title, "description": tool.description, "input_schema": tool.json_schema}
    return offer | ({"strict": True} if tool.strict else {})


def _asked(block: Json) -> Asked:
    if "id" not in block or "name" not in block:
        raise UnreadableReply(dialect=NAME, why=f"a tool_use block has no id or name: {block}")
    return Asked(block["id"], block["name"], block.get("input") or {})


def _result(asked: Asked, answer: Answer) -> Json:
    result = {"type": "tool_result", "tool_use_id": asked.id, "content": answer.words}
    return result | ({"is_error": True} if answer.error else {})


anthropic_chat: Chat = Chat(NAME, tools, calls, said, answers, text, user)
