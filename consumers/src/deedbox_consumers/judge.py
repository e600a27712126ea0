"""What became of an attempt: of what its handler, or its probe, gave or raised, the ledger's words."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from deedbox_consumers.classify import Finding, classify, describe
from deedbox_consumers.probed import CannotTell, DidNotHappen, Happened
from deedbox_consumers.report import GIVEN_BACK, Report, done, error

if TYPE_CHECKING:
    from deedbox_consumers.record import Claimed

FIRST_DELAY = timedelta(seconds=0.5)
LONGEST_DELAY = timedelta(minutes=1)


class LeasePassed(Exception):
    """The lease passed between the claim and the effect."""


class HandlerEnded(Exception):
    """The handler raised what ends a process, such as SystemExit."""


def judge(problem: BaseException, call: Claimed, *, closing: bool = False) -> Report:
    """The report of an attempt that raised. What is not plainly known, or breaks this, is unknown (I7, I16).

    `closing`: this worker drains, so it is who cancels.
    """
    try:
        return _judged(problem, call, closing)
    except Exception as fault:  # noqa: BLE001 - what is odd about one call ends no worker
        reason = error(f"what it raised cannot be judged: {describe(fault)}")
        return Report("unknown" if call.sent else "retry", error=reason, delay=LONGEST_DELAY, broken=call.sent)


def _judged(problem: BaseException, call: Claimed, closing: bool) -> Report:
    if not call.sent and _is_ours(problem, call, closing):
        return GIVEN_BACK
    finding = classify(problem, replayed=call.tool.effect.replayed, marked=call.attempt.marked)
    if finding.end == "refused":
        # Under the provider's key most are about every attempt. Else a no says nothing of an earlier one (I16).
        settled = False if call.sent and call.keyed and finding.settles else None
        return Report(
            "refused", settled, error=error(finding.reason, code=finding.code or "", message=finding.message or "")
        )
    delay = finding.after if finding.after is not None else backoff(call.attempt.number)
    if not call.sent:  # something before the handler failed
        return Report("retry", error=error(finding.reason), delay=delay)
    return Report(finding.end, error=_told(finding), delay=delay, broken=finding.broken)


def answered(answer: object, call: Claimed) -> Report:
    """The report of what a probe said."""
    if isinstance(answer, Happened):
        return done(call.tool, answer.result)
    if isinstance(answer, DidNotHappen):
        return Report("absent", error=error("a probe found that it did not happen"))
    reason = answer.reason if isinstance(answer, CannotTell) else f"the probe returned a {type(answer).__name__}"
    return Report("cannot_tell", error=error(f"a probe cannot tell whether it happened: {reason}"))


def unanswered(problem: BaseException, call: Claimed, *, closing: bool = False) -> Report:
    """The report of a probe that raised: it has no effect, so only the answer is missing."""
    if _is_ours(problem, call, closing):
        return GIVEN_BACK
    return replace(answered(CannotTell(describe(problem)), call), broken=True)


def backoff(number: int) -> timedelta:
    """Full jitter: anything up to a bound that doubles with each attempt."""
    bound = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(number, 10))  # far past the bound; 2**1024 is no float
    return bound * random.random()  # noqa: S311 - no secret


def _is_ours(problem: BaseException, call: Claimed, closing: bool) -> bool:
    """Whether this worker stopped the attempt. Any other cancel, as of a future that handlers share, is a failure."""
    cancelled = isinstance(problem, asyncio.CancelledError) and (closing or call.attempt.lost)
    return cancelled or isinstance(problem, LeasePassed)


def _told(finding: Finding) -> str:
    if finding.end == "stored":
        return error(finding.reason, code=finding.code or "", message=finding.message or "", stored=True)
    return error(finding.reason)
