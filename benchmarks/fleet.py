"""The agent's side: runs whose next decision is due, driven by one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deedbox.chat import user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbox import Deedbox
    from deedbox.run import Run, Turn


@dataclass
class Member:
    """A run, and its turns as the agent's loop gets them."""

    run: Run
    turns: Iterator[Turn]
    due: Turn | None = None

    def turn(self) -> Turn:
        """The decision that is due; waits for the calls of the last one."""
        journal = self.run.journal
        if self.due is None or journal.stale or journal.next != self.due.number:
            self.due = next(self.turns)
        return self.due


class Fleet:
    """Runs of one box, opened when they are first needed; `name` begins their ids."""

    def __init__(self, box: Deedbox, name: str = "bench") -> None:
        self._box = box
        self._name = name
        self._members: list[Member] = []

    def members(self, count: int) -> list[Member]:
        """So many runs without an open call."""
        while len(self._members) < count:
            run = self._box.run(f"{self._name}-{len(self._members):05d}", messages=[user("Charge what is due.")])
            self._members.append(Member(run, iter(run)))
        return self._members[:count]

    def turns(self, count: int) -> list[Turn]:
        """The due turns of so many runs."""
        return [member.turn() for member in self.members(count)]
