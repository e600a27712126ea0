"""A worker dies, or is stopped past its lease and goes on, at every point of a call's life; another takes over.

Each cell of the matrix has a tool and a victim of its own. They are all struck at once, since each then does nothing
but wait until its lease has passed; each test looks at what became of its cell.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deedbox_debezium.stack import Stack
from tests.chaos.tools import ASK, DEBIT, WIRE, Family
from tests.chaos.waiting import wait
from tests.chaos.worker import PLACES
from tests.chaos.world import World

pytestmark = pytest.mark.timeout(300)  # seconds: a busy machine takes its time to start what was killed

HOWS = ("SIGKILL", "SIGSTOP")
LEASE = 5.0  # seconds: so many start at once that one may starve for a while, and is not to be condemned for that
CLAIMED = ("after_claim", "before_effect")  # it may have happened, as far as the ledger knows
HAPPENED = ("after_effect", "before_record")  # the effect is there, and the ledger does not know


@dataclass(frozen=True)
class Cell:
    """Whose worker is struck where and how."""

    family: Family
    place: str
    how: str

    def __str__(self) -> str:
        return f"{self.family.name}-{self.place}-{self.how}"

    @property
    def tool(self) -> str:
        """Performed by nobody else before the strike."""
        return f"{self.family.name}_{self.place}_{self.how.lower()}"


@dataclass(frozen=True)
class Fate:
    """What became of a cell's call."""

    status: str
    requests: int
    effects: int


CELLS = [Cell(*each) for each in itertools.product((DEBIT, WIRE, ASK), PLACES, HOWS)]


def fate(cell: Cell) -> Fate:
    """What must become of it."""
    if cell.place in HAPPENED:
        if cell.family is DEBIT:  # repeated, and the key catches it
            return Fate("done", 2, 1)
        if cell.family is WIRE and cell.how == "SIGKILL":  # nobody can tell
            return Fate("in_doubt", 1, 1)
        return Fate("done", 1, 1)  # the probe tells; or whoever did it does, when it goes on (I8)
    if cell.place in CLAIMED and cell.family is WIRE:
        return Fate("in_doubt", 0, 0)
    return Fate("done", 1, 1)


class Matrix:
    """All cells, struck at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.struck: set[Cell] = set()

    def play(self) -> None:
        """A call for each victim; it is struck; another worker takes over; those that were stopped go on."""
        world = self.world
        victims = {cell: world.worker(str(cell), names=[cell.tool], place=cell.place, how=cell.how) for cell in CELLS}
        assert wait(lambda: len(world.workers()) == len(CELLS))
        world.decide("matrix", *(cell.tool for cell in CELLS))
        assert wait(lambda: all(victim.stopped or not victim.alive for victim in victims.values()))
        self.struck = {cell for cell, victim in victims.items() if victim.stopped or victim.code == -9}
        rescuer = world.worker("rescuer")
        world.await_quiet()
        assert wait(lambda: len(world.workers()) == 1), "the leases of the others pass"
        stopped = [victim for victim in victims.values() if victim.stopped]
        for victim in stopped:
            victim.resume()
        assert wait(lambda: len(world.workers()) == 1 + len(stopped)), "who goes on finds out that it is another now"
        for process in (*stopped, rescuer):
            assert process.end() == 0, process.tail()
        self.verdict = world.verdict()
        self._requests = Counter(request.about for request in world.outside.books.requests())
        self._effects = Counter(effect.about for effect in world.outside.books.effects())

    def fate(self, cell: Cell) -> Fate:
        """What became of it."""
        about = f"matrix:1:{CELLS.index(cell)}"
        return Fate(self.world.status(about), self._requests[about], self._effects[about])


@pytest.fixture(scope="module")
def matrix(database_url: str, local_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    given = [cell.family.tool(cell.tool.removeprefix(cell.family.name)) for cell in CELLS]
    with World(local_stack, tmp_path_factory.mktemp("matrix"), given=given, lease=LEASE) as world:
        matrix = Matrix(world)
        matrix.play()
        yield matrix


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_struck_at_this_point(matrix: Matrix, cell: Cell) -> None:  # I5 I6 I7 I8 I16
    assert cell in matrix.struck
    assert matrix.fate(cell) == fate(cell)


def test_struck_everywhere_nothing_is_lost_nothing_is_double(matrix: Matrix) -> None:  # I5 I6
    assert matrix.verdict.holds, matrix.verdict
