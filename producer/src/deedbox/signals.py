"""Crash points: named places where a test or the demo can stop this process dead.

They are inert: an unarmed `reach` is one truth test. `DEEDBOX_CRASH_AT=after_effect` (or `after_effect:3`, the third
time it is reached) arms one for a whole process; `arm` arms one from a test, with any action.

| name | where |
|---|---|
| `before_commit`, `after_commit` | the agent, around the COMMIT of a step |
| `before_claim`, `after_claim` | the worker, around the claim of a batch |
| `before_effect`, `after_effect` | the worker, around the handler |
| `before_probe`, `after_probe` | the worker, around the probe |
| `before_record`, `after_record` | the worker, around the finish of a batch |
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_armed: dict[str, Callable[[], None]] = {}


def reach(name: str) -> None:
    """Say that this process is at the place `name`."""
    if _armed and name in _armed:
        _armed[name]()


def die() -> None:
    """End this process as a power cut would: nothing is flushed, closed or rolled back."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(name: str, action: Callable[[], None] = die, *, nth: int = 1) -> None:
    """Run `action` when the place `name` is reached for the `nth` time, and at no other time."""
    left = nth

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            action()

    _armed[name] = count


def disarm() -> None:
    """Make all places inert again."""
    _armed.clear()


def _arm_from(wanted: str) -> None:
    name, _, nth = wanted.partition(":")
    if name:
        arm(name, nth=int(nth or 1))


_arm_from(os.environ.get("DEEDBOX_CRASH_AT", ""))
