"""CPU time of processes, from Linux' /proc; elsewhere only this process is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

PROC = Path("/proc/self")
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


class Meter:
    """CPU of the parts and of this process, which is the agent."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._began = self._read()

    def used(self) -> dict[str, float]:
        """Seconds since the meter was made, by part."""
        return {name: spent - self._began[name] for name, spent in self._read().items()}

    def _read(self) -> dict[str, float]:
        parts = {name: cpu_seconds(pid) for name, pid in self._pids.items() if PROC.is_dir()}
        return {"agent": time.process_time()} | parts


def _children(pid: int) -> list[int]:
    lists = Path("/proc", str(pid), "task").glob("*/children")
    return [int(child) for file in lists for child in file.read_text(encoding="ascii").split()]


def _times(stat: str) -> tuple[float, float]:
    """Seconds of the process itself and of its children that were waited for; the name may hold blanks."""
    fields = stat.rpartition(")")[2].split()
    user, system, gone_user, gone_system = (int(ticks) / TICKS for ticks in fields[11:15])
    return user + system, gone_user + gone_system
