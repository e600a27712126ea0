"""A tool whose calls are ordered by customer, and one customer's call hangs: what do the others notice of it?"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.fates import await_fates, fates
from benchmarks.figures import Figure, at_most, percentile
from benchmarks.fleet import Fleet
from benchmarks.plan import CALLS_A_STEP
from benchmarks.shop import ship, slow_call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from benchmarks.fates import Fate
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage
    from deedbox.run import Turn

KEYS = 200  # customers: each gets a call a second or so
THINK = 0.05  # seconds at most between two steps: far below what the machine can do, or queues would be measured
BEHIND = 20  # calls of the customer whose first one hangs
STUCK = "cus_stuck"
WITHIN = 60.0  # seconds until all calls that can be done are done
RATIO = 1.5
MILLI = 1e3


@dataclass(frozen=True)
class Noticed:
    """How long the other customers' calls took, in seconds, how many are not done, and how many behind are begun."""

    took: Sequence[float]
    undone: int = 0
    begun: int = 0

    @property
    def p99(self) -> float:
        """Milliseconds."""
        return MILLI * percentile(self.took, 0.99)


def notice(began: Mapping[UUID | None, float], ended: Sequence[Fate]) -> Noticed:
    """What became of calls that were committed at these moments."""
    took = [fate.finished - began[fate.id] for fate in ended if fate.status == "done" and fate.finished is not None]
    return Noticed(took, undone=len(began) - len(took))


def stuck(stage: Stage, _: Fleet, plan: Plan) -> list[Figure]:
    """p99 of the other customers with a customer stuck and without, in turns."""
    with TemporaryDirectory() as folder, stage.alone_with([ship]) as box, stage.hire([ship]):
        street = Street(stage, Fleet(box, "ship"), Path(folder), plan.samples)
        street.undisturbed()  # to warm up
        pairs = [(street.disturbed(), street.undisturbed()) for _ in range(plan.runs)]
    hindered, free = [one.p99 for one, _ in pairs], [one.p99 for _, one in pairs]
    undone, begun = max(one.undone for one, _ in pairs), max(one.begun for one, _ in pairs)
    ratios = [one / other for one, other in zip(hindered, free, strict=True)]
    return [
        Figure("commit → outcome while a customer is stuck, p99 of the others", "ms", hindered),
        Figure("… while none is stuck", "ms", free),
        Figure("… the one in terms of the other", "", ratios, at_most(RATIO)),
        Figure("calls of the others that waited for the stuck one", "", [undone], at_most(0, bar=True)),
        Figure("calls behind the stuck one that were begun", "", [begun], at_most(0, bar=True)),
    ]


class Street:
    """Customers whose calls come at random moments, however long the ones before take."""

    def __init__(self, stage: Stage, fleet: Fleet, folder: Path, steps: int) -> None:
        self._watch = stage.watch
        self._fleet = fleet
        self._folder = folder
        self._steps = steps
        self._times = 0

    def undisturbed(self) -> Noticed:
        """Every customer is served."""
        return self._serve(self._fleet.turns(self._steps))

    def disturbed(self) -> Noticed:
        """One customer's first call hangs, with others behind it, for as long as the rest are served."""
        self._times += 1
        until = self._folder / f"released-{self._times}"
        first, second, *turns = self._fleet.turns(self._steps + 2)
        mark = self._watch.mark()
        (hung,) = first.commit(calls=[slow_call(ship, 0, until=str(until), customer=STUCK)])
        await_fates(self._watch, mark, lambda all_: [fate.status for fate in all_] == ["running"], WITHIN)
        behind = second.commit(calls=[slow_call(ship, at, customer=STUCK) for at in range(BEHIND)])
        others = self._serve(turns)
        found = {fate.id: fate for fate in fates(self._watch, mark)}
        if hung.id is None or found[hung.id].status != "running":
            raise RuntimeError("the call that was to hang does not: nothing was measured")
        begun = sum(found[call.id].attempt > 0 for call in behind if call.id is not None)
        until.touch()
        self._watch.await_done(mark, len(found), WITHIN)
        return replace(others, begun=begun)

    def _serve(self, turns: Sequence[Turn]) -> Noticed:
        mark = self._watch.mark()
        began: dict[UUID | None, float] = {}
        for at, turn in enumerate(turns):
            numbers = range(at * CALLS_A_STEP, (at + 1) * CALLS_A_STEP)
            calls = [slow_call(ship, number, customer=f"cus_{number % KEYS:08d}") for number in numbers]
            time.sleep(random.uniform(0, THINK))  # noqa: S311
            moment = time.time()
            began |= {call.id: moment for call in turn.commit(calls=calls)}
        ended = await_fates(self._watch, mark, lambda all_: all(fate.status == "done" for fate in all_), WITHIN)
        return notice(began, ended)
