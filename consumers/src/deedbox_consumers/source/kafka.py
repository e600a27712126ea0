"""The source Kafka: one consumer per tool, each in the group of its tool.

A group per tool, and so a consumer and an owner thread per tool: workers that perform different sets of tools then
share a tool's partitions among exactly those that perform it, lag is per tool, and a rebalance of one tool stops no
other. One consumer for several topics would be one group for all of them, whatever each worker performs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from deedbox_consumers import metrics
from deedbox_consumers.source.feed import Complaints, Feed, config
from deedbox_consumers.source.heartbeat import Heartbeat
from deedbox_consumers.source.message import read

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
    from datetime import datetime
    from typing import Any
    from uuid import UUID

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.ledger import Ledger
    from deedbox_consumers.record import Place, Record

T = TypeVar("T")

log: logging.Logger = logging.getLogger("deedbox.kafka")

CLOSE_WITHIN = 10.0  # seconds for the last commit, for leaving the groups, and for records that are being set aside


class Kafka:
    """The topics `{prefix}.{tool}` of the tools, read by the groups of the same names."""

    def __init__(
        self,
        ledger: Ledger,
        tools: Sequence[str],
        kafka: str,
        prefix: str,
        *,
        fail: Callable[[BaseException], None],
        note: Callable[[str], object],
    ) -> None:
        self._ledger = ledger
        self._tools = tools
        self._kafka = kafka
        self._prefix = prefix
        self._fail = fail
        self._note = note
        self._feeds: dict[str, Feed] = {}
        self._heartbeat: Heartbeat | None = None
        self._asides: set[asyncio.Task[None]] = set()
        self._again: dict[UUID, list[Place]] = {}  # where calls that wait in a lane stand once more

    async def open(self, lanes: Lanes) -> None:
        """Join the groups. A broker that does not answer is asked again, with a line in the log."""
        loop = asyncio.get_running_loop()
        fail = _from_threads(loop, self._fail)
        complain = Complaints(self._kafka)
        for tool in self._tools:
            topic = f"{self._prefix}.{tool}"
            self._feeds[tool] = Feed(
                topic,
                config(self._kafka, topic, complain),
                deliver=_from_threads(loop, partial(self._take, lanes, tool)),
                drop=_from_threads(loop, partial(self._drop, lanes, topic)),
                full=partial(lanes.full, tool),
                fail=fail,
                note=partial(self._turned, tool),
            )
        feeds = tuple(self._feeds.values())
        heartbeats = f"{self._prefix}._heartbeat"
        self._heartbeat = Heartbeat(heartbeats, config(self._kafka, heartbeats, complain), feeds, fail)
        for feed in feeds:
            feed.start()
        self._heartbeat.start()

    def done(self, record: Record) -> None:
        """Its offset may be committed, and those at which its call stands once more."""
        for place in (record.place, *self._again.pop(record.id, ())):
            if place is not None:
                self._feeds[record.tool].answer(place)

    async def set_aside(self, record: Record, reason: str) -> None:
        """Keep its bytes and where it stood; one that came from the ledger itself is kept there."""
        if record.place is not None:
            await self._keep(record.tool, record.place, reason)
        else:
            log.error("Call %s of %s cannot be taken: %s", record.key, record.tool, reason)
        self.done(record)

    def received_through(self) -> Mapping[str, datetime]:
        """Per tool, the newest heartbeat before which everything was received and answered for."""
        return {tool: feed.received for tool, feed in self._feeds.items()}

    def hold(self) -> None:
        """Read no more; the groups and the offsets are kept until `close`."""
        for feed in self._feeds.values():
            feed.hold()

    async def close(self) -> None:
        """Commit what is answered for and leave the groups.

        What could not be set aside meanwhile is not answered for: it comes again.
        """
        for feed in self._feeds.values():
            feed.end()
        joins = [feed.join for feed in self._feeds.values()]
        if self._heartbeat is not None:
            self._heartbeat.end()
            joins.append(self._heartbeat.join)
        leaving = [asyncio.ensure_future(asyncio.to_thread(join, CLOSE_WITHIN)) for join in joins]
        if leaving or self._asides:
            await asyncio.wait([*leaving, *self._asides], timeout=CLOSE_WITHIN)
        for aside in self._asides:
            aside.cancel()

    # ---- in the worker's loop

    def _take(self, lanes: Lanes, tool: str, places: Sequence[Place]) -> None:
        for place in places:
            record = read(place, tool)
            if isinstance(record, str):
                self._begin(self._keep(tool, place, record))
            elif (first := lanes.waiting(record.id)) is not None:
                self._note_again(first, record)
            else:
                lanes.put(record)

    def _note_again(self, first: Record, record: Record) -> None:
        """A call that waits has come once more: emitted twice, or from a partition that was away meanwhile.

        An offset behind one that is not answered holds nothing back. Any other is answered for with the call.
        """
        assert record.place is not None
        places = [] if first.place is None else [first.place]
        if any(_is_before(place, record.place) for place in (*places, *self._again.get(record.id, ()))):
            self._feeds[record.tool].answer(record.place)
        else:
            self._again.setdefault(record.id, []).append(record.place)

    def _turned(self, tool: str) -> None:
        """In the thread of the tool's feed, after each poll."""
        self._note(tool)
        metrics.unanswered.labels(tool).set(self._feeds[tool].age)

    def _drop(self, lanes: Lanes, topic: str, partitions: Collection[int]) -> None:
        def unwanted(record: Record) -> bool:
            place = record.place
            return place is not None and place.topic == topic and place.partition in partitions

        for record in lanes.drop(unwanted):
            self.done(record)  # to an older assignment: what counts is where else it stands

    async def _keep(self, tool: str, place: Place, reason: str) -> None:
        log.error("%s[%d] offset %d is set aside: %s", place.topic, place.partition, place.offset, reason)
        await self._ledger.set_aside(
            [
                place.topic,
                place.partition,
                place.offset,
                place.key,
                json.dumps({name: _readable(value) for name, value in place.headers or ()}),
                place.value,
                reason,
            ]
        )
        self._feeds[tool].answer(place)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asides.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fail(problem)


def _is_before(one: Place, other: Place) -> bool:
    """Whether a place holds back the other's offset: of the same partition, received under the same assignment."""
    return (one.topic, one.partition, one.epoch) == (other.topic, other.partition, other.epoch)


def _readable(value: bytes | None) -> str | None:
    """A header's value as text that a JSON column holds."""
    return None if value is None else value.decode("utf-8", "backslashreplace").replace("\0", "\\0")


def _from_threads(loop: asyncio.AbstractEventLoop, function: Callable[[T], None]) -> Callable[[T], None]:
    """The function, for other threads: it is called in the loop, or not at all once that has ended."""

    def call(value: T) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(function, value)

    return call
