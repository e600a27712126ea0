"""What `make model` walks through: the protocol for each effect, what it could do without, and what it could not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from docs.model.checker import STUCK
from docs.model.ledger import Rules, Tool

# In a window of four ticks a repeat can be in time or too late; all else is one tick, the least that counts.
KEY = Tool("provider_key", window=4)
PROBE = Tool("probe", probe=True)
BOTH = Tool("provider_key+probe", window=4, probe=True)
REPEATABLE = Tool("repeatable")
UNREPEATABLE = Tool("unrepeatable")
UNEVEN = replace(BOTH, window=5, settle_after=3, late=3)

SET_ASIDE = Rules(asks_again=False, parks_fresh=True)

LAWS = {
    "once": "at most one effect per committed decision",
    "I1": "no effect before its decision is visible",
    "I5": "no call is lost: from everywhere it can still end",
    "I8": "no report ends an attempt that is not its own",
    "I9": "first_sent_at is set before anything is sent under its key, and never again",
    "I10": "a final outcome stays as it is",
    "I16": "refused and gave_up mean that it did not happen, and will not",
    "done": "done means that it happened",
    "unsettled": "who waits and is not unsettled has no effect, and none on its way",
}


@dataclass(frozen=True)
class Case:
    """One walk: the protocol, or the protocol without something, and the law that this must break."""

    name: str
    says: str
    tool: Tool
    rules: Rules | None = None
    breaks: str | None = None

    @property
    def law(self) -> str | None:
        """The law's name for the checker, to which "no call is lost" is a question of its own."""
        return STUCK if self.breaks == "I5" else self.breaks


def _three(tool: Tool) -> Tool:
    return replace(tool, attempts=3)


PROTOCOL = [
    Case("unrepeatable", "3 attempts", _three(UNREPEATABLE)),
    Case("repeatable", "3 attempts", _three(REPEATABLE)),
    Case("provider_key", "3 attempts", _three(KEY)),
    Case("probe", "3 attempts", _three(PROBE)),
    Case("provider_key+probe", "2 attempts", BOTH),
]

# More of the same: minutes.
WIDE = [
    Case("provider_key 4", "4 attempts, a longer window", replace(KEY, attempts=4, window=6, give_up_after=7)),
    Case("provider_key late", "what is late is later", replace(KEY, margin=2, late=2, window=6, give_up_after=7)),
    Case("probe late", "what is late is later", replace(PROBE, settle_after=2, late=2, give_up_after=7)),
    Case("provider_key+probe 3", "3 attempts", _three(BOTH)),
]

SPARE = [
    Case("set-aside", "an absent call's record is dropped; the sweep looks", UNREPEATABLE, SET_ASIDE),
    Case("lease-unchecked", "only the deadline is looked at before the send", PROBE, Rules(checks_lease=False)),
]

WITHOUT = [
    Case("no-fence", "a report counts whoever makes it", KEY, Rules(fence=False), "I10"),
    Case("no-absent-retry", "an absent call's record is dropped", UNREPEATABLE, Rules(asks_again=False), "I5"),
    Case("no-window", "a key is trusted for ever", KEY, Rules(window=False), "once"),
    Case("not-sticky", "unsettled lasts for one attempt", KEY, Rules(sticky=False), "I16"),
    Case("claims-judge", "a claim takes what runs past its lease", UNREPEATABLE, Rules(sweep_judges=False), "once"),
    Case("no-visibility", "an absent call is performed", UNREPEATABLE, Rules(reads_the_row=False), "I1"),
    Case("stamped-late", "first_sent_at is set by the report", KEY, Rules(stamps_first=False), "I9"),
    Case("no-settling", "a probe's no frees the call at once", PROBE, Rules(settles=False), "once"),
    Case("settled-by-report", "… if it is late when the no is recorded", PROBE, Rules(settles_by_claim=False), "once"),
    Case("late-no", "a late no settles what has no key", REPEATABLE, Rules(no_needs_key=False), "I16"),
    Case("no-parking", "what goes on is emitted, and not looked at again", UNREPEATABLE, Rules(parks=False), "I5"),
    Case("deadline-unchecked", "only the lease is looked at", PROBE, Rules(checks_deadline=False), "once"),
]

ASSUMED = [
    Case("later-than-settled", "deadline + settle_after is over, and it arrives", replace(PROBE, late=2), None, "once"),
    Case("later-than-margin", "deadline + margin is over, and it arrives", replace(KEY, late=3), None, "once"),
    Case("margin-below-settle", "… before settle_after is over, but the key's window is", UNEVEN, None, "once"),
    Case("forgets-no", "the provider keeps no refusal under a key", KEY, Rules(key_keeps_no=False), "I16"),
]

GROUPS = {
    "The protocol": PROTOCOL,
    "It also holds when": SPARE,
    "It breaks without": WITHOUT,
    "It stands on the world, and breaks when": ASSUMED,
}
