"""A schedule, played: the strikes on a crew at work, quiet, a person who settles the doubts, and the verdict."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from deedbox_debezium.stack import PartName, Stack
from tests.chaos import person, schedule
from tests.chaos.crew import Crew
from tests.chaos.oracle import Verdict
from tests.chaos.provider import Mood
from tests.chaos.schedule import AGENTS, WORKERS, Strike
from tests.chaos.services import Fault, Service
from tests.chaos.waiting import PATIENCE, wait
from tests.chaos.world import World

TICK: Final = 0.02  # seconds between two looks at the crew
COPIED: Final = 0.1  # of all records come twice
ROUNDS: Final = 3  # of a person: after the first nothing breaks any more, so nothing new is in doubt
LATE: Final = 1.5  # seconds: longer than the provider takes over what it was asked last
UNFINISHED: Final = """
SELECT r.id FROM run r
WHERE NOT EXISTS (SELECT FROM step s WHERE s.run_id = r.id AND s.kind = 'decision' AND s.width = 0)
"""
SERVICES: Final[tuple[PartName, ...]] = get_args(PartName)


@dataclass
class Result:
    """What a schedule came to. `in_doubt` were named when all was quiet, before the person settled them."""

    seed: int
    seconds: float
    kafka: bool
    kills: int = 0
    calls: int = 0
    runs: int = 0
    repeats: int = 0
    in_doubt: int = 0
    lost: int = 0
    double: int = 0
    wrong: int = 0
    copies: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """What the oracle has found."""
        self.lost += len(verdict.lost)
        self.double += len(verdict.double)
        self.refused(verdict.wrong)
        self.details += [*verdict.lost, *verdict.double]

    def refused(self, wrong: list[str]) -> None:
        """What else must not be."""
        self.wrong += len(wrong)
        self.details += wrong

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, double, or wrong in any other way."""
        return not (self.lost or self.double or self.wrong)

    def as_json(self) -> dict[str, Any]:
        """For a machine."""
        return asdict(self)


class Play:
    """One schedule in a world of its own."""

    def __init__(self, world: World, crew: Crew, say: Callable[[str], object]) -> None:
        self.world = world
        self.crew = crew
        self.say = say
        self.faults: Counter[str] = Counter()
        self.kills = 0  # of services
        self._busy: set[str] = set()
        self._ends: list[tuple[float, int, str, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._services = {name: Service(world.stack, name) for name in SERVICES}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="services")
        self._pending: list[Future[None]] = []

    def strike_all(self, strikes: list[Strike], seconds: float) -> None:
        """Let the schedule take its time; at the end everything is given back."""
        began = time.monotonic()
        waiting = sorted(strikes, reverse=True)
        while (at := time.monotonic() - began) < seconds:
            while waiting and waiting[-1].at <= at:
                self._begin(waiting.pop(), at)
            self._end_until(at)
            self.crew.look()
            time.sleep(TICK)
        self._end_until(float("inf"))
        for pending in self._pending:
            pending.result()
        self._pool.shutdown()
        assert wait(self._whole), "a process does not come back"

    def _whole(self) -> bool:
        self.crew.look()
        return all(place.process.alive and not place.process.stopped for place in self.crew.places.values())

    def _begin(self, strike: Strike, at: float) -> None:
        name = strike.target.partition(" ")[0]
        if name in self._busy:
            return  # one at a time, so that no fault lasts longer than the tools allow for
        self.say(str(strike))
        self._busy.add(name)
        self.faults[f"{strike.target.partition('-')[0]} {strike.fault}"] += 1
        if strike.target in SERVICES:
            self._pending.append(self._pool.submit(self._service, strike))
            return
        end = self.crew.strike(strike.target, strike.fault, strike.detail)
        heapq.heappush(self._ends, (at + strike.length, next(self._numbers), name, end))

    def _end_until(self, at: float) -> None:
        while self._ends and self._ends[0][0] <= at:
            _, _, name, end = heapq.heappop(self._ends)
            end()
            self._busy.discard(name)

    def _service(self, strike: Strike) -> None:
        """In a thread: to start a broker takes seconds, and the small faults go on meanwhile."""
        fault: Fault = next(each for each in get_args(Fault) if each == strike.fault)
        service = self._services[next(name for name in SERVICES if name == strike.target)]
        service.strike(fault)
        self.kills += fault in {"kill", "immediate"}
        time.sleep(strike.length)
        service.mend(fault)
        self._busy.discard(strike.target)


def play(
    stack: Stack,
    folder: Path,
    seed: int,
    seconds: float,
    *,
    kafka: bool,
    services: Sequence[PartName],
    say: Callable[[str], object],
) -> Result:
    """Play the schedule of this seed, which strikes these services too, and say what it came to."""
    result = Result(seed, seconds, kafka)
    strikes = schedule.draw(seed, seconds, services, kafka=kafka)
    with ExitStack() as open_:
        world = open_.enter_context(World(stack, folder, kafka=kafka, seed=seed))
        world.outside.mood(schedule.mood(seed))
        crew = Crew(world, (*WORKERS, *AGENTS))
        played = Play(world, crew, say)
        assert wait(lambda: world.count("", "done")), "nothing is done before the first strike"
        if kafka:
            with world.copier(share=COPIED) as copier:
                played.strike_all(strikes, seconds)
            result.copies = copier.copies
        else:
            played.strike_all(strikes, seconds)
        say(f"{seconds:6.1f} s  everything is given back")
        # A call that nobody answers for is emitted again when it is twice as old as at the last look, at the latest.
        _end(world, crew, patience=PATIENCE + 2 * seconds)
        verdict = world.verdict()
        result.in_doubt = verdict.in_doubt
        result.add(verdict)
        say(f"all is quiet: {verdict.in_doubt} calls are in doubt")
        result.refused(_settle(world))
        verdict = world.verdict()
        result.add(verdict)
        result.calls, result.repeats = verdict.calls, verdict.repeats
        result.runs = int(world.rows("SELECT count(*) FROM run")[0][0])
        result.kills, result.faults = crew.kills + played.kills, dict(sorted(played.faults.items()))
        result.failures = crew.failures
    return result


def _end(world: World, crew: Crew, patience: float) -> None:
    """Let all that is under way come to its end, then all that works, and what the provider was asked last."""
    world.outside.mood(Mood())
    crew.end_agents()
    world.await_quiet(patience=patience)
    crew.end_workers()
    time.sleep(LATE)


def _settle(world: World) -> list[str]:
    """A person settles the doubts, and the runs are driven to their end; gives what must not be."""
    worker = world.worker("worker-last")
    wrong = []
    for number in range(ROUNDS):
        wrong += person.settle(world)
        last = [world.agent(f"{name}-last-{number}", f"{name}-", runs=0, beside=4) for name in AGENTS]
        world.await_quiet(*last)
    assert worker.end() == 0, worker.tail()
    return [*wrong, *(f"{run} is not finished" for (run,) in world.rows(UNFINISHED))]
