"""What an exception says of an attempt: only what is certain."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deedbox.errors import OutcomeUnknown, Refusal, RetryLater, StoredFailure
from deedbox_consumers.report import RAW_LIMIT, REASON_LIMIT, clean
from deedbox_consumers.unsent import not_sent, root_of, sent_before

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

End: TypeAlias = Literal["retry", "refused", "unknown", "stored"]

MESSAGE_LIMIT = 500  # characters of a body: what a person needs to see of an error page
LONGEST_AFTER = timedelta(days=30)  # no provider is waited for longer than this, and a larger number may not be a time

# The exception by which each client says "the provider answered, and not with 2xx".
_ANSWERS = {
    "httpx": "HTTPStatusError",
    "httpx2": "HTTPStatusError",
    "requests": "HTTPError",
    "aiohttp": "ClientResponseError",
}
# Come later: another request is at work (perhaps our own earlier one, under this key), too early, too many.
_LATER = {409, 425, 429}
# No answer at all: somebody between us and the provider did not wait for it (408, and nginx's 499).
_NO_ANSWER = {408, 499}
# What gateways, credential checks and servers say of a request before anything behind them looks at its key.
_AT_THE_DOOR = {401, 403, 404, 405, 406, 407, 411, 413, 414, 415, 417, 421, 426, 428, 431, 451}


@dataclass(frozen=True, slots=True)
class Finding:
    """How an attempt ended, as far as its exception says.

    end       retry     nothing happened: plainly not sent, or the provider asked for later
              refused   the provider said no, with `code` and `message`
              unknown   it may have happened
              stored    the provider replays a failure that it stored under the call's key
    after     how long the provider, or the handler, asked to wait
    reason    one line for people
    settles   of a no: whether, under the provider's key, it is about every attempt; else only about this one
    """

    end: End
    reason: str
    after: timedelta | None = None
    code: str | None = None
    message: str | None = None
    settles: bool = True

    @property
    def broken(self) -> bool:
        """Whether the attempt came to no answer: what a breaker counts. Any word of the provider's is an answer."""
        return self.end == "unknown" or (self.end == "retry" and self.code is None and self.after is None)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a provider answered, whichever client tells of it."""

    status: int
    headers: Mapping[str, str]
    history: Iterable[object]
    text: str


def classify(problem: BaseException, *, replayed: str | None = None, marked: bool = False) -> Finding:
    """Read what an exception says of the attempt that it ended.

    - What a handler says itself: RetryLater, Refusal, OutcomeUnknown, StoredFailure.
    - Plainly not sent (deedbox_consumers.unsent): retry.
    - An answer, raised by raise_for_status() of httpx, httpx2, requests or aiohttp:
      409, 425, 429, and any other 4xx with Retry-After: retry. A 409 is also what a provider says while an earlier
      request under the same key is at work: to take it for a refusal would close a call that may yet happen.
      408 and 499: unknown, nobody answered. Any other 4xx: refused. One that is given at the door (401, 403, 404, 405,
      413 and the like) settles no earlier attempt: whoever gave it may know nothing of the key.
      5xx, 3xx, and a 2xx that raised: unknown, after Retry-After if there is one.
      With the header `replayed`, a stored answer: a 4xx is refused, whichever, and settles; anything else is stored.
      After a redirect that may have been a yes (301, 302, 303), or a request of which nobody knows: unknown.
    - Anything else: unknown, whatever it was raised from. A provider's own client may have repeated by itself, so what
      its exception wraps is only the last that happened.

    `marked` is the attempt's: the effect has gone out, so only what the handler says itself and a stored answer count.
    """
    try:
        return _verdict(problem) or _read(problem, replayed, marked=marked)
    except Exception:  # noqa: BLE001 - an exception of somebody's that cannot even be read
        return Finding("unknown", describe(problem))


def describe(problem: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(clean(problem, REASON_LIMIT).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _read(problem: BaseException, replayed: str | None, *, marked: bool) -> Finding:
    """What a client's exception, or a socket's, says."""
    if not marked and not_sent(problem):
        return Finding("retry", describe(problem))
    answer = _answer_of(problem)
    if answer is None:
        return Finding("unknown", describe(problem))
    return _judged(answer, replayed, certain=not marked and not sent_before(problem, answer.history))


def _verdict(problem: BaseException) -> Finding | None:
    """What a handler says in words of its own."""
    if isinstance(problem, RetryLater):
        after = min(max(problem.after, timedelta(0)), LONGEST_AFTER)
        return Finding("retry", describe(problem.__cause__) if problem.__cause__ else "it was put off", after)
    if isinstance(problem, OutcomeUnknown):
        return Finding("unknown", clean(problem.reason, REASON_LIMIT))
    if isinstance(problem, (Refusal, StoredFailure)):
        end: End = "refused" if isinstance(problem, Refusal) else "stored"
        code, message = clean(problem.code, RAW_LIMIT), clean(problem.message, RAW_LIMIT)
        return Finding(end, clean(problem, REASON_LIMIT), None, code, message)
    return None


def _judged(answer: _Answer, replayed: str | None, *, certain: bool) -> Finding:
    after = _retry_after(answer.headers)
    message = answer.text or _phrase(answer.status)
    code, reason = f"http_{answer.status}", f"HTTP {answer.status}: {message}"
    stored = replayed is not None and _says_yes(answer.headers, replayed)
    no = 400 <= answer.status < 500 and answer.status not in _NO_ANSWER and certain
    later = no and not stored and (answer.status in _LATER or after is not None)
    end: End = "retry" if later else "refused" if no else "stored" if stored else "unknown"
    waits = after if end in {"retry", "unknown"} else None
    return Finding(end, reason, waits, code, message, settles=stored or answer.status not in _AT_THE_DOOR)


def _answer_of(problem: BaseException) -> _Answer | None:
    """What a provider answered, if this is how a client tells of an answer."""
    if not any(_ANSWERS.get(root_of(kind)) == kind.__name__ for kind in type(problem).__mro__):
        return None
    response: Any = getattr(problem, "response", None)
    text = "" if response is None else _body(response)
    if response is None:  # aiohttp's exception is the answer itself; of the body nothing is left
        response = problem
        text = _piece(str(getattr(problem, "message", "")))
    status = getattr(response, "status_code", getattr(response, "status", None))
    if not isinstance(status, int):
        return None
    repeats = getattr(getattr(response, "raw", None), "retries", None)  # urllib3's own, below requests
    history = (*getattr(response, "history", ()), *getattr(repeats, "history", ()))
    return _Answer(status, getattr(response, "headers", None) or {}, history, text)


def _body(response: Any) -> str:
    """A short piece of a body. Only of one that was read: to read it here would be a wait for the network."""
    content = getattr(response, "_content", None)  # what httpx and requests both keep a body in, once it is read
    if not isinstance(content, bytes):
        return ""
    encoding = getattr(response, "encoding", None) or "utf-8"
    try:
        return _piece(content[: MESSAGE_LIMIT * 4].decode(encoding, "replace"))
    except LookupError:  # an encoding that the provider made up
        return _piece(content[: MESSAGE_LIMIT * 4].decode("utf-8", "replace"))


def _piece(text: str) -> str:
    return clean(" ".join(text.split()), MESSAGE_LIMIT)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no body"


def _says_yes(headers: Mapping[str, str], name: str) -> bool:
    value = headers.get(name)
    return value is not None and value.strip().lower() not in {"", "0", "false", "no"}


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """What the header Retry-After asks for: seconds, or a date by the provider's own clock where it tells that."""
    value = (headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)?", value):
        return min(timedelta(seconds=float(value)), LONGEST_AFTER)
    if (then := _moment(value)) is None:
        return None
    today = _moment(headers.get("Date") or "") or datetime.now(UTC)
    return min(max(then - today, timedelta(0)), LONGEST_AFTER)


def _moment(date: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
