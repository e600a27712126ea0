"""This worker's lease: one row for all its calls, renewed while it lives."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg

from deedbox_consumers.clock import now
from deedbox_consumers.session import is_transient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from deedbox_consumers.ledger import Ledger

log: logging.Logger = logging.getLogger("deedbox.worker")


class Lease:
    """Who this worker is to the ledger, and until when.

    `owner` is a new random id at each start, and whenever the ledger has judged the old one dead: its calls belong to
    others then. `received` tells how far the source has come.
    """

    def __init__(
        self,
        ledger: Ledger,
        tools: Sequence[str],
        source: str,
        length: timedelta,
        received: Callable[[], Mapping[str, datetime]],
    ) -> None:
        self._ledger = ledger
        self._tools = tools
        self._source = source
        self._length = length
        self._received = received
        self._until = 0.0
        self.owner: UUID = uuid4()

    def holds(self, owner: UUID) -> bool:
        """Whether `owner` is who we are, and alive."""
        return owner == self.owner and self.alive

    @property
    def alive(self) -> bool:
        """Whether the lease holds at this moment, by a clock that counts a suspend."""
        return now() < self._until

    async def begin(self) -> None:
        """Enlist; raises psycopg.Error."""
        asked = now()  # before the server's clock, so that our end is never later than the server's
        await self._ledger.enlist(self.owner, self._tools, self._source, self._length)
        self._until = asked + self._length.total_seconds()

    async def keep(self) -> None:
        """Renew four times a lease, for ever."""
        while True:
            await asyncio.sleep(self._length.total_seconds() / 4)
            await self.renew()

    async def renew(self) -> None:
        """Renew once; what keeps it from that is tried again at the next time."""
        asked = now()
        try:
            if await self._ledger.renew(self.owner, self._received()):
                self._until = asked + self._length.total_seconds()
                return
            self.owner = uuid4()
            log.warning("The ledger judged this worker dead; it goes on as %s", self.owner)
            self._until = 0.0
            await self.begin()
        except psycopg.Error as problem:
            if not is_transient(problem):
                raise

    async def end(self) -> None:
        """Resign: this worker holds no call any more."""
        await self._ledger.resign(self.owner)
        self._until = 0.0
