"""A call as it reaches a worker, and as it is once the worker has claimed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from typing import Any
    from uuid import UUID

    from pydantic import BaseModel

    from deedbox.step import AnyTool
    from deedbox_consumers.attempt import Attempt


KINDS = frozenset(("call", "probe"))  # what an emission is for; the claim says which, whatever the record says


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands in Kafka, with what is kept of it if it cannot be taken.

    `headers` is None if they cannot be read. `epoch` counts the assignments of its partition: what was received under
    an older one is not ours to answer for.
    """

    topic: str
    partition: int
    offset: int
    epoch: int
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """One emission of a call. `place` is None when it came from the ledger itself.

    `attempt` is the one that it is for, as its header says; 0: it was read where a claim looks, and is not ahead of it.
    """

    id: UUID
    tool: str
    key: str
    order_key: str
    payload: bytes
    place: Place | None = None
    attempt: int = 1


@dataclass(slots=True, eq=False)
class Claimed:
    """A call that is this worker's to perform.

    `probe`: to ask whether it happened, not to perform it. `keyed`: its provider key is trusted for this attempt.
    `sent` is set right before the handler is called: until then it is known that nothing has happened. `thread` runs a
    handler that blocks; `over` keeps one that has not sent yet from sending.
    """

    record: Record
    tool: AnyTool
    args: BaseModel | None  # None: they cannot be read here
    attempt: Attempt
    owner: UUID
    probe: bool = False
    keyed: bool = False
    sent: bool = False
    over: bool = False
    thread: Future[Any] | None = field(default=None, repr=False)
