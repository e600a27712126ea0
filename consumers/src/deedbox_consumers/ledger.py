"""The ledger's verbs, as a worker says them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from deedbox import migrate, registry
from deedbox.signals import reach
from deedbox.statements import Statements
from deedbox_consumers.record import KINDS, Record
from deedbox_consumers.report import error, unstorable
from deedbox_consumers.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from deedbox.step import AnyTool
    from deedbox_consumers.record import Claimed
    from deedbox_consumers.report import Report

    Reported = tuple[Claimed, Report]

LOCK_TIMEOUT = "1s"  # of the session that renews the lease: nothing may keep it from that for long
SWEPT_AT_ONCE = 1000  # calls a turn


class Verdict(NamedTuple):
    """The claim's answer for one call."""

    word: str
    owner: UUID
    key: str = ""
    attempt: int = 0
    digest: bytes = b""
    window_left: timedelta | None = None
    probe: bool | None = False
    rekeyed: int | None = 0
    deadline: timedelta | None = None
    asked: float = 0.0  # when the claim was sent


class Recorded(NamedTuple):
    """The ledger's answer to a report: recorded, already, late or alarm; and where the call stands now."""

    word: str
    status: str


class Swept(NamedTuple):
    """What the sweep did: `status` pending means that the call is free to be claimed."""

    duty: str
    tool: str | None
    id: UUID | None
    status: str | None


class Ledger:
    """Three connections and the statements on them; each verb is one round trip, for as many calls as there are."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._say = Statements("deedbox_consumers", "worker.sql", schema)
        self._registry = Statements("deedbox", "registry.sql", schema)
        self._migrations = Statements("deedbox", "migrate.sql", schema)
        prepare = self._say["session"]
        self._claims = Session(url, "deedbox-worker claim", prepare)
        self._finishes = Session(url, "deedbox-worker finish", prepare)
        self._leases = Session(url, "deedbox-worker lease", prepare, LOCK_TIMEOUT)
        self._leased_with = 0  # losses of that session when the owner's lock was last taken

    async def open(self) -> None:
        """Connect; raises psycopg.OperationalError."""
        for session in (self._claims, self._finishes, self._leases):
            await session.open()

    async def close(self) -> None:
        """Disconnect."""
        for session in (self._claims, self._finishes, self._leases):
            await session.close()

    async def check(self, tools: Iterable[AnyTool]) -> None:
        """Raise NotMigrated or ToolNotApplied when the database is not as this worker needs it."""
        (exists,) = (await self._leases.rows(self._migrations["exists"], [f"{self.schema}.migration"]))[0]
        newest = (await self._leases.rows(self._migrations["newest"]))[0][0] if exists else None
        if problem := migrate.missing(newest, self.schema):
            raise problem
        registry.check(tools, await self._leases.rows(self._registry["current"]), self.schema)

    async def box(self) -> tuple[str, str]:
        """The box's id and its prefix."""
        id_, prefix = (await self._leases.rows(self._say["box"]))[0]
        return id_, prefix

    async def enlist(self, owner: UUID, tools: Sequence[str], source: str, lease: timedelta) -> None:
        """Begin to work as `owner`."""
        self._leased_with = self._leases.losses
        # Not repeated by the session: a second INSERT of the same owner would fail.
        await self._leases.once(self._say["enlist"], [owner, list(tools), source, lease])

    async def renew(self, owner: UUID, received: Mapping[str, datetime]) -> bool:
        """Renew the lease; False: this owner was judged dead. Raises psycopg.Error when the connection is lost."""
        through = json.dumps({tool: at.isoformat() for tool, at in received.items()})
        if self._leases.losses == self._leased_with:
            return bool((await self._leases.once(self._say["renew"], [owner, through, False]))[0][0])
        # The lock went with the old session, and cannot be had before the server notices that session's end.
        losses = self._leases.losses
        (alive,) = (await self._leases.once(self._say["renew"], [owner, through, True]))[0]
        if alive:
            self._leased_with = losses  # else the lock is the old session's still: it is asked for at the next time
        return alive is not False

    async def resign(self, owner: UUID) -> None:
        """Leave."""
        await self._leases.once(self._say["resign"], [owner])

    async def claim(self, owner: UUID, ids: Sequence[UUID], at_work: Callable[[], Container[UUID]]) -> list[Verdict]:
        """Claim calls: a verdict for each. One that stands twice in `ids` is claimed once.

        If the connection was lost meanwhile, the claim may have been carried out without our hearing of it: what is
        running then as ours, and not one of those `at_work`, is given back.
        """
        reach("before_claim")
        losses = self._claims.losses
        rows = await self._claims.rows(self._say["claim"], [list(ids), owner])
        reach("after_claim")
        if losses != self._claims.losses:
            ours = at_work()
            await self._give_back(owner, [row[0] for row in rows if row[1] == "running" and row[0] not in ours])
        verdicts = {id_: Verdict(word, owner, *facts) for id_, word, *facts in rows}
        busy = Verdict("busy", owner)
        return [verdicts.pop(id_, busy) for id_ in ids]

    async def _give_back(self, owner: UUID, ids: Sequence[UUID]) -> None:
        rows = await self._claims.rows(self._say["attempts"], [list(ids)])
        found, attempts, count = [row[0] for row in rows], [row[1] for row in rows], len(rows)
        nothing = [None] * count  # those of other owners are fenced off
        values = [owner, found, attempts, ["pending"] * count, nothing, nothing, nothing, nothing]
        await self._claims.rows(self._say["finish"], values)

    async def finish(self, reported: Sequence[Reported]) -> list[Recorded]:
        """Record reports, with an answer for each. One that cannot be stored spoils no other (I14)."""
        reach("before_record")
        verdicts: dict[tuple[UUID, int], Recorded] = {}
        # A statement takes one report of a call: an attempt that outlived its deadline may end beside the next one.
        for owner, number in sorted({(call.owner, call.attempt.number) for call, _ in reported}):
            mine = [item for item in reported if (item[0].owner, item[0].attempt.number) == (owner, number)]
            for id_, verdict in (await self._finish(owner, mine)).items():
                verdicts[id_, number] = verdict
        reach("after_record")
        return [verdicts[call.record.id, call.attempt.number] for call, _ in reported]

    async def _finish(self, owner: UUID, reported: Sequence[Reported]) -> dict[UUID, Recorded]:
        try:
            return await self._say_finish(owner, reported)
        except (
            psycopg.DataError,
            psycopg.IntegrityError,
            psycopg.errors.ProgramLimitExceeded,
            UnicodeEncodeError,
        ) as problem:
            if len(reported) > 1:
                half = len(reported) // 2
                return await self._finish(owner, reported[:half]) | await self._finish(owner, reported[half:])
            call, report = reported[0]
            if report.status == "done":
                spared = unstorable(f"result unstorable: {problem}", report.result)
            else:  # what it says cannot be stored; what it knows can
                spared = replace(report, error=error(f"report unstorable: {problem}"))
            return await self._say_finish(owner, [(call, spared)])

    async def _say_finish(self, owner: UUID, reported: Sequence[Reported]) -> dict[UUID, Recorded]:
        rows = await self._finishes.rows(self._say["finish"], _columns(owner, reported))
        return {id_: Recorded(word, status) for id_, word, status in rows}

    async def sweep(self) -> list[Swept]:
        """One turn of the sweep; raises psycopg.Error when the connection is lost."""
        return [Swept(*row) for row in await self._leases.once(self._say["sweep"], [SWEPT_AT_ONCE])]

    async def pending(self, tools: Sequence[str], start: UUID | None, limit: int) -> list[UUID]:
        """Ids of calls that nobody has claimed, oldest first; without `start`, those that are parked as well."""
        rows = await self._leases.rows(self._say["pending"], [list(tools), start, limit])
        return [id_ for (id_,) in rows]

    async def records(self, ids: Sequence[UUID]) -> list[Record]:
        """Calls as records, straight from the ledger: for no attempt, since whoever claims sees what was read here."""
        rows = await self._leases.rows(self._say["records"], [list(ids)])
        return [
            Record(id_, tool, key, order_key, payload, attempt=0)
            for id_, tool, kind, key, order_key, payload, _ in rows
            if kind in KINDS
        ]

    async def paused(self, tools: Sequence[str]) -> set[str]:
        """Which of these tools are paused."""
        return {name for (name,) in await self._leases.rows(self._say["paused"], [list(tools)])}

    async def let_go(self, ids: Sequence[UUID]) -> None:
        """Let pending calls wait in the ledger alone: the finish of what blocks them makes them due, and the sweep."""
        await self._leases.rows(self._say["let_go"], [list(ids)])

    async def set_aside(self, record: Sequence[Any]) -> None:
        """Keep a Kafka record that cannot be taken: topic, partition, offset, key, headers as JSON, value, reason."""
        await self._leases.rows(self._say["set_aside"], record)

    async def writer(self, fingerprint: bytes) -> str | None:
        """The writer schema of a fingerprint, if it was applied."""
        rows = await self._leases.rows(self._registry["writer"], [fingerprint])
        return rows[0][0] if rows else None


def _columns(owner: UUID, reported: Sequence[Reported]) -> list[Any]:
    """The parameters of the statement `finish`."""
    reports = [report for _, report in reported]
    return [
        owner,
        [call.record.id for call, _ in reported],
        [call.attempt.number for call, _ in reported],
        [report.status for report in reports],
        [report.result for report in reports],
        [report.error for report in reports],
        [report.unsettled for report in reports],
        [report.delay for report in reports],
    ]
