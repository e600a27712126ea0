"""Processes of the stack: recognised, stopped, and never outliving a supervising owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from deedbox_debezium.patience import wait_for
from deedbox_debezium.stack import process
from deedbox_debezium.stack.process import Part, look

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Part]:
    part = Part("sleeper", tmp_path / "sleeper.pid", f"--home={tmp_path} ", signal.SIGTERM)
    yield part
    part.kill()


def _start(part: Part, tmp_path: Path, *, supervised: bool = False) -> int:
    command = [*SLEEPER, part.marker.strip(), "end"]
    return part.start(command, log=tmp_path / "log", cwd=tmp_path, supervised=supervised)


@pytest.mark.parametrize("supervised", [True, False])
def test_a_part_is_found_and_stopped(part: Part, tmp_path: Path, supervised: bool) -> None:
    pid = _start(part, tmp_path, supervised=supervised)
    assert part.find() == pid
    assert part.stop(within=10)
    assert part.find() is None
    assert not part.stop(within=10)
    assert not part.pid_file.exists()


def test_a_part_whose_pid_file_is_lost_is_found_all_the_same(part: Part, tmp_path: Path) -> None:
    pid = _start(part, tmp_path)
    part.pid_file.unlink()
    assert part.find() == pid


def test_a_stranger_under_a_remembered_id_is_left_alone(part: Part) -> None:
    with subprocess.Popen(SLEEPER) as stranger:
        part.pid_file.write_text(str(stranger.pid))
        assert part.find() is None
        assert not part.stop(within=1)
        assert not part.kill()
        assert stranger.poll() is None
        stranger.kill()


def test_a_part_that_ignores_the_polite_signal_is_killed(part: Part, tmp_path: Path) -> None:
    deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    log = tmp_path / "log"
    pid = part.start([sys.executable, "-c", deaf, part.marker.strip(), "end"], log=log, cwd=tmp_path)
    assert wait_for(lambda: log.read_text() != "", within=10)
    assert part.stop(within=0.2)
    assert look(pid) is None


def test_killing_a_part_takes_its_children_along(part: Part, tmp_path: Path) -> None:
    parent = "import subprocess, sys; print(subprocess.Popen(sys.argv[2:]).pid, flush=True); input()"
    log = tmp_path / "log"
    command = [sys.executable, "-c", "import time\n" + parent.replace("input()", "time.sleep(60)")]
    part.start([*command, part.marker.strip(), *SLEEPER], log=log, cwd=tmp_path)
    assert wait_for(lambda: log.read_text().strip() != "", within=10)
    child = int(log.read_text())
    assert look(child)
    part.kill()
    assert look(child) is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_supervised_part_ends_with_its_owner(part: Part, tmp_path: Path, how: signal.Signals) -> None:
    program = textwrap.dedent(f"""
        import signal, sys, time
        from pathlib import Path
        from deedbox_debezium.stack.process import Part
        part = Part("sleeper", Path({str(part.pid_file)!r}), {part.marker!r}, signal.SIGTERM)
        command = {[*SLEEPER, part.marker.strip(), "end"]!r}
        print(part.start(command, log=Path("log"), cwd=Path("."), supervised=True), flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert look(pid)
        owner.send_signal(how)
    assert wait_for(lambda: look(pid) is None, within=10)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_supervised_part_ends_with_its_guard(part: Part, tmp_path: Path) -> None:
    pid = _start(part, tmp_path, supervised=True)
    guard, _ = process._leashes[pid]
    os.kill(guard.pid, signal.SIGKILL)
    assert wait_for(lambda: look(pid) is None, within=10)
    part.stop(within=1)
    assert pid not in process._leashes


def test_what_cannot_be_started_is_said(part: Part, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="sleeper could not be started"):
        part.start(["/no/such/program"], log=tmp_path / "log", cwd=tmp_path)
