"""What is benchmarked: one tool with arguments of 300 bytes, and a handler that does nothing but look at the clock."""

from __future__ import annotations

import json
import random
import time
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from deedbox import Tool, provider_key
from deedbox_consumers import Attempt, Handlers

ARGS_SIZE = 300  # bytes of the arguments as JSON
# Text that compresses as text does: a reply of more than 2 kB is compressed by Postgres.
_WORDS = (
    "invoice order customer refund partial shipment address confirmed delayed warehouse quantity discount approved "
    "reference statement balance overdue reminder contract renewal monthly annual upgrade seat licence usage credit"
)
_random = random.Random(8812)  # noqa: S311 - the same load in every run


class Charge(BaseModel):
    """Charge the customer's default card."""

    customer: str
    cents: int
    memo: str


class Receipt(BaseModel):
    """What the handler saw: nanoseconds since 1970 when it was called."""

    at: int


charge = Tool("charge_customer", args=Charge, result=Receipt, effect=provider_key(timedelta(hours=24)))
handlers = Handlers()


@handlers.handle(charge)
async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
    """Take the effect: none."""
    del args, attempt
    return Receipt(at=time.time_ns())


def arguments(number: int) -> dict[str, Any]:
    """Arguments of ARGS_SIZE bytes, other ones for each number."""
    made = {"customer": f"cus_{number:08d}", "cents": 100 + number % 90_000, "memo": ""}
    room = ARGS_SIZE - len(json.dumps(made, separators=(",", ":")))
    made["memo"] = " ".join(_random.choices(_WORDS.split(), k=room // 4))[:room]
    return made


def reply(numbers: range) -> dict[str, Any]:
    """A model's reply (OpenAI chat) that asks for one call per number."""
    wanted = [
        {
            "id": f"call_{number:024d}",
            "type": "function",
            "function": {"name": charge.title, "arguments": json.dumps(arguments(number))},
        }
        for number in numbers
    ]
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": wanted}}]}
