"""The desk: where a worker claims, performs and records calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from deedbox.digest import digest_of
from deedbox.errors import BadInput, UnknownSchema
from deedbox.keys import idempotency_key
from deedbox_consumers import metrics
from deedbox_consumers.attempt import Attempt
from deedbox_consumers.batch import Batch
from deedbox_consumers.clock import now
from deedbox_consumers.execute import ask, execute
from deedbox_consumers.ledger import Verdict
from deedbox_consumers.news import News
from deedbox_consumers.perform import Performer
from deedbox_consumers.record import Claimed
from deedbox_consumers.report import GIVEN_BACK, Report, error
from deedbox_consumers.stuck import Stuck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from uuid import UUID

    from pydantic import BaseModel

    from deedbox.codec import Codec
    from deedbox_consumers.gate import Gate, Through
    from deedbox_consumers.handlers import Handler
    from deedbox_consumers.health import Progress
    from deedbox_consumers.lease import Lease
    from deedbox_consumers.ledger import Ledger, Recorded
    from deedbox_consumers.record import Record
    from deedbox_consumers.source import Source

    Decoded = tuple[BaseModel, bytes]

log: logging.Logger = logging.getLogger("deedbox.worker")

# Seconds between two questions about a call that is not visible yet: change data capture runs ahead of the commit by a
# millisecond or so, by a round trip with a synchronous standby.
ABSENT = (0.001, 0.005, 0.02, 0.1, 0.5)
ABSENT_FOR = 60.0  # seconds until a call that nobody sees is set aside; if it appears later, the sweep emits it
# …and about one that is not free: its predecessor is open, we have no lease.
WAITING = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
PAUSED = 1.0  # seconds between two looks whether a tool is still paused
BEHIND = timedelta(minutes=1)  # until a call that a newer release wrote is tried again
IN_THE_LEDGER = timedelta(seconds=5)  # a delay of this length or more is the sweep's affair, a shorter one the lane's
BLOCKED_FOR = 30.0  # seconds until the lane lets go of a call, and of those behind it
TRANSIENT = ("busy", "no_lease", "paused")  # Kafka still answers for these
WAITED_FOR = ("blocked", *TRANSIENT)


class Desk:
    """What a lane's work needs: the ledger in batches, the gates, the handlers, the lease.

    A tool's gate stands before the claim: a claimed call is being performed, not waiting.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        source: Source,
        handlers: Mapping[str, Handler],
        codec: Codec,
        *,
        box: str,
        state: Any,
        writers: dict[bytes, str],
        gates: Mapping[str, Gate],
        threads: Mapping[str, int],
        progress: Progress,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._source = source
        self._handlers = handlers
        self._codec = codec
        self._box = box
        self._state = state
        self._writers = writers
        self._gates = gates
        self._progress = progress
        self._performer = Performer(lease, handlers, threads, self._keep)
        self._claims: Batch[UUID, Verdict] = Batch(self._claim)
        self._finishes: Batch[tuple[Claimed, Report], Recorded] = Batch(ledger.finish)
        self._closing = asyncio.Event()
        self._at_work: Counter[str] = Counter()  # attempts of each tool
        self._news = News()
        self.running: set[Claimed] = set()
        self.stuck: Stuck = Stuck()
        self.blocked: set[Future[Any]] = self._performer.blocked

    async def attend(self, record: Record, claimed: Callable[[], object], blocked: Callable[[], bool]) -> None:
        """Take one record to its end: read it, claim it, perform it; or find out that there is nothing to do."""
        decoded = await self._read(record)
        if isinstance(decoded, str) and not await self._is_ours(record):
            await self._set_aside(record, decoded)
            return
        gate, key = self._gates[record.tool], (record.tool, record.order_key)
        asked, began = 0, now()
        only_ours = False  # once Kafka has heard that the record is done with, nobody has it but this lane
        while (through := await gate.enter()) is not None:
            call: Claimed | None = None
            delay: timedelta | None = None
            try:
                verdict = await self._claims.put(record.id)
                if verdict.word == "claimed":
                    call = self._open(record, decoded, verdict)
                    gate.began(through)
                    claimed()
                    self._source.done(record)
                    delay = await self._attempt(call, decoded, verdict, through)
                    if delay is None:
                        self.stuck.get_on(key)
                        return
            finally:
                self._performer.release(call, partial(self._leave, record.tool, through))
                if call is not None:
                    self._got_on(record.tool)
            if delay is not None:  # tried again soon: the lane keeps the call
                only_ours = True
                await self._pause(delay.total_seconds())
                asked, began = 0, now()
            elif await self._wait(record, _seen(record, verdict, now() - began), asked, now() - began):
                asked += 1
                if verdict.word == "blocked":
                    only_ours = True
                    if blocked():
                        self.stuck.leave(key, [])
            else:
                return
        if only_ours:
            await self._ledger.let_go([record.id])

    async def perform(self, call: Claimed) -> Any:
        """What the handler returns; raises what it raised, TimeoutError at the attempt's deadline."""
        return await self._performer.perform(call)

    async def probe(self, call: Claimed) -> Any:
        """What the probe returns; raises what it raised, TimeoutError at the attempt's deadline."""
        return await self._performer.probe(call)

    async def record(self, call: Claimed, report: Report) -> Report:
        """Tell the ledger how the attempt ended. The answer is the report, with a delay if the lane is to go on."""
        if self._closing.is_set() and report.delay is not None:
            report = replace(report, delay=max(report.delay, IN_THE_LEDGER))
        recorded = await self._finishes.put((call, report))
        self._news.tell(call, report, recorded)
        again = recorded.status == "pending" and recorded.word != "late" and report is not GIVEN_BACK
        return replace(report, delay=(report.delay or timedelta(0)) if again else None)

    async def watch_pauses(self) -> None:
        """Ask each second, while a tool is paused, whether it still is; for ever."""
        while True:
            if waiting := [name for name, gate in self._gates.items() if gate.paused]:
                still = await self._ledger.paused(waiting)
                for name in waiting:
                    if name not in still:
                        log.info("%s is resumed", name)
                        self._gates[name].resume()
            await asyncio.sleep(PAUSED)

    @property
    def closing(self) -> bool:
        """Whether no more is claimed."""
        return self._closing.is_set()

    def close(self) -> None:
        """Claim no more; what is claimed and was never sent is given back."""
        self._closing.set()
        for gate in self._gates.values():
            gate.close()

    async def flush(self) -> None:
        """Wait until every claim is answered and every report recorded."""
        await self._claims.flush()
        await self._finishes.flush()

    def end(self) -> None:
        """Let the threads go."""
        self._performer.end()

    # ---- one record

    async def _read(self, record: Record) -> Decoded | str:
        """The arguments and their digest, or why they cannot be read."""
        try:
            return self._decode(record)
        except UnknownSchema as problem:
            # Written by a newer agent: its schema was applied before it could write.
            if (text := await self._ledger.writer(problem.fingerprint)) is None:
                return str(problem)
            self._writers[problem.fingerprint] = text
        except BadInput as problem:
            return str(problem)
        try:
            return self._decode(record)
        except BadInput as problem:
            return str(problem)

    def _decode(self, record: Record) -> Decoded:
        model: type[BaseModel] = self._handlers[record.tool].tool.args
        args = self._codec.decode(record.payload, model)
        return args, digest_of(record.tool, args)

    async def _is_ours(self, record: Record) -> bool:
        """Whether the ledger would emit these very bytes: then no better record will come."""
        return any(own.payload == record.payload for own in await self._ledger.records([record.id]))

    def _open(self, record: Record, decoded: Decoded | str, verdict: Verdict) -> Claimed:
        tool = self._handlers[record.tool].tool
        # By the ledger's word, which judges by it: what is registered may be newer than this worker.
        until = verdict.asked + (verdict.deadline or tool.deadline).total_seconds()
        probes = bool(verdict.probe)
        if verdict.window_left is not None and not probes:
            until = min(until, verdict.asked + verdict.window_left.total_seconds())
        attempt = Attempt(
            key=idempotency_key(self._box, verdict.key, verdict.rekeyed or 0),
            call=verdict.key,
            tool=record.tool,
            number=verdict.attempt,
            until=until,
            lost=lambda: not self._lease.holds(verdict.owner),
            state=self._state,
        )
        args = None if isinstance(decoded, str) else decoded[0]
        keyed = verdict.window_left is not None
        return Claimed(record, tool, args, attempt, verdict.owner, probes, keyed)

    async def _attempt(
        self, call: Claimed, decoded: Decoded | str, verdict: Verdict, through: Through
    ) -> timedelta | None:
        """Perform or ask, and record it; the delay after which the lane is to go on with the call."""
        self.running.add(call)
        self._at_work[call.tool.name] += 1
        metrics.running.labels(call.tool.name).inc()
        self._got_on(call.tool.name)
        try:
            if isinstance(decoded, str):
                report = await self._put_off(call, decoded)
            elif decoded[1] != verdict.digest:
                report = await self._refuse_bytes(call)
            elif self._closing.is_set():
                report = await self.record(call, GIVEN_BACK)
            elif call.probe:
                report = await ask(call, self)
            else:
                report = await execute(call, self)
        finally:
            self.running.discard(call)
            self._at_work[call.tool.name] -= 1
            metrics.running.labels(call.tool.name).dec()
        if call.sent:
            gate = self._gates[call.tool.name]
            (gate.failed if report.broken else gate.succeeded)(through)
        return report.delay

    def _leave(self, tool: str, through: Through) -> None:
        self._gates[tool].leave(through)
        if through.begun:
            self._got_on(tool)

    def _got_on(self, tool: str) -> None:
        """An attempt of a tool began or ended, or a thread is free again: it has something to get on with, or not.

        Threads that hang past their deadlines are work that does not get on, if they are all the tool has.
        """
        busy = self._at_work[tool] > 0 or self._performer.hangs(tool)
        (self._progress.note if busy else self._progress.idle)(handling(tool))

    async def _refuse_bytes(self, call: Claimed) -> Report:
        """These do not read as the arguments that were decided: never perform them.

        If they are the ledger's own bytes, this worker reads them otherwise than the agent meant them. Else the record
        is a stranger's, and the ledger emits its own bytes.
        """
        if await self._is_ours(call.record):
            return await self._put_off(call, "its arguments are not those that were decided")
        await self._set_aside(call.record, "its arguments are not those that were decided")
        return await self.record(call, GIVEN_BACK)

    async def _put_off(self, call: Claimed, why: str) -> Report:
        """The ledger's own bytes are not for this worker: it is a release behind, and another may be on its way.

        After as many tries as a call has, it is given up: its agent is told, and an operator can redrive it (I14).
        """
        reason = f"this worker cannot read it ({why}): deploy the release of {call.tool.name} that wrote it"
        log.error("%s: %s", call.attempt.call, reason)
        return await self.record(call, Report("retry", error=error(reason), delay=BEHIND))

    async def _wait(self, record: Record, word: str, asked: int, waited: float) -> bool:
        """Wait until the ledger can be asked again; False: there is nothing to ask."""
        if word == "absent" and waited < ABSENT_FOR:
            await self._pause(ABSENT[asked] if asked < len(ABSENT) else 1.0)
            return True
        if word == "absent":
            await self._set_aside(record, f"no such call, or attempt of it, is to be seen after {ABSENT_FOR:.0f} s")
            return False
        if word == "forbidden":
            await self._set_aside(record, "it is a call of another tool than its topic's")
            return False
        if word == "paused":
            self._gates[record.tool].pause()
            return True
        if word not in TRANSIENT:
            self._source.done(record)  # the ledger knows it: from here on Kafka need not
        key = record.tool, record.order_key
        if word in ("running", "final"):
            self.stuck.get_on(key)  # by another worker
        if word not in WAITED_FOR:
            return False
        if word == "blocked" and (waited > BLOCKED_FOR or key in self.stuck):
            self.stuck.leave(key, [] if asked else [record.id])  # the first in line is made due by what blocks it
            await self._ledger.let_go([record.id])
            return False
        await self._pause(WAITING[min(asked, len(WAITING) - 1)])
        return True

    async def _set_aside(self, record: Record, reason: str) -> None:
        metrics.strays.labels(record.tool).inc()
        await self._source.set_aside(record, reason)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    # ---- the ledger

    async def _claim(self, ids: Sequence[UUID]) -> list[Verdict]:
        owner, asked = self._lease.owner, now()
        if not self._lease.alive:  # nothing would be sent
            return [Verdict("no_lease", owner)] * len(ids)
        verdicts = await self._ledger.claim(owner, ids, lambda: {call.record.id for call in self.running})
        return [verdict._replace(asked=asked) for verdict in verdicts]

    def _keep(self, call: Claimed, report: Report) -> None:
        """What a thread said after its attempt was over: fenced off, and kept."""
        kept = self._finishes.put((call, report))
        kept.add_done_callback(
            lambda done: self._news.tell(call, report, done.result(), over=True) if done.exception() is None else None
        )


def handling(tool: str) -> str:
    """The part of a worker's progress that is performing calls of this tool."""
    return f"handle {tool}"


def _seen(record: Record, verdict: Verdict, waited: float) -> str:
    """The verdict's word, or absent: the record is for an attempt that cannot be seen yet.

    Every emission can be here before its transaction is visible, also that of a retry or a redrive. But what is final
    stays so if a late answer came before that attempt began.
    """
    unsure = verdict.word == "final" and waited < ABSENT_FOR
    if (unsure or verdict.word in ("running", "held", "retry", "in_doubt")) and record.attempt > verdict.attempt:
        return "absent"
    return verdict.word
