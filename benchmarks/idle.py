"""What it costs to wait: CPU of every part, and what the agent's database is asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.counters import LAG
from benchmarks.figures import Figure, at_most
from benchmarks.processes import Meter

if TYPE_CHECKING:
    from benchmarks.counters import Watch
    from benchmarks.fleet import Fleet
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage

LOOK_EVERY = 0.5  # seconds between two looks at the sessions of the claim path


def idle(stage: Stage, fleet: Fleet, plan: Plan) -> list[Figure]:
    """An agent that has just run and is there, a worker that waits for calls, and none comes."""
    fleet.turns(1)
    watch = stage.watch
    time.sleep(LAG)
    counted = watch.counters()
    meter = Meter(stage.pids())
    began = time.monotonic()
    asked = _claim_path_statements(watch, plan.idle)
    seconds = time.monotonic() - began
    used = {name: 100 * spent / seconds for name, spent in meter.used().items()}
    time.sleep(LAG)
    commits = watch.counters().since(counted).commits
    return [
        Figure("idle: statements of the claim path", "", [asked], at_most(0, bar=True)),
        Figure("idle: transactions of the database", "/s", [commits / (time.monotonic() - began)]),
        *(Figure(f"idle: CPU of {name}", "% of a core", [share]) for name, share in used.items()),
        Figure("idle: CPU in all", "% of a core", [sum(used.values())]),
    ]


def _claim_path_statements(watch: Watch, seconds: float) -> int:
    """How many statements were seen on the sessions that claim and finish.

    A session's `query_start` changes with each: none is missed if it is the same at the end, and the looks between
    only tell how many there were. A session that was made anew counts, too.
    """
    count = 0
    known = dict[int, object]()
    for pid, _, at in watch.rows("asked_at"):
        known[pid] = at
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(LOOK_EVERY)
        for pid, _, at in watch.rows("asked_at"):
            if known.get(pid) != at:
                known[pid] = at
                count += 1
    return count
