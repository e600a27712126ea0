"""What performs: workers that take committed calls and perform each under its key."""

from deedbox.errors import OutcomeUnknown, Refusal, RetryLater, StoredFailure
from deedbox_consumers.attempt import Attempt
from deedbox_consumers.handlers import Handlers
from deedbox_consumers.limits import Limits
from deedbox_consumers.middleware import Middleware, Perform
from deedbox_consumers.probed import CannotTell, DidNotHappen, Happened, Probed
from deedbox_consumers.worker import Worker

__all__ = [
    "Attempt",
    "CannotTell",
    "DidNotHappen",
    "Handlers",
    "Happened",
    "Limits",
    "Middleware",
    "OutcomeUnknown",
    "Perform",
    "Probed",
    "Refusal",
    "RetryLater",
    "StoredFailure",
    "Worker",
]

for _name in (
    "Attempt",
    "CannotTell",
    "DidNotHappen",
    "Handlers",
    "Happened",
    "Limits",
    "OutcomeUnknown",
    "Refusal",
    "RetryLater",
    "StoredFailure",
    "Worker",
):
    globals()[_name].__module__ = __name__  # a traceback reads deedbox_consumers.Refusal
del _name
