"""The source that needs only Postgres: it looks for pending calls, and is nudged by commits of its own process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from deedbox_consumers.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.ledger import Ledger
    from deedbox_consumers.record import Record

log: logging.Logger = logging.getLogger("deedbox.worker")

PAGE = 500  # calls read at once
WIDE = 2.0  # seconds between two looks at everything that is open
OVERLAP = 2000  # milliseconds: commits bring ids out of order by about as long as they take
ASIDE = 60.0  # seconds until a call that could not be read is looked at again: a newer worker may have come


class Poll:
    """Finds pending calls by a range of the primary key.

    Looking again begins a little before the newest id seen, since transactions commit in another order than they draw
    ids. What took longer than that, and what is parked, is found by a look at everything every two seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        tools: Sequence[str],
        every: timedelta,
        fail: Callable[[BaseException], None],
        note: Callable[[], object],
    ) -> None:
        self._ledger = ledger
        self._tools = tools
        self._every = every.total_seconds()
        self._fail = fail
        self._note = note
        self._nudged: list[UUID] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._newest: UUID | None = None
        self._aside: dict[UUID, float] = {}  # until when a call is left alone
        self._wide_at = 0.0

    async def open(self, lanes: Lanes) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(lanes))
        self._task.add_done_callback(self._ended)

    def nudge(self, ids: Iterable[UUID]) -> None:
        """These calls were committed just now. To be called in the worker's loop."""
        self._nudged += ids
        self._news.set()

    def done(self, record: Record) -> None:
        """Nothing to do: a claimed call is not pending."""

    async def set_aside(self, record: Record, reason: str) -> None:
        """Leave the call alone for a minute; its bytes are in the ledger."""
        log.error("Call %s of %s cannot be taken: %s", record.key, record.tool, reason)
        self._aside[record.id] = now() + ASIDE

    def received_through(self) -> Mapping[str, datetime]:
        """Nothing: no record is sent again to who looks into the ledger."""
        return {}

    def hold(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End."""
        self.hold()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, lanes: Lanes) -> None:
        while True:
            self._note()
            self._news.clear()
            more = await self._look(lanes, [tool for tool in self._tools if not lanes.full(tool)])
            # A full page has more behind it; lanes without room are looked at again soon.
            pause = min(self._every, 0.005) if more else self._every
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), pause)

    async def _look(self, lanes: Lanes, tools: Sequence[str]) -> bool:
        """Bring what is pending for the tools that have room; True: there is more."""
        if not tools:
            return True
        if self._nudged:
            ids, self._nudged = self._nudged[:PAGE], self._nudged[PAGE:]
            await self._bring(lanes, ids)
            return True
        if self._newest is None or now() >= self._wide_at:
            self._wide_at = now() + WIDE
            self._aside = {id_: until for id_, until in self._aside.items() if until > now()}
            await self._bring(lanes, await self._ledger.pending(tools, None, PAGE))
        if self._newest is None:
            return False
        start = _before(self._newest, OVERLAP)
        while not any(map(lanes.full, tools)):
            ids = await self._ledger.pending(tools, start, PAGE)
            await self._bring(lanes, ids)
            if len(ids) < PAGE:
                return False
            start = ids[-1]
        return True

    async def _bring(self, lanes: Lanes, ids: Sequence[UUID]) -> None:
        if ids:
            self._newest = max(ids) if self._newest is None else max(self._newest, *ids)
        new = [id_ for id_ in ids if id_ not in lanes and id_ not in self._aside]
        if new:
            for record in await self._ledger.records(new):
                if record.tool in self._tools:
                    lanes.put(record)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fail(problem)


def _before(id_: UUID, milliseconds: int) -> UUID:
    """The smallest id of a moment so much before an id was made: the first 48 bits are its time."""
    return UUID(int=max(0, (id_.int >> 80) - milliseconds) << 80)
