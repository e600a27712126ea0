"""Limits: how much of a tool's work one worker takes on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from deedbox.errors import InvalidLimits


@dataclass(frozen=True)
class Limits:
    """What the provider of one tool can bear of one worker process; the limits of several processes add up.

    concurrency   calls of the tool at work at once; default: the worker's `concurrency`, or `threads` if it is sync
    rate, per     calls begun, at most `rate` in any `per` (rounded down to a whole number, or one in a longer time);
                  default: as fast as they come
    breaker       attempts in a row that came to no answer, after which the tool rests; default: it never rests
    open_for      how long it then rests, before one call is let through to see

    A call that waits for its limits holds no lease, and a tool at its limits holds up no other tool. Raises
    InvalidLimits.
    """

    concurrency: int | None = None
    rate: float | None = None
    per: timedelta = timedelta(seconds=1)
    breaker: int | None = None
    open_for: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        for name in ("concurrency", "breaker"):
            given = getattr(self, name)
            if given is not None and (type(given) is not int or given < 1):
                raise InvalidLimits(name=name, given=given, wanted="a whole number from 1, or None for no such limit")
        if self.rate is not None and not (type(self.rate) in {int, float} and 0 < self.rate < math.inf):
            raise InvalidLimits(name="rate", given=self.rate, wanted="a number above 0, or None for no such limit")
        for name in ("per", "open_for"):
            given = getattr(self, name)
            if not isinstance(given, timedelta) or given <= timedelta(0):
                raise InvalidLimits(name=name, given=given, wanted="a timedelta above 0")
