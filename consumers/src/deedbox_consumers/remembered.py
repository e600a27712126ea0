"""Things that are remembered for a while, and not for ever."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

ENOUGH = 100_000


class Remembered(Generic[T]):
    """A set whose members may be forgotten: where there are too many, all are, and what matters is found out again."""

    def __init__(self) -> None:
        self._known: set[T] = set()

    def __contains__(self, one: T) -> bool:
        return one in self._known

    def __len__(self) -> int:
        return len(self._known)

    def add(self, one: T) -> None:
        """Remember it."""
        if len(self._known) >= ENOUGH:
            self._known.clear()
        self._known.add(one)

    def discard(self, one: T) -> None:
        """Forget it."""
        self._known.discard(one)
