"""Waiting for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 90.0  # seconds: a bound on each wait, met only when something is broken


def wait(happened: Callable[[], object], patience: float = PATIENCE) -> bool:
    """Look again and again until it has happened; False when the patience is over."""
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
