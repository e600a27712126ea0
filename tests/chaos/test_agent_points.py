"""An agent dies, or is stopped and goes on, around its commit; another drives the same runs on.

The caller's own row, `spent = spent + 1`, is written with each decision: a decision that were lost or committed twice
is seen in it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from deedbox_debezium.stack import Stack
from tests.chaos.agent import PLACES
from tests.chaos.forkserver import Process
from tests.chaos.oracle import Verdict
from tests.chaos.waiting import wait
from tests.chaos.world import LEASE, World

pytestmark = pytest.mark.timeout(300)  # seconds: a busy machine takes its time to start what was killed

CELLS = list(itertools.product(PLACES, ("SIGKILL", "SIGSTOP")))
NTH = 2  # the commit at which the agent is struck: the second decision of its first run
RUNS = 2
DECISIONS = 3  # of each run: two with calls, and the last word


class Matrix:
    """All agents, struck at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.struck: set[tuple[str, str]] = set()

    def play(self) -> None:
        """Each victim is struck; its successor drives the same runs; one that was stopped goes on beside it."""
        world = self.world
        worker = world.worker("worker")
        victims = {cell: self._agent("victim", *cell, struck_at=f"{cell[0]}:{NTH}") for cell in CELLS}
        assert wait(lambda: all(victim.stopped or not victim.alive for victim in victims.values()))
        self.struck = {cell for cell, victim in victims.items() if victim.stopped or victim.code == -9}
        successors = [self._agent("successor", place, how) for place, how in CELLS]
        time.sleep(LEASE + 0.5)  # as long as a worker would have to be away to lose its calls
        stopped = [victim for victim in victims.values() if victim.stopped]
        for victim in stopped:
            victim.resume()
        world.await_quiet(*stopped, *successors)
        assert worker.end() == 0, worker.tail()
        self.verdict: Verdict = world.verdict()

    def decisions(self, place: str, how: str) -> list[tuple[str, int, int]]:
        """Of each run: how many decisions there are, and how often its row was written."""
        return self.world.rows(
            "SELECT b.run, count(*)::int, b.spent FROM balance b JOIN step s ON s.run_id = b.run AND kind = 'decision' "
            "WHERE starts_with(b.run, %s) GROUP BY b.run ORDER BY b.run",
            f"{place}-{how}-",
        )

    def _agent(self, name: str, place: str, how: str, struck_at: str = "") -> Process:
        cell = f"{place}-{how}"
        return self.world.agent(f"{name}-{cell}", f"{cell}-", runs=RUNS, beside=1, place=struck_at, how=how)


@pytest.fixture(scope="module")
def matrix(database_url: str, local_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with World(local_stack, tmp_path_factory.mktemp("agents")) as world:
        matrix = Matrix(world)
        matrix.play()
        yield matrix


@pytest.mark.parametrize(("place", "how"), CELLS)
def test_struck_around_the_commit(matrix: Matrix, place: str, how: str) -> None:  # I2 I4 I5
    assert (place, how) in matrix.struck
    runs = [f"{place}-{how}-{n}" for n in range(RUNS)]
    assert matrix.decisions(place, how) == [(run, DECISIONS, DECISIONS) for run in runs]


def test_struck_anywhere_nothing_is_lost_nothing_is_double(matrix: Matrix) -> None:  # I1 I2 I5
    assert matrix.verdict.holds, matrix.verdict
    assert matrix.verdict.repeats == 0
