"""A process of the demo: started on a leash, watched, waited for, and found dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from typing import IO, TYPE_CHECKING, Any, Self

from deedbox_consumers.demo.failure import DemoFailed, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

TERM_WITHIN = 10.0  # seconds between the polite signal and SIGKILL


class Player:
    """The process that runs `target` (MODULE:FUNCTION) with `words`.

    It ends when this process ends, however that happens. What it prints as JSON objects goes to `hear`, everything
    else to `log`. `crash_at` arms a crash point: it kills itself there with SIGKILL.
    """

    def __init__(
        self,
        target: str,
        *words: str,
        log: Path,
        environment: Mapping[str, str],
        crash_at: str | None = None,
        hear: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self.log = log
        self.name: str = log.stem.replace("-", " ")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOX_")}
        armed = {"DEEDBOX_CRASH_AT": crash_at} if crash_at else {}
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "deedbox_consumers.demo.leash", target, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=inherited | dict(environment) | armed,
                start_new_session=True,  # the terminal's Ctrl-C is for us alone
            )
        assert self._process.stdout is not None
        self._ear = threading.Thread(target=self._listen, args=(self._process.stdout, hear), daemon=True)
        self._ear.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._collect()

    def end(self) -> None:
        """Ask it to end; after a while kill it."""
        if self.alive:
            self._process.terminate()
            try:
                self._process.wait(TERM_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._collect()

    def await_end(self, within: float) -> None:
        """Wait until it has ended by itself and well; raises DemoFailed."""
        if (code := self._wait(within)) != 0:
            what = f"did not end within {within:.0f} s" if code is None else f"ended with exit code {code}"
            raise DemoFailed(what=f"The {self.name} {what}", log=self.log, tail=tail(self.log))

    def await_crash(self, within: float) -> None:
        """Wait until it has died at its crash point; raises DemoFailed."""
        if (code := self._wait(within)) != -signal.SIGKILL:
            what = (
                f"was not reached within {within:.0f} s" if code is None else f"was not reached: it ended with {code}"
            )
            raise DemoFailed(what=f"The crash point of {self.name} {what}", log=self.log, tail=tail(self.log))

    def _wait(self, within: float) -> int | None:
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            return None
        self._collect()
        return code

    def _collect(self) -> None:
        self._process.wait()
        self._ear.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _listen(self, output: IO[bytes], hear: Callable[[dict[str, Any]], None]) -> None:
        with self.log.open("ab") as log:
            for line in output:
                try:
                    said = json.loads(line)
                except ValueError:
                    said = None
                if isinstance(said, dict):
                    hear(said)
                else:
                    log.write(line)
                    log.flush()


def outside(books: Path, *, log: Path, environment: Mapping[str, str], within: float = 30.0) -> tuple[Player, str]:
    """The world outside, started and listening: its process and its base URL. Raises DemoFailed."""
    ports: deque[int] = deque()
    listening = threading.Event()

    def hear(said: dict[str, Any]) -> None:
        ports.append(said["port"])
        listening.set()

    player = Player("deedbox_consumers.demo.outside:main", str(books), log=log, environment=environment, hear=hear)
    if not listening.wait(within):
        player.end()
        raise DemoFailed(what=f"The provider does not listen after {within:.0f} s", log=log, tail=tail(log))
    return player, f"http://127.0.0.1:{ports[0]}"
