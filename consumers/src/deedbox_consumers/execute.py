"""A claimed call's life, in one sentence each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deedbox_consumers.judge import answered, judge, unanswered
from deedbox_consumers.report import Report, done

if TYPE_CHECKING:
    from deedbox_consumers.desk import Desk
    from deedbox_consumers.record import Claimed


async def execute(call: Claimed, desk: Desk) -> Report:
    """Perform one claimed call, judge what it did not say itself, and record what became of it (I6, I8, I14)."""
    try:
        report = done(call.tool, await desk.perform(call))
    except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - whatever a handler raises is judged, a stop too
        report = judge(problem, call, closing=desk.closing)
    return await desk.record(call, report)


async def ask(call: Claimed, desk: Desk) -> Report:
    """Ask whether an earlier attempt of a claimed call happened, and record the answer (I7, I16)."""
    try:
        report = answered(await desk.probe(call), call)
    except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - a probe that fails has found nothing out
        report = unanswered(problem, call, closing=desk.closing)
    return await desk.record(call, report)
