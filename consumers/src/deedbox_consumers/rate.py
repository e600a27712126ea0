"""How fast calls are begun.

Who begins is counted, not who asks: one that asked may find that its call is over, or hear from the ledger much later,
and then begin together with all who asked after it. docs/decisions/limits-of-our-own.md tells why it is no library.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Rate:
    """At most `rate` in any `per` seconds begin: those that are through and have not begun count as if they had just.

    A fraction is rounded down; less than one in a period is one in a longer period.
    """

    def __init__(self, rate: float, per: float) -> None:
        self._most = max(1, int(rate))
        self._per = per * max(1.0, 1.0 / rate)
        self._through = 0  # and not begun
        self._begun: deque[float] = deque()  # when, within the last period

    async def take(self, changed: asyncio.Event) -> bool:
        """Go through, or wait until one may; False when `changed` is set before. Each True needs `began` or `left`."""
        while (wait := self._wait()) != 0.0:
            try:
                async with asyncio.timeout(wait):
                    await changed.wait()
            except TimeoutError:
                continue
            return False
        self._through += 1
        return True

    def began(self) -> None:
        """One that was through has begun."""
        self._through -= 1
        self._begun.append(self._now())

    def left(self) -> None:
        """One that was through has not begun, and will not."""
        self._through -= 1

    def _wait(self) -> float | None:
        """Seconds until one more may go through, 0 for now; None: when one that is through begins or leaves."""
        now = self._now()
        while self._begun and self._begun[0] + self._per <= now:
            self._begun.popleft()
        if self._through + len(self._begun) < self._most:
            return 0.0
        return self._begun[0] + self._per - now if self._begun else None

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
