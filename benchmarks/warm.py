"""Before anything is measured: every part has done some work, and the planner knows the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.plan import CALLS_A_STEP
from benchmarks.shop import reply

if TYPE_CHECKING:
    from benchmarks.fleet import Fleet
    from benchmarks.stage import Stage

ROUNDS = 3
STEPS = 400  # a round: some thousand calls, then the JVMs have compiled what they run often
WITHIN = 300.0  # seconds for one round; the first records wait for consumer groups and topics


def warm(stage: Stage, fleet: Fleet) -> None:
    """Let some thousand calls through."""
    for _ in range(ROUNDS):
        turns = fleet.turns(STEPS)
        mark = stage.watch.mark()
        for turn in turns:
            turn.commit(reply(range(CALLS_A_STEP)))
        stage.watch.await_done(mark, STEPS * CALLS_A_STEP, WITHIN)
    stage.watch.tell("analyze")  # as autovacuum does after a minute
