"""What the pipeline reads of the ledger's database: the box's prefix, its topics, its slot, and whether it is ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from deedbox.errors import NoConnectRole, NoLogicalDecoding, NoPublication, NotMigrated, SlotInUse
from deedbox.statements import Statements
from deedbox_debezium.patience import wait_for

if TYPE_CHECKING:
    from deedbox.settings import Settings


@dataclass(frozen=True)
class Box:
    """The names that the pipeline's parts take from one box."""

    schema: str
    prefix: str
    database: str

    @property
    def slot(self) -> str:
        """Replication slot, and publication."""
        return f"{self.prefix}_outbox"

    @property
    def connector(self) -> str:
        """The connector's name in Connect."""
        return f"{self.prefix}-outbox"


@dataclass(frozen=True)
class Slot:
    """The state of a replication slot; sizes in bytes."""

    active: bool
    wal_status: str | None
    retained: int | None
    behind: int | None


class Ledger:
    """One short connection per question: these commands ask seldom, and Postgres may restart between two of them."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.need("database_url")
        self._schema = settings.schema
        self._statements = Statements("deedbox_debezium", "pipeline.sql", settings.schema)

    def box(self) -> Box:
        """The box's names. Raises NotMigrated if there is no ledger."""
        prefix, database, *_ = self._ready()
        return Box(self._schema, prefix, database)

    def check(self) -> Box:
        """The same, once all is there that a connector needs.

        Raises NoLogicalDecoding, NoPublication or NoConnectRole.
        """
        prefix, database, wal_level, published, readable = self._ready()
        if wal_level != "logical":
            raise NoLogicalDecoding(database=database, found=wal_level)
        if not published:
            raise NoPublication(publication=f"{prefix}_outbox", schema=self._schema)
        if not readable:
            raise NoConnectRole(role=f"{prefix}_connect", schema=self._schema)
        return Box(self._schema, prefix, database)

    def topics(self) -> dict[str, int]:
        """Name → partitions of each topic that the ledger writes to, without the prefix."""
        self._ready()
        return dict(self._all("topics"))

    def slot(self, box: Box) -> Slot | None:
        """The box's slot, or None if there is none."""
        rows = self._all("slot", slot=box.slot)
        return Slot(*rows[0]) if rows else None

    def drop_slot(self, box: Box, *, within: float) -> bool:
        """Drop the box's slot once its reader has let go of it; False if there was none.

        Raises SlotInUse if that takes longer than `within` seconds.
        """
        if self.slot(box) is None:
            return False
        if not wait_for(lambda: bool(self._all("drop_slot", slot=box.slot)), within):
            raise SlotInUse(slot=box.slot)
        return True

    def _ready(self) -> tuple[Any, ...]:
        exists = self._all("ledger_exists", table=f'"{self._schema}".unpublished')
        if not exists[0][0]:
            raise NotMigrated(schema=self._schema, found="none", wanted=1)
        return self._all("ready")[0]

    def _all(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url, autocommit=True, application_name="deedbox-pipeline") as connection:
            return connection.execute(self._statements[name], values or None).fetchall()
