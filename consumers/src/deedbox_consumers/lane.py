"""Lanes: records of one order key one after the other, keys beside each other."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from deedbox_consumers.record import Record

    Key = tuple[str, str]


class Lanes:
    """All that this worker has received and not finished.

    `work` takes one record to its end, and says when its call is claimed: another record of the call is then no longer
    one too many. It is called for the next record of a key when the one before is at its end.
    `fail` is told what a lane could not cope with, which is the end of the worker. `room` is how many records of one
    tool are taken before its source rests: one that is blocked or paused stops no other.
    """

    def __init__(
        self,
        work: Callable[[Record, Callable[[], object]], Awaitable[None]],
        fail: Callable[[BaseException], None],
        room: int = 4000,
    ) -> None:
        self._work = work
        self._waiting: dict[UUID, Record] = {}
        self._fail = fail
        self._room = room
        self._counts: Counter[str] = Counter()
        self._lanes: dict[Key, deque[Record]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return self._counts.total()

    def __contains__(self, id_: UUID) -> bool:
        """Whether a record of this call waits; one whose call is claimed does not any more."""
        return id_ in self._waiting

    def full(self, tool: str, resting: bool = False) -> bool:
        """Whether the source of a tool is to rest: from the room's end until half of it is free again."""
        return self._counts[tool] > (self._room // 2 if resting else self._room)

    def put(self, record: Record) -> None:
        """Append a record to its lane, unless its call waits in one already or no more are taken."""
        if self._closed or record.id in self._waiting:
            return
        self._waiting[record.id] = record
        self._counts[record.tool] += 1
        key = record.tool, record.order_key
        if (lane := self._lanes.get(key)) is not None:
            lane.append(record)
        else:
            lane = self._lanes[key] = deque((record,))
            task = asyncio.get_running_loop().create_task(self._run(key, lane))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, key, lane))

    def drop(self, unwanted: Callable[[Record], bool]) -> None:
        """Forget waiting records. The first of each lane is left to end by itself: its claim may be under way."""
        for lane in self._lanes.values():
            first, *waiting = lane
            lane.clear()
            lane.append(first)
            for record in waiting:
                if unwanted(record):
                    self._forget(record)
                else:
                    lane.append(record)

    def close(self) -> None:
        """Take no more, and forget what waits."""
        self._closed = True
        self.drop(lambda _: True)

    async def settle(self, patience: float) -> bool:
        """Wait at most `patience` seconds until every lane is empty; False: some are not."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
        return not self._tasks

    def cancel(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, key: Key, lane: deque[Record]) -> None:
        while lane:
            await self._work(lane[0], partial(self._claimed, lane[0]))
            self._forget(lane.popleft())
        del self._lanes[key]

    def _claimed(self, record: Record) -> None:
        if self._waiting.get(record.id) is record:
            del self._waiting[record.id]

    def _forget(self, record: Record) -> None:
        self._claimed(record)
        self._counts[record.tool] -= 1

    def _ended(self, key: Key, lane: deque[Record], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if lane:  # cut off, perhaps before it began
            del self._lanes[key]
            for record in lane:
                self._forget(record)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fail(problem)
