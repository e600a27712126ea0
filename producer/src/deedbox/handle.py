"""What `on=` takes: the caller's own connection, which must be able to take part in a transaction now."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from deedbox.errors import NotAHandle, NoTransaction

C = TypeVar("C", "psycopg.Connection[Any]", "psycopg.AsyncConnection[Any]")


def check_handle(given: object, kind: type[C]) -> C:
    """The connection, if a step can be committed with it; raises NotAHandle, NoTransaction."""
    if not isinstance(given, kind):
        wanted = f"an open psycopg.{kind.__name__}"
        raise NotAHandle(wanted=wanted, given=f"{type(given).__module__}.{type(given).__qualname__}")
    if given.closed:
        raise NoTransaction(state="closed", remedy="give one that is open")
    status = given.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise NoTransaction(state="in a failed transaction", remedy="roll it back, then decide again")
    if status == TransactionStatus.IDLE and given.autocommit:
        raise NoTransaction(
            state="in autocommit mode and in no transaction", remedy="open one with `with conn.transaction():`"
        )
    return given
