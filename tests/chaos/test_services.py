"""Postgres, the broker and Connect are killed, shut down and frozen while calls run; then they are there again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from deedbox_debezium.stack import PartName
from tests.chaos.forkserver import Process
from tests.chaos.services import Fault, Service
from tests.chaos.waiting import wait
from tests.chaos.world import LEASE, World

CASES: list[tuple[PartName, Fault]] = [
    ("postgres", "kill"),
    ("postgres", "immediate"),
    ("postgres", "restart"),
    ("postgres", "freeze"),
    ("kafka", "kill"),
    ("kafka", "restart"),
    ("kafka", "freeze"),
    ("connect", "kill"),
    ("connect", "restart"),
    ("connect", "freeze"),
]
RUNS = 16


@pytest.fixture(scope="module")
def workers(kafka_world: World) -> Iterator[list[Process]]:
    """Two, for all tests: whatever happens to the services, they go on."""
    workers = [kafka_world.worker(f"worker-{n}") for n in range(2)]
    yield workers
    for worker in workers:
        assert worker.end() == 0, worker.tail()


@pytest.mark.parametrize(("part", "fault"), CASES)
def test_taken_away_and_given_back(  # I1 I2 I5 I6 I8
    kafka_world: World, workers: list[Process], part: PartName, fault: Fault
) -> None:
    world, prefix = kafka_world, f"{part}-{fault}-"
    agent = world.agent(f"agent-{prefix}", prefix, runs=RUNS, beside=4)
    assert wait(lambda: world.count(prefix, "done") > 3)
    service = Service(world.stack, part)
    service.strike(fault)
    if fault == "freeze":
        time.sleep(LEASE + 1)
    service.mend(fault)
    world.await_quiet(agent)
    verdict = world.verdict(prefix)
    assert verdict.holds, verdict
    assert verdict.calls >= RUNS
    assert all(worker.alive for worker in workers)
