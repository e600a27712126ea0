"""Lanes: one after the other per key, keys beside each other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from deedbox_consumers import lane
from deedbox_consumers.lane import Lanes
from deedbox_consumers.record import Place, Record
from deedbox_consumers.slots import Slots


class Work:
    """Work that goes on when it is let, and remembers what it did."""

    def __init__(self) -> None:
        self.began: list[UUID] = []
        self.let: defaultdict[UUID, asyncio.Event] = defaultdict(asyncio.Event)

    async def __call__(self, record: Record, *_: object) -> None:
        self.began.append(record.id)
        await self.let[record.id].wait()


def record(key: str = "", tool: str = "charge") -> Record:
    id_ = uuid4()
    return Record(id_, tool, "run:1:0", key or str(id_), b"x")


async def turn() -> None:
    """Let the tasks that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_key_is_in_order_and_keys_do_not_wait_for_each_other() -> None:
    work = Work()
    lanes = Lanes(work, fail=lambda _: None)
    first, second, other = record("a"), record("a"), record("b")
    for one in (first, second, other):
        lanes.put(one)
    await turn()
    assert work.began == [first.id, other.id]
    work.let[first.id].set()
    await turn()
    assert work.began == [first.id, other.id, second.id]
    work.let[other.id].set()
    work.let[second.id].set()
    assert await lanes.settle(10)
    assert len(lanes) == 0


async def test_equal_keys_of_two_tools_are_two_lanes() -> None:
    work = Work()
    lanes = Lanes(work, fail=lambda _: None)
    lanes.put(record("a", "charge"))
    lanes.put(record("a", "mail"))
    await turn()
    assert len(work.began) == 2
    lanes.cancel()
    await lanes.settle(10)


async def test_what_the_ledger_brings_does_not_wait_for_what_waits_for_it() -> None:
    work = Work()
    lanes = Lanes(work, fail=lambda _: None)
    later = replace(record("a"), place=Place("shop.charge", 0, 1, 1, b"a", (), b"x"))
    for one in (later, before := record("a"), again := record("a")):
        lanes.put(one)
    await turn()
    assert work.began == [later.id, before.id]
    assert lanes.depth("charge", "a") == 2
    work.let[before.id].set()
    await turn()
    assert work.began == [later.id, before.id, again.id]
    lanes.cancel()
    await lanes.settle(10)


async def test_a_call_is_in_one_lane_once() -> None:
    work = Work()
    lanes = Lanes(work, fail=lambda _: None)
    one = record()
    lanes.put(one)
    lanes.put(one)
    work.let[one.id].set()
    assert await lanes.settle(10)
    assert work.began == [one.id]


async def test_another_record_of_a_claimed_call_waits_behind_it() -> None:  # I5
    let, claims = asyncio.Event(), list[UUID]()

    async def work(record: Record, claimed: Callable[[], object], _: object) -> None:
        claims.append(record.id)
        claimed()
        await let.wait()

    lanes = Lanes(work, fail=lambda _: None)
    one = record("a")
    lanes.put(one)
    await turn()
    assert one.id not in lanes
    lanes.put(one)
    assert one.id in lanes
    let.set()
    assert await lanes.settle(10)
    assert claims == [one.id, one.id]


async def test_dropping_leaves_the_first_of_a_lane() -> None:
    work = Work()
    lanes = Lanes(work, fail=lambda _: None)
    records = [record("a") for _ in range(3)]
    for one in records:
        lanes.put(one)
    await turn()
    lanes.drop(lambda _: True)
    assert len(lanes) == 1
    work.let[records[0].id].set()
    assert await lanes.settle(10)
    assert work.began == [records[0].id]


async def test_a_full_tool_rests_until_half_is_free_and_stops_no_other() -> None:
    lanes = Lanes(Work(), fail=lambda _: None, room=2)
    for _ in range(3):
        lanes.put(record(tool="charge"))
    assert lanes.full("charge")
    assert not lanes.full("mail")
    lanes.drop(lambda _: False)
    assert lanes.full("charge", resting=True)
    lanes.cancel()
    await lanes.settle(10)
    assert not lanes.full("charge", resting=True)


async def test_what_a_lane_cannot_cope_with_is_told() -> None:
    problems: list[BaseException] = []

    async def work(*_: object) -> None:
        raise ValueError("no")

    lanes = Lanes(work, fail=problems.append)
    lanes.put(record())
    assert await lanes.settle(10)
    await turn()
    assert [str(problem) for problem in problems] == ["no"]
    assert len(lanes) == 0


async def test_slots_are_given_in_the_order_asked_for() -> None:
    slots = Slots(1)
    await slots.acquire()
    got: list[int] = []

    async def take(number: int) -> None:
        await slots.acquire()
        got.append(number)

    tasks = [asyncio.create_task(take(number)) for number in range(3)]
    await turn()
    tasks[0].cancel()
    await turn()
    slots.release()
    await turn()
    assert got == [1]
    slots.release()
    await turn()
    assert got == [1, 2]


async def test_a_slot_given_to_one_who_is_cancelled_goes_on_to_the_next() -> None:
    slots = Slots(1)
    await slots.acquire()
    first, second = asyncio.create_task(slots.acquire()), asyncio.create_task(slots.acquire())
    await turn()
    slots.release()
    first.cancel()
    await turn()
    assert second.done()


async def test_what_waits_behind_a_call_that_takes_long_is_told_and_can_be_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment = 100.0
    monkeypatch.setattr(lane, "now", lambda: moment)
    let = asyncio.Event()

    async def work(record: Record, claimed: Callable[[], object], blocked: Callable[[], object]) -> None:
        if record.order_key != "waits for its turn":
            (blocked if record.order_key == "blocked" else claimed)()
        await let.wait()

    lanes = Lanes(work, fail=lambda _: None)
    stuck, blocked = [record("stuck") for _ in range(3)], [record("blocked") for _ in range(2)]
    for one in (*stuck, *blocked, record("waits for its turn"), record("waits for its turn"), record("a", "mail")):
        lanes.put(one)
    await turn()
    assert lanes.stuck("charge", 60) == []
    moment += 61
    # One that is neither claimed nor blocked waits for its tool, not for its key.
    assert lanes.stuck("charge", 60) == [(stuck[0], stuck[1:]), (blocked[0], blocked[1:])]
    assert lanes.drop(lambda one: one in stuck) == stuck[1:]
    assert [lanes.waiting(one.id) for one in stuck] == [None, None, None]
    let.set()
    assert await lanes.settle(10)
    assert len(lanes) == 0


async def test_one_that_is_blocked_hears_of_an_older_one_behind_it() -> None:
    """It may be what blocks it: they are in the order in which they came, and a retry comes last."""
    answers: list[bool] = []

    async def work(_: Record, __: object, blocked: Callable[[], bool]) -> None:
        await turn()
        answers.append(blocked())

    lanes = Lanes(work, fail=lambda _: None)
    older, newer = sorted((record("a"), record("a")), key=lambda one: one.id)
    for one in (newer, older):
        lanes.put(one)
    assert await lanes.settle(10)
    assert answers == [True, False]


async def test_large_records_fill_the_room_sooner() -> None:
    lanes = Lanes(Work(), fail=lambda _: None, room_bytes=10)
    lanes.put(replace(record(), payload=b"x" * 11))
    assert lanes.full("charge")
    assert not lanes.full("mail")
    lanes.cancel()
    await lanes.settle(10)
    assert not lanes.full("charge", resting=True)
