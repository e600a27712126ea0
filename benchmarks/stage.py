"""The real parts: stack, ledger, connector, topics and a worker process, fresh for each benchmark."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
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
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from deedbox.step import AnyTool

FOLDER = Path(".deedbox")
SCHEMA = "deedbox"
ALONE = "alone"  # the schema of a ledger that has no worker and no connector
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
            self.box = self._parts.enter_context(Deedbox(self.stack.database_url, tools=[charge], schema=SCHEMA))
            self.worker = self._parts.enter_context(self.hire([charge], name="worker"))
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

    @contextmanager
    def alone_with(self, tools: Sequence[AnyTool]) -> Iterator[Deedbox]:
        """A box with other tools. The first worker and box are ended for good, so that nobody is beside it."""
        self.worker.end()
        self.box.close()
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            registry.apply(conn, tools, schema=SCHEMA)
        self._create_topics()
        with Deedbox(self.stack.database_url, tools=tools, schema=SCHEMA) as box:
            yield box

    @contextmanager
    def deserted(self, tools: Sequence[AnyTool]) -> Iterator[Deedbox]:
        """A box of another ledger, where nobody takes notice of what is committed."""
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            migrate.migrate(conn, schema=ALONE)
            registry.apply(conn, tools, schema=ALONE)
        with Deedbox(self.stack.database_url, tools=tools, schema=ALONE) as box:
            yield box

    def hire(
        self, tools: Sequence[AnyTool], *words: str, name: str = "slow-worker", database_url: str | None = None
    ) -> Player:
        """A worker process for these tools, with more words on its command line; its log is called `name`."""
        known = {"DEEDBOX_DATABASE_URL": database_url or self.stack.database_url, "DEEDBOX_SCHEMA": SCHEMA}
        if self.source == "kafka":
            known["DEEDBOX_KAFKA"] = self.stack.kafka
        names = ",".join(tool.name for tool in tools)
        said = ("worker", HANDLERS, "--tools", names, "--source", self.source, *words)
        log = self.stack.logs("postgres").with_name(f"{name}.log")
        return Player("deedbox.command:main", *said, log=log, environment=known)

    def _addresses(self) -> dict[str, str]:
        if self.source != "kafka":
            return {}
        return {"kafka": self.stack.kafka, "connect_url": self.stack.connect_url}

    def _prepare(self) -> None:
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            migrate.migrate(conn, schema=SCHEMA)
            migrate.grant_roles(conn, schema=SCHEMA, connect_password=self.stack.connect_password)
            registry.apply(conn, [charge], schema=SCHEMA)
        self.watch = Watch(self.stack.database_url, SCHEMA)
        self._parts.callback(self.watch.close)
        self.watch.tell("extensions")
        self._create_topics()
        if self.source == "kafka":
            connector.apply(self.settings)

    def _create_topics(self) -> None:
        if self.source == "kafka":
            topics.apply(self.stack.kafka, SCHEMA, dict(self.watch.rows("topics")))
