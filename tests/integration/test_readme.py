"""The README's first example runs as it stands: the real client library, a real Postgres, a provider in a process."""

from __future__ import annotations

import json
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


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The provider and the model of the demo, as the README starts them."""
    command = [sys.executable, "-m", "deedbox_consumers.demo.outside", str(tmp_path / "books.sqlite")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        base = f"http://127.0.0.1:{port}/v1"
        yield {"PAY_URL": f"{base}/charges", "OPENAI_BASE_URL": base, "OPENAI_API_KEY": "none"}
        process.terminate()


def test_the_readmes_first_example_needs_only_a_postgres(
    tmp_path: Path, database: str, outside: dict[str, str]
) -> None:  # I2 I6
    for name, text in readme.files().items():
        (tmp_path / name).write_text(text)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE orders (id text PRIMARY KEY, status text)")
        conn.execute("INSERT INTO orders VALUES ('order-8812', 'new')")
    environment = {**os.environ, **outside, "DEEDBOX_DATABASE_URL": database}

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
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT status FROM orders").fetchall() == [("charging",)]
    books = sqlite3.connect(tmp_path / "books.sqlite")
    try:
        (charges,) = books.execute("SELECT count(*) FROM charge").fetchone()
    finally:
        books.close()
    assert charges == 1


def test_every_command_explains_itself() -> None:
    assert {command.name for command in build().registered_groups} >= {"tools", "runs", "calls"}
