"""A run and its turns, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import psycopg

from deedbox.core import BoxCore, OpenCalls, RunCore
from deedbox.errors import StepTaken, TurnLeft, Unsettled
from deedbox.handle import check_handle
from deedbox.signals import reach
from deedbox.waiting import POLL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from datetime import timedelta

    from deedbox.aio_ledger import AsyncLedger
    from deedbox.chat import Json
    from deedbox.step import AnyCall, NewStep


class AsyncRun(RunCore):
    """One execution of an agent. Iterate over it: each turn is a decision that is due.

    Before a turn the run waits until every open call has its outcome; it ends with a reply that asks for no tool.
    Raises Unsettled when a call is in doubt or the patience is over, TurnLeft when a turn ends without a commit.
    """

    def __init__(self, core: BoxCore, ledger: AsyncLedger, run_id: str, patience: timedelta | None) -> None:
        super().__init__(core, run_id)
        self._ledger = ledger
        self._patience = patience

    def __aiter__(self) -> AsyncIterator[AsyncTurn]:
        return self._turns(going_on=False)

    def going_on(self) -> AsyncIterator[AsyncTurn]:
        """The turns, also while a call is in doubt or the patience is over: the model sees it as still being settled.

        It is told in a new message when the call has ended. Raises Unsettled when nothing else is to be said.
        """
        return self._turns(going_on=True)

    async def send(
        self,
        *messages: Any,
        open_calls: OpenCalls = "wait",
        on: psycopg.AsyncConnection[Any] | None = None,
    ) -> None:
        """Say something from outside: the model is told at its next decision, behind the answers to its calls.

        open_calls   calls that are open are waited for, refused (raises Unsettled), or withdrawn as by `cancel`
        on           your transaction; there StepTaken is raised when somebody else's step came first: begin it anew

        Raises NotMessages, RunClosed.
        """
        if open_calls == "cancel":
            await self._append(lambda: self.withdrawal("cancel", "", messages), on)
        else:
            await self._append(lambda: self.input(messages, while_open=open_calls == "wait"), on)

    async def cancel(self, reason: str = "", *, on: psycopg.AsyncConnection[Any] | None = None) -> None:
        """Withdraw the calls of which nothing was sent; what may have happened stays open until it is settled (I16).

        The model sees them as cancelled. Where nothing is open nothing is done. Raises RunClosed; with `on` StepTaken.
        """
        await self._ledger.read(self.journal)
        if self.journal.open:
            await self._append(lambda: self.withdrawal("cancel", reason), on)

    async def abort(self, reason: str = "", *, on: psycopg.AsyncConnection[Any] | None = None) -> None:
        """End the run: nothing more is decided, and its calls are withdrawn as `cancel` does. Again is harmless."""
        await self._ledger.read(self.journal)
        if not self.journal.aborted:
            await self._append(lambda: self.withdrawal("abort", reason), on)

    async def _append(self, make: Callable[[], NewStep], on: psycopg.AsyncConnection[Any] | None) -> None:
        """Commit a step from outside; whoever comes first has its number, and it takes the next."""
        while True:
            await self._ledger.read(self.journal)
            step = make()
            self.journal.stale = True
            if on is not None:
                await self._ledger.commit(check_handle(on, psycopg.AsyncConnection), step)
                return
            try:
                async with self._ledger.single() as conn:
                    await self._ledger.commit(conn, step)
            except StepTaken:
                continue
            await self._ledger.read(self.journal)
            await self._ledger.look(self.journal)
            return

    async def _turns(self, *, going_on: bool) -> AsyncIterator[AsyncTurn]:
        while True:
            try:
                await self.settle()
            except Unsettled:
                if not going_on or self.journal.told:
                    raise
            if self.journal.finished:
                return
            turn = AsyncTurn(self, self._ledger, while_open=bool(self.journal.open))
            yield turn
            if self.journal.next == turn.number:
                await self._ledger.read(self.journal)
            if self.journal.next == turn.number:
                raise TurnLeft(run_id=self.id, step=turn.number)

    async def settle(self) -> None:
        """Wait until every committed call has its outcome, or raise Unsettled."""
        if self.journal.stale:
            await self._ledger.read(self.journal)
        if not self.journal.open:
            return
        until = None if self._patience is None else time.monotonic() + self._patience.total_seconds()
        async with self._ledger.watch(self.id) as news:
            while True:
                news.clear()
                await self._ledger.look(self.journal)
                if self.journal.stale:
                    await self._ledger.read(self.journal)
                self.journal.refuse_doubt()
                if not self.journal.open:
                    return
                self.core.check_worker()
                if until is not None and time.monotonic() > until:
                    raise self.journal.impatience()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), POLL)


class AsyncTurn:
    """The next decision of a run, number `number` of its journal."""

    def __init__(self, run: AsyncRun, ledger: AsyncLedger, *, while_open: bool = False) -> None:
        self.run: AsyncRun = run
        self.number: int = run.journal.next
        self._ledger = ledger
        self._while_open = while_open

    @property
    def messages(self) -> list[Json]:
        """What your model's client is to send: the conversation, answers to the last calls included."""
        return self.run.messages

    @contextlib.asynccontextmanager
    async def transaction(
        self, reply: object | None = None, *, calls: Iterable[AnyCall] | None = None
    ) -> AsyncIterator[psycopg.AsyncConnection]:
        """Your rows and the decision in one transaction of the box's own connection, committed at the end of the block.

        If somebody else decided the same meanwhile, the block is rolled back and the run reads on. Raises
        PlanDivergence when they decided something else, NoTransaction when a statement of the block has failed, and
        before the block TurnOver when this turn is committed, NothingDecided when there is no reply. `calls` is for
        code without a model.
        """
        step = self._step(reply, calls)
        try:
            async with self._ledger.connection() as conn:
                yield conn
                made = await self._ledger.commit(check_handle(conn, psycopg.AsyncConnection), step)
                reach("before_commit")
        except StepTaken:
            return
        self._took(step, made)

    async def commit(
        self,
        reply: object | None = None,
        *,
        on: psycopg.AsyncConnection[Any] | None = None,
        calls: Iterable[AnyCall] | None = None,
    ) -> list[AnyCall]:
        """Put the decision into your transaction `on`; returns the calls with their keys.

        Nothing counts before your transaction commits. Raises StepTaken, which is to roll your rows back, when somebody
        else decided the same; PlanDivergence when they decided something else; NoTransaction, NotAHandle, TurnOver,
        NothingDecided.

        Without `on` the decision is committed at once, alone; when somebody else decided the same, there are no calls
        and the run reads on.
        """
        step = self._step(reply, calls)
        if on is not None:
            return await self._ledger.commit(check_handle(on, psycopg.AsyncConnection), step)
        try:
            async with self._ledger.single() as conn:
                reach("before_commit")
                made = await self._ledger.commit(conn, step)
        except StepTaken:
            return []
        return self._took(step, made)

    def _step(self, reply: object | None, calls: Iterable[AnyCall] | None) -> NewStep:
        self.run.check_turn(self.number)
        step = self.run.decision(reply, calls, while_open=self._while_open)
        self.run.journal.stale = True  # until we know that it is through
        return step

    def _took(self, step: NewStep, made: list[AnyCall]) -> list[AnyCall]:
        reach("after_commit")
        self.run.journal.take(step, made)
        self.run.core.tell(made)
        return made
