"""An agent's way into the ledger, for code that blocks: a small pool, one LISTEN connection, and the statements."""

from __future__ import annotations

import contextlib
import threading
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


class Ledger:
    """The ledger of one box. It opens at its first use, and again after `close`."""

    def __init__(self, core: BoxCore) -> None:
        self._core = core
        self._pool: ConnectionPool | None = None
        self._opening = threading.Lock()  # several may come first
        self._waker = Waker(core.database_url, core.statements["listen"])

    @contextlib.contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        """A connection of the pool, inside a transaction that commits at the end of the block; raises NotReady."""
        with self.single() as conn, conn.transaction():
            yield conn

    @contextlib.contextmanager
    def single(self) -> Iterator[psycopg.Connection]:
        """A connection of the pool on which each statement is a transaction: one round trip for it, not three."""
        with self._opening:
            if self._pool is None:
                self._pool = self._open()
        with self._pool.connection() as conn:
            yield conn

    def find(self, run_id: str) -> Sequence[Any] | None:
        """The row of the statement `run`, if there is such a run."""
        with self.single() as conn:
            rows = self._fetch(conn, self._core.statements["run"], {"run": run_id})
        return rows[0] if rows else None

    def read(self, journal: Journal) -> None:
        """Read the steps that the journal does not know yet."""
        parameters = {"run": journal.run_id, "n": journal.next}
        with self.single() as conn:
            steps = self._fetch(conn, self._core.statements["steps"], parameters)
            calls = self._fetch(conn, self._core.statements["calls"], parameters) if steps else ()
        journal.add(steps, calls)

    def look(self, journal: Journal) -> None:
        """Read what became of the journal's open calls."""
        with self.single() as conn:
            ids = [call.id for call in journal.open]
            journal.settle(self._fetch(conn, self._core.statements["outcomes"], {"ids": ids}))

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

    def _open(self) -> ConnectionPool:
        core = self._core
        with psycopg.connect(core.database_url, application_name=APPLICATION) as conn:
            exists = self._fetch(conn, core.migrations["exists"], [f"{core.schema}.migration"])[0][0]
            newest = self._fetch(conn, core.migrations["newest"])[0][0] if exists else None
            if problem := migrate.missing(newest, core.schema):
                raise problem
            registry.check(core.tools_by_name.values(), self._fetch(conn, core.registry["current"]), core.schema)
        options = {"application_name": APPLICATION, "autocommit": True}
        return ConnectionPool(core.database_url, min_size=1, max_size=CONNECTIONS, open=True, kwargs=options)

    def _fetch(self, conn: psycopg.Connection[Any], statement: sql.Composed, parameters: Any = None) -> Sequence[Any]:
        # Our own rows, whatever the connection is set to.
        with conn.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement, parameters).fetchall()
