"""The rules of the ledger, as the model follows them: pure functions of a row and the moment.

The words are those of the SQL (`claim`, `end_attempt`, `finish`, `sweep`), so the two can be laid side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

FINAL = ("done", "refused", "gave_up")
WAITING = ("pending", "retry", "in_doubt")


@dataclass(frozen=True)
class Tool:
    """What the ledger knows of a tool, and how late its provider's network may be; times in ticks."""

    effect: str
    window: int = 0  # 0: no key
    probe: bool = False
    margin: int = 1
    settle_after: int = 1
    deadline: int = 1
    attempts: int = 2
    give_up_after: int = 5
    late: int = 1  # a request arrives less than this after its attempt's deadline, or never

    @property
    def harmless(self) -> bool:
        """Whether a second effect does no harm."""
        return self.effect == "repeatable"


@dataclass(frozen=True)
class Rules:
    """What the protocol stands on. Each can be taken away, to see what it holds up."""

    fence: bool = True  # a report counts only for the attempt that runs
    asks_again: bool = True  # a call that is not visible yet is asked for again
    reads_the_row: bool = True  # … and is not performed
    window: bool = True  # a key is trusted only inside its window
    sticky: bool = True  # unsettled stays until somebody knows
    sweep_judges: bool = True  # a claim takes only pending calls
    stamps_first: bool = True  # first_sent_at is set by the claim, not by the report
    settles: bool = True  # "it did not happen" frees a call only when nothing can arrive any more
    settles_by_claim: bool = True  # … at the moment the probe was claimed, not when its answer is recorded
    no_needs_key: bool = True  # without a key, a no says nothing of other attempts, however it comes in
    parks: bool = True  # the sweep looks again at a call that goes on, whatever becomes of its record
    parks_fresh: bool = False  # … and at one that was never claimed
    checks_lease: bool = True  # right before the send
    checks_deadline: bool = True  # likewise
    key_keeps_no: bool = True  # the provider answers a repeat with the no that it gave before


class Row(NamedTuple):
    """The ledger's row of the call."""

    status: str = "pending"
    ask: bool = False  # the next claim asks the provider instead of performing
    unsettled: bool = False
    stored: bool = False  # the provider replays a failure under this key
    known: bool = False  # the attempt that is asked about has said itself that it is done
    attempt: int = 0
    sends: int = 0
    key: int = 0  # how often it was given a new key
    first_sent: int | None = None  # under this key
    claimed: int = 0  # when the attempt that runs was
    performed: int = 0  # the last attempt that ended and may have sent
    sent: int = 0  # when the last attempt that performs or performed was claimed


class Ledger:
    """The rules for one tool."""

    def __init__(self, tool: Tool, rules: Rules) -> None:
        self.tool = tool
        self.rules = rules

    def keyed(self, row: Row, now: int) -> bool:
        """Whether the key of the call can be trusted for an attempt that begins now (I9)."""
        tool = self.tool
        if not tool.window or not self.rules.window or row.first_sent is None:
            return bool(tool.window)
        return now + tool.deadline + tool.margin < row.first_sent + tool.window

    def young(self, row: Row, now: int) -> bool:
        """Whether the call is still tried at its age."""
        return row.first_sent is None or now - row.first_sent < self.tool.give_up_after

    def free(self, row: Row, now: int) -> bool:
        """Whether a claim takes the call."""
        if row.status != "pending":
            return False
        return row.ask or not self.tool.window or self.keyed(row, now) or (self.tool.probe and not row.unsettled)

    def claim(self, row: Row, now: int) -> Row:
        """The row of a call that somebody took."""
        row = row._replace(status="running", attempt=row.attempt + 1, claimed=now)
        if row.ask:
            return row
        if row.first_sent is None and self.rules.stamps_first:
            row = row._replace(first_sent=now)
        return row._replace(sends=row.sends + 1, sent=now)

    def report(self, row: Row, word: str, now: int, delay: int) -> Row:
        """The row after the report of the attempt that runs. Pending: it goes on after the delay."""
        if row.first_sent is None:
            row = row._replace(first_sent=now)  # only without `stamps_first`
        if word == "given back":
            return row._replace(status="pending", sends=row.sends if row.ask else row.sends - 1)
        if word in ("done", "happened"):
            return closed(row, "done")
        if word == "refused":
            # Under its key the provider's no is about every attempt; else it says nothing of an earlier one (I16).
            return row._replace(status="in_doubt") if row.unsettled and not self.tool.window else closed(row, word)
        return self.end_attempt(row, word, now, delay)

    def late(self, row: Row, attempt: int, word: str) -> Row:
        """The row after a report that is fenced off: it settles a doubt about its own attempt, or is only kept (I8)."""
        if word not in ("done", "refused") or (attempt < row.performed if word == "done" else attempt != row.performed):
            return row
        if row.status == "running" and row.ask and word == "done":
            return row._replace(known=True)
        if word == "refused" and self.tool.harmless and self.rules.no_needs_key:
            return row
        return closed(row, word) if row.status in WAITING and row.unsettled else row

    def end_attempt(self, row: Row, end: str, now: int, delay: int = 0) -> Row:
        """What becomes of an attempt that ended without an answer. Pending: it goes on after the delay."""
        tool = self.tool
        keyed = self.keyed(row, now + delay)
        budget = row.sends < tool.attempts and self.young(row, now + delay)
        if row.ask:
            return self._end_probe(row, end, now, budget=budget, keyed=keyed)
        doubt = end in ("unknown", "stored") or (row.unsettled and self.rules.sticky)
        row = row._replace(unsettled=doubt, stored=end == "stored")
        if end != "retry":
            row = row._replace(performed=row.attempt)
        if budget and not doubt and (not tool.window or keyed or tool.probe):
            return row._replace(status="pending")
        if budget and doubt and end != "stored" and (tool.harmless or keyed):
            return row._replace(status="pending")
        if doubt and tool.probe:
            return row._replace(status="pending", ask=True)
        return row._replace(status="in_doubt") if doubt else closed(row, "gave_up")

    def _end_probe(self, row: Row, end: str, now: int, *, budget: bool, keyed: bool) -> Row:
        if row.known:
            return closed(row, "done")
        if end == "cannot_tell":
            return row._replace(status="in_doubt", ask=self.young(row, now))
        asked = row.claimed if self.rules.settles_by_claim else now
        if self.rules.settles and asked < row.sent + self.tool.deadline + self.tool.settle_after:
            # Something may still arrive: only its key would catch it.
            return row._replace(status="pending", ask=not (budget and keyed and not row.stored))
        if not budget:
            return closed(row, "gave_up")
        row = row._replace(status="pending", unsettled=False, ask=False)
        # A key that holds a stored failure gets no other answer, and nothing can arrive under it any more.
        return row._replace(key=row.key + 1, stored=False, first_sent=None) if row.stored else row

    def expired(self, row: Row) -> Row:
        """The row of a pending call whose key was trusted for too long to be sent."""
        if not row.unsettled:
            return closed(row, "gave_up")
        return row._replace(ask=True) if self.tool.probe else row._replace(status="in_doubt")


def closed(row: Row, status: str) -> Row:
    """The row with its end."""
    return row._replace(status=status, ask=False, unsettled=False)
