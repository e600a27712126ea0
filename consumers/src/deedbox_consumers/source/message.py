"""A Kafka message as the record of a call, or why it is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from deedbox_consumers.record import KINDS, Place, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEADERS = frozenset(("id", "type", "action_id", "key", "attempt", "traceparent", "created_at"))


def place_of(message: Any, epoch: int) -> Place:
    """Where a message stands, with what is kept of it."""
    return Place(
        message.topic(),
        message.partition(),
        message.offset(),
        epoch,
        message.key(),
        headers_of(message),
        message.value(),
    )


def headers_of(message: Any) -> Sequence[tuple[str, bytes | None]] | None:
    """The headers, to be asked for once; None: they cannot be read.

    For a name that is not UTF-8 the client raises SystemError, and at the second time hands out a NULL pointer.
    """
    try:
        return message.headers() or ()
    except Exception:  # noqa: BLE001 - whatever it raises, it is about this one record
        return None


def read(place: Place, tool: str) -> Record | str:
    """The record in a message of the tool's topic, or the reason why it cannot be taken (I14)."""
    if place.headers is None:
        return "its headers cannot be read"
    headers = dict(place.headers)
    if missing := HEADERS - headers.keys():
        return f"it has no header {', '.join(sorted(missing))}"
    try:
        if (kind := _text(headers, "type")) not in KINDS:
            return f"its type {kind!r} is not known here"
        if not place.value:
            return "it has no value"
        if not place.key:
            return "it has no key"
        id_, key, attempt = UUID(_text(headers, "action_id")), _text(headers, "key"), int(_text(headers, "attempt"))
        return Record(id_, tool, key, place.key.decode(), place.value, place, attempt)
    except ValueError as problem:  # UnicodeDecodeError is one, too
        return f"its headers cannot be read: {problem}"


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    value = headers[name]
    if not value:
        raise ValueError(f"{name} is empty")
    return value.decode()
