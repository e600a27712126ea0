"""The shop: its tool, the handler that performs it, and its orders."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import httpx2
import psycopg
from pydantic import BaseModel, Field

from deedbox import Tool, provider_key
from deedbox.statements import Statements
from deedbox_consumers.attempt import Attempt
from deedbox_consumers.demo import model
from deedbox_consumers.handlers import Handlers

SCHEMA = "shop"
OUTSIDE = "DEEDBOX_DEMO_OUTSIDE"  # environment: base URL of the provider and the model
PATIENCE = 10.0  # seconds for the provider and the model, which are on this machine

sql: Statements = Statements("deedbox_consumers.demo", "shop.sql", SCHEMA)


class Charge(BaseModel):
    """Charge the customer's default card for an order."""

    order: str
    customer: str
    cents: int = Field(gt=0, description="amount in cents")


class Receipt(BaseModel):
    """What the provider gives for a charge."""

    id: str
    cents: int


charge: Final = Tool(
    "charge_customer",
    args=Charge,
    result=Receipt,
    effect=provider_key(timedelta(hours=24)),
    deadline=timedelta(seconds=PATIENCE),
)
handlers: Handlers = Handlers()


@handlers.lifespan
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    """The connections to the provider."""
    async with httpx2.AsyncClient(base_url=os.environ[OUTSIDE]) as http:
        yield http


@handlers.handle(charge)
async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
    """Charge at the provider, under the attempt's key."""
    headers = {"Idempotency-Key": attempt.key}
    http: httpx2.AsyncClient = attempt.state
    reply = await http.post("/v1/charges", json=args.model_dump(), headers=headers, timeout=attempt.time_left)
    return Receipt.model_validate(reply.raise_for_status().json())


@dataclass(frozen=True)
class Order:
    """A row of the shop's own table."""

    id: str
    customer: str
    cents: int
    status: str
    steps: int

    @property
    def ask(self) -> str:
        """What the agent is told to do about it."""
        return model.ask(self.id, self.customer, self.cents)


def create_tables(conn: psycopg.Connection) -> None:
    """Create the shop's own tables; again and again without harm."""
    for name in ("create_schema", "create_orders", "create_saved"):
        conn.execute(sql[name])


def open_order(conn: psycopg.Connection, customer: str, cents: int) -> str:
    """A new order's id."""
    row = conn.execute(sql["open_order"], {"customer": customer, "cents": cents}).fetchone()
    assert row is not None
    return str(row[0])


def find_order(conn: psycopg.Connection, order_id: str) -> Order:
    """The order with this id."""
    row = conn.execute(sql["order"], {"id": order_id}).fetchone()
    assert row is not None, f"there is no {order_id}"
    return Order(*row)


def mark(conn: psycopg.Connection, order_id: str, status: str) -> None:
    """Set an order's status, and count the step."""
    conn.execute(sql["mark"], {"id": order_id, "status": status})


def think(http: httpx2.Client, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Ask the model for the next completion."""
    reply = http.post("/v1/chat/completions", json={"model": "scripted", "messages": messages, "tools": tools})
    found: dict[str, Any] = reply.raise_for_status().json()
    return found


def outside() -> httpx2.Client:
    """A client for the provider and the model."""
    return httpx2.Client(base_url=os.environ[OUTSIDE], timeout=PATIENCE)
