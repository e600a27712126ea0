"""How fast calls are begun."""

from __future__ import annotations

import asyncio

from aiolimiter import AsyncLimiter


class Rate:
    """Tokens, `rate` in any `per` seconds; one that was not used is given back.

    aiolimiter's bucket takes none back, and without that the records of calls that are over already, which only the
    claim finds out, would use up the rate of those that are not. So they are kept beside the bucket, and lost one by
    one as it fills up again: both together are never more than the bucket can hold.
    """

    def __init__(self, rate: float, per: float) -> None:
        stretch = max(1.0, 1.0 / rate)  # less than one in a period is one in a longer period
        self._bucket = AsyncLimiter(rate * stretch, per * stretch)
        self._refill = per / rate  # seconds until the bucket holds one token more
        self._back = 0
        self._since = 0.0  # when the bucket began to make up for the first of those that are back

    async def take(self, until: asyncio.Event) -> bool:
        """Take a token, or wait for one; False when `until` is set before. One waits at a time."""
        self._lose()
        if self._back:
            self._back -= 1
            return True
        if self._bucket.has_capacity():
            await self._bucket.acquire()
            return True
        token = asyncio.ensure_future(self._bucket.acquire())
        stop = asyncio.ensure_future(until.wait())
        try:
            await asyncio.wait((token, stop), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if token.done():
                self.give_back()
            raise
        finally:
            stop.cancel()
            token.cancel()  # no more than a word to one that is done
        return token.done()

    def give_back(self) -> None:
        """Give a token back that was not used."""
        self._lose()
        if not self._back:
            self._since = asyncio.get_running_loop().time()
        self._back += 1

    def _lose(self) -> None:
        gone = int((asyncio.get_running_loop().time() - self._since) / self._refill) if self._back else 0
        self._back = max(0, self._back - gone)
        self._since += gone * self._refill
