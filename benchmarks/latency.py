"""Commit → result visible: one call at a time, with time to think between, so that nothing is hidden by a queue."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.hops import append_times, hops
from benchmarks.shop import reply

if TYPE_CHECKING:
    from benchmarks.fleet import Fleet
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage

THINK = 0.05  # seconds at most between two calls
WARM = 60  # calls before the first that counts
RUNS = 50  # agents in turn, so that no journal grows long
MILLI = 1e3


def latency(stage: Stage, fleet: Fleet, plan: Plan) -> list[Figure]:
    """What the agent sees, and where the time goes on the way."""
    loop = Loop(fleet)
    loop.calls(WARM, think=THINK / 5)
    runs: list[list[float]] = []
    commits: list[list[float]] = []
    ways: dict[str, list[float]] = {}
    for _ in range(plan.runs):
        mark = stage.watch.mark()
        asked = loop.calls(plan.samples, think=THINK)
        runs.append([MILLI * (seen - began) for began, _, seen in asked])
        commits.append([MILLI * (committed - began) for began, committed, _ in asked])
        appended = append_times(stage.stack.kafka, mark) if stage.source == "kafka" else {}
        for name, values in hops(stage.watch.rows("hops", [mark]), appended, asked).items():
            ways.setdefault(name, []).append(MILLI * statistics.median(values))
    return [
        Figure("commit → result visible, p50", "ms", [percentile(run, 0.5) for run in runs], at_most(15)),
        Figure("commit → result visible, p99", "ms", [percentile(run, 0.99) for run in runs], at_most(40)),
        Figure("commit alone, p50", "ms", [percentile(run, 0.5) for run in commits]),
        *(Figure(f"hop: {name}, p50", "ms", values) for name, values in ways.items()),
    ]


class Loop:
    """A closed loop over some runs: decide, wait for the result, think, decide again."""

    def __init__(self, fleet: Fleet) -> None:
        self._members = fleet.members(RUNS)
        self._turns = [member.turn() for member in self._members]
        self._number = 0

    def calls(self, count: int, *, think: float) -> list[tuple[float, float, float]]:
        """Seconds since 1970 for each call: the decision is there, it is committed, its result is there."""
        seen = []
        for _ in range(count):
            at = self._number % RUNS
            said = reply(range(self._number, self._number + 1))
            self._number += 1
            time.sleep(random.uniform(0, think))  # noqa: S311
            began = time.time()
            self._turns[at].commit(said)
            committed = time.time()
            self._turns[at] = self._members[at].turn()
            seen.append((began, committed, time.time()))
        return seen
