"""Agents decide as fast as they can, four calls a step; then every outcome is durable. And what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.fleet import Fleet
from benchmarks.plan import CALLS_A_STEP
from benchmarks.processes import Meter
from benchmarks.shop import arguments, charge, reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.counters import Counters, Wal
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage
    from deedbox.run import Turn

WITHIN = 120.0  # seconds for one run
MICRO = 1e6
REPORT_AFTER = 1.2  # seconds
REPORTED_WITHIN = 0.2  # seconds: it does so after it has answered
AGENTS = 4  # threads: as many as the box has connections

# What prepares an agent: given its turns, it returns what decides them all.
Make: TypeAlias = Callable[[Sequence["Turn"]], Callable[[], None]]


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
    """Rates of one agent; then commits, WAL and HOT share with so many agents that the whole is saturated."""
    sprint = Sprint(stage, fleet, plan.steps)
    alone = [sprint.run(_replying) for _ in range(plan.runs)]
    whole = [sprint.run(_replying, AGENTS) for _ in range(plan.runs)]
    stage.watch.tell("step_events", [False])
    quiet = [sprint.run(_replying, AGENTS) for _ in range(plan.runs)]
    bare = [sprint.run(_calling, AGENTS) for _ in range(plan.runs)]
    stage.watch.tell("step_events", [True])
    every = [*alone, *whole, *quiet, *bare]
    return [
        Figure("calls, 4 a step, one agent thread", "/s", _rates(alone), at_least(2500)),
        Figure("… of which committed", "/s", [run.calls / run.committed for run in alone]),
        Figure("calls, 4 a step, four agent threads", "/s", _rates(whole)),
        Figure("… without step events", "/s", _rates(quiet)),
        Figure("… decided in code, without replies", "/s", _rates(bare)),
        Figure("commits per call, one agent thread", "", _commits(alone)),
        Figure("commits per call at saturation", "", _commits(whole), at_most(0.5, bar=True)),
        Figure("WAL per call, decided in code", "bytes", _bytes(bare), at_most(2600, bar=True)),
        Figure("… with the model's reply", "bytes", _bytes(quiet)),
        Figure("… and its step event", "bytes", _bytes(whole)),
        Figure("… and full-page images", "bytes", [run.wal.total / run.calls for run in whole]),
        Figure("updates of outcome in place (HOT)", "%", _in_place(every), at_least(95, bar=True)),
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
        self._waker = Fleet(stage.box, "waker")  # not one of the fleet: their turns are due already
        self._steps = steps

    def run(self, make: Make, agents: int = 1) -> Spent:
        """Once, with so many agents, a thread each; `make` prepares what an agent then decides."""
        watch = self._stage.watch
        turns = self._fleet.turns(self._steps)
        decides = [make(turns[number::agents]) for number in range(agents)]
        calls = self._steps * CALLS_A_STEP
        before, start, mark = self._counters(), watch.position(), watch.mark()
        meter = Meter(self._stage.pids())
        began = time.perf_counter()
        with ThreadPoolExecutor(agents) as pool:
            for done_deciding in [pool.submit(decide) for decide in decides]:
                done_deciding.result()
        committed = time.perf_counter() - began
        watch.await_done(mark, calls, WITHIN)
        done = time.perf_counter() - began
        used, end = meter.used(), watch.position()
        return Spent(calls, committed, done, self._counters().since(before), watch.wal(start, end), used)

    def _counters(self) -> Counters:
        """Everything counted until now.

        A session reports with its first statement a second after its last report: so each is given one, those of the
        worker by a call.
        """
        time.sleep(REPORT_AFTER)
        watch, box = self._stage.watch, self._stage.box
        with ExitStack() as held:
            for conn in [held.enter_context(box.connection()) for _ in range(AGENTS)]:
                conn.execute(watch.ping)
        mark = watch.mark()
        self._waker.turns(1)[0].commit(reply(range(1)))
        watch.await_done(mark, 1, WITHIN)
        time.sleep(REPORTED_WITHIN)
        return watch.counters()


def _replying(turns: Sequence[Turn]) -> Callable[[], None]:
    """The agent of the README: a model's reply for each turn."""
    replies = [reply(range(first * CALLS_A_STEP, (first + 1) * CALLS_A_STEP)) for first in range(len(turns))]

    def decide() -> None:
        for turn, said in zip(turns, replies, strict=True):
            turn.commit(said)

    return decide


def _calling(turns: Sequence[Turn]) -> Callable[[], None]:
    """Code without a model."""
    wanted = [[arguments(first * CALLS_A_STEP + at) for at in range(CALLS_A_STEP)] for first in range(len(turns))]

    def decide() -> None:
        for turn, args in zip(turns, wanted, strict=True):
            turn.commit(calls=[charge(**each) for each in args])

    return decide


def _rates(runs: Sequence[Spent]) -> list[float]:
    return [run.calls / run.done for run in runs]


def _commits(runs: Sequence[Spent]) -> list[float]:
    return [run.counters.commits / run.calls for run in runs]


def _bytes(runs: Sequence[Spent]) -> list[float]:
    return [run.wal.written / run.calls for run in runs]


def _in_place(runs: Sequence[Spent]) -> list[float]:
    return [100 * run.counters.hot / run.counters.updates for run in runs]
