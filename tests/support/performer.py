"""A worker in a process of its own that writes each request it makes into a file; tests kill and stop it.

Usage: python -m tests.support.performer URL SCHEMA FILE [LEASE_SECONDS] [stop_at=PLACE] [die_then_at=PLACE] [hang]
       [kafka=ADDRESS]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from deedbox import signals
from deedbox_consumers import Attempt, Handlers, Worker
from deedbox_consumers.cli.worker import serve
from deedbox_consumers.source import feed
from tests.support.shop import Charge, Receipt, charge


def main(url: str, schema: str, file: str, lease: str = "20", *more: str) -> None:
    """Work until SIGTERM."""
    handlers = Handlers()
    then_die_at = ""

    def note(attempt: Attempt) -> None:
        with Path(file).open("a") as requests:
            requests.write(f"{os.getpid()} {attempt.number} {attempt.key}\n")

    @handlers.handle(charge)
    async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
        note(attempt)
        if then_die_at:
            signals.arm(then_die_at)
        if "hang" in more:
            await asyncio.sleep(3600)
        return Receipt(id=f"ch_{args.cents}")

    source: dict[str, Any] = {}
    for word in more:
        match word.partition("="):
            case "stop_at", _, place:
                signals.arm(place, lambda: os.kill(os.getpid(), signal.SIGSTOP))
            case "die_then_at", _, after:
                then_die_at = after
            case "kafka", _, address:
                feed.CONFIG["session.timeout.ms"] = 6_000  # the broker's least: until a killed member's records move
                source = {"source": "kafka", "kafka": address}
            case _:
                assert word == "hang", word
    serve(Worker(None, handlers, database_url=url, schema=schema, lease=timedelta(seconds=float(lease)), **source))


if __name__ == "__main__":
    main(*sys.argv[1:])
