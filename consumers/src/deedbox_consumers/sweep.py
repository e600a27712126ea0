"""The sweep's turns: every worker takes part, and takes up what is free for it without a way through Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg

from deedbox_consumers.session import is_transient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.ledger import Ledger

EVERY = 1.0  # seconds: how soon a due call or a dead worker is noticed


async def sweep(ledger: Ledger, lanes: Lanes, tools: Sequence[str]) -> None:
    """Take a turn each second, for ever; calls of `tools` that it sets free go straight into the lanes."""
    while True:
        try:
            swept = await ledger.sweep()
        except psycopg.Error as problem:
            if not is_transient(problem):
                raise
        else:
            free = [
                turn.id for turn in swept if turn.id is not None and turn.status == "pending" and turn.tool in tools
            ]
            if free:
                for record in await ledger.records(free):
                    lanes.put(record)
        await asyncio.sleep(EVERY)
