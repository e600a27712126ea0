"""An agent's way into the ledger, for asyncio: a small pool, one LISTEN connection, and the statements."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from deedbox import migrate, registry
from deedbox.ledger import APPLICATION, CONNECTIONS, PAUSES, has_word, log
from deedbox.waiting import AsyncWaker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from psycopg import sql

    from deedbox.core import BoxCore
    from deedbox.journal import Journal
    from deedbox.step import AnyCall, NewStep


class AsyncLedger:
    """The ledger of one box. It opens at its first use, and again after `close`."""

    def __init__(self, core: BoxCore) -> None:
        self._core = core
        self._pool: AsyncConnectionPool | None = None
        self._opening = asyncio.Lock()  # several may come first
        self._waker = self._wake()
        self._process = os.getpid()
        self._inherited: list[Any] = []

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """A connection of the pool, inside a transaction that commits at the end of the block; raises NotReady."""
        async with self.single() as conn, conn.transaction():
            yield conn

    @contextlib.asynccontextmanager
    async def single(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """A connection of the pool on which each statement is a transaction: one round trip for it, not three."""
        async with self._opening:
            if self._process != os.getpid():  # forked: the sockets are the parent's, and not to be closed here either
                self._inherited.append((self._pool, self._waker))
                self._pool, self._waker, self._process = None, self._wake(), os.getpid()
            if self._pool is None:
                self._pool = await self._open()
        async with self._pool.connection() as conn:
            yield conn

    async def find(self, run_id: str) -> Sequence[Any] | None:
        """The row of the statement `run`, if there is such a run."""
        rows = await self._read("run", {"run": run_id})
        return rows[0] if rows else None

    async def read(self, journal: Journal) -> None:
        """Read the steps that the journal does not know yet."""
        parameters = {"run": journal.run_id, "n": journal.next}
        steps = await self._read("steps", parameters)
        journal.add(steps, await self._read("calls", parameters) if steps else ())

    async def look(self, journal: Journal) -> None:
        """Read what became of the journal's open calls; it is stale then when there are more steps."""
        journal.settle(await self._read("outcomes", {"run": journal.run_id, "ids": [call.id for call in journal.open]}))

    async def _read(self, name: str, parameters: Any) -> Sequence[Any]:
        """The rows of a statement that changes nothing; while Postgres restarts it is asked again."""
        *pauses, last = PAUSES
        for pause in pauses:
            try:
                async with self.single() as conn:
                    return await self._fetch(conn, self._core.statements[name], parameters)
            except psycopg.OperationalError as problem:
                log.warning("Postgres does not answer (%s): asking again", str(problem).strip())
                await asyncio.sleep(pause)
        await asyncio.sleep(last)
        async with self.single() as conn:
            return await self._fetch(conn, self._core.statements[name], parameters)

    async def commit(self, conn: psycopg.AsyncConnection[Any], step: NewStep) -> list[AnyCall]:
        """Put the step into the transaction of `conn`; raises what the ledger's verdict stands for."""
        rows = await self._fetch(conn, self._core.statements["commit_step"], step.parameters(self._core.codec))
        return step.judge(rows[0])

    def watch(self, run_id: str) -> contextlib.AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set when an outcome of the run may be new."""
        return self._waker.watch(run_id)

    async def close(self) -> None:
        """Give the connections back."""
        await self._waker.close()
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    def _wake(self) -> AsyncWaker:
        return AsyncWaker(self._core.database_url, self._core.statements["listen"])

    async def _open(self) -> AsyncConnectionPool:
        core = self._core
        conn = await psycopg.AsyncConnection.connect(core.database_url, application_name=APPLICATION)
        async with conn:
            exists = (await self._fetch(conn, core.migrations["exists"], [f"{core.schema}.migration"]))[0][0]
            newest = (await self._fetch(conn, core.migrations["newest"]))[0][0] if exists else None
            if problem := migrate.missing(newest, core.schema):
                raise problem
            current = await self._fetch(conn, core.registry["current"])
            registry.check(core.tools_by_name.values(), current, core.schema)
        options = {"application_name": APPLICATION, "autocommit": True}
        pool: AsyncConnectionPool = AsyncConnectionPool(
            core.database_url, min_size=1, max_size=CONNECTIONS, open=False, kwargs=options, check=_check
        )
        await pool.open()
        return pool

    async def _fetch(
        self, conn: psycopg.AsyncConnection[Any], statement: sql.Composed, parameters: Any = None
    ) -> Sequence[Any]:
        async with conn.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement, parameters)
            return await cursor.fetchall()


async def _check(conn: psycopg.AsyncConnection[Any]) -> None:
    """Before a connection is handed out: a reply that was paid for is not to meet one that a restart has cut."""
    if has_word(conn):
        await AsyncConnectionPool.check_connection(conn)
