"""The gate of a tool: limits hold before the claim, and only for their tool."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from deedbox_consumers import Limits
from deedbox_consumers.gate import Gate, Through
from tests.support.hurried import all_quiet, run_hurried


class Line:
    """Calls before a gate, and which of them are through."""

    def __init__(self, limits: Limits | None = None, *, begins: bool = True) -> None:
        self.begins = begins  # at once, when it is through
        self.gate = Gate("charge_customer", limits)
        self.through: list[int] = []
        self.inside: dict[int, Through] = {}
        self.turned_away: list[int] = []
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.times: list[float] = []

    def come(self, *numbers: int) -> None:
        for number in numbers:
            self.tasks[number] = asyncio.ensure_future(self._enter(number))

    async def _enter(self, number: int) -> None:
        if (through := await self.gate.enter()) is not None:
            self.times.append(asyncio.get_running_loop().time())
            self.through.append(number)
            self.inside[number] = through
            if self.begins:
                self.gate.began(through)
        else:
            self.turned_away.append(number)

    def leave(self, number: int) -> None:
        """This one is over."""
        self.gate.leave(self.inside.pop(number))

    async def fail(self, times: int) -> None:
        """So many calls that come to no answer, one after the other."""
        for _ in range(times):
            through = await self.gate.enter()
            assert through is not None
            self.gate.failed(through)
            self.gate.leave(through)


def test_without_limits_all_go_through() -> None:
    async def scene() -> None:
        line = Line()
        line.come(*range(100))
        await all_quiet()
        assert line.through == list(range(100))
        await line.fail(100)
        assert not line.gate.broken

    run_hurried(scene())


def test_so_many_at_once_in_the_order_they_came() -> None:
    async def scene() -> None:
        line = Line(Limits(concurrency=2))
        line.come(1, 2, 3, 4, 5)
        await all_quiet()
        assert line.through == [1, 2]
        line.leave(1)
        await all_quiet()
        assert line.through == [1, 2, 3]
        line.leave(2)
        line.leave(3)
        await all_quiet()
        assert line.through == [1, 2, 3, 4, 5]

    run_hurried(scene())


def test_one_that_is_stuck_takes_one_place_only() -> None:
    async def scene() -> None:
        line = Line(Limits(concurrency=2))
        line.come(0)  # never leaves
        for number in range(1, 50):
            line.come(number)
            await all_quiet()
            assert line.through[-1] == number
            line.leave(number)

    run_hurried(scene())


def test_one_who_gives_up_waiting_keeps_no_place() -> None:
    async def scene() -> None:
        line = Line(Limits(concurrency=1, rate=1, per=timedelta(hours=1)))
        line.come(1, 2, 3)
        await all_quiet()
        line.tasks[2].cancel()  # waits for a place
        line.leave(1)
        await all_quiet()
        line.tasks[3].cancel()  # waits for the rate
        await all_quiet()
        line.come(4)
        await asyncio.sleep(3601)
        assert line.through == [1, 4]

    run_hurried(scene())


@pytest.mark.parametrize(
    ("limits", "times"),
    [
        (Limits(rate=2), [0, 0, 1, 1, 2]),
        (Limits(rate=2.9), [0, 0, 1, 1, 2]),
        (Limits(rate=0.5), [0, 2, 4, 6, 8]),
        (Limits(rate=1, per=timedelta(hours=1)), [0, 3600, 7200, 10800, 14400]),
    ],
)
def test_so_many_are_begun_in_a_time_and_in_order(limits: Limits, times: list[float]) -> None:
    async def scene() -> None:
        line = Line(limits)
        line.come(*range(5))
        await asyncio.gather(*line.tasks.values())
        assert line.through == list(range(5))
        assert line.times == pytest.approx(times)  # by the loop's own clock, which nothing real moves

    run_hurried(scene())


def test_what_was_not_ours_costs_nothing_of_the_rate() -> None:
    async def scene() -> None:
        gate = Gate("charge_customer", Limits(rate=2, per=timedelta(hours=1)))
        for _ in range(1000):  # records of calls that are over already
            through = await gate.enter()
            assert through is not None
            gate.leave(through)
        assert asyncio.get_running_loop().time() == 0
        line = Line()
        line.gate = gate
        line.come(1, 2, 3)
        await all_quiet()
        assert line.through == [1, 2]  # what was given back was no more than there was
        await line.tasks[3]
        assert line.times[-1] == pytest.approx(3600)

    run_hurried(scene())


def test_whose_part_of_the_rate_is_not_used_leaves_it_to_the_first_who_waits() -> None:
    async def scene() -> None:
        line = Line(Limits(rate=1, per=timedelta(hours=1)), begins=False)
        line.come(1, 2, 3)
        await all_quiet()
        assert line.through == [1]
        line.leave(1)
        await all_quiet()
        assert line.through == [1, 2]

    run_hurried(scene())


def test_those_that_are_through_and_have_not_begun_count_however_long_that_takes() -> None:
    """The ledger does not answer, and then answers all of them at once."""

    async def scene() -> None:
        line = Line(Limits(rate=2, per=timedelta(seconds=1)), begins=False)
        line.come(*range(6))
        await asyncio.sleep(60)
        assert line.through == [0, 1]
        for number in (0, 1):
            line.gate.began(line.inside[number])
        await asyncio.sleep(0.9)
        assert line.through == [0, 1]
        await asyncio.sleep(0.2)
        assert line.through == [0, 1, 2, 3]
        for number in (2, 3):
            line.leave(number)  # none of ours
        await all_quiet()
        assert line.through == [0, 1, 2, 3, 4, 5]

    run_hurried(scene())


def test_the_breaker_opens_after_so_many_in_a_row_then_lets_one_see(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        line = Line(Limits(breaker=3, open_for=timedelta(seconds=30)))
        await line.fail(2)
        line.come(0)
        await all_quiet()
        line.through.clear()
        line.gate.succeeded(line.inside[0])  # a refusal will do
        line.leave(0)
        await line.fail(3)
        assert line.gate.broken
        line.come(1, 2, 3)
        await asyncio.sleep(29)
        assert line.through == []
        await asyncio.sleep(2)
        assert line.through == [1]
        line.gate.failed(line.inside[1])
        line.leave(1)
        await asyncio.sleep(29)
        assert line.through == [1]
        await asyncio.sleep(2)
        assert line.through == [1, 2]
        line.gate.succeeded(line.inside[2])
        line.leave(2)
        await all_quiet()
        assert line.through == [1, 2, 3]
        assert not line.gate.broken

    with caplog.at_level(logging.WARNING, "deedbox.worker"):
        run_hurried(scene())
    assert [record.getMessage() for record in caplog.records] == [
        "charge_customer: too many attempts in a row came to no answer; the next begins in 0:00:30",
        "charge_customer: the provider answers again",
    ]


def test_one_that_went_to_see_and_never_began_lets_another_see() -> None:
    async def scene() -> None:
        line = Line(Limits(breaker=1, open_for=timedelta(seconds=30)))
        await line.fail(1)
        line.come(1, 2)
        await asyncio.sleep(31)
        assert line.through == [1]
        line.leave(1)
        await all_quiet()
        assert line.through == [1, 2]

    run_hurried(scene())


def test_only_the_one_that_went_to_see_lets_another_see() -> None:
    """Others come back meanwhile, without a word, with no answer or with one: such as threads that hung."""

    async def scene() -> None:
        line = Line(Limits(breaker=1, open_for=timedelta(seconds=30)))
        line.come(0, 1, 2, 3)
        await all_quiet()
        line.gate.failed(line.inside[1])
        line.leave(1)
        line.come(4, 5)
        await asyncio.sleep(31)
        assert line.through == [0, 1, 2, 3, 4]
        line.leave(2)
        line.gate.failed(line.inside[3])
        line.leave(3)
        line.gate.succeeded(line.inside[0])
        line.leave(0)
        await asyncio.sleep(60)
        assert line.through == [0, 1, 2, 3, 4]
        line.leave(4)
        await all_quiet()
        assert line.through == [0, 1, 2, 3, 4, 5]

    run_hurried(scene())


def test_those_that_had_begun_before_do_not_keep_the_breaker_open() -> None:
    async def scene() -> None:
        line = Line(Limits(breaker=1, open_for=timedelta(seconds=30)))
        line.come(1, 2, 3)
        await all_quiet()
        line.gate.failed(line.inside[1])
        line.leave(1)
        await asyncio.sleep(20)
        line.gate.failed(line.inside[2])
        line.leave(2)
        line.come(4)
        await asyncio.sleep(11)
        assert line.through == [1, 2, 3, 4]

    run_hurried(scene())


def test_paused_lets_nobody_through_until_resumed() -> None:
    async def scene() -> None:
        line = Line(Limits(rate=1, per=timedelta(seconds=10)))
        line.gate.pause()
        assert line.gate.paused
        line.come(1, 2)
        await asyncio.sleep(3600)
        assert line.through == []
        line.gate.resume()
        await all_quiet()
        assert line.through == [1]
        line.gate.pause()  # while the second waits for the rate
        await asyncio.sleep(3600)
        assert line.through == [1]
        line.gate.resume()
        await all_quiet()
        assert line.through == [1, 2]

    run_hurried(scene())


def test_a_slow_a_broken_and_a_paused_tool_hold_up_no_other() -> None:
    async def scene() -> None:
        slow = Line(Limits(concurrency=1))
        broken = Line(Limits(breaker=1, open_for=timedelta(hours=1)))
        paused, other = Line(), Line(Limits(concurrency=1, rate=1000, breaker=1))
        await broken.fail(1)
        paused.gate.pause()
        for line in (slow, broken, paused):
            line.come(*range(10))
        await all_quiet()
        for number in range(10):
            other.come(number)
            await all_quiet()
            other.gate.succeeded(other.inside[number])
            other.leave(number)
        assert other.through == list(range(10))
        assert (slow.through, broken.through, paused.through) == ([0], [], [])

    run_hurried(scene())


@pytest.mark.parametrize(
    "limits",
    [
        Limits(concurrency=1),
        Limits(rate=1, per=timedelta(hours=1)),
        Limits(breaker=1, open_for=timedelta(hours=1)),
        Limits(concurrency=3, rate=1, per=timedelta(hours=1), breaker=5),
    ],
)
def test_closed_turns_everybody_away_at_once(limits: Limits) -> None:
    async def scene() -> None:
        line = Line(limits)
        line.come(1)
        await line.tasks[1]
        if limits.breaker == 1:
            line.gate.failed(line.inside[1])
        line.come(2, 3, 4, 5)
        await all_quiet()
        line.gate.close()
        line.come(6)
        await asyncio.gather(*line.tasks.values())
        assert line.through == [1]
        assert sorted(line.turned_away) == [2, 3, 4, 5, 6]
        line.leave(1)

    run_hurried(scene())


def test_closed_while_paused_turns_everybody_away() -> None:
    async def scene() -> None:
        line = Line()
        line.gate.pause()
        line.come(1, 2)
        await all_quiet()
        line.gate.close()
        await asyncio.gather(*line.tasks.values())
        assert line.turned_away == [1, 2]

    run_hurried(scene())
