"""A Kafka message as the record of a call."""

from __future__ import annotations

from uuid import UUID

import pytest

from deedbox_consumers.record import Place, Record
from deedbox_consumers.source.message import read

ID = "019dd5a2-0000-7000-8000-000000000001"
HEADERS: dict[str, bytes | None] = {
    "id": ID.encode(),
    "type": b"call",
    "action_id": ID.encode(),
    "key": b"order-1:1:0",
    "attempt": b"1",
    "traceparent": None,
    "created_at": b"2026-11-30T12:00:00.123456Z",
}


def place(
    *, without: str = "", key: bytes | None = b"cus_1", value: bytes | None = b"x", **changed: bytes | None
) -> Place:
    headers = [(name, changed.get(name, value)) for name, value in HEADERS.items() if name != without]
    return Place("deedbox.charge", 3, 17, 1, key, headers, value)


def test_a_record_is_what_the_headers_say() -> None:
    here = place()
    assert read(here, "charge") == Record(UUID(ID), "charge", "order-1:1:0", "cus_1", b"x", here)


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_header_that_is_not_there_is_named(name: str) -> None:  # I14
    assert read(place(without=name), "charge") == f"it has no header {name}"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (place(type=b"party"), "'party' is not known"),
        (place(type=None), "type is empty"),
        (place(action_id=b"17"), "cannot be read"),
        (place(action_id=b"\xff"), "cannot be read"),
        (place(key=None), "no key"),
        (place(value=None), "no value"),
        (place(value=b""), "no value"),
        (Place("deedbox.charge", 0, 0, 1, b"k", (), b"x"), "no header"),
    ],
)
def test_what_is_no_call_says_why(wrong: Place, says: str) -> None:  # I14
    reason = read(wrong, "charge")
    assert isinstance(reason, str)
    assert says in reason
