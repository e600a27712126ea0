"""CPU time of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """What a process, its living children and the children it has waited for have used so far."""
    own, gone = _times(Path("/proc", str(pid), "stat").read_text(encoding="utf-8"))
    return own + gone + sum(map(cpu_seconds_if_alive, _children(pid)))


def cpu_seconds_if_alive(pid: int) -> float:
    """The same, 0 for a process that has ended meanwhile."""
    try:
        return cpu_seconds(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def shares(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Percent of one core between two readings."""
    return {name: 100 * (after[name] - before[name]) / seconds for name in before}


def _children(pid: int) -> list[int]:
    lists = Path("/proc", str(pid), "task").glob("*/children")
    return [int(child) for file in lists for child in file.read_text(encoding="ascii").split()]


def _times(stat: str) -> tuple[float, float]:
    """Seconds of the process itself and of its children that were waited for; the name may hold blanks."""
    fields = stat.rpartition(")")[2].split()
    user, system, gone_user, gone_system = (int(ticks) / TICKS for ticks in fields[11:15])
    return user + system, gone_user + gone_system
