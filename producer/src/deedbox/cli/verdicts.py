"""What the ledger says of an act on dead letters, in words that say what to do."""

from __future__ import annotations

REDRIVE = {
    "redriven": "back at work, under the same key.",
    "not_dead": "it has no open dead letter: there was nothing to do.",
    "closed": "its dead letter was dropped, for good: let the agent decide anew.",
    "happened": "its effect is there, so it is not performed again: `deedbox calls resolve KEY --happened JSON`.",
    "expired": "its deadline has passed: drop it, and let the agent decide anew.",
    "window_over": "the provider may have forgotten its key: if it surely did not happen, --rekey gives it a new one.",
    "pruned": "its bytes are gone: drop it, and let the agent decide anew.",
}
REKEY = REDRIVE | {"redriven": "back at work, each under a new key."}
DROP = {
    "dropped": "dealt with; the call stays as it is, and those behind it go on.",
    "passed": "it was refused and stood in the way: those behind it go on.",
    "not_dead": "it has no open dead letter: there was nothing to do.",
}
REFUSED = frozenset({"closed", "happened", "expired", "window_over", "pruned"})
