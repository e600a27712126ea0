"""Avro: the schema of a model, its values as data, and which schemas can read each other.

Fingerprints are the specification's: CRC-64-AVRO of the parsing canonical form, which leaves out defaults and logical
types. Two schemas can so have one fingerprint and mean different things; `compatible` says so, and the digest that a
worker compares is the second fence.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from pydantic import BaseModel, ValidationError

from deedbox.errors import BadPayload, UnencodableValue
from deedbox.records import record_of
from deedbox.stored import check_storable, dump, problems

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class AvroSchema:
    """A schema as it is stored (`json`) and as it is used (`parsed`); `fingerprint` is 8 bytes in wire order."""

    json: str
    fingerprint: bytes
    parsed: Any = field(repr=False, compare=False)

    @classmethod
    def load(cls, text: str) -> AvroSchema:
        """Read a stored schema."""
        parsed = parse_schema(json.loads(text))
        hexadecimal = fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO")
        return cls(text, bytes.fromhex(hexadecimal), parsed)


@cache
def schema_of(model: type[BaseModel]) -> AvroSchema:
    """The schema of a model; raises UnsupportedType naming the field."""
    return AvroSchema.load(json.dumps(record_of(model).shape.schema, separators=(",", ":")))


def to_datum(value: BaseModel) -> Mapping[str, Any]:
    """A model's values as the Avro writer takes them; raises UnencodableValue."""
    pack = record_of(type(value)).shape.pack or vars
    return pack(value)


def from_datum(datum: Any, model: type[M]) -> M:
    """A model of what the Avro reader gave, under any schema that it can read; raises BadPayload.

    Fields the writer did not know get the model's defaults, fields the model does not know are dropped.
    """
    try:
        return model.model_validate(datum, strict=False, extra="ignore", by_alias=False, by_name=True)
    except ValidationError as problem:
        raise BadPayload(model=model.__name__, reason=problems(problem)) from problem


def write(value: BaseModel) -> bytes:
    """The Avro datum of a model, without a header; raises UnencodableValue."""
    sink = io.BytesIO()
    write_to(sink, value)
    return sink.getvalue()


def write_to(sink: io.BytesIO, value: BaseModel) -> None:
    """Append a model's Avro datum; raises UnencodableValue, UnstorableText, UnstorableNumber."""
    model = type(value)
    try:
        fastavro.schemaless_writer(sink, schema_of(model).parsed, to_datum(value))
    except (OverflowError, UnicodeEncodeError):
        check_storable(dump(value), model.__name__)
        raise
    except (ValueError, TypeError) as problem:
        raise UnencodableValue(where=model.__name__, why=str(problem)) from problem


def read(source: io.BytesIO, writer: AvroSchema, model: type[M]) -> M:
    """The model in a datum that `writer` describes; the datum must reach the end. Raises BadPayload."""
    try:
        datum = fastavro.schemaless_reader(source, writer.parsed, None)
    except (EOFError, IndexError, ValueError, OverflowError, MemoryError, KeyError, TypeError) as problem:
        raise BadPayload(model=model.__name__, reason=f"{type(problem).__name__} {problem}".strip()) from problem
    if source.read(1):
        raise BadPayload(model=model.__name__, reason="it goes on after its end")
    return from_datum(datum, model)


def settled(value: M) -> M:
    """The value as it will be read on the other side: moments in UTC, decimals with all their places."""
    settle = record_of(type(value)).shape.settle
    return value if settle is None else settle(value)


def travelled(value: M) -> M:
    """The value written and read again, as a worker will have it; raises as `write` and `read` do."""
    model = type(value)
    return read(io.BytesIO(write(value)), schema_of(model), model)


def compatible(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Why the two cannot read each other's data, in both directions; empty when they can (Avro's FULL)."""
    return _Comparison(_names(reader.parsed), _names(writer.parsed)).record(reader.parsed, writer.parsed, "")


def _names(schema: Any) -> dict[str, Any]:
    """Every named type that a schema defines."""
    found: dict[str, Any] = {}
    stack = [schema]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            stack.extend(one)
        elif isinstance(one, dict):
            if one["type"] in ("record", "enum"):
                found[one["name"]] = one
            stack.extend(part["type"] for part in one.get("fields", ()))
            stack.extend(one[key] for key in ("items", "values") if key in one)
    return found


@dataclass(frozen=True)
class _Comparison:
    """Two schemas side by side; each method gives the reasons why its part does not fit."""

    ours: dict[str, Any]
    theirs: dict[str, Any]

    def record(self, ours: Any, theirs: Any, where: str) -> list[str]:
        if ours["name"] != theirs["name"]:
            return [f"{where or 'the record'} was named {theirs['name']} and is named {ours['name']}"]
        mine = {one["name"]: one for one in ours["fields"]}
        other = {one["name"]: one for one in theirs["fields"]}
        reasons = []
        for name in mine.keys() | other.keys():
            path = f"{where}.{name}" if where else name
            if name not in other and "default" not in mine[name]:
                reasons.append(f"{path} was added without a default")
            elif name not in mine and "default" not in other[name]:
                reasons.append(f"{path} was removed and had no default")
            elif name in mine and name in other:
                reasons += self.type(mine[name]["type"], other[name]["type"], path)
        return sorted(reasons)

    def type(self, ours: Any, theirs: Any, where: str) -> list[str]:
        ours, theirs = _open(ours, self.ours), _open(theirs, self.theirs)
        if isinstance(ours, list) or isinstance(theirs, list):
            return self.union(ours, theirs, where)
        if _kind(ours) != _kind(theirs):
            return [f"{where} was {_kind(theirs)} and is {_kind(ours)}"]
        kind = ours["type"]
        if kind == "record":
            return self.record(ours, theirs, where)
        if kind == "enum":
            changed = sorted({*ours["symbols"]} ^ {*theirs["symbols"]})
            return [f"{where} gained or lost the values {', '.join(changed)}"] if changed else []
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return self.type(ours[part], theirs[part], f"{where}[]")
        return []

    def union(self, ours: Any, theirs: Any, where: str) -> list[str]:
        mine = {_branch(one): one for one in (_open(part, self.ours) for part in _listed(ours))}
        other = {_branch(one): one for one in (_open(part, self.theirs) for part in _listed(theirs))}
        if mine.keys() != other.keys():
            return [f"{where} was {' or '.join(sorted(other))} and is {' or '.join(sorted(mine))}"]
        return [reason for name in sorted(mine) for reason in self.type(mine[name], other[name], where)]


def _listed(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _open(schema: Any, names: dict[str, Any]) -> Any:
    if isinstance(schema, str):
        return names.get(schema, {"type": schema})
    return schema


def _branch(schema: Any) -> str:
    return str(schema.get("name", _kind(schema)))


def _kind(schema: Any) -> str:
    """A type with what it means, in words: long, long timestamp-micros, bytes decimal(12,2)."""
    logical = schema.get("logicalType", "")
    if logical == "decimal":
        logical = f"decimal({schema['precision']},{schema['scale']})"
    return f"{schema['type']} {logical}".strip()
