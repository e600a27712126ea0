"""OpenAI's chat completions, and everybody who speaks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deedbox.chat.dialect import Answer, Asked, Chat, Json, listed, paired, user, without
from deedbox.errors import UnreadableReply
from deedbox.tool import Tool

NAME = "openai chat"


def tools(tools: Iterable[Tool[..., Any, Any]]) -> list[Json]:
    """The request's `tools`."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def calls(reply: Json) -> list[Asked]:
    """The tool calls of the first choice; raises UnreadableReply."""
    message = _message(reply)
    return [_asked(call) for call in listed(NAME, message, "tool_calls")] if message.get("tool_calls") else []


def said(reply: Json) -> list[Json]:
    """The assistant's message whole: some providers refuse a history without its reasoning_content."""
    message = without(_message(reply), "parsed")
    if not message.get("tool_calls"):
        return [message]
    return [message | {"tool_calls": [_unparsed(call) for call in message["tool_calls"]]}]


def answers(reply: Json, answers: Sequence[Answer]) -> list[Json]:
    """One tool message for each call; raises WrongAnswers."""
    return [
        {"role": "tool", "tool_call_id": asked.id, "content": answer.words}
        for asked, answer in paired(calls(reply), answers)
    ]


def text(reply: Json) -> str:
    """What the assistant said, or why it would not."""
    message = _message(reply)
    content = message.get("content") or message.get("refusal") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _function(tool: Tool[..., Any, Any]) -> Json:
    function = {"name": tool.title, "description": tool.description, "parameters": tool.json_schema}
    return function | ({"strict": True} if tool.strict else {})


def _message(reply: Json) -> Json:
    if reply.get("role") == "assistant":
        return reply
    message = next((choice.get("message") for choice in listed(NAME, reply, "choices")), None)
    if not isinstance(message, dict):
        raise UnreadableReply(dialect=NAME, why="its first choice has no message")
    return message


def _unparsed(call: Json) -> Json:
    return call | {"function": without(call["function"], "parsed_arguments")} if "function" in call else call


def _asked(call: Json) -> Asked:
    body = call.get(call.get("type") or "function")
    if not isinstance(body, dict) or "id" not in call or "name" not in body:
        raise UnreadableReply(dialect=NAME, why=f"a tool call has no id or name: {call}")
    return Asked(call["id"], body["name"], body.get("arguments") or body.get("input") or "")


openai_chat: Chat = Chat(NAME, tools, calls, said, answers, text, user)
