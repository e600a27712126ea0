"""A worker in plain SQL: it takes and finishes calls step by step, so that a test decides what happens between."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

import psycopg


class Hands:
    """One owner with one connection, which holds the owner's lock as long as it is open."""

    def __init__(self, conn: psycopg.Connection, tools: list[str], lease: str) -> None:
        self.conn = conn
        self.owner = uuid4()
        self.tools = tools
        conn.execute("SELECT enlist(%s, %s, 'poll', %s)", [self.owner, tools, lease])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.conn.close()

    def pending(self) -> list[UUID]:
        """All pending calls, oldest first."""
        return [row[0] for row in self.conn.execute("SELECT * FROM pending(%s, NULL, 1000)", [self.tools])]

    def claim(self, ids: Iterable[UUID]) -> dict[UUID, tuple[str, int | None]]:
        """Verdict and attempt by id."""
        rows = self.conn.execute("SELECT id, verdict, attempt FROM claim(%s, %s)", [list(ids), self.owner])
        return {id_: (verdict, attempt if verdict == "claimed" else None) for id_, verdict, attempt in rows}

    def take(self) -> dict[UUID, int]:
        """Claim whatever is pending: attempts by id."""
        said = self.claim(self.pending())
        return {id_: attempt for id_, (verdict, attempt) in said.items() if verdict == "claimed" and attempt}

    def finish(
        self,
        id_: UUID,
        attempt: int,
        status: str = "done",
        *,
        result: Any = None,
        error: Any = None,
        unsettled: bool | None = None,
        delay: str = "1 h",
    ) -> str:
        """Record one outcome; the ledger's verdict."""
        if status == "done":
            unsettled = False
        row = self.conn.execute(
            "SELECT verdict FROM finish(%s, %s, %s, %s, %s::json[], %s::json[], %s::boolean[], %s::interval[])",
            [self.owner, [id_], [attempt], [status], [_json(result)], [_json(error)], [unsettled], [delay]],
        ).fetchone()
        assert row is not None
        return str(row[0])

    def do_all(self, result: Any = None) -> int:
        """Claim and finish everything that is pending; how many."""
        taken = self.take()
        for id_, attempt in taken.items():
            self.finish(id_, attempt, result=result or {"id": "ch_1"})
        return len(taken)

    def sweep(self) -> list[tuple[str, str | None, UUID | None, str | None]]:
        """One turn of the sweep."""
        return self.conn.execute("SELECT duty, tool, id, status FROM sweep()").fetchall()


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
