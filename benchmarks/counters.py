"""What the server counts: commits, WAL and in-place updates of all sessions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from psycopg import sql

LAG = 11.0  # seconds: an idle session reports what it has counted within ten
LOOK_EVERY = 0.02  # seconds between two looks for the last outcome


@dataclass(frozen=True)
class Counters:
    """Commits of the database but our own, and updates of `outcome`: all, and those in place."""

    commits: int
    updates: int
    hot: int

    def since(self, before: Counters) -> Counters:
        """What was added."""
        return Counters(self.commits - before.commits, self.updates - before.updates, self.hot - before.hot)


@dataclass(frozen=True)
class Wal:
    """Bytes between two positions: all, and full-page images among them."""

    total: int
    images: int

    @property
    def written(self) -> int:
        """Without the images: how many there are depends on when the last checkpoint was."""
        return self.total - self.images


class Watch:
    """The benchmark's own session. It counts its statements, so that they can be left out."""

    def __init__(self, url: str, schema: str) -> None:
        self._statements = Statements("benchmarks", "bench.sql", schema)
        self._conn = psycopg.connect(url, autocommit=True, application_name="deedbox-bench", prepare_threshold=0)
        self.asked = 0
        self.rows("session")

    @property
    def ping(self) -> sql.Composed:
        """A statement that does nothing."""
        return self._statements["ping"]

    def close(self) -> None:
        """Disconnect."""
        self._conn.close()

    def rows(self, name: str, values: Sequence[Any] | Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement of bench.sql."""
        self.asked += 1
        return self._conn.execute(self._statements[name], values).fetchall()

    def tell(self, name: str, values: Sequence[Any] | None = None) -> None:
        """Run a statement that gives no rows."""
        self.asked += 1
        self._conn.execute(self._statements[name], values)

    def mark(self) -> UUID:
        """An id that is smaller than that of every call to come; it is used a millisecond later."""
        found: UUID = self.rows("now")[0][0]
        time.sleep(0.002)
        return found

    def position(self) -> str:
        """Where the next WAL record will be."""
        return str(self.rows("position")[0][0])

    def wal(self, start: str, end: str) -> Wal:
        """What was written between two positions."""
        return Wal(*self.rows("wal", {"from": start, "to": end})[0])

    def counters(self) -> Counters:
        """What the sessions have reported; an idle one does within LAG."""
        mine = self.asked  # each was a transaction; the first of these statements does not count itself
        commits = self.rows("commits")[0][0] - mine
        return Counters(commits, *self.rows("updates")[0])

    def await_done(self, mark: UUID, calls: int, within: float) -> None:
        """Wait until all calls from `mark` on are done; raises RuntimeError when they are not, or are others."""
        until = time.monotonic() + within
        at = mark
        while found := self.rows("open", [at]):
            at = found[0][0]
            if time.monotonic() > until:
                break
            time.sleep(LOOK_EVERY)
        there, done = self.rows("done", [mark])[0]
        if (there, done) != (calls, calls):
            raise RuntimeError(f"{calls} calls were committed, {there} are there and {done} done after {within:.0f} s")
