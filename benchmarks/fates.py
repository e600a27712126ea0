"""What became of each call, as the ledger has it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.counters import Watch

LOOK_EVERY = 0.1  # seconds


class Fate(NamedTuple):
    """A call; moments by the server's clock, as seconds since 1970."""

    id: UUID
    key: str
    tool: str
    status: str
    attempt: int
    claimed: float | None
    finished: float | None


def fates(watch: Watch, mark: UUID) -> list[Fate]:
    """All calls from the id `mark` on."""
    return [Fate(*row) for row in watch.rows("fates", [mark])]


def await_fates(watch: Watch, mark: UUID, enough: Callable[[Sequence[Fate]], bool], within: float) -> list[Fate]:
    """Look until it is `enough`, or the time is over: whoever asks is to see which of the two it was."""
    until = time.monotonic() + within
    while not enough(found := fates(watch, mark)) and time.monotonic() < until:
        time.sleep(LOOK_EVERY)
    return found
