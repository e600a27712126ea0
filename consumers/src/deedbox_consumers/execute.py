"""A claimed call's life, in one sentence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deedbox_consumers.judge import judge
from deedbox_consumers.report import done

if TYPE_CHECKING:
    from deedbox_consumers.desk import Desk
    from deedbox_consumers.record import Claimed


async def execute(call: Claimed, desk: Desk) -> None:
    """Perform one claimed call, judge what it did not say itself, and record what became of it (I6, I8, I14)."""
    try:
        report = done(call.tool, await desk.perform(call))
    except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - whatever a handler raises is judged, a stop too
        report = judge(problem, call)
    await desk.record(call, report)
