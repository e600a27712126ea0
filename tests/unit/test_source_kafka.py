"""Records that come again, and which of their offsets may be committed when."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from deedbox_consumers.lane import Lanes
from deedbox_consumers.record import Place, Record
from deedbox_consumers.source import kafka
from deedbox_consumers.source.kafka import Kafka

TOOL = "charge_customer"


class Answers:
    """In a feed's place: the offsets that were answered for, as (epoch, offset)."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int]] = []
        self.ended = False

    def end(self) -> None:
        self.ended = True

    def join(self, _: float) -> None:
        assert self.ended

    def answer(self, place: Place) -> None:
        self.all.append((place.epoch, place.offset))


class Received:
    """The source, with lanes in which everything waits for its claim until it is let."""

    def __init__(self, ledger: Any = None) -> None:
        self.source = Kafka(ledger, [TOOL], "", "shop", fail=lambda _: None, note=lambda _: None)
        self.answers = Answers()
        vars(self.source)["_feeds"] = {TOOL: self.answers}
        self.let: dict[UUID, asyncio.Event] = {}
        self.lanes = Lanes(self._work, fail=lambda _: None)

    def take(self, id_: UUID, offset: int, *, epoch: int = 1, partition: int = 0) -> None:
        """A message of the call is received."""
        names = ("id", "action_id", "key", "attempt", "traceparent", "created_at")
        headers = [("type", b"call"), *((name, b"1" if name == "attempt" else str(id_).encode()) for name in names)]
        place = Place(f"shop.{TOOL}", partition, offset, epoch, str(id_).encode(), headers, b"v")
        self.source._take(self.lanes, TOOL, [place])

    def drop(self, partition: int) -> None:
        """The partition was taken away."""
        self.source._drop(self.lanes, f"shop.{TOOL}", [partition])

    async def claim(self, id_: UUID) -> None:
        """The call is claimed and performed."""
        self.let[id_].set()
        await _turn()

    async def _work(self, record: Record, *_: object) -> None:
        await self.let.setdefault(record.id, asyncio.Event()).wait()
        self.source.done(record)


@pytest.fixture
async def received() -> Any:
    received = Received()
    yield received
    received.lanes.cancel()
    await received.lanes.settle(10)


@pytest.fixture
def call() -> UUID:
    return uuid4()


async def test_headers_that_cannot_be_read_are_set_aside_with_the_bytes_and_the_place() -> None:  # I14
    aside: list[Any] = []

    class Ledger:
        async def set_aside(self, row: list[Any]) -> None:
            aside.append(row)

    given: Any = Ledger()
    received = Received(given)
    received.source._take(received.lanes, TOOL, [Place(f"shop.{TOOL}", 0, 4, 1, b"k", None, b"v")])
    await _turn()
    assert aside == [[f"shop.{TOOL}", 0, 4, b"k", "{}", b"v", "its headers cannot be read"]]
    assert received.answers.all == [(1, 4)]


async def test_while_a_record_cannot_be_set_aside_the_groups_are_left_and_it_comes_again(  # I14
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "CLOSE_WITHIN", 0.01)

    class Away:
        async def set_aside(self, _: object) -> None:
            await asyncio.Event().wait()

    received = Received(Away())
    received.source._take(received.lanes, TOOL, [Place(f"shop.{TOOL}", 0, 4, 1, b"k", (), b"v")])
    await _turn()
    async with asyncio.timeout(30):
        await received.source.close()
    assert received.answers.ended
    assert received.answers.all == []


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_emitted_twice_the_first_offset_holds_back_the_commit(received: Received, call: UUID) -> None:  # I5
    """faust-streaming/faust#312: the commit jumped over an offset that was not finished."""
    received.take(call, 4)
    received.take(call, 7)
    assert received.answers.all == [(1, 7)]
    await _turn()
    await received.claim(call)
    assert received.answers.all == [(1, 7), (1, 4)]


async def test_received_anew_after_a_rebalance_its_offset_waits_for_the_claim(  # I5
    received: Received, call: UUID
) -> None:
    """confluentinc/librdkafka#5604: the first record of a lane stays when its partition goes, under an older epoch."""
    received.take(call, 4)
    await _turn()
    received.drop(0)
    received.take(call, 4, epoch=2)
    received.take(call, 7, epoch=2)
    assert received.answers.all == [(2, 7)]
    await received.claim(call)
    assert received.answers.all == [(2, 7), (1, 4), (2, 4)]


async def test_a_call_that_came_from_the_ledger_holds_back_the_offset_of_its_record(  # I5
    received: Received, call: UUID
) -> None:
    received.lanes.put(Record(call, TOOL, "r:1:0", str(call), b"v"))
    received.take(call, 4)
    assert received.answers.all == []
    await _turn()
    await received.claim(call)
    assert received.answers.all == [(1, 4)]


async def test_a_strangers_copy_in_another_partition_holds_up_nothing_when_its_call_is_dropped(
    received: Received, call: UUID
) -> None:  # I14
    first = uuid4()
    lane = str(first).encode()
    received.take(first, 1)
    place = Place(f"shop.{TOOL}", 0, 2, 1, lane, [], b"v")
    received.lanes.put(Record(call, TOOL, "r:1:0", str(first), b"v", place))
    received.take(call, 9, partition=3)
    assert received.answers.all == []
    received.drop(0)
    assert received.answers.all == [(1, 2), (1, 9)]
