"""Workers under test: what they are given to do, what they did, and a source that a test speaks for."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from deedbox import Call, Deedbox, Run, Tool, user
from deedbox.errors import Unsettled
from deedbox_consumers import Attempt, DidNotHappen, Handlers, Happened, Limits, Probed
from deedbox_consumers.lane import Lanes
from deedbox_consumers.record import Record
from tests.support.shop import (
    Charge,
    Lookup,
    Mail,
    Order,
    Receipt,
    charge,
    lookup,
    mail,
    payout,
    refund,
    ship,
    wire,
)

PATIENCE = 60.0  # seconds: a bound on each wait, met only when something is broken

_runs = itertools.count()


def wait_until(happened: Callable[[], object], patience: float = PATIENCE) -> None:
    """Look again and again until it has happened."""
    deadline = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@dataclass
class Provider:
    """What the handlers of the shop did: each request's idempotency key, in order. `on` replaces what they do."""

    requests: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    on: dict[str, Callable[[Any, Attempt], Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def effects(self) -> Counter[str]:
        """How often each key was asked for."""
        return Counter(self.requests)

    def note(self, tool: str, args: Any, attempt: Attempt) -> Any:
        """Take a request; the replacement's answer, if there is one."""
        with self.lock:
            self.requests.append(attempt.key)
            self.attempts.append(attempt)
        return self.on[tool](args, attempt) if tool in self.on else None

    def handlers(self) -> Handlers:
        """Handlers for the shop's tools: an async one, a sync one, and one in order."""
        handlers = Handlers()

        @handlers.handle(charge)
        async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
            answer = self.note(charge.name, args, attempt)
            if hasattr(answer, "__await__"):
                answer = await answer
            return answer or Receipt(id=f"ch_{args.cents}")

        @handlers.handle(lookup)
        def read_order(args: Lookup, attempt: Attempt) -> Order:
            return self.note(lookup.name, args, attempt) or Order(status="paid")

        @handlers.handle(mail)
        async def send_mail(args: Mail, attempt: Attempt) -> Receipt:
            answer = self.note(mail.name, args, attempt)
            if hasattr(answer, "__await__"):
                answer = await answer
            return answer or Receipt(id=args.text)

        return handlers

    def money(self, **limits: Limits) -> Handlers:
        """Handlers for the tools with the other effects, and their probes: `on[tool + "?"]` replaces what one says."""
        handlers = Handlers()

        def perform(tool: Tool[..., Any, Receipt]) -> None:
            @handlers.handle(tool, limits=limits.get(tool.name))
            async def do(args: Any, attempt: Attempt) -> Receipt:
                answer = self.note(tool.name, args, attempt)
                if hasattr(answer, "__await__"):
                    answer = await answer
                return answer or Receipt(id=attempt.key)

        def ask(tool: Tool[..., Any, Receipt]) -> None:
            @handlers.probe(tool)
            def happened(args: Any, attempt: Attempt) -> Probed[Receipt]:
                with self.lock:
                    self.probes.append(attempt.key)
                if (said := self.on.get(f"{tool.name}?")) is not None:
                    return said(args, attempt)  # type: ignore[no-any-return] # the test's own word
                return Happened(Receipt(id=attempt.key)) if attempt.key in self.effects else DidNotHappen()

        for tool in (wire, refund, payout, ship):
            perform(tool)
        for tool in (refund, payout):
            ask(tool)
        return handlers


def decide(box: Deedbox, *calls: Call[Any, Any]) -> Run:
    """A new run with one decision: these calls."""
    run = box.run(f"run-{time.time_ns()}-{next(_runs)}", messages=[user("go")])
    for turn in run:
        with turn.transaction(calls=calls):
            pass
        break
    return run


def outcomes(box: Deedbox, run: Run, patience: float = PATIENCE) -> list[str]:
    """The status of each call of the run, once none is open; in doubt counts as an end."""
    deadline = time.monotonic() + patience
    while True:
        try:
            run.settle()
        except Unsettled as problem:
            if problem.status == "in_doubt":
                return [call.status for call in run.journal.calls.values()]
            raise
        if not run.journal.open:
            return [call.status for call in run.journal.calls.values()]
        assert time.monotonic() < deadline, "it is still open"


def status(conn: psycopg.Connection, run: Run, call: int = 0) -> tuple[str, int, bool]:
    """Status, attempt and unsettled of one call of the run's first decision."""
    row = conn.execute(
        "SELECT o.status, o.attempt, o.unsettled FROM action a JOIN outcome o ON o.action_id = a.id WHERE a.key = %s",
        [f"{run.id}:1:{call}"],
    ).fetchone()
    assert row is not None
    return row


def ids(conn: psycopg.Connection, run: Run) -> list[UUID]:
    """The ids of the calls of the run's first decision."""
    return [row[0] for row in conn.execute("SELECT id FROM action WHERE run_id = %s ORDER BY call", [run.id])]


class Spoken:
    """A source that brings what the test says."""

    def __init__(self) -> None:
        self.answered: list[UUID] = []
        self.aside: list[tuple[UUID, str]] = []
        self.lanes: Lanes | None = None
        self._call_in_loop: Callable[..., object] = lambda *_: None

    async def open(self, lanes: Lanes) -> None:
        import asyncio

        self.lanes = lanes
        self._call_in_loop = asyncio.get_running_loop().call_soon_threadsafe

    def bring(self, record: Record) -> None:
        """Put a record into its lane, from the test's thread."""
        assert self.lanes is not None
        self._call_in_loop(self.lanes.put, record)

    def done(self, record: Record) -> None:
        self.answered.append(record.id)

    async def set_aside(self, record: Record, reason: str) -> None:
        self.aside.append((record.id, reason))

    def received_through(self) -> Mapping[str, datetime]:
        return {}

    def hold(self) -> None:
        pass

    async def close(self) -> None:
        pass
