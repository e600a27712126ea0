"""What only the pipeline can do: records that come again, partitions that move, and workers that die in their group."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from deedbox_debezium.stack import Stack
from tests.chaos import tools
from tests.chaos.provider import Mood
from tests.chaos.tools import ASK, CHARGE, DEBIT, MAIL, TRANSFER, WIRE
from tests.chaos.waiting import wait
from tests.chaos.world import World

pytestmark = pytest.mark.timeout(300)  # seconds: a busy machine takes its time to start what was killed

NAMES = [family.name for family in (CHARGE, MAIL, TRANSFER, ASK)]
CELLS = list(itertools.product((DEBIT, WIRE, ASK), ("before_claim", "after_claim", "after_effect")))
STRUCK = [f"{family.name}_{place}" for family, place in CELLS]
RUNS = 12


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    given = [
        *tools.tools(families=(CHARGE, MAIL, TRANSFER, ASK)),
        *(family.tool(f"_{place}") for family, place in CELLS),
    ]
    with World(stack, tmp_path_factory.mktemp("pipeline"), kafka=True, given=given) as world:
        _strike_in_groups(world)
        yield world


def _strike_in_groups(world: World) -> None:
    """Kill a worker of each cell in its group. Its partitions move after a session's timeout: the last test looks."""
    victims = [
        world.worker(f"victim-{name}", names=[name], place=place)
        for name, (_, place) in zip(STRUCK, CELLS, strict=True)
    ]
    assert wait(lambda: len(world.workers()) == len(victims))
    world.decide("group", *STRUCK)
    for victim in victims:
        assert victim.wait() == -9, victim.tail()
    world.worker("worker-rescuer", names=STRUCK)


def test_a_record_that_comes_again_is_no_new_deed(world: World) -> None:  # I6 I7
    world.outside.mood(Mood(pace=0.2))
    with world.copier(names=NAMES) as copier:
        worker = world.worker("worker-again", names=NAMES)
        agent = world.agent("agent-again", "again-", names=NAMES, runs=RUNS, beside=4)
        world.await_quiet(agent, prefix="again-")
        calls = world.count("again-", "done")
        assert wait(lambda: copier.copies >= calls), "every record was there twice"
        assert wait(lambda: all(world.lag(name) == 0 for name in NAMES)), "and was looked at twice"
    assert worker.end() == 0, worker.tail()
    verdict = world.verdict("again-")
    assert verdict.holds, verdict
    assert (verdict.calls, verdict.repeats, verdict.in_doubt) == (calls, 0, 0)


def test_partitions_move_while_calls_run(world: World) -> None:  # I5 I6 I8
    world.outside.mood(Mood(pace=0.2))
    first = world.worker("worker-first", names=NAMES)
    agent = world.agent("agent-moving", "moving-", names=NAMES, beside=6)  # decides until it is ended
    assert wait(lambda: world.count("moving-", "running"))
    joins = world.worker("worker-joins", names=NAMES)
    assert wait(lambda: len(world.workers(CHARGE.name)) == 2 and world.count("moving-", "running"))
    assert first.end() == 0, first.tail()  # it leaves with calls in its hands, and drains
    assert wait(lambda: world.count("moving-", "running"))
    stays = world.worker("worker-stays", names=NAMES)
    assert wait(lambda: len(world.workers(CHARGE.name)) == 2 and world.count("moving-", "running"))
    joins.kill()  # its group finds out by the session's timeout, the ledger sooner
    assert wait(lambda: world.count("moving-", "running"))
    assert agent.end() == 0, agent.tail()
    world.await_quiet(prefix="moving-")
    assert stays.end() == 0, stays.tail()
    verdict = world.verdict("moving-")
    assert verdict.holds, verdict
    assert verdict.calls


def test_killed_in_its_group(world: World) -> None:  # I5 I6 I7 I16
    world.await_quiet(prefix="group")
    verdict = world.verdict("group")
    assert verdict.holds, verdict
    effects = Counter(effect.about for effect in world.outside.books.effects())
    for at, (family, place) in enumerate(CELLS):
        about = f"group:1:{at}"
        doubtful = family is WIRE and place != "before_claim"
        assert world.status(about) == ("in_doubt" if doubtful else "done")
        assert effects[about] == (0 if doubtful and place == "after_claim" else 1)
