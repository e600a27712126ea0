"""An agent's way into the ledger, for code that blocks: a small pool, one LISTEN connection, and the statements."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from deedbox import migrate, registry
from deedbox.waiting import Waker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import sql

    from deedbox.core import BoxCore
    from deedbox.journal import Journal
    from deedbox.step import AnyCall, NewStep

CONNECTIONS = 4
APPLICATION = "deedbox-agent"
PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)  # seconds between questions while Postgres restarts: about 15 in all

log: logging.Logger = logging.getLogger("deedbox.agent")


class Ledger:
    """The ledger of one box. It opens at its first use, and again after `close`."""

    def __init__(self, core: BoxCore) -> None:
        self._core = core
        self._pool: ConnectionPool | None = None
        self._opening = threading.Lock()  # several may come first
        self._waker = self._wake()
        self._process = os.getpid()
        self._inherited: list[Any] = []

    @contextlib.contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        """A connection of the pool, inside a transaction that commits at the end of the block; raises NotReady."""
        with self.single() as conn, conn.transaction():
            yield conn

    @contextlib.contextmanager
    def single(self) -> Iterator[psycopg.Connection]:
        """A connection of the pool on which each statement is a transaction: one round trip for it, not three."""
        with self._opening:
            if self._process != os.getpid():  # forked: the sockets are the parent's, and not to be closed here either
                self._inherited.append((self._pool, self._waker))
                self._pool, self._waker, self._process = None, self._wake(), os.getpid()
            if self._pool is None:
                self._pool = self._open()
        with self._pool.connection() as conn:
            yield conn

    def find(self, run_id: str) -> Sequence[Any] | None:
        """The row of the statement `run`, if there is such a run."""
        rows = self._read("run", {"run": run_id})
        return rows[0] if rows else None

    def read(self, journal: Journal) -> None:
        """Read the steps that the journal does not know yet."""
        parameters = {"run": journal.run_id, "n": journal.next}
        steps = self._read("steps", parameters)
        journal.add(steps, self._read("calls", parameters) if steps else ())

    def look(self, journal: Journal) -> None:
        """Read what became of the journal's open calls; it is stale then when there are more steps."""
        journal.settle(self._read("outcomes", {"run": journal.run_id, "ids": [call.id for call in journal.open]}))

    def _read(self, name: str, parameters: Any) -> Sequence[Any]:
        """The rows of a statement that changes nothing; while Postgres restarts it is asked again."""
        *pauses, last = PAUSES
        for pause in pauses:
            try:
                with self.single() as conn:
                    return self._fetch(conn, self._core.statements[name], parameters)
            except psycopg.OperationalError as problem:
                log.warning("Postgres does not answer (%s): asking again", str(problem).strip())
                time.sleep(pause)
        time.sleep(last)
        with self.single() as conn:
            return self._fetch(conn, self._core.statements[name], parameters)

    def commit(self, conn: psycopg.Connection[Any], step: NewStep) -> list[AnyCall]:
        """Put the step into the transaction of `conn`; raises what the ledger's verdict stands for."""
        rows = self._fetch(conn, self._core.statements["commit_step"], step.parameters(self._core.codec))
        return step.judge(rows[0])

    def watch(self, run_id: str) -> contextlib.AbstractContextManager[threading.Event]:
        """An event that is set when an outcome of the run may be new."""
        return self._waker.watch(run_id)

    def close(self) -> None:
        """Give the connections back."""
        self._waker.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _wake(self) -> Waker:
        return Waker(self._core.database_url, self._core.statements["listen"])

    def _open(self) -> ConnectionPool:
        core = self._core
        with psycopg.connect(core.database_url, application_name=APPLICATION) as conn:
            exists = self._fetch(conn, core.migrations["exists"], [f"{core.schema}.migration"])[0][0]
            newest = self._fetch(conn, core.migrations["newest"])[0][0] if exists else None
            if problem := migrate.missing(newest, core.schema):
                raise problem
            registry.check(core.tools_by_name.values(), self._fetch(conn, core.registry["current"]), core.schema)
        options = {"application_name": APPLICATION, "autocommit": True}
        return ConnectionPool(
            core.database_url, min_size=1, max_size=CONNECTIONS, open=True, kwargs=options, check=_check
        )

    def _fetch(self, conn: psycopg.Connection[Any], statement: sql.Composed, parameters: Any = None) -> Sequence[Any]:
        # Our own rows, whatever the connection is set to.
        with conn.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement, parameters).fetchall()


def _check(conn: psycopg.Connection[Any]) -> None:
    """Before a connection is handed out: a reply that was paid for is not to meet one that a restart has cut."""
    if has_word(conn):
        ConnectionPool.check_connection(conn)


def has_word(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has said something while the connection was idle, such as farewell; asks nobody."""
    waiting = select.poll()
    waiting.register(conn.pgconn.socket, select.POLLIN)
    return bool(waiting.poll(0))
