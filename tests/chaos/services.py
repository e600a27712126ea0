"""Postgres, the broker and Connect as things that break: killed, shut down, frozen, and started again."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final, Literal

from deedbox_debezium.stack import PartName, Stack
from deedbox_debezium.stack.process import look, seen
from tests.chaos.waiting import wait

Fault = Literal["kill", "immediate", "restart", "freeze"]
# How each is asked to end. Postgres: fast shutdown, which sends its clients away; immediate: as if it had crashed.
POLITE: Final[dict[PartName, signal.Signals]] = {
    "postgres": signal.SIGINT,
    "kafka": signal.SIGTERM,
    "connect": signal.SIGTERM,
}
IMMEDIATE: Final = signal.SIGQUIT


class Service:
    """One part of the stack."""

    def __init__(self, stack: Stack, name: PartName) -> None:
        self.stack = stack
        self.name: PartName = name

    @property
    def pid(self) -> int:
        """Its process."""
        pid = self.stack.status()[self.name]["pid"]
        assert isinstance(pid, int), f"{self.name} does not run"
        return pid

    def strike(self, fault: Fault) -> None:
        """Take it away: when this returns it is gone, or answers nobody."""
        match fault:
            case "kill":
                self.stack.kill(self.name)
            case "immediate":
                self._end(IMMEDIATE)
            case "restart":
                self._end(POLITE[self.name])
            case "freeze":
                self._frozen = self._family()
                self._send(signal.SIGSTOP)

    def mend(self, fault: Fault) -> None:
        """Give it back: when this returns it answers."""
        if fault == "freeze":
            self._send(signal.SIGCONT)
        self.stack.start(self.name)

    def _end(self, how: signal.Signals) -> None:
        pid = self.pid
        os.kill(pid, how)
        assert wait(lambda: look(pid) is None), f"{self.name} does not end"

    def _send(self, number: signal.Signals) -> None:
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _family(self) -> list[int]:
        """The process and its descendants: a backend is a process of its own."""
        family, processes = [self.pid], seen()
        for member in family:  # grows while we walk
            family += [process.pid for process in processes if process.parent == member]
        return family
