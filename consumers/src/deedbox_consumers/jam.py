"""Lanes that do not get on: what waits behind a call that takes long is left to the ledger.

Else one order key could fill the room of its tool and stop all others, and its offsets would hold back what is
committed, and what the ledger hears of how far its workers have come. The finish of the call makes the next one due.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.ledger import Ledger
    from deedbox_consumers.record import Record
    from deedbox_consumers.source import Source

EVERY = 1.0  # seconds
# Seconds that a call may take before those behind it are let go. The sweep brings them back one by one, so a lane that
# gets on is better left alone.
LONG = 60.0
SHORT_OF_ROOM = 5.0  # the same, while less than half of its tool's room is free
AT_ONCE = 100  # records; their arguments are read with them


async def relieve(ledger: Ledger, lanes: Lanes, source: Source, tools: Sequence[str]) -> None:
    """Look each second, for ever, for lanes of these tools that do not get on, and let go of what waits in them."""
    while True:
        await asyncio.sleep(EVERY)
        for tool in tools:
            behind = lanes.behind(tool, SHORT_OF_ROOM if lanes.full(tool, resting=True) else LONG)
            for start in range(0, len(behind), AT_ONCE):
                await _let_go(ledger, lanes, source, behind[start : start + AT_ONCE])


async def _let_go(ledger: Ledger, lanes: Lanes, source: Source, behind: Sequence[Record]) -> None:
    """Let go of those whose rows can be read (I1): the others have nobody but their lane."""
    known = {record.id for record in await ledger.records([record.id for record in behind])}
    for id_ in known:
        await ledger.let_go(id_)
    let_go = {id(record) for record in behind if record.id in known}
    for record in lanes.drop(lambda record: id(record) in let_go):
        source.done(record)
