"""Lanes: records of one order key one after the other, keys beside each other."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING

from deedbox_consumers.clock import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from deedbox_consumers.record import Record

    Key = tuple[str, str, bool]

ROOM_BYTES = 64 * 2**20  # of the arguments of one tool's records: they may be large, and thousands wait


class Lane:
    """The records of one order key; the first is at work, and claimed or blocked since a moment, or (None) neither."""

    __slots__ = ("records", "since")

    def __init__(self, record: Record) -> None:
        self.records: deque[Record] = deque((record,))
        self.since: float | None = None


class Lanes:
    """All that this worker has received and not finished.

    `work` takes one record to its end, and says when its call is claimed: another record of the call is then no longer
    one too many; and, with another word, when it is blocked by what the ledger has before it, to hear whether an older
    one waits behind it, which may be just that. It is called for the next record of a key when the one before is at its
    end.
    `fail` is told what a lane could not cope with, which is the end of the worker. `room` is how many records of one
    tool, and `room_bytes` how much of them, are taken before its source rests: one that is paused stops no other.
    """

    def __init__(
        self,
        work: Callable[[Record, Callable[[], object], Callable[[], bool]], Awaitable[None]],
        fail: Callable[[BaseException], None],
        room: int = 4000,
        room_bytes: int = ROOM_BYTES,
    ) -> None:
        self._work = work
        self._waiting: dict[UUID, Record] = {}
        self._fail = fail
        self._room = room
        self._room_bytes = room_bytes
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._lanes: dict[Key, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return self._counts.total()

    def __contains__(self, id_: UUID) -> bool:
        """Whether a record of this call waits; one whose call is claimed does not any more."""
        return id_ in self._waiting

    def waiting(self, id_: UUID) -> Record | None:
        """The record of this call that waits, if one does."""
        return self._waiting.get(id_)

    def full(self, tool: str, resting: bool = False) -> bool:
        """Whether the source of a tool is to rest: from the room's end until half of it is free again."""
        part = 2 if resting else 1
        return self._counts[tool] > self._room // part or self._bytes[tool] > self._room_bytes // part

    def put(self, record: Record) -> None:
        """Append a record to its lane, unless its call waits in one already or no more are taken."""
        if self._closed or record.id in self._waiting:
            return
        self._waiting[record.id] = record
        self._counts[record.tool] += 1
        self._bytes[record.tool] += len(record.payload)
        key = _key(record)
        if (lane := self._lanes.get(key)) is not None:
            lane.records.append(record)
        else:
            lane = self._lanes[key] = Lane(record)
            task = asyncio.get_running_loop().create_task(self._run(key, lane))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, key, lane))

    def stuck(self, tool: str, patience: float) -> list[tuple[Record, list[Record]]]:
        """The tool's calls that are claimed or blocked for more than `patience` seconds, and what waits behind each."""
        since = now() - patience
        return [
            (lane.records[0], list(lane.records)[1:])
            for (name, *_), lane in self._lanes.items()
            if name == tool and lane.since is not None and lane.since < since
        ]

    def depth(self, tool: str, order_key: str) -> int:
        """How many records that the ledger brought are in the lane of this key."""
        lane = self._lanes.get((tool, order_key, True))
        return len(lane.records) if lane is not None else 0

    def drop(self, unwanted: Callable[[Record], bool]) -> list[Record]:
        """Forget waiting records, and say which. The first of each lane ends by itself: it may be claimed just now."""
        dropped = []
        for lane in self._lanes.values():
            first, *waiting = lane.records
            lane.records = deque((first,))
            for record in waiting:
                if unwanted(record):
                    self._forget(record)
                    dropped.append(record)
                else:
                    lane.records.append(record)
        return dropped

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

    async def _run(self, key: Key, lane: Lane) -> None:
        while lane.records:
            first = lane.records[0]
            await self._work(first, partial(self._claimed, lane, first), partial(self._blocked, lane))
            lane.since = None
            self._forget(lane.records.popleft())
        del self._lanes[key]

    def _claimed(self, lane: Lane, record: Record) -> None:
        self._blocked(lane)
        self._waits_no_more(record)

    def _blocked(self, lane: Lane) -> bool:
        if lane.since is None:
            lane.since = now()
        first = lane.records[0].id
        return any(record.id < first for record in lane.records)

    def _waits_no_more(self, record: Record) -> None:
        if self._waiting.get(record.id) is record:
            del self._waiting[record.id]

    def _forget(self, record: Record) -> None:
        self._waits_no_more(record)
        self._counts[record.tool] -= 1
        self._bytes[record.tool] -= len(record.payload)

    def _ended(self, key: Key, lane: Lane, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if lane.records:  # cut off, perhaps before it began
            del self._lanes[key]
            for record in lane.records:
                self._forget(record)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fail(problem)


def _key(record: Record) -> Key:
    """What the ledger brings stands beside what the source brings: it may be what that waits for."""
    return record.tool, record.order_key, record.place is None
