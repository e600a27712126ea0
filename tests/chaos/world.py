"""A world to break: a ledger with its tools, the provider, and the processes and links between them."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, LiteralString, Self

import psycopg
from confluent_kafka import Consumer, TopicPartition
from psycopg import sql
from psycopg.conninfo import make_conninfo

from deedbox import Deedbox, Tool, user
from deedbox.migrate import migrate
from deedbox.registry import apply
from deedbox_debezium.stack import Stack
from tests.chaos import tools
from tests.chaos.agent import TABLE, spend
from tests.chaos.copier import Copier
from tests.chaos.forkserver import ForkServer, Process
from tests.chaos.oracle import OPEN, Decided, Verdict, judge
from tests.chaos.outside import Outside
from tests.chaos.proxy import Proxy
from tests.chaos.waiting import PATIENCE, wait
from tests.support.pipeline import Pipeline, open_pipeline
from tests.support.shop import Shop

LEASE: Final = 2.0  # seconds: short, so that nobody need wait for the usual 20
_numbers = itertools.count()

CALLS: Final = """
SELECT b.id || ':' || a.key, a.tool, a.args ->> 'about', o.status, o.unsettled, o.result ->> 'id'
FROM box b, action a JOIN outcome o ON o.action_id = a.id ORDER BY a.id
"""
BALANCES: Final = """
SELECT coalesce(b.run, s.run_id), coalesce(b.spent, 0), coalesce(s.decisions, 0) FROM balance b
FULL JOIN (SELECT run_id, count(*)::int AS decisions FROM step WHERE kind = 'decision' GROUP BY run_id) s
  ON s.run_id = b.run
"""


class World:
    """All of it in `folder` and in a schema of its own; everything that was started here ends with it.

    kafka    whether calls come through Kafka (then `stack` is all up), or by polling Postgres
    given    the tools
    lease    of its workers, in seconds
    """

    def __init__(
        self,
        stack: Stack,
        folder: Path,
        *,
        kafka: bool = False,
        given: Sequence[Tool[..., Any, Any]] | None = None,
        seed: int = 0,
        lease: float = LEASE,
    ) -> None:
        self.stack = stack
        self.folder = folder
        self.kafka = kafka
        self.seed = seed
        self.lease = lease
        self.tools = list(given or tools.tools())
        self.names = [tool.name for tool in self.tools]
        self.shop = Shop(stack.database_url, f"chaos_{os.getpid()}_{next(_numbers)}")
        self.pipeline: Pipeline | None = None
        self._conn: psycopg.Connection | None = None  # a login costs more than what is asked
        self._asking = threading.Lock()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._open:
            self._make_ledger()
            self.outside = self._open.enter_context(Outside(self.folder / "books.sqlite"))
            if self.kafka:
                self.pipeline = self._open.enter_context(open_pipeline(self.stack, self.shop))
            self.forks = self._open.enter_context(ForkServer(self.folder))
            self._open = self._open.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._conn is not None:
            self._conn.close()
        self._open.close()

    def link(self, target: int) -> Proxy:
        """A link that can be broken, to a port on this machine."""
        return self._open.enter_context(Proxy(target))

    def database_link(self) -> Proxy:
        """One to Postgres."""
        return self.link(self.stack.state.ports["postgres"])

    def provider_link(self) -> Proxy:
        """One to the provider."""
        return self.link(self.outside.port)

    def worker(
        self,
        name: str,
        *,
        names: Iterable[str] | None = None,
        database: Proxy | None = None,
        provider: Proxy | None = None,
        **words: object,
    ) -> Process:
        """A worker process of these tools (all); over these links; `words` as in tests.chaos.worker."""
        given: dict[str, object] = {
            "url": self._url(database),
            "schema": self.shop.schema,
            "provider": self.outside.url if provider is None else f"http://127.0.0.1:{provider.port}",
            "names": list(self.names if names is None else names),
            "lease": self.lease,
            "kafka": self.stack.kafka if self.kafka else None,
        }
        return self.forks.start("worker", name, **given | words)

    def agent(self, name: str, prefix: str, *, database: Proxy | None = None, **words: object) -> Process:
        """An agent process that drives the runs with this prefix; `words` as in tests.chaos.agent."""
        given: dict[str, object] = {
            "url": self._url(database),
            "schema": self.shop.schema,
            "prefix": prefix,
            "seed": self.seed,
            "names": self.names,
        }
        return self.forks.start("agent", name, **given | words)

    def decide(self, run: str, *names: str) -> None:
        """Commit one decision without an agent's process: a call of each of these tools, about `{run}:1:{position}`."""
        by_name = {tool.name: tool for tool in self.tools}
        calls = [tools.call(by_name[name], f"{run}:1:{at}") for at, name in enumerate(names)]
        with Deedbox(self.shop.url, tools=self.tools, schema=self.shop.schema) as box:
            for turn in box.run(run, messages=[user("go")]):
                with turn.transaction(calls=calls) as conn:
                    spend(conn, self.shop.schema, run)
                break

    def copier(self, share: float = 1.0, names: Iterable[str] | None = None) -> Copier:
        """Delivers calls of these tools (all) twice."""
        prefix, wanted = self.shop.schema, self.names if names is None else names
        ordered = {f"{prefix}.{tool.name}" for tool in self.tools if tool.order_by is not None}
        topics = [f"{prefix}.{name}" for name in wanted]
        return Copier(self.stack.kafka, topics, ordered=ordered, share=share, seed=self.seed)

    # ---- what is to be seen

    def rows(self, statement: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement on the ledger. Postgres is asked again while it is away."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self._asking:
                    if self._conn is None or self._conn.closed:
                        self._conn = self.shop.connect()
                    return self._conn.execute(statement, values).fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def status(self, about: str) -> str:
        """The status of a call, empty when there is none."""
        found = self.rows(
            "SELECT o.status FROM action a JOIN outcome o ON o.action_id = a.id WHERE a.args ->> 'about' = %s", about
        )
        return str(found[0][0]) if found else ""

    def count(self, prefix: str, status: str) -> int:
        """How many calls of the runs with this prefix are in a status."""
        many = """SELECT count(*) FROM action a JOIN outcome o ON o.action_id = a.id
                  WHERE starts_with(a.run_id, %s) AND o.status = %s"""
        return int(self.rows(many, prefix, status)[0][0])

    def open_calls(self, prefix: str = "") -> int:
        """How many calls workers are still to bring to an end; one in doubt that will be asked about is one of them."""
        many = """SELECT count(*) FROM action a JOIN outcome o ON o.action_id = a.id
                  WHERE starts_with(a.run_id, %s)
                  AND (o.status = ANY (%s) OR o.status = 'in_doubt' AND o.next_at < 'infinity')"""
        return int(self.rows(many, prefix, list(OPEN))[0][0])

    def workers(self, tool: str | None = None) -> list[str]:
        """Who is enlisted, to perform this tool."""
        found = self.rows("SELECT owner FROM worker WHERE %s::text IS NULL OR %s = ANY (tools)", tool, tool)
        return [str(owner) for (owner,) in found]

    def lag(self, tool: str) -> int:
        """How many records of the tool's topic its workers have not answered for."""
        name = f"{self.shop.schema}.{tool}"
        consumer = Consumer({"bootstrap.servers": self.stack.kafka, "group.id": name})
        try:
            places = [TopicPartition(name, number) for number in consumer.list_topics(name).topics[name].partitions]
            committed = consumer.committed(places, timeout=30)
            ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
            return sum(end - max(place.offset, 0) for place, end in zip(committed, ends, strict=True))
        finally:
            consumer.close()

    def await_quiet(self, *agents: Process, prefix: str = "", patience: float = PATIENCE) -> None:
        """Wait until these agents have come to their end, and no call of the runs with this prefix is open."""
        for agent in agents:
            assert agent.wait() == 0, f"{agent} failed:\n{agent.tail()}"
        assert wait(lambda: self.open_calls(prefix) == 0, patience), f"calls are still open:\n{self.verdict(prefix)}"

    def verdict(self, prefix: str = "") -> Verdict:
        """The ledger beside the books, for runs with this prefix; and the ledger's own proof that it forgot nothing."""
        decided = [Decided(*row) for row in self.rows(CALLS)]
        books = self.outside.books
        found = judge(
            (call for call in decided if call.about.startswith(prefix)),
            (request for request in books.requests() if request.about.startswith(prefix)),
            (effect for effect in books.effects() if effect.about.startswith(prefix)),
            (balance for balance in self._balances() if balance[0].startswith(prefix)),
        )
        found.lost.extend(
            f"{id_}: forgotten, the full scan found it" for (id_,) in self.rows("SELECT unnest(found) FROM full_scan()")
        )
        return found

    # ---- how

    def _balances(self) -> list[tuple[str, int, int]]:
        return [(str(run), int(spent), int(decisions)) for run, spent, decisions in self.rows(BALANCES)]

    def _url(self, database: Proxy | None) -> str:
        url = self.shop.url
        return url if database is None else make_conninfo(url, port=str(database.port))

    def _make_ledger(self) -> None:
        schema = self.shop.schema
        with psycopg.connect(self.shop.url, autocommit=True) as conn:
            migrate(conn, schema=schema)
            self._open.callback(self._drop_ledger)
            apply(conn, self.tools, schema=schema)
        with self.shop.connect() as conn:
            conn.execute(TABLE)

    def _drop_ledger(self) -> None:
        schema = self.shop.schema
        with psycopg.connect(self.shop.url, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
            conn.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(f"{schema}_outbox")))
