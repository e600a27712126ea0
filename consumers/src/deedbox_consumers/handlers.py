"""Handlers: which function performs which tool, and which can say whether it happened."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pydantic import BaseModel

from deedbox.errors import HandlerTaken, ProbeNotAsked, ProbeTaken, WrongMiddleware
from deedbox_consumers.attempt import Attempt
from deedbox_consumers.limits import Limits
from deedbox_consumers.middleware import Middleware, Perform, around, name_of
from deedbox_consumers.probed import Probed

if TYPE_CHECKING:
    from deedbox.step import AnyTool
    from deedbox.tool import Tool

A = TypeVar("A", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
L = TypeVar("L", bound=Callable[[], AsyncIterator[Any]])


@dataclass(frozen=True)
class Probe:
    """A function that says whether an earlier attempt happened; `blocks` when it is no coroutine function."""

    function: Callable[[Any, Attempt], Any]
    blocks: bool


@dataclass(frozen=True)
class Handler:
    """A function that performs a tool; `blocks` when it is not a coroutine function and runs in a thread."""

    tool: AnyTool
    function: Callable[[Any, Attempt], Any]
    blocks: bool
    limits: Limits | None = None
    probe: Probe | None = None
    middleware: tuple[Middleware, ...] = ()

    def around(self, perform: Perform) -> Perform:
        """`perform` with the middleware around it; a probe goes without."""
        return around(self.middleware, self.tool.name, self.tool.result, perform)


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


class Ask(Generic[A, R]):
    """The decorator of one tool's probe; it gives the function back as it was."""

    def __init__(self, add: Callable[[Callable[..., Any]], None]) -> None:
        self._add = add

    @overload
    def __call__(
        self, function: Callable[[A, Attempt], Coroutine[Any, Any, Probed[R]]]
    ) -> Callable[[A, Attempt], Coroutine[Any, Any, Probed[R]]]: ...
    @overload
    def __call__(self, function: Callable[[A, Attempt], Probed[R]]) -> Callable[[A, Attempt], Probed[R]]: ...
    def __call__(
        self, function: Callable[[A, Attempt], Probed[R] | Awaitable[Probed[R]]]
    ) -> Callable[[A, Attempt], Probed[R] | Awaitable[Probed[R]]]:
        """Take the function as the tool's probe; raises ProbeTaken."""
        self._add(function)
        return function


class Handlers:
    """The functions that perform tools, each with the tool's arguments and an Attempt.

        handlers = Handlers()

        @handlers.handle(charge)
        async def charge_customer(args: Charge, attempt: Attempt) -> Receipt: ...

    A handler is async, or sync and then runs in a thread; what one gives back to be awaited is awaited. It returns the
    tool's result, or raises RetryLater, Refusal, OutcomeUnknown or StoredFailure. Any other exception is read for what
    is certain of it, such as a refused connection or a 402 (deedbox_consumers.classify); where it says nothing, nobody
    knows whether it happened.

    middleware   async functions around every performing, the first outermost; a probe goes without. Each is given the
                 arguments, the attempt and `perform`, and returns `await perform(args, attempt)`. One that fails when
                 the call has been performed changes nothing (deedbox_consumers.middleware). Raises WrongMiddleware
                 for one that is not async.
    """

    def __init__(self, middleware: Iterable[Middleware] = ()) -> None:
        self._middleware = tuple(middleware)
        for function in self._middleware:
            if not _is_async(function):
                what = "is not async"
                raise WrongMiddleware(middleware=name_of(function), tool="these handlers", what=what)
        self._handlers: dict[str, Handler] = {}
        self._probes: dict[str, Probe] = {}
        self._lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None

    def handle(self, tool: Tool[..., A, R], *, limits: Limits | None = None) -> Handle[A, R]:
        """Say that the decorated function performs `tool`, within `limits`.

        Let it make one request that has an effect: a refused connection is taken to mean that nothing was sent. One
        that makes more calls `attempt.mark_sent()` with the first that has an effect.
        """

        def add(function: Callable[..., Any]) -> None:
            if (taken := self._handlers.get(tool.name)) is not None:
                raise HandlerTaken(tool=tool.name, there=name_of(taken.function))
            blocks = not _is_async(function)
            self._handlers[tool.name] = Handler(tool, function, blocks, limits, None, self._middleware)

        return Handle(add)

    def probe(self, tool: Tool[..., A, R]) -> Ask[A, R]:
        """Say that the decorated function finds out whether a call of `tool` happened, by the attempt's key.

        It has no effect itself and returns Happened(result), DidNotHappen() or CannotTell(reason); what it raises is
        CannotTell. Raises ProbeNotAsked for a tool whose effect is no probe.
        """
        if "probe" not in tool.effect.kind:
            raise ProbeNotAsked(tool=tool.name, effect=tool.effect.kind)

        def add(function: Callable[..., Any]) -> None:
            if (taken := self._probes.get(tool.name)) is not None:
                raise ProbeTaken(tool=tool.name, there=name_of(taken.function))
            self._probes[tool.name] = Probe(function, not _is_async(function))

        return Ask(add)

    def lifespan(self, function: L) -> L:
        """Say that the decorated async generator opens what the handlers need, yields it once, and closes it.

        What it yields is `attempt.state`. It runs in the worker's event loop, once for all handlers.
        """
        self._lifespan = asynccontextmanager(function)
        return function

    @property
    def by_tool(self) -> Mapping[str, Handler]:
        """The handlers by their tools' names, each with its tool's probe."""
        return {name: replace(handler, probe=self._probes.get(name)) for name, handler in self._handlers.items()}

    def alive(self) -> AbstractAsyncContextManager[Any]:
        """The lifespan, to be entered once; it yields the state."""
        return self._lifespan() if self._lifespan is not None else nullcontext()


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - an object with an async __call__ is a handler too
