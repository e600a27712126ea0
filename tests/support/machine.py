"""A small world around one ledger: its clock, a provider with books, requests under way, and workers that die and wake.

Nothing here decides anything: each method is one thing that can happen, and refuses nothing that could.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

import psycopg

from deedbox.keys import idempotency_key
from tests.support.clock import Clock
from tests.support.hands import Hands
from tests.support.shop import MONEY, TOOLS

LEASE = timedelta(seconds=20)
NEVER = timedelta(0)
EFFECTS = {tool.name: tool.effect for tool in (*TOOLS, *MONEY)}

# What a provider does with a request that it sees for the first time.
Mood: TypeAlias = Literal["does it", "refuses", "is busy", "does it and fails", "fails"]
MOODS: tuple[Mood, ...] = ("does it", "does it", "refuses", "is busy", "does it and fails", "fails")


def lateness(tool: str) -> timedelta:
    """How long after its attempt's deadline a request may still arrive: what the tool's effect was told."""
    effect = EFFECTS[tool]
    return max(effect.settle_after or NEVER, effect.margin or NEVER) or timedelta(hours=1)


@dataclass(frozen=True, repr=False)
class Deed:
    """A committed call."""

    id: UUID
    key: str
    tool: str
    digest: str
    order_key: str | None

    def __repr__(self) -> str:
        return f"{self.tool} {self.key}"


@dataclass(eq=False, repr=False)
class Flight:
    """A request under way. It arrives before `until`, or never."""

    attempt: Attempt
    until: datetime

    def __repr__(self) -> str:
        return f"the request of {self.attempt}"

    @property
    def deed(self) -> Deed:
        return self.attempt.deed


@dataclass(eq=False, repr=False)
class Attempt:
    """A claim, as its worker sees it."""

    worker: Worker
    owner: UUID
    deed: Deed
    number: int
    key: str  # the provider's
    probe: bool
    keyed: bool
    until: datetime
    at: Literal["claimed", "sent", "over"] = "claimed"
    word: str | None = None  # what the provider, or the probe, answered
    said: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"{self.deed.key}#{self.number}{' probe' if self.probe else ''}"


@dataclass(eq=False, repr=False)
class Worker:
    """A process. Working, stopped (it does nothing until it wakes), cut off from Postgres, or dead."""

    name: str
    hands: Hands
    until: datetime  # of its lease, as it knows it
    state: Literal["working", "stopped", "cut", "dead"] = "working"
    lane: set[UUID] = field(default_factory=set)  # calls that it goes on with by itself

    def __repr__(self) -> str:
        return self.name

    @property
    def runs(self) -> bool:
        return self.state in ("working", "cut")


class Provider:
    """The other side: what it did for each call, and what it remembers under each idempotency key."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self._answers: dict[str, tuple[str, datetime]] = {}

    def replays(self, flight: Flight, at: datetime) -> str | None:
        """The answer that it remembers for this request."""
        if EFFECTS[flight.deed.tool].window is None:
            return None
        answer, until = self._answers.get(flight.attempt.key, ("", at))
        return answer if at < until else None

    def take(self, flight: Flight, mood: Mood, at: datetime) -> str:
        """Take a request; the word that a worker which gets the answer has to report."""
        if (before := self.replays(flight, at)) is not None:
            return "stored" if before == "unknown" else before
        if mood.startswith("does it"):
            self.effects[flight.deed.key] += 1
        word = {"does it": "done", "refuses": "refused", "is busy": "retry"}.get(mood, "unknown")
        window = EFFECTS[flight.deed.tool].window
        if window is not None and word != "retry":
            self._answers[flight.attempt.key] = word, at + window
        return word


class World:
    """Everything outside of the ledger."""

    def __init__(self, conn: psycopg.Connection, clock: Clock, *, source: Literal["poll", "kafka"]) -> None:
        self.conn = conn
        self.clock = clock
        self.source = source
        self.provider = Provider()
        self.deeds: dict[UUID, Deed] = {}
        self.workers: list[Worker] = []
        self.attempts: list[Attempt] = []
        self.flights: list[Flight] = []
        self._consumed: set[UUID] = set()  # records of the topic
        row = conn.execute("SELECT id FROM box").fetchone()
        assert row is not None
        self.box: str = row[0]

    @property
    def now(self) -> datetime:
        return self.clock.now

    # ---- what agents do

    def committed(self, run: str) -> None:
        """Note the calls of a run's first decision."""
        rows = self.conn.execute(
            "SELECT a.id, a.key, a.tool, encode(a.digest, 'hex'), a.args ->> t.order_by "
            "FROM action a JOIN tool t ON t.name = a.tool WHERE a.run_id = %s ORDER BY a.call",
            [run],
        )
        self.deeds |= {row[0]: Deed(*row) for row in rows}

    # ---- what workers do

    def hire(self) -> Worker:
        """A new worker."""
        worker = Worker(
            f"worker {len(self.workers) + 1}",
            Hands(self.conn, list(EFFECTS), f"{LEASE.total_seconds()} s"),
            self.now + LEASE,
        )
        self._enlisted(worker)
        self.workers.append(worker)
        return worker

    def claim(self, worker: Worker, ids: list[UUID]) -> dict[UUID, tuple[str, bool]]:
        """Claim calls: each one's verdict, and whether it is to be asked about."""
        rows = self.conn.execute(
            "SELECT id, verdict, key, attempt, window_left, probe, rekeyed FROM claim(%s, %s) ORDER BY id",
            [ids, worker.hands.owner],
        ).fetchall()
        done = [
            row[0] for row in rows if row[1] not in ("busy", "no_lease", "paused")
        ]  # else Kafka still answers for it
        self._consumed |= {record for record, id_ in self._records() if id_ in done}
        worker.lane.difference_update(done)
        for id_, verdict, key, number, window_left, probe, rekeyed in rows:
            if verdict == "claimed":
                tool = self.conn.execute("SELECT deadline FROM tool WHERE name = %s", [self.deeds[id_].tool]).fetchone()
                assert tool is not None
                left = tool[0] if window_left is None or probe else min(tool[0], window_left)
                name = idempotency_key(self.box, key, rekeyed)
                keyed = window_left is not None
                attempt = Attempt(
                    worker, worker.hands.owner, self.deeds[id_], number, name, probe, keyed, self.now + left
                )
                self.attempts.append(attempt)
        return {row[0]: (row[1], bool(row[5])) for row in rows}

    def known(self, worker: Worker) -> list[UUID]:
        """The calls that a worker hears of: what it finds in the ledger, or has from its topic, and its own."""
        if self.source == "poll":
            return worker.hands.pending()
        return list(worker.lane | {id_ for record, id_ in self._records() if record not in self._consumed})

    def may_send(self, attempt: Attempt) -> bool:
        """Whether the worker's last look before the effect, or before the question, lets it pass."""
        worker = attempt.worker
        leased = worker.hands.owner == attempt.owner and self.now < worker.until
        return attempt.at == "claimed" and worker.runs and leased and self.now < attempt.until

    def might_send(self, attempt: Attempt) -> bool:
        """Whether it may yet come to that: a stopped worker may wake in time, or renew before anybody judges it."""
        leased = attempt.worker.hands.owner == attempt.owner and attempt.worker.state != "dead"
        return attempt.at == "claimed" and leased and not attempt.probe and self.now < attempt.until

    def send(self, attempt: Attempt) -> None:
        """The request leaves. A process that is stopped between its last look and the socket is a request under way."""
        attempt.at = "sent"
        self.flights.append(Flight(attempt, attempt.until + lateness(attempt.deed.tool)))

    def flights_of(self, attempt: Attempt) -> list[Flight]:
        """The request of the attempt, while it is under way."""
        return [flight for flight in self.flights if flight.attempt is attempt]

    def ask(self, attempt: Attempt) -> None:
        """The probe is answered from the provider's books."""
        attempt.at = "sent"
        attempt.word = "done" if self.provider.effects[attempt.deed.key] else "absent"

    def arrive(self, flight: Flight, mood: Mood, *, heard: bool, at: datetime | None = None) -> str:
        """The request arrives; the worker hears the answer, or does not."""
        self.flights.remove(flight)
        word = self.provider.take(flight, mood, at or self.now)
        if heard and flight.attempt.worker.state != "dead":
            flight.attempt.word = word
        return word

    def words(self, attempt: Attempt) -> list[str]:
        """What can honestly be reported of an attempt; the most telling word first."""
        heard = [attempt.word] if attempt.word else []
        if attempt.word == "done" and not attempt.probe:
            heard.append("gave_up")  # its result cannot be kept
        if attempt.at == "over":  # a thread may hear it after the deadline
            late = attempt.said[-1]["status"] == "unknown" and attempt.word in ("done", "refused")
            return heard if late else []
        if attempt.probe:
            return [*heard, "cannot_tell"] if heard else ["cannot_tell", "pending"]
        if attempt.at == "claimed":
            return ["pending", "retry", "unknown", "refused"]  # what stands before the handler may refuse
        return list(dict.fromkeys([*heard, "unknown"]))

    def report(self, attempt: Attempt, word: str, delay: timedelta) -> tuple[str, str]:
        """Report an attempt in that word; verdict and status."""
        error = {"reason": word}
        if word == "stored":
            error["stored"] = "true"
        if word == "gave_up":
            error["happened"] = "true"
        certain = word in ("done", "gave_up") or (word == "refused" and attempt.keyed and attempt.at != "claimed")
        said = {
            "status": word,
            "result": json.dumps({"id": str(attempt.number)}) if word == "done" else None,
            "error": None if word in ("done", "pending") else json.dumps(error),
            "unsettled": False if certain else None,
            "delay": delay,
        }
        attempt.said.append(said)
        attempt.at = "over"
        verdict, status = self.repeat(attempt)
        if verdict == "recorded" and status == "pending" and word != "pending":
            attempt.worker.lane.add(attempt.deed.id)
        return verdict, status

    def repeat(self, attempt: Attempt) -> tuple[str, str]:
        """Say once more what was said of the attempt."""
        said = attempt.said[-1]
        row = self.conn.execute(
            "SELECT verdict, status FROM finish(%s, %s, %s, %s, %s::json[], %s::json[], %s::boolean[], %s::interval[])",
            [
                attempt.owner,
                [attempt.deed.id],
                [attempt.number],
                *([said[name]] for name in ("status", "result", "error", "unsettled", "delay")),
            ],
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    # ---- what happens to workers

    def kill(self, worker: Worker) -> None:
        """The process is gone, and its session with it."""
        if worker.state != "cut":
            self._cut(worker)
        worker.state = "dead"
        self.attempts = [attempt for attempt in self.attempts if attempt.worker is not worker]

    def stop(self, worker: Worker) -> None:
        """The process does nothing any more, its session stays."""
        worker.state = "stopped"

    def cut(self, worker: Worker) -> None:
        """The process goes on, its session is gone."""
        self._cut(worker)
        worker.state = "cut"

    def wake(self, worker: Worker) -> None:
        """A worker that was stopped or cut off renews its lease, or learns that it was judged dead."""
        self._renew(worker, new_session=worker.state == "cut")
        worker.state = "working"

    def _renew(self, worker: Worker, *, new_session: bool = False) -> None:
        received = json.dumps(dict.fromkeys(EFFECTS, self.now.isoformat()))
        row = self.conn.execute("SELECT renew(%s, %s, %s)", [worker.hands.owner, received, new_session]).fetchone()
        assert row is not None
        if not row[0]:  # it goes on under another name
            self._cut(worker)
            worker.hands = Hands(self.conn, list(EFFECTS), f"{LEASE.total_seconds()} s")
            self._enlisted(worker)
        worker.until = self.now + LEASE

    def _enlisted(self, worker: Worker) -> None:
        self.conn.execute("UPDATE worker SET source = %s WHERE owner = %s", [self.source, worker.hands.owner])

    def _cut(self, worker: Worker) -> None:
        self.conn.execute("SELECT pg_advisory_unlock(owner_lock(%s))", [worker.hands.owner])

    def _records(self) -> list[tuple[UUID, UUID]]:
        return self.conn.execute("SELECT id, action_id FROM outbox WHERE type IN ('call', 'probe')").fetchall()

    # ---- time

    def forward(self, to: datetime, mood: Mood | None) -> None:
        """Time passes. Requests whose time is over arrive at its last moment, or (no mood) never."""
        for flight in sorted(self.flights, key=lambda flight: flight.until):
            if flight.until <= to:
                if mood:
                    self.arrive(flight, mood, heard=False, at=flight.until - timedelta(seconds=1))
                else:
                    self.flights.remove(flight)
        self.clock.set(to)
        for worker in self.workers:
            if worker.state == "working":
                self._renew(worker)
