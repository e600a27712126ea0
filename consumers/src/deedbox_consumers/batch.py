"""Group commit without a timer: while one statement is under way, the next batch collects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")
R = TypeVar("R")

MOST = 500  # items; larger batches win nothing more and make each item wait longer


class Batch(Generic[T, R]):
    """Items that are written together: one when idle, up to `most` under load.

    `write` gives a result for each item, in their order. It runs in a task of its own, so that cancelling who waits
    never cancels a statement: psycopg would cancel it on the server.
    """

    def __init__(self, write: Callable[[Sequence[T]], Awaitable[Sequence[R]]], most: int = MOST) -> None:
        self._write = write
        self._most = most
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._writing: asyncio.Task[None] | None = None

    def put(self, item: T) -> asyncio.Future[R]:
        """A future with the item's result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        if self._writing is None:
            self._writing = loop.create_task(self._flush())
        return future

    async def flush(self) -> None:
        """Wait until everything that was put is written."""
        while self._writing is not None:
            await asyncio.shield(self._writing)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._settle(batch)
        finally:
            self._writing = None

    async def _settle(self, batch: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._write([item for item, _ in batch])
        except Exception as problem:  # noqa: BLE001 - it belongs to those who wait for the items
            for _, future in batch:
                if not future.done():
                    future.set_exception(problem)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
