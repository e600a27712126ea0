"""The command line as a process: what a person can mend is one line, whenever it comes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

DEEDBOX = str(Path(sys.executable).parent / "deedbox")


def _run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOX_")} | more
    return subprocess.run(
        [DEEDBOX, *words], env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["runs", "list", "--database-url", "hello"], 2, "error: The database URL cannot be read"),
        (["worker", "x:y", "--database-url", "hello"], 2, "error: There are no handlers at 'x:y'"),
        (["connector", "status", "--database-url", "hello"], 2, "error: The database URL cannot be read"),
        (["runs", "list", "--database-url", "postgresql://127.0.0.1:1/x"], 1, "error: Postgres cannot be reached"),
        (["runs", "list"], 2, "error: No database_url is known"),
    ],
)
def test_what_a_person_can_mend_is_one_line(words: list[str], code: int, told: str) -> None:
    ended = _run(*words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith(told)
    assert ended.stderr.count("\n") == 1


def test_ctrl_c_while_it_waits_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        command = [DEEDBOX, "runs", "list", "--database-url", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "stopped\n")


@pytest.mark.parametrize("module", ["psycopg", "typer", "deedbox.cli"])
def test_ctrl_c_while_it_is_still_being_loaded_is_one_line(module: str) -> None:
    program = f"""
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["deedbox", "runs", "list"]
from deedbox_command import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "stopped\n")


def test_a_terminal_without_unicode_gets_what_it_can_show() -> None:
    ended = _run("dead", "redrive", "--help", PYTHONIOENCODING="ascii", TERM="dumb")
    assert ended.returncode == 0
    assert "Put dead letters back to work" in ended.stdout
