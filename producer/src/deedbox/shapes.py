"""How one type travels: its Avro schema and the changes that its values need on their way.

Three changes, each None where nothing changes, so that a flat model of text and integers costs nothing:

    pack     a validated value -> what the Avro writer takes
    settle   a validated value -> the same in the form in which the reader will get it (moments in UTC, all decimals)
    bare     a value's JSON form -> the same without the fields that hold their defaults
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

Json = Any
Change = Callable[[Any], Any]

ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Shape:
    """One type on its way; `schema` is Avro's JSON, `flat` says that it is a single value."""

    schema: Json
    pack: Change | None = None
    settle: Change | None = None
    bare: Change | None = None
    flat: bool = False

    @property
    def branches(self) -> list[Json]:
        """The schemas of a union, or the only one."""
        return self.schema if isinstance(self.schema, list) else [self.schema]


@dataclass(frozen=True, slots=True)
class Field:
    """A record's field: its default in JSON, and as Avro writes it in a schema (ABSENT where there is none)."""

    name: str
    shape: Shape
    default: Json
    avro_default: Json

    @property
    def schema(self) -> Json:
        """The field in a record's schema."""
        default = {} if self.avro_default is ABSENT else {"default": self.avro_default}
        return {"name": self.name, "type": self.shape.schema} | default


@dataclass(frozen=True, slots=True)
class Record:
    """A model as an Avro record; `shape` defines it, `known` only names it.

    `vetted` says that code of the model's author checks its values, and so might change them.
    """

    name: str
    fields: tuple[Field, ...]
    shape: Shape
    vetted: bool = False

    @classmethod
    def of(cls, name: str, fields: tuple[Field, ...]) -> Record:
        """The record with these fields."""
        schema = {"type": "record", "name": name, "fields": [field.schema for field in fields]}
        return cls(name, fields, Shape(schema, _pack_record(fields), _settle_record(fields), bare_record(fields)))

    @property
    def known(self) -> Record:
        """The same for its second mention in a schema."""
        return Record(self.name, self.fields, self.shape_as(self.name))

    def shape_as(self, schema: Json) -> Shape:
        """The shape under another schema."""
        return Shape(schema, self.shape.pack, self.shape.settle, self.shape.bare)


def array_of(item: Shape) -> Shape:
    """A list of items."""
    return Shape({"type": "array", "items": item.schema}, _each(item.pack), _each(item.settle), _each(item.bare))


def map_of(item: Shape) -> Shape:
    """A dict of items under text keys."""
    schema = {"type": "map", "values": item.schema}
    return Shape(schema, _each_value(item.pack), _each_value(item.settle), _each_value(item.bare))


def optional(shape: Shape, null_first: bool) -> Shape:
    """The shape or None; Avro reads a field's default as the first branch's."""
    if "null" in shape.branches:
        return shape
    schema = ["null", *shape.branches] if null_first else [*shape.branches, "null"]
    pack, settle, bare = (_unless_none(change) for change in (shape.pack, shape.settle, shape.bare))
    return Shape(schema, pack, settle, bare, shape.flat)


def one_of(tag: str, records: Mapping[type[BaseModel], Record], values: Mapping[Json, type[BaseModel]]) -> Shape:
    """Models told apart by the field `tag`; `values` gives the model of each of its values."""

    def branch(value: Any) -> tuple[Record, Any]:
        record = next(records[kind] for kind in type(value).__mro__ if kind in records)
        return record, value

    def pack(value: Any) -> tuple[str, Any]:
        record, value = branch(value)
        return record.name, (record.shape.pack or vars)(value)

    def settle(value: Any) -> Any:
        change = branch(value)[0].shape.settle
        return change(value) if change else value

    # Without its tag two branches could look alike, and two decisions would have one digest.
    bares = {value: bare_record(records[model].fields, keep=tag) for value, model in values.items()}

    def bare(dumped: Mapping[str, Json]) -> Json:
        change = bares[dumped[tag]]
        return change(dumped) if change else dumped

    settles = any(record.shape.settle for record in records.values())
    schema = [record.shape.schema for record in records.values()]
    return Shape(schema, pack, settle if settles else None, bare if any(bares.values()) else None)


def bare_record(fields: Sequence[Field], keep: str | None = None) -> Change | None:
    """What drops defaults from a record's JSON form, from all fields but `keep`."""
    plan = [(field.name, ABSENT if field.name == keep else field.default, field.shape.bare) for field in fields]
    if all(default is ABSENT and change is None for _, default, change in plan):
        return None

    def bare(dumped: Mapping[str, Json]) -> dict[str, Json]:
        kept = {}
        for name, default, change in plan:
            value = dumped[name]
            if value != default:
                kept[name] = value if change is None else change(value)
        return kept

    return bare


def _pack_record(fields: Sequence[Field]) -> Change:
    changes = [(field.name, field.shape.pack) for field in fields if field.shape.pack is not None]
    if not changes:
        return vars

    def pack(value: BaseModel) -> dict[str, Any]:
        datum = dict(vars(value))
        for name, change in changes:
            datum[name] = change(datum[name])
        return datum

    return pack


def _settle_record(fields: Sequence[Field]) -> Change | None:
    changes = [(field.name, field.shape.settle) for field in fields if field.shape.settle is not None]
    if not changes:
        return None

    def settle(value: BaseModel) -> BaseModel:
        held = vars(value)
        other = {name: new for name, change in changes if (new := change(held[name])) is not held[name]}
        return value.model_copy(update=other) if other else value

    return settle


def _unless_none(change: Change | None) -> Change | None:
    return change and (lambda value: None if value is None else change(value))


def _each(change: Change | None) -> Change | None:
    return change and (lambda values: [change(value) for value in values])


def _each_value(change: Change | None) -> Change | None:
    return change and (lambda values: {key: change(value) for key, value in values.items()})
