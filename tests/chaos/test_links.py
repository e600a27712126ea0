"""Every link is cut, reset, stalled, and loses an answer, while calls run over it; then it is whole again.

Each cell has links, tools and runs of its own, and all are broken at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deedbox_debezium.stack import Stack
from tests.chaos import tools
from tests.chaos.forkserver import Process
from tests.chaos.provider import Mood
from tests.chaos.proxy import Proxy
from tests.chaos.waiting import wait
from tests.chaos.world import LEASE, World

pytestmark = pytest.mark.timeout(300)  # seconds: a busy machine takes its time to start what was killed

LINKS = ("agent_postgres", "worker_postgres", "worker_provider")
FAULTS = ("cut", "reset", "stall", "lose")
CELLS = list(itertools.product(LINKS, FAULTS))
RUNS = 4  # of an agent whose link breaks
CALLS = 3  # of each tool of a worker whose link breaks


class Cell:
    """One link and what is done to it: `victim` is the process whose link it is."""

    victim: Process
    proxy: Proxy

    def __init__(self, world: World, link: str, fault: str) -> None:
        self.world = world
        self.fault = fault
        self.prefix = f"{link}-{fault}-"
        self.names = [tool.name for tool in world.tools if tool.name.endswith(f"_{link}_{fault}")]
        self.before = 0  # connections that there were before the fault

    def strike(self) -> None:
        """Break the link when calls are under way over it, and mend it."""
        self.begin()
        self.before = self.proxy.accepted
        match self.fault:
            case "cut":
                self.proxy.cut()
            case "reset":
                self.proxy.reset()
            case "stall":
                self.proxy.stall()
                time.sleep(LEASE + 1)
            case _:
                self.proxy.stall("answers")
                assert wait(lambda: self.proxy.holds("answers"))
                self.proxy.reset()
        self.proxy.resume()

    def begin(self) -> None:
        """Bring calls under way."""
        raise NotImplementedError


class AgentCell(Cell):
    """An agent's link: it drives runs over it."""

    def __init__(self, world: World, link: str, fault: str) -> None:
        super().__init__(world, link, fault)
        self.proxy = world.database_link()
        words: dict[str, Any] = {"names": self.names, "runs": RUNS, "beside": 2}
        self.victim = world.agent(f"agent-{fault}", self.prefix, database=self.proxy, **words)

    def begin(self) -> None:
        assert wait(lambda: self.world.count(self.prefix, "done") > 2)


class WorkerCell(Cell):
    """A worker's link: it performs a decision's calls."""

    def __init__(self, world: World, link: str, fault: str) -> None:
        super().__init__(world, link, fault)
        if link == "worker_provider":
            self.proxy = world.provider_link()
            self.victim = world.worker(self.prefix, names=self.names, provider=self.proxy)
        else:
            self.proxy = world.database_link()
            self.victim = world.worker(self.prefix, names=self.names, database=self.proxy)

    def begin(self) -> None:
        self.world.decide(f"{self.prefix}0", *self.names * CALLS)
        assert wait(lambda: self.world.count(self.prefix, "running") > 2 and self.proxy.connections > 2)


def cell_of(world: World, link: str, fault: str) -> Cell:
    """The cell with its processes started."""
    return (AgentCell if link == "agent_postgres" else WorkerCell)(world, link, fault)


@pytest.fixture(scope="module")
def cells(
    database_url: str, local_stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Cell]]:
    given = tools.tools([f"_{link}_{fault}" for link, fault in CELLS])
    with World(local_stack, tmp_path_factory.mktemp("links"), given=given) as world:
        world.outside.mood(Mood(pace=0.3))  # so that the calls under way are so for a while
        cells = {(link, fault): cell_of(world, link, fault) for link, fault in CELLS}
        worker = world.worker("worker", names=[name for name in world.names if "_agent_postgres_" in name])
        with ThreadPoolExecutor(len(cells)) as beside:
            list(beside.map(Cell.strike, cells.values()))
        rescuer = world.worker("rescuer")
        agents = [cell.victim for cell in cells.values() if isinstance(cell, AgentCell)]
        world.await_quiet(*agents)
        workers = [cell.victim for cell in cells.values() if isinstance(cell, WorkerCell)]
        for process in (worker, rescuer, *workers):
            assert process.end() == 0, process.tail()
        yield cells


@pytest.mark.parametrize(("link", "fault"), CELLS)
def test_broken_and_mended(cells: dict[tuple[str, str], Cell], link: str, fault: str) -> None:  # I1 I2 I5 I6 I8
    cell = cells[link, fault]
    verdict = cell.world.verdict(cell.prefix)
    assert verdict.holds, verdict
    assert verdict.calls >= CALLS
    assert fault == "stall" or cell.proxy.accepted > cell.before, "it is connected anew"
