"""Handlers of a worker process that is drained and asked for its health: files in $BUSY say when they go on.

Each request is a line in $BUSY/requests. What hangs waits for the file that its call names, beside the loop or (with
"block" in its name) in its way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from deedbox import signals
from deedbox_consumers import Attempt, CannotTell, Handlers, Limits, worker
from tests.support.shop import Charge, Lookup, Mail, Order, Receipt, charge, lookup, mail, payout, wire

FOLDER = Path(os.environ.get("BUSY", "."))
worker.LOOP_WITHIN = timedelta(seconds=2)  # so that nobody waits for the usual 30

handlers = Handlers()


def note(attempt: Attempt) -> None:
    """Take a request."""
    with (FOLDER / "requests").open("a") as requests:
        requests.write(f"{attempt.tool} {attempt.call}\n")


async def exists(name: str) -> None:
    """Wait until the test has made this file; an empty name is there."""
    while not (FOLDER / name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)


@handlers.handle(mail)
async def send_mail(args: Mail, attempt: Attempt) -> Receipt:
    """Wait for the file that the text names."""
    note(attempt)
    while "block" in args.text and not (FOLDER / args.text).exists():
        time.sleep(0.05)  # noqa: ASYNC251 - the mistake that is to be seen
    await exists(args.text)
    return Receipt(id=args.to)


@handlers.handle(charge, limits=Limits(rate=1, per=timedelta(hours=1)))
async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
    """One an hour."""
    note(attempt)
    return Receipt(id=str(args.cents))


@handlers.handle(wire, limits=Limits(concurrency=1))
async def wire_money(args: Charge, attempt: Attempt) -> Receipt:
    """One at a time."""
    note(attempt)
    await exists("wired")
    return Receipt(id=str(args.cents))


@handlers.handle(payout)
def pay_out(args: Charge, attempt: Attempt) -> Receipt:
    """In a thread, which waits for the file that the memo names."""
    note(attempt)
    while args.memo and not (FOLDER / args.memo).exists():
        time.sleep(0.05)
    return Receipt(id=str(args.cents))


@handlers.probe(payout)
def find(args: Charge, attempt: Attempt) -> CannotTell:
    """Never asked."""
    return CannotTell("nobody looked")


@handlers.handle(lookup)
async def read_order(args: Lookup, attempt: Attempt) -> Order:
    """From here on, the next claim finds this process told to end."""
    note(attempt)
    if args.order == "end with the next claim":
        signals.arm("before_claim", lambda: os.kill(os.getpid(), signal.SIGTERM))
    return Order(status="paid")
