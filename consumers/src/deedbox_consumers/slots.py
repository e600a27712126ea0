"""How many calls are performed at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """So many slots, given in the order asked for.

    asyncio.Semaphore does the same, but looks through all who wait whenever one is released: with thousands of lanes
    that was the costliest line of the worker.
    """

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    async def acquire(self) -> None:
        """Take a slot, or wait for one."""
        if self._free:
            self._free -= 1
            return
        if self._closed:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # given at the very moment of the cancel
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._free += 1

    def close(self) -> None:
        """Let nobody wait any more: who waits, and who comes, is to see that it is over."""
        self._closed = True
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
