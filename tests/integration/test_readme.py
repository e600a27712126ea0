"""The README's first example runs as it stands: the real client library, a real Postgres, a provider in a process."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deedbox.command import build
from tests.support import readme
from tests.support.outside import outside

DEEDBOX = str(Path(sys.executable).parent / "deedbox")


@pytest.fixture
def database(database_url: str) -> Iterator[str]:
    """A database of its own, as the README has one."""
    name = f"readme_{os.getpid()}"
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield database_url.rpartition("/")[0] + "/" + name
        finally:
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_the_readmes_first_example_needs_only_a_postgres(tmp_path: Path, database: str) -> None:  # I2 I6
    for name, text in readme.files().items():
        (tmp_path / name).write_text(text)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE orders (id text PRIMARY KEY, status text)")
        conn.execute("INSERT INTO orders VALUES ('order-8812', 'new')")
    with outside(tmp_path / "books.sqlite") as addresses:
        _play(tmp_path, {**os.environ, **addresses, "DEEDBOX_DATABASE_URL": database})
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT status FROM orders").fetchall() == [("charging",)]
    books = sqlite3.connect(tmp_path / "books.sqlite")
    try:
        assert books.execute("SELECT count(*) FROM charge").fetchone() == (1,)
    finally:
        books.close()


def _play(tmp_path: Path, environment: dict[str, str]) -> None:

    def run(*command: str, **more: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment | more, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0 or more, done.stderr
        return done.stdout

    run(DEEDBOX, "init")
    run(DEEDBOX, "tools", "apply", "tools")
    run(sys.executable, "agent.py", DEEDBOX_CRASH_AT="after_effect")  # killed where it hurts
    assert run(sys.executable, "agent.py").startswith("Done:")
    assert run(sys.executable, "agent.py").startswith("Done:")  # and once more: nothing happens again
    told = run(DEEDBOX, "runs", "show", "order-8812")
    assert "charge_customer" in told
    assert "done, attempt 2" in told


def test_every_command_explains_itself() -> None:
    assert {command.name for command in build().registered_groups} >= {"tools", "runs", "calls"}
