"""Handlers: which function performs which tool."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pydantic import BaseModel

from deedbox.errors import HandlerTaken
from deedbox_consumers.attempt import Attempt

if TYPE_CHECKING:
    from deedbox.step import AnyTool
    from deedbox.tool import Tool

A = TypeVar("A", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
L = TypeVar("L", bound=Callable[[], AsyncIterator[Any]])


@dataclass(frozen=True)
class Handler:
    """A function that performs a tool; `blocks` when it is not a coroutine function and runs in a thread."""

    tool: AnyTool
    function: Callable[[Any, Attempt], Any]
    blocks: bool


class Handle(Generic[A, R]):
    """The decorator of one tool's handler; it gives the function back as it was."""

    def __init__(self, add: Callable[[Callable[..., Any]], None]) -> None:
        self._add = add

    @overload
    def __call__(
        self, function: Callable[[A, Attempt], Coroutine[Any, Any, R]]
    ) -> Callable[[A, Attempt], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[[A, Attempt], R]) -> Callable[[A, Attempt], R]: ...
    def __call__(self, function: Callable[[A, Attempt], R | Awaitable[R]]) -> Callable[[A, Attempt], R | Awaitable[R]]:
        """Take the function as the tool's handler; raises HandlerTaken."""
        self._add(function)
        return function


class Handlers:
    """The functions that perform tools, each with the tool's arguments and an Attempt.

        handlers = Handlers()

        @handlers.handle(charge)
        async def charge_customer(args: Charge, attempt: Attempt) -> Receipt: ...

    A handler is async, or sync and then runs in a thread. It returns the tool's result, or raises RetryLater, Refusal
    or OutcomeUnknown; any other exception means that nobody knows whether it happened, unless it plainly was never
    sent.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None

    def handle(self, tool: Tool[..., A, R]) -> Handle[A, R]:
        """Say that the decorated function performs `tool`.

        Let it make one request that has an effect: a refused connection is taken to mean that nothing was sent. One
        that goes on to ask for more says itself how it ended (RetryLater, Refusal, OutcomeUnknown).
        """

        def add(function: Callable[..., Any]) -> None:
            if (taken := self._handlers.get(tool.name)) is not None:
                raise HandlerTaken(tool=tool.name, there=getattr(taken.function, "__qualname__", repr(taken.function)))
            self._handlers[tool.name] = Handler(tool, function, not _is_async(function))

        return Handle(add)

    def lifespan(self, function: L) -> L:
        """Say that the decorated async generator opens what the handlers need, yields it once, and closes it.

        What it yields is `attempt.state`. It runs in the worker's event loop, once for all handlers.
        """
        self._lifespan = asynccontextmanager(function)
        return function

    @property
    def by_tool(self) -> Mapping[str, Handler]:
        """The handlers by their tools' names."""
        return self._handlers

    def alive(self) -> AbstractAsyncContextManager[Any]:
        """The lifespan, to be entered once; it yields the state."""
        return self._lifespan() if self._lifespan is not None else nullcontext()


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - an object with an async __call__ is a handler too
