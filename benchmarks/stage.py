"""The real parts: stack, ledger, connector, topics and a worker process, fresh for each benchmark."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psycopg

from benchmarks.counters import Watch
from benchmarks.shop import charge
from deedbox import Deedbox, migrate, registry
from deedbox.settings import Settings
from deedbox_consumers.demo.player import Player
from deedbox_debezium import connector, topics
from deedbox_debezium.stack import Shown, Stack

if TYPE_CHECKING:
    from types import TracebackType

FOLDER = Path(".deedbox")
SCHEMA = "deedbox"
HANDLERS = "benchmarks.shop:handlers"


class Stage:
    """Everything that the measures stand on; it ends with this process, however that happens.

    `source` is the worker's: kafka, or poll (then only Postgres is started).
    """

    def __init__(self, source: str = "kafka") -> None:
        self.source = source
        os.environ.setdefault("DEEDBOX_CACHE", str((FOLDER / "cache").resolve()))  # one download for all stacks
        self.stack = Stack(FOLDER / "bench", supervised=True, progress=Shown())
        self._parts = ExitStack()

    def __enter__(self) -> Self:
        with self._parts:
            self._parts.enter_context(self.stack)
            self.stack.reset()
            self.stack.up(*(() if self.source == "kafka" else ("postgres",)))
            self.settings = Settings(self.stack.database_url, SCHEMA, SCHEMA, **self._addresses())
            self._prepare()
            self.watch = Watch(self.stack.database_url, SCHEMA)
            self._parts.callback(self.watch.close)
            self.box = self._parts.enter_context(Deedbox(self.stack.database_url, tools=[charge], schema=SCHEMA))
            self.worker = self._parts.enter_context(self._worker())
            self._parts = self._parts.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.close()

    def pids(self) -> dict[str, int]:
        """The process of each part."""
        parts = {name: facts["pid"] for name, facts in self.stack.status().items()}
        return {"worker": self.worker.pid} | {name: pid for name, pid in parts.items() if isinstance(pid, int)}

    def _addresses(self) -> dict[str, str]:
        if self.source != "kafka":
            return {}
        return {"kafka": self.stack.kafka, "connect_url": self.stack.connect_url}

    def _prepare(self) -> None:
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            migrate.migrate(conn, schema=SCHEMA)
            migrate.grant_roles(conn, schema=SCHEMA, connect_password=self.stack.connect_password)
            registry.apply(conn, [charge], schema=SCHEMA)
        watch = Watch(self.stack.database_url, SCHEMA)
        watch.tell("extensions")
        if self.source == "kafka":
            topics.apply(self.stack.kafka, SCHEMA, dict(watch.rows("topics")))
            connector.apply(self.settings)
        watch.close()

    def _worker(self) -> Player:
        known = {"DEEDBOX_DATABASE_URL": self.stack.database_url, "DEEDBOX_SCHEMA": SCHEMA}
        if self.source == "kafka":
            known["DEEDBOX_KAFKA"] = self.stack.kafka
        words = ("worker", HANDLERS, "--tools", charge.name, "--source", self.source)
        log = self.stack.logs("postgres").with_name("worker.log")
        return Player("deedbox.command:main", *words, log=log, environment=known)
