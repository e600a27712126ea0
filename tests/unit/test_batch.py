"""Group commit without a timer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from deedbox_consumers.batch import Batch


class Statement:
    """A statement that answers when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.let = asyncio.Event()
        self.under_way = asyncio.Event()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.under_way.set()
        await self.let.wait()
        return [item * 10 for item in items]


async def test_one_when_idle_the_rest_together() -> None:
    statement = Statement()
    batch = Batch(statement)
    first = batch.put(1)
    await statement.under_way.wait()
    others = [batch.put(item) for item in (2, 3, 4)]
    statement.let.set()
    assert await first == 10
    assert await asyncio.gather(*others) == [20, 30, 40]
    assert statement.batches == [[1], [2, 3, 4]]


async def test_what_comes_in_one_turn_of_the_loop_goes_together() -> None:
    statement = Statement()
    statement.let.set()
    batch = Batch(statement)
    assert await asyncio.gather(*(batch.put(item) for item in range(5))) == [0, 10, 20, 30, 40]
    assert statement.batches == [[0, 1, 2, 3, 4]]


async def test_no_batch_is_larger_than_it_may_be() -> None:
    statement = Statement()
    statement.let.set()
    batch = Batch(statement, most=2)
    await asyncio.gather(*(batch.put(item) for item in range(5)))
    assert statement.batches == [[0, 1], [2, 3], [4]]


async def test_a_cancelled_waiter_does_not_cancel_the_statement() -> None:  # I5
    statement = Statement()
    batch = Batch(statement)

    async def wait(item: int) -> int:
        return await batch.put(item)

    impatient, patient = asyncio.create_task(wait(1)), asyncio.create_task(wait(2))
    await statement.under_way.wait()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    statement.let.set()
    assert await patient == 20


async def test_a_failure_belongs_to_those_in_the_batch_and_no_other() -> None:
    async def write(items: Sequence[int]) -> list[int]:
        if 1 in items:
            raise ValueError("no")
        return list(items)

    batch = Batch(write)
    with pytest.raises(ValueError, match="no"):
        await batch.put(1)
    assert await batch.put(2) == 2


async def test_flush_waits_for_what_was_put() -> None:
    statement = Statement()
    batch = Batch(statement)
    put = batch.put(1)
    flushing = asyncio.create_task(batch.flush())
    await statement.under_way.wait()
    assert not flushing.done()
    statement.let.set()
    await flushing
    assert put.done()
    await batch.flush()  # nothing is under way
