"""A circuit breaker: a provider that does not answer is left alone for a while.

The libraries for this (purgatory, pybreaker, aiobreaker, circuitbreaker, hyx) wrap one call and refuse it while open.
Here a call that may not go yet waits, before anybody holds it, and what became of it is known only when it is judged;
so these are the few lines of it, without a clock or a lock of their own.
"""

from __future__ import annotations


class Breaker:
    """Closed: all may go. Open, after `failures` in a row: none may, for `open_for` seconds. Then one may, to see.

    failures   None: it never opens
    """

    def __init__(self, failures: int | None, open_for: float) -> None:
        self._limit = failures
        self._open_for = open_for
        self._failures = 0
        self._until: float | None = None  # when one may go to see; None: closed
        self._seeing = False

    @property
    def closed(self) -> bool:
        """Whether all may go."""
        return self._until is None

    def wait(self, now: float) -> float | None:
        """Seconds until one may go, 0 for now; None: when the one that went to see is back."""
        if self._until is None:
            return 0.0
        return None if self._seeing else max(0.0, self._until - now)

    def go(self, now: float) -> bool:
        """Take the way, if one may go now."""
        if self.wait(now) != 0.0:
            return False
        self._seeing = not self.closed
        return True

    def succeeded(self) -> bool:
        """The provider answered somebody; whether that closes the breaker."""
        opens = self._until is not None
        self._failures, self._until, self._seeing = 0, None, False
        return opens

    def failed(self, now: float) -> bool:
        """Somebody came to no answer; whether that opens the breaker."""
        self._failures += 1
        was_closed = self._until is None
        if self._limit is None or not (self._seeing or (was_closed and self._failures >= self._limit)):
            return False  # one that had gone before it opened tells nothing new
        self._until, self._seeing = now + self._open_for, False
        return was_closed

    def left(self) -> None:
        """Somebody came back and told neither: if it went to see, another may."""
        self._seeing = False
