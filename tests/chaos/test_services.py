"""Postgres, the broker and Connect are killed, shut down and frozen while calls run; then they are there again.

One agent decides and two workers perform all the while, and live through all of it. That the broker alone is killed is
part of a schedule (test_schedules).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deedbox_debezium.stack import PartName, Stack
from tests.chaos.forkserver import Process
from tests.chaos.services import Fault, Service
from tests.chaos.tools import ASK, CHARGE, MAIL, TRANSFER
from tests.chaos.waiting import wait
from tests.chaos.world import LEASE, World

pytestmark = pytest.mark.timeout(300)  # seconds: a busy machine takes its time to start what was killed

CASES: list[tuple[Fault, tuple[PartName, ...]]] = [
    ("kill", ("postgres",)),
    ("immediate", ("postgres",)),
    ("restart", ("postgres",)),
    ("freeze", ("postgres",)),
    ("freeze", ("kafka",)),
    ("kill", ("connect",)),
    ("freeze", ("connect",)),
    ("restart", ("connect", "kafka")),  # together, for a broker takes ten seconds to be believed again
]
BEFORE, AFTER = 4, 8  # calls that are done between two faults, and after the last


@dataclass
class Load:
    """Who works while services break."""

    world: World
    agent: Process
    workers: list[Process]

    def done(self) -> int:
        """How many calls are done."""
        return self.world.count("", "done")

    def goes_on(self, calls: int) -> bool:
        """Whether so many more calls come to be done."""
        before = self.done()
        return wait(lambda: self.done() >= before + calls)


@pytest.fixture(scope="module")
def load(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    given = [family.tool() for family in (CHARGE, MAIL, TRANSFER, ASK)]
    with World(stack, tmp_path_factory.mktemp("services"), kafka=True, given=given) as world:
        workers = [world.worker(f"worker-{n}") for n in range(2)]
        yield Load(world, world.agent("agent", "run-", beside=4, pause=0.1), workers)


@pytest.mark.parametrize(("fault", "parts"), CASES, ids=lambda it: it if isinstance(it, str) else "-".join(it))
def test_taken_away_and_given_back(load: Load, fault: Fault, parts: tuple[PartName, ...]) -> None:  # I1 I5
    assert load.goes_on(BEFORE)
    services = [Service(load.world.stack, part) for part in parts]
    for service in services:
        service.strike(fault)
    if fault == "freeze":
        time.sleep(LEASE + 1)
    for service in reversed(services):  # the broker is there before Connect
        service.mend(fault)
    assert load.goes_on(AFTER)
    assert all(process.alive for process in (load.agent, *load.workers))


def test_whatever_was_taken_away_nothing_is_lost_nothing_is_double(load: Load) -> None:  # I2 I5 I6 I8 I16
    assert load.agent.end() == 0, load.agent.tail()
    load.world.await_quiet()
    for worker in load.workers:
        assert worker.end() == 0, worker.tail()
    verdict = load.world.verdict()
    assert verdict.holds, verdict
    assert verdict.calls > len(CASES) * BEFORE
