"""What is benchmarked: tools with arguments of 300 bytes.

The handler of `charge` does nothing but look at the clock. Those of the slow tools last as long as a call says, and
note each performing.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from deedbox import Tool, provider_key, unrepeatable
from deedbox_consumers import Attempt, Handlers

if TYPE_CHECKING:
    from typing import TypeAlias

    from deedbox import Call

    SlowCall: TypeAlias = "Call[Slow, Receipt]"

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


class Slow(Charge):
    """Charge by a provider that takes its time."""

    seconds: float
    until: str  # lasts until there is such a file; empty: no longer than `seconds`
    books: str  # a line for each performing goes there; empty: none


class Receipt(BaseModel):
    """What the handler saw: nanoseconds since 1970 when it was called."""

    at: int


DAY = timedelta(hours=24)
SLOW = timedelta(minutes=20)  # the deadline of an attempt: longer than any measure
LOOK_EVERY = 0.2  # seconds between two looks for the file; hundreds of calls look

charge = Tool("charge_customer", args=Charge, result=Receipt, effect=provider_key(DAY))
settle = Tool("settle_invoice", args=Slow, result=Receipt, effect=provider_key(DAY), deadline=SLOW)
ship = Tool("ship_parcel", args=Slow, result=Receipt, effect=provider_key(DAY), deadline=SLOW, order_by="customer")
wire = Tool("wire_money", args=Slow, result=Receipt, effect=unrepeatable, deadline=SLOW)
handlers = Handlers()


@handlers.handle(charge)
async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
    """Take the effect: none."""
    del args, attempt
    return Receipt(at=time.time_ns())


@handlers.handle(settle)
@handlers.handle(ship)
@handlers.handle(wire)
async def take_time(args: Slow, attempt: Attempt) -> Receipt:
    """Take the effect: a line in the books, at once. Then last."""
    if args.books:
        note(Path(args.books), attempt)
    await asyncio.sleep(args.seconds)
    while args.until and not is_there(args.until):  # noqa: ASYNC110 - the event is another process's
        await asyncio.sleep(LOOK_EVERY)
    return Receipt(at=time.time_ns())


def note(books: Path, attempt: Attempt) -> None:
    """Write that this attempt performs its call."""
    with books.open("a", encoding="utf-8") as file:  # in append mode a short line is whole, whoever else writes
        file.write(f"{attempt.call}\n")


def is_there(file: str) -> bool:
    """Whether there is such a file: a microsecond, so no thread is asked."""
    return Path(file).exists()


def arguments(number: int, **more: Any) -> dict[str, Any]:
    """Arguments of ARGS_SIZE bytes, other ones for each number."""
    made = {"customer": f"cus_{number:08d}", "cents": 100 + number % 90_000, "memo": ""} | more
    room = ARGS_SIZE - len(json.dumps(made, separators=(",", ":")))
    made["memo"] = " ".join(_random.choices(_WORDS.split(), k=room // 4))[:room]
    return made


def slow_call(
    tool: Tool[..., Slow, Receipt], number: int, *, seconds: float = 0.0, until: str = "", books: str = "", **more: Any
) -> SlowCall:
    """A call of a slow tool, of ARGS_SIZE bytes like the others."""
    return tool.call(Slow(**arguments(number, seconds=seconds, until=until, books=books, **more)))


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
