"""Performing: a claimed call's handler, or its probe, is run beside the others; without the lease nothing is sent."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from deedbox.signals import reach
from deedbox_consumers.judge import HandlerEnded, LeasePassed
from deedbox_consumers.report import done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from deedbox_consumers.attempt import Attempt
    from deedbox_consumers.handlers import Handler
    from deedbox_consumers.lease import Lease
    from deedbox_consumers.record import Claimed
    from deedbox_consumers.report import Report


class Performer:
    """Runs handlers: coroutines in the worker's loop, functions that block in threads, so many for each tool.

    `late` gets what a thread said after its attempt was over (I8). A tool whose threads all hang blocks no other's.
    """

    def __init__(
        self,
        lease: Lease,
        handlers: Mapping[str, Handler],
        threads: Mapping[str, int],
        late: Callable[[Claimed, Report], object],
    ) -> None:
        self._lease = lease
        self._handlers = handlers
        self._pools = {
            name: ThreadPoolExecutor(count, thread_name_prefix=f"deedbox-{name}") for name, count in threads.items()
        }
        self._threads = threads
        self._hanging: Counter[str] = Counter()  # threads of each tool whose attempts are over
        self._late = late
        self._gate = threading.Lock()
        self.blocked: set[Future[Any]] = set()  # the same threads

    async def perform(self, call: Claimed) -> Any:
        """What the handler returns; raises what it raised, TimeoutError at the attempt's deadline."""
        handler = self._handlers[call.tool.name]

        async def innermost(_: Any, __: Attempt) -> Any:
            result = await self._run(call, handler.function, handler.blocks, "before_effect")
            reach("after_effect")
            return result

        async with asyncio.timeout(call.attempt.time_left):
            return await handler.around(innermost)(call.args, call.attempt)

    async def probe(self, call: Claimed) -> Any:
        """What the probe returns; raises what it raised, TimeoutError at the attempt's deadline."""
        probe = self._handlers[call.tool.name].probe
        assert probe is not None, "a worker does not start without the probes of its tools"
        async with asyncio.timeout(call.attempt.time_left):
            answer = await self._run(call, probe.function, probe.blocks, "before_probe")
        reach("after_probe")
        return answer

    def end(self) -> None:
        """Let the threads go."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def hangs(self, tool: str) -> bool:
        """Whether every thread of the tool is still in a handler whose attempt is over."""
        return self._hanging[tool] >= self._threads[tool]

    def release(self, call: Claimed | None, leave: Callable[[], object]) -> None:
        """Leave the gate: of a handler that still blocks its thread after its deadline, when the thread is free."""
        if call is None or call.thread is None or call.thread.done():
            leave()
            return
        loop, tool = asyncio.get_running_loop(), call.tool.name
        self._hanging[tool] += 1

        def freed() -> None:
            self._hanging[tool] -= 1
            leave()

        def free(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the worker, and its loop, may have ended long before
                loop.call_soon_threadsafe(freed)

        def keep(thread: Future[Any]) -> None:
            """What it knows in the end is kept, and settles the doubt that it left (I8)."""
            if thread.cancelled() or thread.exception() is not None or inspect.isawaitable(thread.result()):
                return
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._late, call, done(call.tool, thread.result()))

        self.blocked.add(call.thread)
        if call.sent and not call.probe:
            call.thread.add_done_callback(keep)
        call.thread.add_done_callback(self.blocked.discard)
        call.thread.add_done_callback(free)

    async def _run(self, call: Claimed, function: Callable[..., Any], blocks: bool, place: str) -> Any:
        if blocks:
            answer = await self._in_thread(call, function, place)
            return await self._rest(call, answer) if inspect.isawaitable(answer) else answer
        self._send(call, place)
        return await _ending(function(call.args, call.attempt))

    async def _rest(self, call: Claimed, work: Awaitable[Any]) -> Any:
        """The result of an async function in a wrapper that is none: all of it is still to be done."""
        if not self._lease.holds(call.owner):
            raise LeasePassed
        return await _ending(work)

    def _send(self, call: Claimed, place: str) -> None:
        """The last look before the effect: a process that was stopped past its lease sends nothing."""
        reach(place)
        with self._gate:
            if call.over or not self._lease.holds(call.owner):
                raise LeasePassed
            if not call.attempt.time_left:  # what is sent after it may arrive when a probe's no is believed already
                raise TimeoutError("its deadline passed before it was sent")
            call.sent = True

    async def _in_thread(self, call: Claimed, function: Callable[..., Any], place: str) -> Any:
        context = contextvars.copy_context()
        call.thread = self._pools[call.tool.name].submit(context.run, self._block, call, function, place)
        try:
            return await asyncio.wrap_future(call.thread)
        finally:
            with self._gate:  # either the thread has sent, and the judge knows, or it never will
                call.over = True

    def _block(self, call: Claimed, function: Callable[..., Any], place: str) -> Any:
        self._send(call, place)
        try:
            return function(call.args, call.attempt)
        except Exception:
            raise
        except BaseException as problem:
            raise HandlerEnded(type(problem).__name__) from problem


async def _ending(work: Awaitable[Any]) -> Any:
    """The handler's result. What would end the process ends the attempt: others are at work in it."""
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as problem:
        raise HandlerEnded(type(problem).__name__) from problem
