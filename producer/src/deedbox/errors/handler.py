"""What can be wrong with handlers, and what a handler raises to say how its attempt ended."""

from __future__ import annotations

from datetime import timedelta

from deedbox.errors.base import BadInput, HandlerVerdict, NotReady


class NoHandlers(BadInput):
    """There are no handlers at {target!r}: {why}."""

    target: str
    why: str


class NoHandler(BadInput):
    """Nothing here performs the tool {tool}: add a function with @handlers.handle({tool}), or leave the tool out with tools=[...]."""

    tool: str


class HandlerTaken(BadInput):
    """The tool {tool} has the handler {there} already: one tool, one handler."""

    tool: str
    there: str


class RetryLater(HandlerVerdict):
    """The tool is to be tried again after {after}."""

    after: timedelta

    def __init__(self, after: timedelta | float) -> None:
        super().__init__(after=after if isinstance(after, timedelta) else timedelta(seconds=after))


class Refusal(HandlerVerdict):
    """The provider refused ({code}): {message}"""

    code: str
    message: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code=code, message=message)


class OutcomeUnknown(HandlerVerdict):
    """It is not known whether it happened: {reason}"""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


class WorkerEnded(NotReady):
    """The worker inside this process has ended: {problem} Committed calls are safe in the ledger; start it again."""

    problem: str
