"""What was plainly not sent: an exception that was raised before anything left for the provider.

The clients are told by the names of their modules and classes, since none of them is a dependency. Their redirects,
their own repeats and their challenges are looked for in the frames of the traceback: a connection that is refused to
the second request of one `post` says nothing of the first.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

# Raised while connecting, while waiting for a free connection, or over a URL that cannot be used. What is derived from
# one of these counts, too.
_BEFORE_SENDING = {
    "httpx": {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"},
    "httpcore": {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"},
    "aiohttp": {"ClientConnectorError", "ConnectionTimeoutError", "ClientHttpProxyError", "InvalidUrlClientError"},
    "requests": {"MissingSchema", "InvalidSchema", "InvalidURL"},
    "urllib3": {"NewConnectionError", "ConnectTimeoutError"},
}
_BEFORE_SENDING |= {f"{name}2": _BEFORE_SENDING[name] for name in ("httpx", "httpcore")}
_PLAIN = (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)

# What these catch is their own affair: one of several addresses that did not answer, say.
_INSIDE = {*_BEFORE_SENDING, "aiohappyeyeballs", "anyio", "asyncio", "concurrent", "http", "socket", "ssl", "trio"}

# Answers by which a provider says that it did nothing: send it there, say who you are, come later.
_DID_NOTHING = {307, 308, 401, 407, 425, 429}
_REPEATED = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}  # by aiohttp itself, over a connection that was cut


def not_sent(problem: BaseException) -> bool:
    """Whether this plainly was raised before anything left for the provider; False wherever that is not certain."""
    return _before_sending(problem) and not sent_before(problem)


def sent_before(problem: BaseException, history: Iterable[object] = ()) -> bool:
    """Whether there may have been an earlier request than the one that an exception is about.

    `history` is what the client itself says: the answers before the last one. An exception during whose handling this
    one was raised shows that the handler has tried before. Not all show it: a handler that repeats marks its attempt.
    """
    if not all(_did_nothing(past) for past in history):
        return True
    for one in _told(problem):
        if any(_sent_again(frame) for frame in _frames(one)):
            return True
    return any(_of_a_request(other) and not _before_sending(other) for other in _handled_by_the_handler(problem))


def root_of(kind: type) -> str:
    """The package that a class comes from."""
    return kind.__module__.partition(".")[0]


def _before_sending(problem: object) -> bool:
    if isinstance(problem, _PLAIN):
        return True
    for kind in type(problem).__mro__:
        root, name = root_of(kind), kind.__name__
        if name in _BEFORE_SENDING.get(root, ()):
            return True
        if root in {"requests", "urllib3"} and (inner := _inner(problem, name)) is not None:
            return _before_sending(inner)
    return False


def _inner(problem: object, name: str) -> object:
    """What an exception of requests or urllib3 with this class name tells of, if it tells of another one."""
    if name == "MaxRetryError":
        return getattr(problem, "reason", None)
    if name == "ProxyError" and (original := getattr(problem, "original_error", None)) is not None:
        return original
    if name in {"ConnectionError", "SSLError"}:
        args = getattr(problem, "args", ())
        return args[0] if args and isinstance(args[0], BaseException) else None
    return None


def _told(problem: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it is made of."""
    seen: list[BaseException] = []
    waiting: list[object] = [problem]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and not any(one is other for other in seen):
            seen.append(one)
            waiting += [*one.args, getattr(one, "reason", None)]
            yield one


def _frames(problem: BaseException) -> Iterator[FrameType]:
    trace = problem.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _sent_again(frame: FrameType) -> bool:
    """Whether a client's own frame shows that it had sent before: its history, or that it gave up a connection."""
    root = str(frame.f_globals.get("__name__")).partition(".")[0]
    if root not in _BEFORE_SENDING:
        return False
    known = frame.f_locals
    for name in ("history", "hist"):
        history = known.get(name)
        if isinstance(history, (list, tuple)) and not all(_did_nothing(past) for past in history):
            return True
    repeats = known.get("retry_persistent_connection")
    return root == "aiohttp" and repeats is False and str(known.get("method")).upper() in _REPEATED


def _did_nothing(past: object) -> bool:
    """Whether an earlier answer, or an earlier error, says that nothing was done."""
    error = getattr(past, "error", None)
    if error is not None:
        return _before_sending(error)
    return getattr(past, "status_code", getattr(past, "status", None)) in _DID_NOTHING


def _handled_by_the_handler(problem: BaseException) -> Iterator[BaseException]:
    """What the handler itself had caught when this was raised; what a client catches of its own is left out."""
    seen: set[int] = set()
    waiting = [problem]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        caught = next(_frames(one), None)
        inside = caught is None or str(caught.f_globals.get("__name__")).partition(".")[0] in _INSIDE
        if one is not problem and not inside:
            yield one


def _of_a_request(problem: BaseException) -> bool:
    clients = any(root_of(kind) in _BEFORE_SENDING for kind in type(problem).__mro__)
    return clients or isinstance(problem, (OSError, asyncio.CancelledError))
