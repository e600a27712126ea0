"""Middleware: functions around every performing of a handler, which cannot change what became of the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from deedbox.errors import HandlerVerdict, WrongMiddleware
from deedbox_consumers.attempt import Attempt

log: logging.Logger = logging.getLogger("deedbox.worker")

Perform: TypeAlias = Callable[[Any, Attempt], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Any, Attempt, Perform], Awaitable[Any]]


def around(middleware: Sequence[Middleware], tool: str, result: type, perform: Perform) -> Perform:
    """`perform` with the middleware around it, the first of the list outermost.

    - What a middleware raises before it performs passes: nothing was sent.
    - Once the handler has returned, its result stands, whatever a middleware raises. One may give another instance of
      the tool's `result` in its place.
    - Once the handler has raised, that stands, unless a middleware raises a verdict (Refusal, RetryLater,
      OutcomeUnknown, StoredFailure) in its place.
    - It performs once, with the arguments and the attempt that it was given; else it gets WrongMiddleware.

    So one that fails beside its work loses no outcome, and no call is performed again for it.
    """
    for layer in reversed(middleware):
        perform = _Layer(layer, tool, result, perform)
    return perform


class _Layer:
    """One middleware and what is inside it."""

    def __init__(self, middleware: Middleware, tool: str, result: type, inner: Perform) -> None:
        self._middleware = middleware
        self._tool = tool
        self._result = result
        self.inner = inner

    async def __call__(self, args: Any, attempt: Attempt) -> Any:
        turn = _Turn(self, args, attempt)
        failed: BaseException | None = None
        answer: Any = None
        try:
            answer = await self._middleware(args, attempt, turn)
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as problem:  # noqa: BLE001 - judged below, outside of this block: what the handler raised keeps its own context
            failed = problem
        if failed is not None and not turn.begun:
            raise failed
        if not turn.ended:
            raise self.wrong("ended before its call was performed" if turn.begun else "did not perform its call")
        if failed is not None:
            self._weigh(failed, turn)
        if turn.problem is not None:
            raise turn.problem
        return turn.answer if failed is not None else self._chosen(answer, turn)

    def wrong(self, what: str) -> WrongMiddleware:
        """The error that says what this middleware does."""
        return WrongMiddleware(middleware=name_of(self._middleware), tool=self._tool, what=what)

    def _weigh(self, failed: BaseException, turn: _Turn) -> None:
        """Raise what a middleware raised if it is a verdict on what the handler raised; else log it."""
        if failed is turn.problem:
            return
        if isinstance(turn.problem, Exception) and isinstance(failed, HandlerVerdict):
            raise failed
        log.error(
            "%s: the middleware %s failed when its call had been performed; what the handler said stands",
            turn.attempt.call,
            name_of(self._middleware),
            exc_info=failed,
        )

    def _chosen(self, answer: Any, turn: _Turn) -> Any:
        if answer is turn.answer or isinstance(answer, self._result):
            return answer
        log.warning(
            "%s: the middleware %s gave back a %s; the handler's result stands",
            turn.attempt.call,
            name_of(self._middleware),
            type(answer).__name__,
        )
        return turn.answer


class _Turn:
    """The `perform` that a middleware gets for one attempt, and what came of it."""

    def __init__(self, layer: _Layer, args: Any, attempt: Attempt) -> None:
        self._layer = layer
        self._args = args
        self.attempt = attempt
        self.begun = False
        self.ended = False
        self.answer: Any = None
        self.problem: BaseException | None = None

    async def __call__(self, args: Any, attempt: Attempt) -> Any:
        if self.begun:
            raise self._layer.wrong("performed its call a second time")
        if args is not self._args or attempt is not self.attempt:
            raise self._layer.wrong("performed something else than its call")
        self.begun = True
        try:
            self.answer = await self._layer.inner(args, attempt)
        except BaseException as problem:
            self.problem = problem
            raise
        finally:
            self.ended = True
        return self.answer


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called."""
    name: str = getattr(function, "__qualname__", None) or repr(function)
    return name
