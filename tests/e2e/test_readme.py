"""The README's second example runs as it stands: the whole pipeline, a worker in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deedbox.settings import Settings
from deedbox_debezium import connector
from deedbox_debezium.stack import Stack
from tests.support import readme
from tests.support.outside import outside

DEEDBOX = str(Path(sys.executable).parent / "deedbox")


@pytest.fixture
def environment(stack: Stack, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The stack's addresses, the provider's and the model's, and the README's files in the working directory."""
    for name, text in readme.files().items():
        (tmp_path / name).write_text(text)
    settings = {
        "DEEDBOX_DATABASE_URL": stack.database_url,
        "DEEDBOX_KAFKA": stack.kafka,
        "DEEDBOX_CONNECT_URL": stack.connect_url,
        "DEEDBOX_CONNECT_PASSWORD": stack.connect_password,
    }
    with outside(tmp_path / "books.sqlite") as more, psycopg.connect(stack.database_url, autocommit=True) as conn:
        conn.execute("CREATE TABLE orders (id text PRIMARY KEY, status text)")
        conn.execute("INSERT INTO orders VALUES ('order-8813', 'new')")
        try:
            yield {**os.environ, **settings, **more}
        finally:
            connector.remove(Settings(stack.database_url, connect_url=stack.connect_url))
            conn.execute("DROP TABLE orders")
            conn.execute("DROP SCHEMA deedbox CASCADE")
            conn.execute("DROP PUBLICATION deedbox_outbox")


def test_the_readmes_second_example_is_the_same_agent_less_one_line(
    tmp_path: Path, environment: dict[str, str]
) -> None:  # I1 I6
    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=90
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(DEEDBOX, "init", "--roles")
    run(DEEDBOX, "tools", "apply", "tools")
    run(DEEDBOX, "topics", "apply")
    run(DEEDBOX, "connector", "apply")
    worker = [DEEDBOX, "worker", "handlers:handlers", "--tools", "charge_customer", "--source", "kafka"]
    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen(worker, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            assert run(sys.executable, "deployed.py").startswith("Done:")
        finally:
            process.terminate()
            assert process.wait(30) == 0
    inline = [line.strip() for line in readme.files()["agent.py"].splitlines() if "Worker" not in line]
    deployed = [line.strip().replace("order-8813", "order-8812") for line in readme.files()["deployed.py"].splitlines()]
    assert {line.partition("  #")[0] for line in inline} - {"from handlers import handlers"} == set(deployed)
    assert "finished" in run(DEEDBOX, "runs", "show", "order-8813")
