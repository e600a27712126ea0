"""Random schedules: which fault strikes whom, when and for how long. The same seed is the same schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deedbox_debezium.stack import PartName
from tests.chaos.agent import PLACES as AGENT_PLACES
from tests.chaos.provider import Mood
from tests.chaos.services import Fault
from tests.chaos.tools import LONGEST
from tests.chaos.worker import PLACES as WORKER_PLACES

# Seconds between two strikes, on average. Through Kafka less often: until a group gives the partitions of a member that
# was killed to another, ten seconds pass, and if nothing were done between the strikes they would hit nothing.
EVERY: Final = 0.8
KAFKA_EVERY: Final = 2.0
SERVICES_EVERY: Final = 12.0  # …of services, which take a while to come back
NTH: Final = 6  # a crash point strikes at one of the first so many times that it is reached


@dataclass(frozen=True, order=True)
class Strike:
    """One fault: `at` seconds from the beginning, for `length` seconds."""

    at: float
    target: str
    fault: str
    length: float
    detail: str = ""

    def __str__(self) -> str:
        words = f"{self.at:6.1f} s  {self.target} {self.fault} {self.detail}".rstrip()
        return f"{words}, for {self.length:.1f} s"


WORKERS: Final = ("worker-0", "worker-1")
AGENTS: Final = ("agent-0", "agent-1")
PROCESS: Final = ("kill", "kill", "stop", "crash", "crash")
ORPHAN: Final = "orphan"  # a worker is killed while its requests are on their way: they arrive without it
LINK: Final = ("cut", "reset", "stall", "stall", "lose", "refuse")
SERVICES: Final[dict[PartName, tuple[Fault, ...]]] = {
    "postgres": ("kill", "immediate", "restart", "freeze"),
    "kafka": ("kill", "restart", "freeze"),
    "connect": ("kill", "restart", "freeze"),
}


def draw(seed: int, seconds: float, services: Sequence[PartName], *, kafka: bool) -> list[Strike]:
    """The strikes of so many seconds; these services are struck now and then."""
    chance = random.Random(seed)
    small = _small(chance, seconds, KAFKA_EVERY if kafka else EVERY)
    return sorted([*small, *(_services(chance, seconds, services) if services else ())])


def mood(seed: int) -> Mood:
    """How ill the provider behaves all the while: now and then, in every way."""
    rare, often = 0.02, 0.04
    return Mood(rare, rare, rare, rare, rare, often, often, rare, longest=1.0, seed=seed, pace=0.01)


def _small(chance: random.Random, seconds: float, every: float) -> list[Strike]:
    """Processes and their links, the provider, and a worker more for a while."""
    strikes = []
    at = chance.expovariate(1 / every)
    while at < seconds:
        target = chance.choices(
            [*WORKERS, *AGENTS, "provider", "another worker"],
            [6, 6, 3, 3, 1, 1],
        )[0]
        strikes.append(_one(chance, at, target))
        at += chance.expovariate(1 / every)
    return strikes


def _one(chance: random.Random, at: float, target: str) -> Strike:
    length = chance.uniform(0.2, LONGEST.total_seconds())
    if target == "provider":
        return Strike(at, target, chance.choice(("kill", "stop")), length)
    if target == "another worker":
        return Strike(at, target, "joins", length)
    if chance.random() < 0.5:
        fault, detail = chance.choice((*PROCESS, ORPHAN) if target in WORKERS else PROCESS), ""
        if fault == "crash":
            places = WORKER_PLACES if target in WORKERS else AGENT_PLACES
            detail = f"{chance.choice(('SIGKILL', 'SIGSTOP'))} {chance.choice(places)}:{chance.randint(1, NTH)}"
        return Strike(at, target, fault, length, detail)
    links = ("database", "provider") if target in WORKERS else ("database",)
    detail = chance.choice(("", "requests", "answers")) if (fault := chance.choice(LINK)) == "stall" else ""
    return Strike(at, f"{target} {chance.choice(links)}", fault, length, detail)


def _services(chance: random.Random, seconds: float, names: Sequence[PartName]) -> list[Strike]:
    strikes = []
    at = chance.uniform(1, SERVICES_EVERY / 2)
    while at < seconds:
        name = chance.choice(names)
        length = chance.uniform(0, LONGEST.total_seconds())
        strikes.append(Strike(at, name, chance.choice(SERVICES[name]), length))
        at += chance.uniform(SERVICES_EVERY / 2, SERVICES_EVERY * 3 / 2)
    return strikes
