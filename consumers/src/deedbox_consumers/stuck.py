"""Order keys that do not get on, and the calls of each that are left to the ledger until it does."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    Key = tuple[str, str]

REMEMBERED = 100_000  # keys, and calls of them all; what is more the sweep brings when the one before is over


class Stuck:
    """A key is stuck from `leave` until `get_on`; from then on what was left of it can be taken back."""

    def __init__(self) -> None:
        self._left: dict[Key, set[UUID]] = {}
        self._gets_on: set[Key] = set()
        self._count = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._left and key not in self._gets_on

    def leave(self, key: Key, ids: Iterable[UUID]) -> None:
        """The key does not get on, and these calls of it were let go."""
        if key not in self._left and len(self._left) >= REMEMBERED:  # most of them got on elsewhere
            self._left.clear()
            self._gets_on.clear()
            self._count = 0
        self._gets_on.discard(key)
        left = self._left.setdefault(key, set())
        if self._count < REMEMBERED:
            self._count -= len(left)
            left.update(ids)
            self._count += len(left)

    def get_on(self, key: Key) -> None:
        """A call of the key was performed: those behind it can be."""
        if self._left.get(key):
            self._gets_on.add(key)
        else:
            self._left.pop(key, None)

    def getting_on(self) -> list[Key]:
        """The keys of which something can be taken back."""
        return list(self._gets_on)

    def take(self, key: Key, count: int) -> list[UUID]:
        """Take the oldest calls of a key back.

        By id, that is by time: only roughly the order in which they were decided, which the claim sees to.
        """
        left = self._left[key]
        taken = heapq.nsmallest(count, left)
        left.difference_update(taken)
        self._count -= len(taken)
        if not left:
            del self._left[key]
            self._gets_on.discard(key)
        return taken
