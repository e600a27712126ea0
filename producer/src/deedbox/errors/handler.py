"""What can be wrong with handlers, and what a handler raises to say how its attempt ended."""

from __future__ import annotations

from datetime import timedelta

from deedbox.errors.base import BadInput, HandlerVerdict, NotReady


class NoHandlers(BadInput):
    """There are no handlers at {target!r}: {why}."""

    target: str
    why: str


class NoHandler(BadInput):
    """Nothing here performs the tool {tool}: add a function with @handlers.handle({tool}), or leave the tool out (tools=[...], or --tools on the command line)."""

    tool: str


class HandlerTaken(BadInput):
    """The tool {tool} has the handler {there} already: one tool, one handler."""

    tool: str
    there: str


class ProbeTaken(BadInput):
    """The tool {tool} has the probe {there} already: one tool, one probe."""

    tool: str
    there: str


class ProbeNotAsked(BadInput):
    """Nobody would ask the probe of {tool}, whose effect is {effect}: define the tool with effect=probe(), or with provider_key(...) | probe()."""

    tool: str
    effect: str


class NoProbe(BadInput):
    """The tool {tool} has the effect {effect}, and nothing here can be asked whether a call happened: add a function with @handlers.probe({tool})."""

    tool: str
    effect: str


class InvalidLimits(BadInput):
    """Limits({name}={given!r}) is no limit: give {wanted}."""

    name: str
    given: object
    wanted: str


class WrongMiddleware(BadInput):
    """The middleware {middleware} of {tool} {what}. A middleware is an async function (args, attempt, perform) that awaits perform(args, attempt) once, with the arguments and the attempt that it was given."""

    middleware: str
    tool: str
    what: str


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


class StoredFailure(HandlerVerdict):
    """The provider has stored this failure under the call's key and repeats it ({code}): {message}"""

    code: str
    message: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code=code, message=message)


class WorkerEnded(NotReady):
    """The worker inside this process has ended: {problem} Committed calls are safe in the ledger; start it again."""

    problem: str


class PortTaken(NotReady):
    """Nothing can be served on port {port} ({problem}): give another with --health-port."""

    port: int
    problem: Exception
