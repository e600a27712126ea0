"""What became of an attempt whose handler raised: refused, not sent, or unknown."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

from deedbox.errors import OutcomeUnknown, Refusal, RetryLater
from deedbox_consumers.clock import now
from deedbox_consumers.report import GIVEN_BACK, REASON_LIMIT, Report, clean, error

if TYPE_CHECKING:
    from deedbox_consumers.record import Claimed

FIRST_DELAY = 0.5  # seconds; the sweep looks each second, so less makes no difference
LONGEST_DELAY = 60.0
LONGEST_PUT_OFF = timedelta(days=30)  # what a handler asks for is bounded, too

# Raised before anything was sent: no connection, or none free. By name, since none of these clients is a dependency.
NOT_SENT_CLIENTS = {"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp"}
NOT_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ClientConnectorError"}


def judge(problem: BaseException, call: Claimed) -> Report:
    """The report of an attempt that raised. What is not plainly known is unknown (I7, I16)."""
    if not call.sent:
        return GIVEN_BACK
    if isinstance(problem, Refusal):
        facts: dict[str, object] = {"code": problem.code, "message": problem.message}
        # Under the provider's key a no is about every attempt. Else it says nothing of an earlier one (I16).
        settled = call.tool.effect.kind == "provider_key"
        return Report("refused", unsettled=False if settled else None, error=error(problem, **facts))
    if isinstance(problem, RetryLater):
        return _again(call, "it was put off too often", min(max(problem.after, timedelta(0)), LONGEST_PUT_OFF))
    if not_sent(problem):
        return _again(call, describe(problem), backoff(call.attempt.number))
    return _unknown(call, problem.reason if isinstance(problem, OutcomeUnknown) else describe(problem))


def not_sent(problem: BaseException) -> bool:
    """Whether this was plainly raised before anything left for the provider."""
    if isinstance(problem, ConnectionRefusedError):
        return True
    return any(
        kind.__name__ in NOT_SENT and kind.__module__.partition(".")[0] in NOT_SENT_CLIENTS
        for kind in type(problem).__mro__
    )


def backoff(number: int) -> timedelta:
    """Full jitter: anything up to a bound that doubles with each attempt."""
    return timedelta(seconds=random.uniform(0, min(LONGEST_DELAY, FIRST_DELAY * 2**number)))  # noqa: S311 - no secret


def describe(problem: BaseException) -> str:
    """An exception in one line."""
    text = clean(problem, REASON_LIMIT)
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _again(call: Claimed, reason: str, delay: timedelta) -> Report:
    """Nothing happened: try again, or give up when the attempts are used up (the ledger knows of earlier doubts)."""
    if call.attempt.number < call.tool.attempts:
        return Report("retry", error=error(reason), delay=delay)
    return Report("gave_up", error=error(f"after {call.attempt.number} attempts: {reason}"))


def _unknown(call: Claimed, reason: object) -> Report:
    """It may have happened: repeat under the same key where that is safe, else it is in doubt."""
    delay = backoff(call.attempt.number)
    if call.attempt.number < call.tool.attempts and _repeatable(call, delay):
        return Report("retry", unsettled=True, error=error(reason), delay=delay)
    return Report("in_doubt", unsettled=True, error=error(reason))


def _repeatable(call: Claimed, delay: timedelta) -> bool:
    if call.tool.effect.kind == "repeatable":
        return True
    ends = call.window_ends
    return ends is not None and now() + (delay + call.tool.deadline).total_seconds() < ends
