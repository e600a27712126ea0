"""What a person should hear of an attempt's end: counted, and logged where it is no routine."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deedbox_consumers import metrics
from deedbox_consumers.remembered import Remembered
from deedbox_consumers.report import GIVEN_BACK

if TYPE_CHECKING:
    from uuid import UUID

    from deedbox_consumers.ledger import Recorded
    from deedbox_consumers.record import Claimed
    from deedbox_consumers.report import Report

log: logging.Logger = logging.getLogger("deedbox.worker")


class News:
    """Tells what became of calls."""

    def __init__(self) -> None:
        self._doubts: Remembered[UUID] = Remembered()

    def tell(self, call: Claimed, report: Report, recorded: Recorded, *, over: bool = False) -> None:
        """Of a report and the ledger's answer; `over`: of an attempt that was judged without its thread."""
        key, tool = call.attempt.call, call.tool.name
        metrics.attempts.labels(tool, report.status).inc()
        if recorded.word in ("late", "alarm"):
            metrics.late.labels(tool).inc()
        elif self._became(call, recorded.status):
            metrics.outcomes.labels(tool, recorded.status).inc()
        if recorded.word == "alarm":
            metrics.alarms.labels(tool).inc()
            log.error("%s: EFFECT AFTER CLOSING: it happened, and the call is %s without it", key, recorded.status)
        elif recorded.word == "late":
            why = "it answered when its attempt was over" if over else "somebody else has taken over"
            log.warning("%s: %s, what this attempt knows is kept as late", key, why)
        elif recorded.status in ("in_doubt", "gave_up"):
            log.error("%s: %s after attempt %d: %s", key, recorded.status, call.attempt.number, report.error)
        elif report.status != "done" and report is not GIVEN_BACK:
            log.warning("%s: attempt %d: %s: %s", key, call.attempt.number, report.status, report.error)

    def _became(self, call: Claimed, status: str) -> bool:
        """Whether a call is final, or in doubt, since this very report: one in doubt is asked about again and again."""
        id_ = call.record.id
        if status == "in_doubt":
            known = call.probe and id_ in self._doubts
            self._doubts.add(id_)
            return not known
        if final := status in ("done", "refused", "gave_up"):
            self._doubts.discard(id_)
        return final
