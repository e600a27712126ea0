"""The shop: tools, scripted replies, and a ledger of its own in a schema of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql
from pydantic import BaseModel, Field

from deedbox import Call, Tool, probe, provider_key, repeatable, unrepeatable
from deedbox.migrate import migrate
from deedbox.registry import apply
from tests.support.hands import Hands

_numbers = itertools.count()


class Charge(BaseModel):
    """Charge the customer's default card."""

    customer: str
    cents: int = Field(gt=0, description="amount in cents")
    memo: str | None = None


class Receipt(BaseModel):
    id: str


class Lookup(BaseModel):
    """Read an order."""

    order: str


class Order(BaseModel):
    status: str


class Mail(BaseModel):
    """Send a mail; one after the other per address."""

    to: str
    text: str


charge = Tool("charge_customer", args=Charge, result=Receipt, effect=provider_key(timedelta(hours=24)))
lookup = Tool("read_order", args=Lookup, result=Order, effect=repeatable)
mail = Tool("send_mail", args=Mail, result=Receipt, effect=provider_key(timedelta(hours=1)), order_by="to")
TOOLS: list[Tool[..., Any, Any]] = [charge, lookup, mail]

# The other effects: what cannot be repeated, what can be asked about, and what has both a key and a probe.
wire = Tool("wire_money", args=Charge, result=Receipt, effect=unrepeatable)
refund = Tool("refund", args=Charge, result=Receipt, effect=probe())
payout = Tool("pay_out", args=Charge, result=Receipt, effect=provider_key(timedelta(hours=24)) | probe())
ship = Tool("ship", args=Mail, result=Receipt, effect=unrepeatable, order_by="to", order_stops=True)
MONEY: list[Tool[..., Any, Any]] = [wire, refund, payout, ship]


class Shop:
    """A migrated ledger with the tools applied."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema

    def connect(self) -> psycopg.Connection:
        """A connection in autocommit mode whose search path is the ledger."""
        options = f"-c search_path={self.schema}"
        return psycopg.connect(self.url, autocommit=True, options=options)

    def hands(self, *, lease: str = "20 s", tools: list[str] | None = None) -> Hands:
        """A worker in plain SQL."""
        return Hands(self.connect(), tools or [tool.name for tool in (*TOOLS, *MONEY)], lease)


@contextlib.contextmanager
def open_shop(url: str, *, keep: bool = False) -> Iterator[Shop]:
    """A shop in a new schema, dropped at the end."""
    schema = f"shop_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn, schema=schema)
        apply(conn, [*TOOLS, *MONEY], schema=schema)
        try:
            yield Shop(url, schema)
        finally:
            if not keep:
                conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
                conn.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(f"{schema}_outbox")))


def asks(*calls: Call[Any, Any] | tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A reply (OpenAI chat) that asks for these calls."""
    wanted = []
    for at, call in enumerate(calls):
        name, args = call if isinstance(call, tuple) else (call.tool.title, json.loads(call.stored))
        function = {"name": name, "arguments": json.dumps(args)}
        wanted.append({"id": f"call_{at}", "type": "function", "function": function})
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": wanted}}]}


def says(text: str) -> dict[str, Any]:
    """A reply that asks for nothing."""
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}
