"""WAL of calls that last a minute: a worker renews one lease for all its calls, so to wait costs next to nothing."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, at_most
from benchmarks.fleet import Fleet
from benchmarks.plan import CALLS_A_STEP
from benchmarks.shop import settle, slow_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.counters import Watch
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage

STEPS = 100
CALLS = STEPS * CALLS_A_STEP
WITHIN = 60.0  # seconds beside the calls' own time
# Bytes. A call of no time costs 2,400 here, and one that is open for longer than 30 s is parked once, which moves it in
# an index twice: 2,900. A quarter more for smaller batches on a slower machine; a renewal of its own would cost more.
BAR = 3600.0


def long(stage: Stage, _: Fleet, plan: Plan) -> list[Figure]:
    """Bytes a call, less what the ledger writes in the same time when nothing is to do."""
    watch = stage.watch
    with stage.alone_with([settle]) as box, stage.hire([settle]):
        crowd = Crowd(stage, Fleet(box, "long"))
        crowd.run(0.0)  # to warm up
        watch.tell("step_events", [False])
        with _without_autovacuum(watch):
            short, briefly = crowd.run(0.0)
            lasting, seconds = crowd.run(plan.lasting)
            start = watch.position()
            time.sleep(seconds)
            idle = watch.wal(start, watch.position()).written / seconds
        watch.tell("step_events", [True])
    return [
        Figure(
            f"WAL per call of {plan.lasting:g} s, {CALLS} at once",
            "bytes",
            [(lasting - idle * seconds) / CALLS],
            at_most(BAR, bar=True),
        ),
        Figure("… of 0 s", "bytes", [(short - idle * briefly) / CALLS]),
        Figure("WAL of the whole ledger while nothing is to do", "bytes/s", [idle]),
    ]


@contextlib.contextmanager
def _without_autovacuum(watch: Watch) -> Iterator[None]:
    """Its minute would come in the middle, and one of its rounds writes as much as twenty calls."""
    watch.tell("no_autovacuum")
    watch.tell("reload")
    watch.tell("vacuum")
    try:
        yield
    finally:
        watch.tell("autovacuum")
        watch.tell("reload")


class Crowd:
    """Calls that begin together, and last."""

    def __init__(self, stage: Stage, fleet: Fleet) -> None:
        self._watch = stage.watch
        self._fleet = fleet

    def run(self, lasting: float) -> tuple[float, float]:
        """Bytes and seconds from the first commit until the last outcome."""
        turns = self._fleet.turns(STEPS)
        calls = [slow_call(settle, number, seconds=lasting) for number in range(CALLS)]
        mark, start, began = self._watch.mark(), self._watch.position(), time.monotonic()
        for at, turn in enumerate(turns):
            turn.commit(calls=calls[at * CALLS_A_STEP : (at + 1) * CALLS_A_STEP])
        self._watch.await_done(mark, CALLS, WITHIN + lasting)
        return self._watch.wal(start, self._watch.position()).written, time.monotonic() - began
