"""An explicit-state checker: every reachable state of a model, breadth first, so that what it finds is shortest.

A model says where it begins, what can happen next, which laws every step keeps, and which states are ends. Two
questions are answered over all that can be reached: does every step keep every law, and can an end be reached from
everywhere (a state from which none can is a call that nobody will finish).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

STUCK = "an end stays reachable"


class Model(Protocol[S]):
    """What is checked. States are hashable and compared by value."""

    @property
    def initial(self) -> S:
        """Where everything begins; its own canonical form."""
        ...

    @property
    def laws(self) -> Mapping[str, Callable[[S, S], bool]]:
        """What each step, from the first state to the second, must keep. A law of states looks at the second only."""
        ...

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """All that can happen next, each with what it is called."""
        ...

    def canonical(self, state: S) -> S:
        """One state for all those whose futures are the same: who is who and what the clock shows do not count."""
        ...

    def ended(self, state: S) -> bool:
        """Whether nothing more is wanted."""
        ...


@dataclass(frozen=True)
class Finding(Generic[S]):
    """A law that is broken, and the shortest way there: what happened, and the state after it."""

    law: str
    trace: Sequence[tuple[str, S]]


@dataclass(frozen=True)
class Verdict(Generic[S]):
    """What the walk has seen; `depth` counts the steps to the state that is farthest from the beginning."""

    states: int
    transitions: int
    depth: int
    finding: Finding[S] | None


def check(model: Model[S], laws: Iterable[str] | None = None) -> Verdict[S]:
    """Walk through every reachable state until a law is broken; `laws` names the ones to look at (all of them)."""
    wanted = {STUCK, *model.laws} if laws is None else set(laws)
    watched = [(name, law) for name, law in model.laws.items() if name in wanted]
    numbers = {model.initial: 0}
    found = [model.initial]
    parents = [0]
    depths = [0]
    before: list[list[int]] = [[]]
    transitions = 0
    for here, state in enumerate(found):  # grows while it is walked
        for _, after in model.steps(state):
            form = model.canonical(after)
            if form == state:  # a step that changes nothing
                continue
            transitions += 1
            there = numbers.setdefault(form, len(found))
            if there == len(found):
                found.append(form)
                parents.append(here)
                depths.append(depths[here] + 1)
                before.append([])
            before[there].append(here)
            for name, law in watched:
                if not law(state, after):
                    way = [*_way(parents, here), there]
                    told = _told(model, [found[number] for number in way], law)
                    return Verdict(len(found), transitions, depths[-1], Finding(name, told))
    stuck = _stuck(before, [model.ended(state) for state in found]) if STUCK in wanted else None
    lost = None if stuck is None else Finding(STUCK, _told(model, [found[number] for number in _way(parents, stuck)]))
    return Verdict(len(found), transitions, depths[-1], lost)


def _way(parents: Sequence[int], number: int) -> list[int]:
    """The states from the beginning to this one."""
    way = [number]
    while number:
        number = parents[number]
        way.append(number)
    return way[::-1]


def _stuck(before: Sequence[Sequence[int]], ends: Sequence[bool]) -> int | None:
    """The first state from which no end can be reached: walk backwards from the ends, and see who was not met."""
    met = list(ends)
    fringe = [number for number, end in enumerate(ends) if end]
    while fringe:
        for number in before[fringe.pop()]:
            if not met[number]:
                met[number] = True
                fringe.append(number)
    return next((number for number, known in enumerate(met) if not known), None)


def _told(model: Model[S], way: Sequence[S], law: Callable[[S, S], bool] = lambda _, __: False) -> list[tuple[str, S]]:
    """Walk the way again without canonical forms, so that names and times stay what they are from step to step.

    Several steps may lead to one form: the last one told is one that breaks the law.
    """
    state = way[0]
    told: list[tuple[str, S]] = []
    for form in way[1:]:
        last = len(told) == len(way) - 2
        label, state = next(
            (label, after)
            for label, after in model.steps(state)
            if model.canonical(after) == form and not (last and law(state, after))
        )
        told.append((label, state))
    return told
