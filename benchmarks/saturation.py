"""One agent thread decides as fast as it can, four calls a step; then every outcome is durable. And what that costs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.plan import CALLS_A_STEP
from benchmarks.processes import Meter
from benchmarks.shop import arguments, charge, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.counters import Counters, Wal
    from benchmarks.fleet import Fleet
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage
    from deedbox.run import Turn

WITHIN = 120.0  # seconds for one run
MICRO = 1e6


@dataclass(frozen=True)
class Spent:
    """What one run took: seconds until all was committed, and done; what the server counted; CPU seconds by part."""

    calls: int
    committed: float
    done: float
    counters: Counters
    wal: Wal
    cpu: Mapping[str, float]


def saturation(stage: Stage, fleet: Fleet, plan: Plan) -> list[Figure]:
    """Rates, commits, WAL and HOT share."""
    sprint = Sprint(stage, fleet, plan.steps)
    sprint.run(_replying)  # the worker, Connect and the planner's statistics get warm
    whole = [sprint.run(_replying) for _ in range(plan.runs)]
    stage.watch.tell("step_events", [False])
    quiet = [sprint.run(_replying) for _ in range(plan.runs)]
    bare = [sprint.run(_calling(stage)) for _ in range(plan.runs)]
    stage.watch.tell("step_events", [True])
    every = [*whole, *quiet, *bare]
    return [
        Figure("calls, 4 a step, one agent thread", "/s", [run.calls / run.done for run in whole], at_least(2500)),
        Figure("… of which committed", "/s", [run.calls / run.committed for run in whole]),
        Figure("… without step events", "/s", [run.calls / run.done for run in quiet]),
        Figure("… through commit, without replies", "/s", [run.calls / run.done for run in bare]),
        Figure("commits per call", "", [run.counters.commits / run.calls for run in whole], at_most(0.5, bar=True)),
        Figure("WAL per call, decided in code", "bytes", _bytes(bare), at_most(2600, bar=True)),
        Figure("… with the model's reply", "bytes", _bytes(quiet)),
        Figure("… and its step event", "bytes", _bytes(whole)),
        Figure("… and full-page images", "bytes", [run.wal.total / run.calls for run in whole]),
        Figure(
            "updates of outcome in place (HOT)",
            "%",
            [100 * run.counters.hot / run.counters.updates for run in every],
            at_least(95, bar=True),
        ),
        *(
            Figure(f"CPU per call: {part}", "µs", [MICRO * run.cpu[part] / run.calls for run in whole])
            for part in whole[0].cpu
        ),
        Figure("CPU per call in all", "µs", [MICRO * sum(run.cpu.values()) / run.calls for run in whole]),
    ]


class Sprint:
    """Runs that are due, decided one after the other without a pause."""

    def __init__(self, stage: Stage, fleet: Fleet, steps: int) -> None:
        self._stage = stage
        self._fleet = fleet
        self._steps = steps

    def run(self, make: Callable[[Sequence[Turn]], Callable[[], None]]) -> Spent:
        """Once; `make` prepares what the agent then decides."""
        watch = self._stage.watch
        decide = make(self._fleet.turns(self._steps))
        calls = self._steps * CALLS_A_STEP
        before, start, mark = watch.counters(), watch.position(), watch.mark()
        meter = Meter(self._stage.pids())
        began = time.perf_counter()
        decide()
        committed = time.perf_counter() - began
        watch.await_done(mark, calls, WITHIN)
        done = time.perf_counter() - began
        used, end = meter.used(), watch.position()
        return Spent(calls, committed, done, watch.counters().since(before), watch.wal(start, end), used)


def _replying(turns: Sequence[Turn]) -> Callable[[], None]:
    """The agent of the README: a model's reply for each turn."""
    replies = [reply(range(first * CALLS_A_STEP, (first + 1) * CALLS_A_STEP)) for first in range(len(turns))]

    def decide() -> None:
        for turn, said in zip(turns, replies, strict=True):
            with turn.transaction(said):
                pass

    return decide


def _calling(stage: Stage) -> Callable[[Sequence[Turn]], Callable[[], None]]:
    """Code without a model, which commits on its own connection."""

    def make(turns: Sequence[Turn]) -> Callable[[], None]:
        wanted = [[arguments(first * CALLS_A_STEP + at) for at in range(CALLS_A_STEP)] for first in range(len(turns))]

        def decide() -> None:
            with stage.box.connection() as conn:
                for turn, args in zip(turns, wanted, strict=True):
                    turn.commit(on=conn, calls=[charge(**each) for each in args])
                    conn.commit()

        return decide

    return make


def _bytes(runs: Sequence[Spent]) -> list[float]:
    return [run.wal.written / run.calls for run in runs]
