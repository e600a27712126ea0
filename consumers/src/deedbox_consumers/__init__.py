"""What performs: workers that take committed calls and perform each under its key."""

from deedbox.errors import OutcomeUnknown, Refusal, RetryLater
from deedbox_consumers.attempt import Attempt
from deedbox_consumers.handlers import Handlers
from deedbox_consumers.worker import Worker

__all__ = ["Attempt", "Handlers", "OutcomeUnknown", "Refusal", "RetryLater", "Worker"]

for _name in ("Attempt", "Handlers", "OutcomeUnknown", "Refusal", "RetryLater", "Worker"):
    globals()[_name].__module__ = __name__  # a traceback reads deedbox_consumers.Refusal
del _name
