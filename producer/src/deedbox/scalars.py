"""Single values: text, numbers, moments, and the names of enums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime

from deedbox.errors import UnencodableValue, UnsupportedType
from deedbox.shapes import Json, Shape

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

PLAIN: dict[object, Json] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    UUID: {"type": "string", "logicalType": "uuid"},
    date: {"type": "int", "logicalType": "date"},
}


def scalar(kind: Any, facts: Sequence[Any], where: str) -> Shape | None:
    """The shape of a single value's type, None for any other; `facts` are the metadata around it."""
    if kind in (datetime, AwareDatetime):
        in_utc = _in_utc(where)
        return Shape({"type": "long", "logicalType": "timestamp-micros"}, in_utc, in_utc, flat=True)
    if kind is time:
        return Shape({"type": "long", "logicalType": "time-micros"}, _without_offset(where), flat=True)
    if kind is Decimal:
        return _decimal(facts, where)
    if kind is bytes:
        return Shape("bytes", flat=True)
    return Shape(PLAIN[kind], flat=True) if kind in PLAIN else None


def avro_json(value: Any) -> Json:
    """A packed single value as Avro writes defaults in a schema."""
    match value:
        case datetime():
            return (value - EPOCH) // MICROSECOND
        case date():
            return (value - EPOCH.date()).days
        case time():
            return (datetime.combine(EPOCH, value, UTC) - EPOCH) // MICROSECOND
        case Decimal():
            unscaled = int("".join(map(str, value.as_tuple().digits))) * (-1 if value.is_signed() else 1)
            return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True).decode("latin-1")
        case bytes():
            return value.decode("latin-1")
        case UUID():
            return str(value)
        case _:
            return value


def _decimal(facts: Sequence[Any], where: str) -> Shape:
    found = {
        name: value
        for fact in facts
        for name in ("max_digits", "decimal_places")
        if (value := getattr(fact, name, None)) is not None
    }
    if len(found) < 2 or found["decimal_places"] > found["max_digits"]:
        instead = "give its precision, as in Field(max_digits=12, decimal_places=2)"
        raise UnsupportedType(where=where, type="Decimal", instead=instead)
    precision, scale = found["max_digits"], found["decimal_places"]
    exponent = Decimal(1).scaleb(-scale)
    exactly = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def pack(value: Decimal) -> Decimal:
        try:
            return exactly.plus(exactly.quantize(Decimal(value), exponent))  # 0 for -0, which Avro has not
        except DecimalException:
            why = f"{value} has more than {precision} digits, {scale} of them decimals"
            raise UnencodableValue(where=where, why=why) from None

    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return Shape(schema, pack, pack, flat=True)


def _in_utc(where: str) -> Callable[[datetime], datetime]:
    def in_utc(value: datetime) -> datetime:
        if value.tzinfo is None:
            raise UnencodableValue(where=where, why=f"{value.isoformat()} has no UTC offset; add one, such as Z")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise UnencodableValue(where=where, why=f"{value.isoformat()} is outside years 1 to 9999 in UTC") from None

    return in_utc


def _without_offset(where: str) -> Callable[[time], time]:
    def without_offset(value: time) -> time:
        if value.tzinfo is not None:
            raise UnencodableValue(where=where, why=f"{value.isoformat()} has an offset; a time of day has none")
        return value

    return without_offset
