"""Asking again: a service that starts, or a state that comes, is asked for until it is there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def attempts(within: float, *, first: float = 0.1, longest: float = 2.0) -> Iterator[int]:
    """Count attempts from 1 while `within` seconds last, with pauses that double from `first` up to `longest` seconds.

    There is always one attempt, and one more after the last pause.
    """
    deadline, pause, number = time.monotonic() + within, first, 1
    while True:
        yield number
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause, number = min(pause * 2, longest), number + 1


def wait_for(condition: Callable[[], bool], within: float, *, every: float = 0.05) -> bool:
    """Ask each `every` seconds until `condition` holds; False after `within` seconds."""
    return any(condition() for _ in attempts(within, first=every, longest=every))
