"""Lanes that do not get on: what waits behind a call that takes long, or is blocked, is left to the ledger until then.

Else one order key could fill the room of its tool and stop all others, and its offsets would hold back what is
committed, and what the ledger hears of how far its workers have come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.ledger import Ledger
    from deedbox_consumers.record import Record
    from deedbox_consumers.source import Source

    Key = tuple[str, str]

EVERY = 1.0  # seconds
LONG = 60.0  # seconds that a call may take, or be blocked, before those behind it are let go
SHORT_OF_ROOM = 5.0  # the same, while less than half of its tool's room is free; then one that is blocked goes, too
AT_ONCE = 100  # records of a key: their arguments are read with them
REMEMBERED = 100_000  # calls; if there are more, the sweep brings them one by one


class Jam:
    """The calls that were let go, by order key: fetched when it gets on; the sweep has them, too, one by one.

    `hurry` is told of a record whose lane is not to wait any longer, should it be blocked.
    """

    def __init__(
        self,
        ledger: Ledger,
        lanes: Lanes,
        source: Source,
        tools: Sequence[str],
        hurry: Callable[[Record], object] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._lanes = lanes
        self._source = source
        self._tools = tools
        self._hurry = hurry
        self._let_go: dict[Key, deque[UUID]] = {}
        self._behind: dict[Key, Record] = {}  # the call for which they were let go

    async def relieve(self) -> None:
        """Look each second, for ever, for lanes that do not get on, and for those that do again."""
        while True:
            await asyncio.sleep(EVERY)
            for tool in self._tools:
                short = self._lanes.full(tool, resting=True)
                for first, behind in self._lanes.stuck(tool, SHORT_OF_ROOM if short else LONG):
                    if short:
                        self._hurry(first)
                    await self._leave(first, behind)
            for key, first in list(self._behind.items()):
                if not self._lanes.is_first(first):
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
        if left and sum(map(len, self._let_go.values())) < REMEMBERED:
            key = first.tool, first.order_key
            # By id, that is by time: only roughly the order in which they were decided, which the claim sees to.
            self._let_go[key] = deque(sorted({*self._let_go.get(key, ()), *left}))
            self._behind[key] = first

    async def _fetch(self, tool: str, order_key: str) -> None:
        """Bring the next ones of a key that gets on, as long as few of them wait."""
        if self._lanes.full(tool) or self._lanes.depth(tool, order_key) >= AT_ONCE:
            return
        ids = self._let_go[tool, order_key]
        page = [ids.popleft() for _ in range(min(AT_ONCE, len(ids)))]
        found = {record.id: record for record in await self._ledger.records(page)}
        for record in (found[id_] for id_ in page if id_ in found):
            self._lanes.put(record)
        if not ids:
            del self._let_go[tool, order_key], self._behind[tool, order_key]


def _is_one_of(records: set[int], record: Record) -> bool:
    return id(record) in records
