"""The gate of one tool: who may ask for a claim, and when."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from deedbox_consumers.breaker import Breaker
from deedbox_consumers.limits import Limits
from deedbox_consumers.rate import Rate
from deedbox_consumers.slots import Slots

log: logging.Logger = logging.getLogger("deedbox.worker")


class Through:
    """One that is through a gate; whether it has begun is the gate's affair."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun: bool = False


class Gate:
    """Lets calls of one tool through as its limits allow, in the order in which they came.

        if (through := await gate.enter()) is not None:  # before the claim: who waits here holds no lease
            try: ...  # claim; if it is ours: gate.began(through), perform it, and say succeeded or failed
            finally: gate.leave(through)

    Each tool has one, so a tool that is slow, broken or paused holds up no other. All but the first in line wait
    without looking: a line of thousands costs nothing. For one event loop.
    """

    def __init__(self, tool: str, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._tool = tool
        self._open_for = limits.open_for
        self._slots = Slots(limits.concurrency) if limits.concurrency is not None else None
        self._rate = Rate(limits.rate, limits.per.total_seconds()) if limits.rate is not None else None
        self._breaker = Breaker(limits.breaker, limits.open_for.total_seconds())
        self._door = Slots(1)
        self._changed = asyncio.Event()
        self._paused = False
        self._closed = False

    @property
    def paused(self) -> bool:
        """Whether it was told to let nobody through."""
        return self._paused

    @property
    def broken(self) -> bool:
        """Whether the breaker is open: the provider is left alone."""
        return not self._breaker.closed

    async def enter(self) -> Through | None:
        """Wait until all limits let one through; None: the gate was closed. What is given has to leave."""
        if self._slots is not None:
            await self._slots.acquire()
        one = Through()
        try:
            await self._door.acquire()
            try:
                through = await self._pass(one)
            finally:
                self._door.release()
        except asyncio.CancelledError:
            self._free()
            raise
        if not through:
            self._free()
        return one if through else None

    def began(self, one: Through) -> None:
        """Its call is ours, and begins."""
        one.begun = True
        if self._rate is not None:
            self._rate.began()
            self._changed.set()

    def succeeded(self, one: Through) -> None:
        """The provider answered: a result, a refusal, a word to come later. Say it before `leave`."""
        if self._breaker.succeeded(one):
            log.warning("%s: the provider answers again", self._tool)
            self._changed.set()

    def failed(self, one: Through) -> None:
        """An attempt came to no answer (Finding.broken). Say it before `leave`."""
        if self._breaker.failed(one, self._now()):
            log.warning(
                "%s: too many attempts in a row came to no answer; the next begins in %s", self._tool, self._open_for
            )
        self._changed.set()

    def leave(self, one: Through) -> None:
        """It is over; if it never began, its part of the rate goes to the next."""
        if not one.begun and self._rate is not None:
            self._rate.left()
        self._breaker.left(one)
        self._free()
        self._changed.set()

    def pause(self) -> None:
        """Let nobody through until `resume`."""
        self._paused = True
        self._changed.set()

    def resume(self) -> None:
        """Let calls through again, as the limits allow."""
        self._paused = False
        self._changed.set()

    def close(self) -> None:
        """Let nobody through any more: whoever waits, and whoever comes, gets False at once."""
        self._closed = True
        self._changed.set()
        self._door.close()
        if self._slots is not None:
            self._slots.close()

    async def _pass(self, one: Through) -> bool:
        """First in line: wait for what is not so, and go through when all of it is so at one moment."""
        while not self._closed:
            self._changed.clear()
            wait = None if self._paused else self._breaker.wait(self._now())
            if wait != 0.0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
            elif self._rate is None or await self._rate.take(self._changed):
                if self._goes(one):
                    return True
                if self._rate is not None:
                    self._rate.left()
        return False

    def _goes(self, one: Through) -> bool:
        """Go, if nothing has come in between."""
        return not (self._paused or self._closed) and self._breaker.go(one, self._now())

    def _free(self) -> None:
        if self._slots is not None:
            self._slots.release()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
