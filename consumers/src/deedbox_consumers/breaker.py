"""A circuit breaker: a provider that does not answer is left alone for a while.

docs/decisions/limits-of-our-own.md tells why it is no library.
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
        self._seer: object = None  # the one that went

    @property
    def closed(self) -> bool:
        """Whether all may go."""
        return self._until is None

    def wait(self, now: float) -> float | None:
        """Seconds until one may go, 0 for now; None: when the one that went to see is back."""
        if self._until is None:
            return 0.0
        return None if self._seer is not None else max(0.0, self._until - now)

    def go(self, who: object, now: float) -> bool:
        """Take the way, if one may go now."""
        if self.wait(now) != 0.0:
            return False
        if not self.closed:
            self._seer = who
        return True

    def succeeded(self, who: object) -> bool:
        """The provider answered somebody; whether that closes the breaker."""
        was_open = self._until is not None
        if was_open and who is not self._seer:
            return False  # one that had gone before it opened tells nothing new
        self._failures, self._until, self._seer = 0, None, None
        return was_open

    def failed(self, who: object, now: float) -> bool:
        """Somebody came to no answer; whether that opens the breaker."""
        self._failures += 1
        was_closed = self._until is None
        enough = self._limit is not None and was_closed and self._failures >= self._limit
        if not enough and (was_closed or who is not self._seer):
            return False  # one that had gone before it opened tells nothing new
        self._until, self._seer = now + self._open_for, None
        return was_closed

    def left(self, who: object) -> None:
        """Somebody came back: if it went to see and told nothing, another may."""
        if who is self._seer:
            self._seer = None
