"""The provider's process, from the outside: started, killed, stopped, and put into a mood."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.books import Books
from tests.chaos.forkserver import ROOT
from tests.chaos.provider import LOOPBACK, Mood
from tests.chaos.waiting import PATIENCE


class Outside:
    """The provider with the books `path`. Started again it has the same port, the same books and the same mood."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = 0
        self._mood = Mood()

    def __enter__(self) -> Self:
        self.books = Books(self.path)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.books.close()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-m", "tests.chaos.provider", str(self.path), str(self.port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.mood(self._mood)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; its books stay."""
        self._process.kill()
        self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def stop(self) -> None:
        """SIGSTOP: whoever asks waits."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def mood(self, mood: Mood) -> None:
        """How it behaves from now on."""
        self._mood = mood
        body = json.dumps(asdict(mood)).encode()
        urllib.request.urlopen(f"{self.url}/v1/mood", data=body, timeout=PATIENCE).close()
