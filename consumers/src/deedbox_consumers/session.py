"""One connection of a worker, made anew whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import psycopg
import stamina
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import sql

log: logging.Logger = logging.getLogger("deedbox.worker")

# Lost for good after about 10 s without an answer: a lease lasts 20.
_KEEPALIVE = {
    "connect_timeout": 5,
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
LONGEST_WAIT = 2.0  # seconds between two tries to connect


class SessionClosed(Exception):
    """The session was closed: its worker has ended."""


class Session:
    """A connection in autocommit mode. A statement whose connection is lost is sent again on the next one.

    One that was closed connects no more, and raises SessionClosed.

    So every statement that is sent here must be harmless when it is repeated. `losses` counts lost connections: who
    sees it change during a statement knows that it may have been carried out twice.
    """

    def __init__(self, url: str, name: str, prepare: sql.Composed, lock_timeout: str = "0") -> None:
        self._url = url
        self._name = name
        self._prepare = prepare
        self._lock_timeout = lock_timeout
        self._conn: psycopg.AsyncConnection[tuple[Any, ...]] | None = None
        self._connecting = asyncio.Lock()  # who else finds it lost waits for the same new one
        self._closed = False
        self._missed = False  # nobody answered when it was last made anew
        self.losses: int = 0

    async def open(self) -> None:
        """Connect; raises psycopg.OperationalError when that fails: at the start, a wrong address is a mistake."""
        await self._connected()

    async def close(self) -> None:
        """Disconnect, for good."""
        self._closed = True
        if self._conn is not None:
            await self._conn.close()

    async def rows(self, statement: sql.Composed, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement; raises what the server said of the statement itself."""
        if (conn := self._conn) is not None and not conn.closed:
            try:
                return await _rows(conn, statement, parameters)
            except psycopg.Error as problem:
                if not is_transient(problem):
                    raise
                self._lose(problem)
        return await self._rows_again(statement, parameters)

    async def once(self, statement: sql.Composed, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The same without a second try; raises psycopg.Error also when the connection is lost."""
        try:
            conn = await self._connected()
        except psycopg.OperationalError as problem:
            self._miss(problem)
            raise
        self._missed = False
        try:
            return await _rows(conn, statement, parameters)
        except psycopg.Error as problem:
            if is_transient(problem):
                self._lose(problem)
            raise

    async def _rows_again(self, statement: sql.Composed, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        tries = stamina.retry_context(
            on=is_transient, attempts=None, timeout=None, wait_initial=0.05, wait_max=LONGEST_WAIT
        )
        async for attempt in tries:
            with attempt:
                return await self.once(statement, parameters)
        raise AssertionError("unreachable: the tries do not end")

    async def _connected(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        async with self._connecting:
            if not self._closed and (self._conn is None or self._conn.closed):
                self._conn = await self._connect()
            if self._closed or self._conn is None:  # perhaps while it was being made
                await self.close()
                raise SessionClosed
            return self._conn

    async def _connect(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        conn = await psycopg.AsyncConnection.connect(
            make_conninfo(self._url, application_name=self._name, **_KEEPALIVE),
            autocommit=True,
            row_factory=tuple_row,
            prepare_threshold=0,  # a few statements, sent again and again
        )
        await conn.execute(self._prepare, [self._lock_timeout])
        return conn

    def _lose(self, problem: psycopg.Error) -> None:
        self.losses += 1
        log.warning("%s: %s", self._name, str(problem).strip())

    def _miss(self, problem: psycopg.Error) -> None:
        """Say that nobody answers, once until somebody does."""
        if not self._missed:
            self._missed = True
            log.warning("%s: Postgres does not answer (%s): trying again", self._name, str(problem).strip())


def is_transient(problem: BaseException) -> bool:
    """Whether the same statement may succeed later: a connection, the server or a lock was in the way, not the data."""
    if isinstance(problem, psycopg.errors.ProgramLimitExceeded):  # class 54: the data
        return False
    return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)


async def _rows(
    conn: psycopg.AsyncConnection[tuple[Any, ...]], statement: sql.Composed, parameters: Sequence[Any]
) -> list[tuple[Any, ...]]:
    cursor = await conn.execute(statement, parameters, binary=True)
    return await cursor.fetchall()
