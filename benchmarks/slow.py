"""Many calls that take a second each, all at once on one worker: what the worker adds to their own time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, at_most
from benchmarks.fleet import Fleet
from benchmarks.plan import CALLS_A_STEP
from benchmarks.shop import settle, slow_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.plan import Plan
    from benchmarks.shop import SlowCall
    from benchmarks.stage import Stage
    from deedbox import Deedbox

STEPS = 500
CALLS = STEPS * CALLS_A_STEP
LASTING = 1.0  # seconds of a call
WITHIN = 120.0  # seconds for one run
ABOVE = 0.7  # seconds above the ideal that the whole may take
CONNECTIONS = 6  # three of a worker; an agent has one that listens and one for each thread at work


@dataclass(frozen=True)
class Spent:
    """What one run took: seconds to commit its steps where nobody takes notice, and to do it all; connections."""

    alone: float
    done: float
    connections: int

    @property
    def ideal(self) -> float:
        """If nothing but the commits and the calls themselves took time."""
        return LASTING + self.alone


def slow(stage: Stage, _: Fleet, plan: Plan) -> list[Figure]:
    """Seconds for all of them, beside the ideal; connections of worker and agent together."""
    with stage.alone_with([settle]) as box, stage.hire([settle], "--concurrency", str(CALLS)):
        runs = [_run(stage, box, number) for number in range(1 + plan.runs)][1:]  # the first is to warm up
    return [
        Figure(f"{CALLS:,} calls of {LASTING:g} s, {CALLS_A_STEP} a step, one worker", "s", [run.done for run in runs]),
        Figure(f"… ideal: {LASTING:g} s and the commits alone", "s", [run.ideal for run in runs]),
        Figure("… above the ideal", "s", [run.done - run.ideal for run in runs], at_most(ABOVE)),
        Figure(
            "… connections of worker and agent",
            "",
            [max(run.connections for run in runs)],
            at_most(CONNECTIONS, bar=True),
        ),
    ]


def _run(stage: Stage, box: Deedbox, number: int) -> Spent:
    calls = [slow_call(settle, at, seconds=LASTING) for at in range(CALLS)]
    with stage.deserted([settle]) as nobodys:
        alone = _commit(Fleet(nobodys, f"slow-{number}"), calls)
    fleet = Fleet(box, f"slow-{number}")
    fleet.members(STEPS)
    mark = stage.watch.mark()
    at_first, ever = stage.watch.rows("sessions")[0]
    began = time.perf_counter()
    _commit(fleet, calls)
    stage.watch.await_done(mark, CALLS, WITHIN)
    done = time.perf_counter() - began
    begun = stage.watch.rows("sessions")[0][1] - ever
    return Spent(alone, done, at_first + begun)  # all that were open at any time, if none was closed


def _commit(fleet: Fleet, calls: Sequence[SlowCall]) -> float:
    """Seconds for all steps, one after the other, of one agent thread."""
    turns = fleet.turns(STEPS)
    began = time.perf_counter()
    for at, turn in enumerate(turns):
        turn.commit(calls=calls[at * CALLS_A_STEP : (at + 1) * CALLS_A_STEP])
    return time.perf_counter() - began
