"""A worker in a process of its own that writes each request it makes into a file; tests kill and stop it.

Usage: python -m tests.support.performer URL SCHEMA FILE [LEASE_SECONDS] [stop_at=PLACE] [hang]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from deedbox import signals
from deedbox_consumers import Attempt, Handlers, Worker
from deedbox_consumers.cli.worker import serve
from tests.support.shop import Charge, Receipt, charge


def main(url: str, schema: str, file: str, lease: str = "20", *more: str) -> None:
    """Work until SIGTERM."""
    handlers = Handlers()

    def note(attempt: Attempt) -> None:
        with Path(file).open("a") as requests:
            requests.write(f"{os.getpid()} {attempt.number} {attempt.key}\n")

    @handlers.handle(charge)
    async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
        note(attempt)
        if "hang" in more:
            await asyncio.sleep(3600)
        return Receipt(id=f"ch_{args.cents}")

    for word in more:
        name, _, place = word.partition("=")
        if name == "stop_at":
            signals.arm(place, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    serve(Worker(None, handlers, database_url=url, schema=schema, lease=timedelta(seconds=float(lease))))


if __name__ == "__main__":
    main(*sys.argv[1:])
