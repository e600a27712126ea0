"""Many calls at once through `commit`: from the first commit until the last outcome is durable."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, at_least
from benchmarks.plan import CALLS_A_BURST_STEP
from benchmarks.shop import arguments, charge

if TYPE_CHECKING:
    from benchmarks.fleet import Fleet
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage

WITHIN = 120.0  # seconds for one burst


def burst(stage: Stage, fleet: Fleet, plan: Plan) -> list[Figure]:
    """Rates, and WAL per call."""
    rates, committing, sizes = [], [], []
    for _ in range(plan.runs):
        turns = fleet.turns(plan.burst // CALLS_A_BURST_STEP)
        wanted = [arguments(number) for number in range(plan.burst)]
        start, mark = stage.watch.position(), stage.watch.mark()
        began = time.perf_counter()
        for at, turn in enumerate(turns):
            some = wanted[at * CALLS_A_BURST_STEP : (at + 1) * CALLS_A_BURST_STEP]
            turn.commit(calls=[charge(**args) for args in some])
        committing.append(plan.burst / (time.perf_counter() - began))
        stage.watch.await_done(mark, plan.burst, WITHIN)
        rates.append(plan.burst / (time.perf_counter() - began))
        sizes.append(stage.watch.wal(start, stage.watch.position()).written / plan.burst)
    return [
        Figure(f"burst of {plan.burst:,} calls, 100 a step", "/s", rates, at_least(4000)),
        Figure("… of which committed", "/s", committing),
        Figure("WAL per call in the burst", "bytes", sizes),
    ]
