"""A model that costs nothing: it speaks OpenAI's chat dialect and always decides the same."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

ASK = re.compile(r"Charge (?P<customer>\S+) (?P<units>\d+)\.(?P<hundredths>\d\d) for (?P<order>\S+)\.")


def ask(order: str, customer: str, cents: int) -> str:
    """What the demo's user says."""
    return f"Charge {customer} {cents // 100}.{cents % 100:02} for {order}."


def place(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """Which order a conversation is about, and the number of the completion that is due, from 1."""
    return _wish(messages)["order"], 1 + sum(message["role"] == "assistant" for message in messages)


def complete(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The completion that follows: the call that the user wants, then a closing word."""
    if messages[-1]["role"] == "user":
        call = {"name": "charge_customer", "arguments": json.dumps(_wish(messages))}
        asked = {"id": f"call_{secrets.token_hex(4)}", "type": "function", "function": call}
        message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [asked]}
    else:
        message = {"role": "assistant", "content": f"Done: {messages[-1]['content']}"}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if message["content"] is None else "stop"}
    return {"id": f"chatcmpl-{secrets.token_hex(6)}", "object": "chat.completion", "choices": [choice]}


def _wish(messages: list[dict[str, Any]]) -> dict[str, Any]:
    first = next(message["content"] for message in messages if message["role"] == "user")
    if not (wish := ASK.search(first)):
        raise ValueError(f"the scripted model knows one wish, {ask('order-1', 'cus_1', 4900)!r}, and heard {first!r}")
    cents = int(wish["units"]) * 100 + int(wish["hundredths"])
    return {"order": wish["order"], "customer": wish["customer"], "cents": cents}
