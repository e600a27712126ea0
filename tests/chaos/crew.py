"""Who works while the schedule strikes: places for processes, each with links of its own, filled again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from tests.chaos.forkserver import Process
from tests.chaos.proxy import DIRECTIONS, Direction, Proxy
from tests.chaos.schedule import ORPHAN
from tests.chaos.tools import LONGEST
from tests.chaos.waiting import wait
from tests.chaos.world import World

SIGKILLED: Final = -9
BESIDE: Final = 8  # runs of an agent beside each other
PAUSE: Final = 0.1  # seconds between two of them
ON_THEIR_WAY: Final = 0.3  # seconds in which a worker that is busy sends something
BACK_AFTER: Final = 0.5  # seconds: a process that ended by itself is started again, as a deployment would


class Place:
    """A worker or an agent, and its links. Whatever process is there, the links stay."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.links: dict[str, Proxy] = {"database": world.database_link()}
        if self.works:
            self.links["provider"] = world.provider_link()
        self.kills = 0
        self.failures: list[str] = []  # of processes that ended though nobody had struck them
        self.held = False  # a strike that is not over has taken its process away, or stopped it
        self._since: float | None = None  # when it was first seen to be dead, or stopped, at a crash point
        self.process: Process = self._start()

    @property
    def works(self) -> bool:
        """Whether it is a worker's."""
        return self.name.startswith("worker")

    def start(self, armed: str = "") -> None:
        """A new process; armed: `SIGSTOP after_effect:3`."""
        how, _, place = armed.partition(" ")
        self.process = self._start(place=place, how=how) if armed else self._start()
        self.held = False

    def kill(self) -> None:
        """Without a word."""
        self.held = True
        if self.process.alive:
            self.kills += 1
            self.process.kill()

    def stop(self) -> None:
        """For a while."""
        self.held = True
        self.process.stop()

    def resume(self) -> None:
        """Let it go on."""
        self.process.resume()
        self.held = False

    def look(self) -> None:
        """See to a process that is gone or stopped though no strike holds it: it failed, or met its crash point."""
        alive, stopped = self.process.alive, self.process.stopped
        if self.held or (alive and not stopped):
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()
            if not alive:
                self._count(self.process)
        elif time.monotonic() > self._since + (LONGEST.total_seconds() if stopped else BACK_AFTER):
            self._since = None
            if stopped:
                self.process.resume()
            else:
                self.start()

    def end(self) -> None:
        """Let it come to its end, and start no other."""
        self.held = True
        if self.process.alive:
            self.process.end()
            self._count(self.process)

    def _count(self, ended: Process) -> None:
        if ended.code == SIGKILLED:
            self.kills += 1
        elif ended.code:
            self.failures.append(f"{ended} ended with {ended.code}: {ended.tail(3)}")

    def _start(self, **armed: Any) -> Process:
        database = self.links["database"]
        if self.works:
            return self.world.worker(self.name, database=database, provider=self.links["provider"], **armed)
        return self.world.agent(self.name, f"{self.name}-", database=database, beside=BESIDE, pause=PAUSE, **armed)


class Crew:
    """All places, and what strikes do to them. Each strike gives back what ends it."""

    def __init__(self, world: World, names: tuple[str, ...]) -> None:
        self.world = world
        self.places = {name: Place(world, name) for name in names}
        self.others: list[Process] = []
        self._provider_kills = 0

    @property
    def kills(self) -> int:
        """SIGKILLs so far, those at crash points too."""
        return self._provider_kills + sum(place.kills for place in self.places.values())

    @property
    def failures(self) -> list[str]:
        """Processes that ended by themselves."""
        return [failure for place in self.places.values() for failure in place.failures]

    def look(self) -> None:
        """Fill the places that are empty though they should not be."""
        for place in self.places.values():
            place.look()

    def strike(self, target: str, fault: str, detail: str) -> Callable[[], None]:
        """Do it, and give what is to be done at its end."""
        name, _, link = target.partition(" ")
        if target == "another worker":
            return self._join()
        if target == "provider":
            return self._strike_provider(fault)
        place = self.places[name]
        return _break(place.links[link], fault, detail) if link else _strike_process(place, fault, detail)

    def end_agents(self) -> None:
        """Let the agents come to their end."""
        for place in self.places.values():
            if not place.works:
                place.end()

    def end_workers(self) -> None:
        """Let the workers come to their end: each drains."""
        for place in self.places.values():
            if place.works:
                place.end()
        for another in self.others:
            another.end()

    def _join(self) -> Callable[[], None]:
        another = self.world.worker(f"another-{len(self.others)}")
        self.others.append(another)
        return another.terminate  # it drains; nobody waits for that here

    def _strike_provider(self, fault: str) -> Callable[[], None]:
        outside = self.world.outside
        if fault == "kill":
            self._provider_kills += 1
            outside.kill()
            return outside.start
        outside.stop()
        return outside.resume


def _strike_process(place: Place, fault: str, detail: str) -> Callable[[], None]:
    if fault == "stop":
        place.stop()
        return place.resume
    if fault == ORPHAN:
        return _orphan(place)
    place.kill()
    if fault == "kill":
        return place.start
    place.start(detail)  # it meets its crash point sooner or later
    return lambda: None


def _orphan(place: Place) -> Callable[[], None]:
    """Its requests are held back on their way, it is killed, and another is there before they arrive."""
    link = place.links["provider"]
    link.stall("requests")
    wait(lambda: link.holds("requests"), ON_THEIR_WAY)
    place.kill()
    place.start()
    return link.resume


def _break(link: Proxy, fault: str, detail: str) -> Callable[[], None]:
    match fault:
        case "cut":
            link.cut()
        case "reset":
            link.reset()
        case "refuse":
            link.refuse()
            link.cut()
        case "stall":
            which: list[Direction] = [one for one in DIRECTIONS if detail in ("", one)]
            link.stall(*which)
        case _:
            link.stall("answers")
            return lambda: _lose(link)
    return link.mend


def _lose(link: Proxy) -> None:
    """What was asked was done, and the answer never comes."""
    link.reset()
    link.mend()
