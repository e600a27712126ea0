"""Processes die by SIGKILL at the worst moments, on the real Postgres, Kafka and Debezium; the provider counts."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from deedbox_consumers.demo.player import Player
from deedbox_consumers.demo.provider import Request
from deedbox_consumers.demo.stage import Stage
from deedbox_debezium.patience import wait_for
from deedbox_debezium.stack import Stack

PATIENCE = 60.0  # seconds: a bound on each wait, met only when something is broken


@pytest.fixture(scope="module")
def stage(stack: Stack) -> Iterator[Stage]:
    """A ledger, its connector and the provider, for all tests of this file; each has orders of its own."""
    with psycopg.connect(stack.database_url, autocommit=True) as conn:
        conn.execute("DROP SCHEMA IF EXISTS deaths CASCADE")  # of an earlier version's tests
    with Stage(stack, schema="deaths") as stage:
        yield stage


@pytest.fixture(scope="module")
def worker(stage: Stage) -> Iterator[Player]:
    """A worker that lives: the first test starts it when its own has died."""
    with stage.worker(name="worker") as worker:
        yield worker


def requests(stage: Stage, order: str) -> list[Request]:
    return [request for request in stage.provider.requests() if request.order == order]


def charges(stage: Stage, order: str) -> int:
    return sum(charge.order == order for charge in stage.provider.charges())


def steps(stage: Stage, order: str) -> list[str]:
    with psycopg.connect(stage.stack.database_url) as conn:
        return [kind for (kind,) in conn.execute("SELECT kind FROM deaths.step WHERE run_id = %s ORDER BY n", [order])]


def decided(stage: Stage, orders: list[str]) -> int:
    return sum("decision" in steps(stage, order) for order in orders)


def test_killed_after_the_effect_before_the_status_update(  # I5 I6 I7
    stage: Stage, request: pytest.FixtureRequest
) -> None:
    order = stage.order()
    agent = stage.agent(order, name="agent")
    stage.worker(name="worker that dies", crash_at="after_effect").await_crash(PATIENCE)
    assert charges(stage, order) == 1
    request.getfixturevalue("worker")
    agent.await_end(PATIENCE)
    first, second = requests(stage, order)
    assert first.key == second.key
    assert second.stored
    assert charges(stage, order) == 1


@pytest.mark.parametrize("crash_at", ["before_commit", "after_commit"])
def test_killed_between_the_business_commit_and_the_saved_step(  # I2 I5
    stage: Stage, worker: Player, crash_at: str
) -> None:
    order = stage.order()
    stage.agent(order, name=f"agent {crash_at}", crash_at=crash_at).await_crash(PATIENCE)
    both = crash_at == "after_commit"
    assert steps(stage, order) == (["input", "decision"] if both else ["input"])
    assert stage.find(order).steps == (1 if both else 0)
    stage.agent(order, name=f"agent {crash_at} again").await_end(PATIENCE)
    assert stage.find(order).steps == 2
    assert charges(stage, order) == len(requests(stage, order)) == 1
    asked = [ask.step for ask in stage.provider.asked() if ask.order == order]
    assert asked == ([1, 2] if both else [1, 1, 2])  # what was not committed was never decided


def test_two_drivers_with_a_non_idempotent_caller_row(stage: Stage, worker: Player) -> None:  # I2 I4
    order = stage.order()
    drivers = [stage.agent(order, name=f"driver {n}") for n in range(2)]
    for driver in drivers:
        driver.await_end(PATIENCE)
    assert steps(stage, order) == ["input", "decision", "decision"]
    assert stage.find(order).steps == 2
    assert charges(stage, order) == len(requests(stage, order)) == 1


def test_connect_killed_under_load(stage: Stage, worker: Player) -> None:  # I1 I5 I6
    orders = [stage.order() for _ in range(12)]
    agent = stage.agent(*orders, "--pause=0.05", name="agent of many")
    assert wait_for(lambda: decided(stage, orders) >= 4, PATIENCE)
    stage.stack.kill("connect")
    assert wait_for(lambda: decided(stage, orders) == len(orders), PATIENCE)
    stage.stack.start("connect")
    agent.await_end(PATIENCE)
    assert [charges(stage, order) for order in orders] == [1] * len(orders)
    assert [stage.find(order).steps for order in orders] == [2] * len(orders)


def test_everything_killed_at_once(stage: Stage, worker: Player) -> None:  # I2 I5 I6 I7
    worker.end()
    order = stage.order()
    agent = stage.agent(order, name="agent that dies")
    stage.worker(name="last worker that dies", crash_at="before_record").await_crash(PATIENCE)
    agent.kill()
    stage.stack.kill("connect")
    stage.stack.start("connect")
    with stage.worker(name="last worker"):
        stage.agent(order, name="agent that lives").await_end(PATIENCE)
    assert charges(stage, order) == 1
    assert stage.find(order).steps == 2
