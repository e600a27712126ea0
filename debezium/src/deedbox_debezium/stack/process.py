"""One process of the local stack: started through the guard, recognised by its command line, stopped or killed whole.

A process id alone proves nothing after a crash or a reboot, so a part is only ever taken for ours (and signalled) when
its command line holds the part's marker, a path inside this stack's own folder.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deedbox_debezium.patience import wait_for

GUARD: Final = Path(__file__).with_name("guard.py")
LOOK_EVERY: Final = 0.05  # seconds between two looks at a process that is ending or a service that is starting

# Of each supervised part that this process started (by process id): its guard and our end of the guard's pipe. It is
# closed when the part has ended; while it runs, that the pipe closes with this process is what it is for.
_leashes: dict[int, tuple[subprocess.Popen[bytes], int]] = {}


@dataclass(frozen=True)
class Seen:
    """A living process as the system lists it."""

    pid: int
    parent: int
    command: str


def seen() -> list[Seen]:
    """All living processes (zombies left out)."""
    if sys.platform == "linux":
        numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [found for number in numbers if (found := _look(number))]
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,command="], capture_output=True, text=True, check=True
    )
    rows = (line.split(None, 3) for line in listed.stdout.splitlines())
    return [Seen(int(row[0]), int(row[1]), row[3]) for row in rows if len(row) == 4 and "Z" not in row[2]]


def look(pid: int) -> Seen | None:
    """The process with this id, or None if there is none or only its corpse."""
    if sys.platform == "linux":
        return _look(pid)
    return next((process for process in seen() if process.pid == pid), None)


def _look(pid: int) -> Seen | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None  # gone, or none of our business
    # the name in parentheses may hold spaces and parentheses itself: what follows the last one is regular
    state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
    # A leader that is dead while its threads still end holds their files and ports: it is not gone yet.
    if state in "ZX" and _threads(pid) <= 1:
        return None
    return Seen(pid, int(parent), command.replace(b"\0", b" ").decode(errors="replace").strip())


def _threads(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


@dataclass(frozen=True)
class Part:
    """How to find and stop one process: name, pid file, the text its command line must hold, its polite signal."""

    name: str
    pid_file: Path
    marker: str
    stop_signal: signal.Signals

    def find(self) -> int | None:
        """Its process id if it lives, by the pid file or, that lost, by looking through the system's processes."""
        try:
            noted = int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            noted = None
        if noted and (process := look(noted)) and self.marker in process.command:
            return noted
        ours = [process for process in seen() if self.marker in process.command and str(GUARD) not in process.command]
        roots = [process for process in ours if process.parent not in {other.pid for other in ours}]
        return roots[0].pid if roots else None

    def start(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
        supervised: bool = False,
    ) -> int:
        """Start it and give its process id; its output is appended to `log`."""
        facts = {
            "command": list(command),
            "cwd": str(cwd),
            "log": str(log),
            "pid_file": str(self.pid_file),
            "stop_signal": int(self.stop_signal),
            "supervised": supervised,
            "user": user,
        }
        theirs, ours = os.pipe()
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), json.dumps(facts)],
            stdin=theirs,
            stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        os.close(theirs)
        with guard.stdout or io.BytesIO() as answer:
            said = answer.readline()
        if supervised and said:
            _leashes[int(said)] = guard, ours
        else:
            os.close(ours)
            guard.wait()
        if not said:
            raise OSError(f"{self.name} could not be started: {' '.join(command)}")
        return int(said)

    def stop(self, within: float) -> bool:
        """Ask it to end and wait; after `within` seconds kill it. False if it was not running."""
        pid = self.find()
        if pid is not None:
            _signal(pid, self.stop_signal)
            if not _gone([pid], within):
                self.kill()
        self.pid_file.unlink(missing_ok=True)
        _let_go_of_the_dead()
        return pid is not None

    def kill(self) -> bool:
        """SIGKILL it and all its descendants at once, and wait until they are gone. False if it was not running."""
        pid = self.find()
        if pid is None:
            return False
        family = _family(pid)
        for member in family:
            _signal(member, signal.SIGKILL)
        _gone(family, within=10)
        _let_go_of_the_dead()
        return True


def _let_go_of_the_dead() -> None:
    """Collect the guards of parts that have ended, however they did."""
    for pid in [pid for pid in _leashes if look(pid) is None]:
        guard, ours = _leashes.pop(pid)
        os.close(ours)
        guard.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it ended between the look and the signal
        os.kill(pid, number)


def _family(root: int) -> list[int]:
    family, processes = [root], seen()
    for member in family:  # grows while we walk: children are appended behind their parents
        family += [process.pid for process in processes if process.parent == member]
    return family


def _gone(pids: Sequence[int], within: float) -> bool:
    return wait_for(lambda: not any(look(pid) for pid in pids), within, every=LOOK_EVERY)
