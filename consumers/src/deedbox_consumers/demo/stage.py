"""The stage: the real parts, a ledger with the shop's tool, the connector, the provider; and the processes on it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import psycopg

from deedbox import migrate, registry
from deedbox.settings import Settings
from deedbox.statements import Statements
from deedbox_consumers.demo.groups import await_members
from deedbox_consumers.demo.player import Player, outside
from deedbox_consumers.demo.provider import Provider
from deedbox_consumers.demo.shop import OUTSIDE, Order, charge, create_tables, find_order, open_order
from deedbox_debezium import connector, topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from deedbox_debezium.stack import Stack

SCHEMA = "demo"  # beside whatever else this folder's stack holds
CUSTOMER = "cus_8812"
CENTS = 4900
HANDLERS = "deedbox_consumers.demo.shop:handlers"


class Stage:
    """Everything that the acts stand on, in the stack's folder; `hear` gets what the agents report.

    Enter it once the stack is up; that takes a few seconds at the first time. It leaves ledger, topics and connector
    for the next time, and its processes' output in `logs`.
    """

    def __init__(self, stack: Stack, *, schema: str = SCHEMA) -> None:
        self.stack = stack
        self.logs: Path = stack.folder / "demo"
        self.settings: Settings = Settings(stack.database_url, schema, schema, stack.kafka, stack.connect_url)
        self.hear: Callable[[dict[str, Any]], None] = lambda _: None
        self._players = ExitStack()

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        for log in self.logs.glob("*.log"):
            log.unlink()
        with self._players:
            with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
                box = self._prepare(conn)
            self.provider: Provider = Provider(self.logs / f"provider-{box}.sqlite")
            player, self._outside = outside(
                self.provider.path, log=self.logs / "provider.log", environment=self._environment()
            )
            self._players.enter_context(player)
            self._players = self._players.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._players.close()

    def log(self, name: str) -> Path:
        """The file with the output of the process of this name."""
        return self.logs / f"{name.replace(' ', '-')}.log"

    def order(self) -> str:
        """A new order of the shop; gives its id."""
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            return open_order(conn, CUSTOMER, CENTS)

    def find(self, order: str) -> Order:
        """The row of an order."""
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            return find_order(conn, order)

    def open_calls(self) -> int:
        """How many calls of the ledger are open, those of earlier times included."""
        with psycopg.connect(self.stack.database_url, autocommit=True) as conn:
            row = conn.execute(self.sql["open_calls"]).fetchone()
        return int(row[0]) if row else 0

    def await_worker(self, name: str, within: float) -> None:
        """Wait until Kafka has given the worker of this name its partitions. Raises DemoFailed."""
        group = f"{self.settings.prefix}.{charge.name}"
        await_members(self.settings.need("kafka"), group, within=within, log=self.log(name))

    def naive(self, order: str, *, name: str, crash_at: str | None = None) -> Player:
        """The agent without Deedbox."""
        return self._enter("deedbox_consumers.demo.naive:main", order, name=name, crash_at=crash_at)

    def agent(self, *words: str, name: str, crash_at: str | None = None) -> Player:
        """The agent on Deedbox; `words` as its module says."""
        return self._enter("deedbox_consumers.demo.agent:main", *words, name=name, crash_at=crash_at)

    def worker(self, *, name: str, crash_at: str | None = None) -> Player:
        """A worker that takes the shop's calls from Kafka: the product's own command."""
        words = ("worker", HANDLERS, "--tools", charge.name, "--source", "kafka")
        return self._enter("deedbox.command:main", *words, name=name, crash_at=crash_at)

    def _prepare(self, conn: psycopg.Connection) -> str:
        schema = self.settings.schema
        migrate.migrate(conn, schema=schema)
        migrate.grant_roles(conn, schema=schema, connect_password=self.stack.connect_password)
        registry.apply(conn, [charge], schema=schema)
        create_tables(conn)
        names: dict[str, int] = dict(conn.execute(self.sql["topics"]).fetchall())
        topics.apply(self.settings.need("kafka"), self.settings.prefix, names)
        connector.apply(self.settings)
        row = conn.execute(self.sql["box"]).fetchone()
        assert row is not None
        return str(row[0])

    @property
    def sql(self) -> Statements:
        """What the demo asks the ledger."""
        return Statements("deedbox_consumers.demo", "story.sql", self.settings.schema)

    def _enter(self, target: str, *words: str, name: str, crash_at: str | None) -> Player:
        environment = self._environment() | {OUTSIDE: self._outside}
        log = self.log(name)
        player = Player(target, *words, log=log, environment=environment, crash_at=crash_at, hear=self.hear)
        return self._players.enter_context(player)

    def _environment(self) -> dict[str, str]:
        known = {
            "DATABASE_URL": self.settings.database_url,
            "SCHEMA": self.settings.schema,
            "PREFIX": self.settings.prefix,
            "KAFKA": self.settings.kafka,
            "CONNECT_URL": self.settings.connect_url,
        }
        return {f"DEEDBOX_{name}": value for name, value in known.items() if value}
