"""The clock of leases and deadlines: it counts on while the machine or the process sleeps."""

from __future__ import annotations

import time

# A lease must not seem to live on after a suspend. On macOS the monotonic clock counts sleep, too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)
