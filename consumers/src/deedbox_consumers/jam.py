"""Lanes that do not get on: what waits behind a call that takes long, or is blocked, is left to the ledger until then.

Else one order key could fill the room of its tool and stop all others, and its offsets would hold back what is
committed, and what the ledger hears of how far its workers have come.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.ledger import Ledger
    from deedbox_consumers.record import Record
    from deedbox_consumers.source import Source
    from deedbox_consumers.stuck import Stuck

EVERY = 1.0  # seconds
LONG = 60.0  # seconds that a call may take, or be blocked, before those behind it are let go
SHORT_OF_ROOM = 5.0  # the same, while less than half of its tool's room is free; then one that is blocked goes, too
AT_ONCE = 100  # records of a key: their arguments are read with them


class Jam:
    """Lets go of what waits, and fetches it when its key gets on; the sweep has it, too, one by one.

    What is let go is `stuck`: the desk adds to it, lets go of a first one that is blocked when its key is in there, and
    says which keys get on.
    """

    def __init__(self, ledger: Ledger, lanes: Lanes, source: Source, tools: Sequence[str], stuck: Stuck) -> None:
        self._ledger = ledger
        self._lanes = lanes
        self._source = source
        self._tools = tools
        self._stuck = stuck

    async def relieve(self) -> None:
        """Look each second, for ever, for lanes that do not get on, and for those that do again."""
        while True:
            await asyncio.sleep(EVERY)
            for tool in self._tools:
                short = self._lanes.full(tool, resting=True)
                for first, behind in self._lanes.stuck(tool, SHORT_OF_ROOM if short else LONG):
                    await self._leave(first, behind)
            for key in self._stuck.getting_on():
                await self._fetch(*key)

    async def _leave(self, first: Record, behind: Sequence[Record]) -> None:
        """Let go of those whose rows can be read (I1): the others have nobody but their lane."""
        left: list[UUID] = []
        for start in range(0, len(behind), AT_ONCE):
            page = behind[start : start + AT_ONCE]
            known = {record.id for record in await self._ledger.records([record.id for record in page])}
            await self._ledger.let_go(list(known))
            let_go = {id(record) for record in page if record.id in known}
            for record in self._lanes.drop(partial(_is_one_of, let_go)):
                self._source.done(record)
                left.append(record.id)
        if left or first.id in self._lanes:  # then it is blocked, and goes when it asks again
            self._stuck.leave((first.tool, first.order_key), left)

    async def _fetch(self, tool: str, order_key: str) -> None:
        """Bring the next ones of a key that gets on, as long as few of them wait."""
        if self._lanes.full(tool) or self._lanes.depth(tool, order_key) >= AT_ONCE:
            return
        page = self._stuck.take((tool, order_key), AT_ONCE)
        found = {record.id: record for record in await self._ledger.records(page)}
        for record in (found[id_] for id_ in page if id_ in found):
            self._lanes.put(record)


def _is_one_of(records: set[int], record: Record) -> bool:
    return id(record) in records
