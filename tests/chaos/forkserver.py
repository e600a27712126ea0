"""Processes that start within milliseconds: forked from one that has imported everything already.

A chaos run starts hundreds of workers and agents, and importing what they need takes longer than all they do. The
server is `python -m tests.chaos.forkserver`: one JSON line in is one process more, each line out tells of one that was
started or has ended. No process outlives the server, and the server does not outlive who started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.chaos.waiting import PATIENCE

ROOT: Final = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG: Final = 1

Role = Callable[..., None]


class Process:
    """A process of the server; `name` is for people, `log` holds its output."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.pid = 0
        self.code: int | None = None  # as in subprocess: -9 is SIGKILL
        self._ended = threading.Event()

    def __repr__(self) -> str:
        return f"{self.name} ({self.pid})"

    @property
    def alive(self) -> bool:
        """Whether it runs, or is stopped."""
        return self.code is None

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP has taken effect."""
        return self.alive and _state(self.pid) == "T"

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.alive:
            os.kill(self.pid, number)

    def stop(self) -> None:
        """SIGSTOP, and wait until it has taken effect."""
        self.send(signal.SIGSTOP)
        while self.alive and not self.stopped:
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait()

    def terminate(self) -> None:
        """Ask it to end, as a deployment does; one that is stopped goes on first."""
        self.resume()
        self.send(signal.SIGTERM)

    def end(self) -> int:
        """Ask it to end, wait, and give its exit code."""
        self.terminate()
        return self.wait()

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code, when it has ended."""
        assert self._ended.wait(patience), f"{self} does not end:\n{self.tail()}"
        assert self.code is not None
        return self.code

    def tail(self, lines: int = 20) -> str:
        """The last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def has_ended(self, code: int) -> None:
        """The server tells."""
        self.code = code
        self._ended.set()


class ForkServer:
    """Starts processes; `folder` is for their logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._asked: deque[tuple[Process, threading.Event]] = deque()
        self._processes: dict[int, Process] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "forkserver.log").open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.forkserver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,  # the terminal's Ctrl-C is for us alone
            )
        self._ear = threading.Thread(target=self._listen, name="forkserver", daemon=True)
        self._ear.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._server.stdin.close()  # it kills whatever is left
        self._server.wait(PATIENCE)
        self._ear.join(PATIENCE)
        self._server.stdout.close()

    def start(self, role: str, name: str, **words: object) -> Process:
        """Start a process that plays `role` (a module of this folder: its `main`) with these words."""
        process, started = Process(name, self.folder / f"{name}.log"), threading.Event()
        wanted = json.dumps({"role": role, "words": words, "log": str(process.log)}) + "\n"
        assert self._server.stdin is not None
        with self._lock:
            self._asked.append((process, started))
            with contextlib.suppress(BrokenPipeError):
                self._server.stdin.write(wanted.encode())
                self._server.stdin.flush()
        started.wait(PATIENCE)
        assert process.pid, f"the fork server is gone: see {self.folder / 'forkserver.log'}"
        return process

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            told: dict[str, Any] = json.loads(line)
            if "started" in told:
                process, started = self._asked.popleft()
                process.pid = told["started"]
                self._processes[process.pid] = process
                started.set()
            else:
                self._processes.pop(told["ended"]).has_ended(told["code"])
        for _, started in self._asked:  # nobody answers any more
            started.set()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


# ---- the server


def serve(roles: Mapping[str, Role]) -> None:
    """Fork what standard input asks for; at its end kill all that is left."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    children: set[int] = set()
    unread = b""
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _collect(children)
        if 0 in ready:
            more = os.read(0, 65536)
            if not more:
                break
            *lines, unread = (unread + more).split(b"\n")
            for line in lines:
                pid = _fork(roles, json.loads(line))
                children.add(pid)
                _tell({"started": pid})
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _collect(children: set[int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.remove(pid)
            _tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(what: dict[str, int]) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())


def _fork(roles: Mapping[str, Role], wanted: dict[str, Any]) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, number)
        random.seed()
        logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {os.getpid()} %(levelname)s %(name)s: %(message)s")
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request
        roles[wanted["role"]](**wanted["words"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - the process ends with it, and says so
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    from tests.chaos import agent, worker

    serve({"agent": agent.main, "worker": worker.main})
