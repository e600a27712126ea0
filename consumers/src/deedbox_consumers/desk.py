"""The desk: where a worker claims, performs and records calls."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deedbox.digest import digest_of
from deedbox.errors import BadInput, UnknownSchema
from deedbox.keys import idempotency_key
from deedbox.signals import reach
from deedbox_consumers.attempt import Attempt
from deedbox_consumers.batch import Batch
from deedbox_consumers.clock import now
from deedbox_consumers.execute import execute
from deedbox_consumers.record import Claimed
from deedbox_consumers.report import GIVEN_BACK, Report, done, error
from deedbox_consumers.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from pydantic import BaseModel

    from deedbox.codec import Codec
    from deedbox_consumers.handlers import Handler
    from deedbox_consumers.lease import Lease
    from deedbox_consumers.ledger import Ledger, Verdict
    from deedbox_consumers.record import Record
    from deedbox_consumers.source import Source

    Decoded = tuple[BaseModel, bytes]

log: logging.Logger = logging.getLogger("deedbox.worker")

# Seconds between two questions about a call that is not visible yet: change data capture runs ahead of the commit by a
# millisecond or so, by a round trip with a synchronous standby.
ABSENT = (0.001, 0.005, 0.02, 0.1, 0.5)
ABSENT_FOR = 60.0  # seconds until a call that nobody sees is set aside; if it appears later, the sweep emits it
# …and about one that is not free: its predecessor is open, its tool is paused, we have no lease.
WAITING = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
BEHIND = timedelta(minutes=1)  # until a call that a newer release wrote is tried again
BLOCKED_FOR = 30.0  # seconds until the lane lets go of a call, and of those behind it
TRANSIENT = ("busy", "no_lease")
WAITED_FOR = ("blocked", "paused", *TRANSIENT)


class Desk:
    """What a lane's work needs: the ledger in batches, the handlers, the lease.

    `concurrency` bounds the async handlers at work at once, `threads` those that block. The bound holds before the
    claim: a claimed call is being performed, not waiting.
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
        concurrency: int,
        threads: int,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._source = source
        self._handlers = handlers
        self._codec = codec
        self._box = box
        self._state = state
        self._writers = writers
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="deedbox-handler")
        beside = Slots(concurrency)
        blocking = Slots(threads)
        self._slots = {name: blocking if handler.blocks else beside for name, handler in handlers.items()}
        self._claims: Batch[UUID, Verdict] = Batch(self._claim)
        self._finishes: Batch[tuple[Claimed, Report], str] = Batch(ledger.finish)
        self._closing = asyncio.Event()
        self._gate = threading.Lock()
        self._stuck: set[tuple[str, str]] = set()  # order keys whose calls are let go until one is claimed again
        self.running: set[Claimed] = set()
        self.blocked: set[Future[Any]] = set()  # threads whose attempts are over

    async def attend(self, record: Record, claimed: Callable[[], object]) -> None:
        """Take one record to its end: read it, claim it, perform it; or find out that there is nothing to do."""
        decoded = await self._read(record)
        if decoded is None:
            return
        args, digest = decoded
        slot = self._slots[record.tool]
        asked, began = 0, now()
        while not self._closing.is_set():
            await slot.acquire()
            call: Claimed | None = None
            try:
                verdict = await self._claims.put(record.id)
                if verdict.word == "claimed":
                    self._stuck.discard((record.tool, record.order_key))
                    call = self._open(record, args, verdict)
                    claimed()
                    self._source.done(record)
                    await self._perform_and_record(call, as_decided=digest == verdict.digest)
                    return
            finally:
                self._release(slot, call)
            if not await self._wait(record, verdict.word, asked, now() - began):
                return
            asked += 1

    async def perform(self, call: Claimed) -> BaseModel:
        """The handler's result; raises what the handler raised, TimeoutError at the attempt's deadline."""
        handler = self._handlers[call.tool.name]
        async with asyncio.timeout(call.attempt.time_left):
            if handler.blocks:
                result = await self._in_thread(handler, call)
            else:
                self._send(call)
                result = await _ending(handler.function(call.args, call.attempt))
        reach("after_effect")
        return result  # type: ignore[no-any-return] # whatever a handler gives is checked by `done`

    async def record(self, call: Claimed, report: Report) -> None:
        """Tell the ledger how the attempt ended."""
        if await self._finishes.put((call, report)) == "late":
            log.warning("%s: somebody else has taken over, what this attempt knows is kept as late", call.attempt.call)

    def close(self) -> None:
        """Claim no more; what is claimed and was never sent is given back."""
        self._closing.set()

    async def flush(self) -> None:
        """Wait until every claim is answered and every report recorded."""
        await self._claims.flush()
        await self._finishes.flush()

    def end(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---- one record

    async def _read(self, record: Record) -> Decoded | None:
        """The arguments and their digest; None when they cannot be read, and the record is set aside, unclaimed."""
        try:
            return self._decode(record)
        except UnknownSchema as problem:
            # Written by a newer agent: its schema was applied before it could write.
            if (text := await self._ledger.writer(problem.fingerprint)) is not None:
                self._writers[problem.fingerprint] = text
                with contextlib.suppress(BadInput):
                    return self._decode(record)
            await self._source.set_aside(record, str(problem))
        except BadInput as problem:
            await self._source.set_aside(record, str(problem))
        return None

    def _decode(self, record: Record) -> Decoded:
        model: type[BaseModel] = self._handlers[record.tool].tool.args
        args = self._codec.decode(record.payload, model)
        return args, digest_of(record.tool, args)

    def _open(self, record: Record, args: BaseModel, verdict: Verdict) -> Claimed:
        tool = self._handlers[record.tool].tool
        moment = now()
        until = moment + tool.deadline.total_seconds()
        ends: float | None = None
        if verdict.window_left is not None:
            ends = moment + verdict.window_left.total_seconds()
            until = min(until, ends)
        attempt = Attempt(
            key=idempotency_key(self._box, verdict.key),
            call=verdict.key,
            number=verdict.attempt,
            until=until,
            lost=lambda: not self._lease.holds(verdict.owner),
            state=self._state,
        )
        return Claimed(record, tool, args, attempt, verdict.owner, ends)

    async def _perform_and_record(self, call: Claimed, *, as_decided: bool) -> None:
        self.running.add(call)
        try:
            if not as_decided:
                await self._refuse_bytes(call)
            elif self._closing.is_set():
                await self.record(call, GIVEN_BACK)
            else:
                await execute(call, self)
        finally:
            self.running.discard(call)

    async def _refuse_bytes(self, call: Claimed) -> None:
        """These do not read as the arguments that were decided: never perform them.

        If they are the ledger's own bytes, this worker reads them otherwise than the agent meant them: it is a release
        behind, and another may be on its way. Else the record is a stranger's, and the ledger emits its own bytes.
        """
        reason = "its arguments are not those that were decided"
        (own,) = await self._ledger.records([call.record.id])
        if own.payload == call.record.payload:
            reason = (
                f"this worker reads its arguments otherwise: deploy the release of {call.tool.name} that wrote them"
            )
            log.error("%s: %s", call.attempt.call, reason)
            last = call.attempt.number >= call.tool.attempts
            await self.record(call, Report("gave_up" if last else "retry", error=error(reason), delay=BEHIND))
            return
        await self._source.set_aside(call.record, reason)
        await self.record(call, GIVEN_BACK)

    def _send(self, call: Claimed) -> None:
        """The last look before the effect: a process that was stopped past its lease sends nothing."""
        reach("before_effect")
        with self._gate:
            if call.over or not self._lease.holds(call.owner):
                raise LeasePassed
            call.sent = True

    async def _in_thread(self, handler: Handler, call: Claimed) -> Any:
        context = contextvars.copy_context()
        call.thread = self._pool.submit(context.run, self._block, handler, call)
        try:
            return await asyncio.wrap_future(call.thread)
        finally:
            with self._gate:  # either the thread has sent, and the judge knows, or it never will
                call.over = True

    def _block(self, handler: Handler, call: Claimed) -> Any:
        self._send(call)
        try:
            return handler.function(call.args, call.attempt)
        except Exception:
            raise
        except BaseException as problem:
            raise HandlerEnded(type(problem).__name__) from problem

    async def _wait(self, record: Record, word: str, asked: int, waited: float) -> bool:
        """Wait until the ledger can be asked again; False: there is nothing to ask."""
        if word == "absent" and waited < ABSENT_FOR:
            await self._pause(ABSENT[asked] if asked < len(ABSENT) else 1.0)
            return True
        if word == "absent":
            await self._source.set_aside(record, f"no such call is to be seen after {ABSENT_FOR:.0f} s")
            return False
        if word == "forbidden":
            await self._source.set_aside(record, "it is a call of another tool than its topic's")
            return False
        if word not in TRANSIENT:
            self._source.done(record)  # the ledger knows it: from here on Kafka need not
        if word not in WAITED_FOR:
            return False
        key = record.tool, record.order_key
        if word == "blocked" and (waited > BLOCKED_FOR or key in self._stuck):
            self._stuck.add(key)
            await self._ledger.let_go(record.id)
            return False
        await self._pause(WAITING[min(asked, len(WAITING) - 1)])
        return True

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    def _release(self, slot: Slots, call: Claimed | None) -> None:
        """Free the slot: of a handler that still blocks its thread after its deadline, when the thread is free."""
        if call is None or call.thread is None or call.thread.done():
            slot.release()
            return
        loop = asyncio.get_running_loop()

        def free(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the worker, and its loop, may have ended long before
                loop.call_soon_threadsafe(slot.release)

        def keep(thread: Future[Any]) -> None:
            """What it knows in the end is kept, and settles the doubt that it left (I8)."""
            if not thread.cancelled() and thread.exception() is None:
                report = done(call.tool, thread.result())
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._finishes.put, (call, report))

        self.blocked.add(call.thread)
        if call.sent:
            call.thread.add_done_callback(keep)
        call.thread.add_done_callback(self.blocked.discard)
        call.thread.add_done_callback(free)

    async def _claim(self, ids: Sequence[UUID]) -> list[Verdict]:
        return await self._ledger.claim(self._lease.owner, ids, lambda: {call.record.id for call in self.running})


async def _ending(work: Awaitable[Any]) -> Any:
    """The handler's result. What would end the process ends the attempt: others are at work in it."""
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as problem:
        raise HandlerEnded(type(problem).__name__) from problem


class HandlerEnded(Exception):
    """The handler raised what ends a process, such as SystemExit."""


class LeasePassed(Exception):
    """The lease passed between the claim and the effect."""
