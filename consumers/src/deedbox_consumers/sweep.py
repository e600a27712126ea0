"""The sweep's turns: every worker takes part, and takes up what is free for it without a way through Kafka."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import psycopg

from deedbox_consumers import metrics
from deedbox_consumers.session import is_transient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.ledger import Ledger

log: logging.Logger = logging.getLogger("deedbox.worker")

TOLD = ("in_doubt", "gave_up")
EVERY = 1.0  # seconds: how soon a due call or a dead worker is noticed


async def sweep(ledger: Ledger, lanes: Lanes | None, tools: Sequence[str], note: Callable[[bool], object]) -> None:
    """Take a turn each second, for ever; calls of `tools` that it sets free go straight into the lanes.

    `note` is told of each turn, and whether it succeeded.
    """
    while True:
        try:
            swept = await ledger.sweep()
        except psycopg.Error as problem:
            if not is_transient(problem):
                raise
            note(False)
        else:
            for turn in swept:
                metrics.swept.labels(turn.duty).inc(int(turn.status or 0) if turn.duty == "pruned" else 1)
                if turn.tool is not None and turn.status in TOLD:
                    metrics.outcomes.labels(turn.tool, turn.status).inc()
                    log.error("A call of %s (%s) is %s: %s", turn.tool, turn.id, turn.status, turn.duty)
                if turn.duty == "found":
                    log.error("The full scan found a call that was forgotten: %s of %s", turn.id, turn.tool)
                elif turn.duty == "failed":
                    log.error("The sweep cannot judge the call %s of %s: %s", turn.id, turn.tool, turn.status)
            # Of a tool without room they come again: they were emitted, too.
            room = [tool for tool in tools if lanes is not None and not lanes.full(tool)]
            free = [turn.id for turn in swept if turn.id is not None and turn.status == "pending" and turn.tool in room]
            if free and lanes is not None:
                for record in await ledger.records(free):
                    lanes.put(record)
            note(True)
        await asyncio.sleep(EVERY)
