"""Deedbox for asyncio: the same box, awaited."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from deedbox.aio_ledger import AsyncLedger
from deedbox.aio_run import AsyncRun
from deedbox.core import BoxCore, first_step, must_open
from deedbox.errors import StepTaken

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    import psycopg


class AsyncDeedbox(BoxCore):
    """A box, from the side of an agent that awaits; its parameters are BoxCore's.

    It owns at most four connections and one that listens, all of the event loop that uses it first.
    """

    @functools.cached_property
    def _ledger(self) -> AsyncLedger:
        return AsyncLedger(self)

    async def run(self, run_id: str, *, messages: Iterable[Any] = (), patience: timedelta | None = None) -> AsyncRun:
        """Open the run `run_id` with its first messages, or resume it; as Deedbox.run."""
        step = first_step(run_id, messages)
        if must_open(step, await self._ledger.find(run_id)):
            try:
                async with self._ledger.single() as conn:
                    await self._ledger.commit(conn, step)
            except StepTaken:  # somebody was quicker: with the same messages?
                must_open(step, await self._ledger.find(run_id))
        run = AsyncRun(self, self._ledger, run_id, patience)
        await self._ledger.read(run.journal)
        return run

    def connection(self) -> contextlib.AbstractAsyncContextManager[psycopg.AsyncConnection]:
        """A connection of the box's pool, inside a transaction that commits at the end of the block."""
        return self._ledger.connection()

    async def close(self) -> None:
        """Give the connections back. A closed box opens again when it is used."""
        await self._ledger.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
