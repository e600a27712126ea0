"""`deedbox sweep`: the sweep as a process of its own, for a box whose tools have no worker at the moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from deedbox.cli import show
from deedbox.cli.options import AsJson, DatabaseUrl, Schema
from deedbox.settings import Settings
from deedbox_consumers import sweep as turns
from deedbox_consumers.cli.worker import healthy
from deedbox_consumers.health import Progress
from deedbox_consumers.ledger import Ledger, Swept

WITHIN = timedelta(minutes=5)  # Postgres may be away for as long


def sweep(
    *,
    once: Annotated[bool, typer.Option("--once", help="Take one turn, print what it did, and end.")] = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    health_port: Annotated[int | None, typer.Option(help="Answer /livez and /metrics there.")] = None,
    json: AsJson = False,
) -> None:
    """Judge what dead workers left behind, and emit what is due. Every worker does that too; more of them do no harm.

    Tools without a worker need it: their due calls go out again, and what died with their workers is judged.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    settings = Settings.load(database_url, schema)
    ledger = Ledger(settings.need("database_url"), settings.schema)
    if not once:
        progress = Progress()
        progress.expect("sweep", WITHIN)
        with healthy(progress, health_port):
            asyncio.run(_for_ever(ledger, progress))
        return
    swept = asyncio.run(_turn(ledger))
    rows = [(turn.duty, turn.tool, turn.id, turn.status) for turn in swept]
    if json:
        show.as_json([dict(zip(("duty", "tool", "id", "status"), row, strict=True)) for row in rows])
    elif rows:
        show.table(["duty", "tool", "id", "status"], rows)
    else:
        show.line("Nothing was due, or another session sweeps at this moment.")


async def _turn(ledger: Ledger) -> list[Swept]:
    await ledger.open()
    try:
        await ledger.check(())
        return await ledger.sweep()
    finally:
        await ledger.close()


def _note(progress: Progress, succeeded: bool) -> None:
    """It has nothing else to do, so a turn that comes to nothing is no progress."""
    if succeeded:
        progress.note("sweep")


async def _for_ever(ledger: Ledger, progress: Progress) -> None:
    await ledger.open()
    try:
        await ledger.check(())
        task = asyncio.create_task(turns.sweep(ledger, None, (), partial(_note, progress)))
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await ledger.close()
