"""What was observed of an act, and what it amounts to."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbox_consumers.demo.provider import Asked, Charge, Request

HOPS = ("committed", "in Kafka", "claimed", "performed", "recorded", "read")
OPEN = frozenset({"held", "pending", "running", "retry", "in_doubt"})


@dataclass
class Call:
    """A call that an agent committed, and when what happened to it; moments in seconds since the epoch.

    `moments` has an entry for `decided` and for each of HOPS, as far as it was seen: of the first claim, the first
    request and the last word. `claims` has the moment of each attempt, `freed` when the sweep set it free again.
    """

    id: str
    key: str
    order: str
    status: str = "pending"
    attempt: int = 0
    moments: dict[str, float] = field(default_factory=dict)
    claims: dict[int, float] = field(default_factory=dict)
    freed: float | None = None


@dataclass
class Evidence:
    """Everything observed about the orders of one act."""

    orders: tuple[str, ...]
    calls: dict[str, Call] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    said: list[tuple[str, str, float]] = field(default_factory=list)  # what an agent said, of which order, when
    closed: int = 0  # orders whose conversation has ended, as the ledger has it

    def count(self, hop: str) -> int:
        """How many calls got as far as `hop`."""
        return sum(hop in call.moments for call in self.calls.values())

    @property
    def settled(self) -> bool:
        """Whether every order's conversation has ended, with every call final."""
        return self.closed == len(self.orders) and not any(call.status in OPEN for call in self.calls.values())


@dataclass(frozen=True)
class Score:
    """The figures of one act.

    charges, requests   at the provider
    asked               completions that the model was asked for
    asked_twice         positions of a conversation that it was asked for more than once. No act kills an agent between
                        the model's answer and the commit, where a repeat would be right: none is excused.
    lost                decisions without a charge
    extra               charges beyond one for each decision
    hops                the median over all calls of each hop, in seconds
    """

    name: str
    title: str
    decisions: int
    charges: int
    requests: int
    asked: int
    asked_twice: int
    lost: int
    extra: int
    hops: dict[str, float]

    @property
    def once(self) -> bool:
        """Whether every decision was charged exactly once, and no completion was asked for twice."""
        return self.decisions > 0 and not (self.asked_twice or self.lost or self.extra)


def score(name: str, title: str, seen: Evidence, decisions: Sequence[str]) -> Score:
    """Judge an act, given the order that each decision to charge was about."""
    due, made = Counter(decisions), Counter(charge.order for charge in seen.charges)
    asked = Counter((ask.order, ask.step) for ask in seen.asked)
    return Score(
        name=name,
        title=title,
        decisions=due.total(),
        charges=made.total(),
        requests=len(seen.requests),
        asked=asked.total(),
        asked_twice=sum(times > 1 for times in asked.values()),
        lost=(due - made).total(),
        extra=(made - due).total(),
        hops=_hops(seen),
    )


def _hops(seen: Evidence) -> dict[str, float]:
    names = ("decided", *HOPS)
    found: dict[str, list[float]] = {}
    for call in seen.calls.values():
        for before, after in itertools.pairwise(names):
            if before in call.moments and after in call.moments:
                # Kafka's clock counts whole milliseconds: what follows at once can seem to precede it.
                found.setdefault(after, []).append(max(0.0, call.moments[after] - call.moments[before]))
    return {name: statistics.median(found[name]) for name in HOPS if name in found}
