"""What a worker needs of a source; two exist: poll (Postgres only) and kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

    from deedbox_consumers.lane import Lanes
    from deedbox_consumers.record import Record

SourceName: TypeAlias = Literal["poll", "kafka"]


class Source(Protocol):
    """It puts records into lanes, and is told when the ledger answers for one."""

    async def open(self, lanes: Lanes) -> None:
        """Begin to bring records, as long as the lanes have room."""
        ...

    def done(self, record: Record) -> None:
        """The ledger answers for this record now: it need not be brought again."""
        ...

    async def set_aside(self, record: Record, reason: str) -> None:
        """This record cannot be taken as a call: keep what it was, and go on (I14)."""
        ...

    def received_through(self) -> Mapping[str, datetime]:
        """Per tool, the moment of which everything emitted before has been received and answered for."""
        ...

    def hold(self) -> None:
        """Bring nothing more."""
        ...

    async def close(self) -> None:
        """End within seconds, whoever does not answer, with what is answered for committed."""
        ...
