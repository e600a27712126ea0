"""Start one part of the local stack and, if asked, see to it that it does not outlive its owner.

Run as a script of the standard library alone: `python -I -S guard.py FACTS`, FACTS a JSON object that `Part.start`
makes. It prints the process id of the part. Unless supervised it ends there; the part goes on by itself.

Supervised, it stays: its standard input is a pipe whose other end only the owner holds. When that closes, the owner is
gone (however it ended) and the part is stopped. Should the guard itself be killed, Linux kills the part
(PR_SET_PDEATHSIG).
"""

import ctypes
import json
import os
import pwd
import select
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
STOP_WITHIN = 3.0  # seconds between the polite signal and SIGKILL: nobody waits any more, and every part bears it


def die_with_parent() -> None:
    """Ask Linux for SIGKILL when the guard ends; elsewhere the pipe alone has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Start, print, stay if supervised."""
    facts = json.loads(sys.argv[1])
    supervised = bool(facts["supervised"])
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    account = pwd.getpwnam(facts["user"]) if facts["user"] else None
    with Path(facts["log"]).open("ab") as log:
        part = subprocess.Popen(
            facts["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=facts["cwd"],
            start_new_session=True,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            # set in the child after its user has changed, which would clear it; this script has one thread
            preexec_fn=die_with_parent if supervised else None,  # noqa: PLW1509  # one thread
        )
    noted = Path(facts["pid_file"])
    unfinished = noted.with_name(noted.name + ".new")
    unfinished.write_text(f"{part.pid}\n")
    unfinished.replace(noted)
    sys.stdout.write(f"{part.pid}\n")
    sys.stdout.flush()
    if not supervised:
        part.returncode = 0  # it goes on without us; init collects it
        return 0
    os.close(1)
    while part.poll() is None:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
        if 0 in ready and not os.read(0, 4096):
            break
    if part.poll() is None:
        part.send_signal(facts["stop_signal"])
        try:
            part.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(part.pid, signal.SIGKILL)
            part.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
