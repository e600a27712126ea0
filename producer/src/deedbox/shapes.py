"""How a pydantic model travels: one walk over its fields gives the Avro schema and what to do with the values.

Loud on what it does not support: a type that is not listed here is an UnsupportedType that names the field, never a
guess. Names in the schema come from class names alone, so moving a class to another module changes nothing.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import cache
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import TypeAliasType

from deedbox.errors import UnencodableValue, UnsupportedType

Json = Any
Change = Callable[[Any], Any]

ABSENT: Any = object()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[object, Json] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    UUID: {"type": "string", "logicalType": "uuid"},
    date: {"type": "int", "logicalType": "date"},
}
_INSTEAD = {
    "Any": "name the type",
    "object": "name the type",
    "None": "use Optional with a type",
    "NoneType": "use Optional with a type",
    "timedelta": "use int seconds",
    "tuple": "use list, or a model with named fields",
    "set": "use list",
    "frozenset": "use list",
    "dict": "use dict[str, ...] with a type for the values, or a model",
    "list": "use list[...] with a type for the items",
    "NaiveDatetime": "use AwareDatetime, which means the same moment on every machine",
    "EmailStr": "use str with a pattern",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One type on its way: its schema in Avro's JSON, and what its values need (None: nothing)."""

    schema: Json
    pack: Change | None = None  # a validated value -> what the Avro writer takes
    bare: Change | None = None  # a value's JSON form -> the same without defaults
    exact: bool = True  # False: the value may come back in another form (another zone, more decimals)
    flat: bool = True  # one value, no structure


@dataclass(frozen=True, slots=True)
class Field:
    """A record's field; `default` in its JSON form, or ABSENT."""

    name: str
    shape: Shape
    default: Json


@dataclass(frozen=True, slots=True)
class Record:
    """A model as an Avro record."""

    name: str
    fields: tuple[Field, ...]
    shape: Shape


@cache
def record_of(model: type[BaseModel]) -> Record:
    """The record of a model; raises UnsupportedType."""
    return _Walk().record(model, model.__name__)


class _Walk:
    """One walk: what has been defined so far, and the models it stands in."""

    def __init__(self) -> None:
        self._records: dict[type[BaseModel], Record] = {}
        self._owners: dict[str, object] = {}
        self._within: list[type[BaseModel]] = []

    def record(self, model: type[BaseModel], where: str) -> Record:
        if model in self._within:
            raise UnsupportedType(where=where, type=model.__name__, instead="it holds itself; pass ids, or a flat list")
        if model in self._records:
            return self._records[model]
        _check_model(model, where)
        name = _class_name(model)
        self._own(name, model, where)
        self._within.append(model)
        fields = tuple(self._field(model, name, info) for name, info in model.model_fields.items())
        self._within.pop()
        schema = {"type": "record", "name": name, "fields": [_avro_field(field) for field in fields]}
        exact = all(field.shape.exact for field in fields)
        shape = Shape(schema, _record_pack(fields), record_bare(fields), exact, flat=False)
        known = Shape(name, shape.pack, shape.bare, exact, flat=False)
        self._records[model] = Record(name, fields, known)
        return Record(name, fields, shape)

    def _field(self, model: type[BaseModel], name: str, info: FieldInfo) -> Field:
        where = f"{model.__name__}.{name}"
        if not _NAME.fullmatch(name):
            raise UnsupportedType(where=where, type=name, instead="use a name of letters, digits and _")
        if info.exclude:
            raise UnsupportedType(where=where, type="an excluded field", instead="what is decided is kept whole")
        default = info.default
        if info.default_factory in (list, dict):  # any other factory may give another value tomorrow
            default = info.default_factory()
        shape = self._type(info.annotation, tuple(info.metadata), where, info.discriminator, first=default)
        if default is PydanticUndefined:
            return Field(name, shape, ABSENT)
        if shape.pack is not None and shape.flat:
            default = shape.pack(default)
        made = model.__new__(model)  # not constructed: neither other defaults nor hooks belong here
        vars(made)[name] = default
        dumped = made.model_dump(mode="json", include={name}, by_alias=False, warnings=False)
        return Field(name, shape, dumped[name])

    def _type(
        self, kind: Any, facts: Sequence[Any], where: str, tag: Any = None, first: Any = PydanticUndefined
    ) -> Shape:
        """`facts` are the metadata around a type; `first` is the field's default, whose branch leads a union."""
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Annotated:
            extra = [fact for item in inner[1:] for fact in (item.metadata if isinstance(item, FieldInfo) else [item])]
            tags = [item.discriminator for item in inner[1:] if isinstance(item, FieldInfo) and item.discriminator]
            return self._type(inner[0], [*facts, *extra], where, tags[0] if tags else tag, first)
        if isinstance(kind, TypeAliasType):
            return self._type(kind.__value__, facts, where, tag, first)
        if isinstance(kind, NewType):
            return self._type(kind.__supertype__, facts, where, tag, first)
        if origin in (Union, types.UnionType):
            return self._union(inner, facts, where, tag, first)
        if origin is Literal:
            return self._values(list(inner), _identifier(where), inner, where, kind)
        if origin is list:
            return self._list(self._type(inner[0], (), f"{where}[]"))
        if origin is dict and _is_text(inner[0]):
            return self._dict(self._type(inner[1], (), f"{where}{{}}"))
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return self.record(kind, where).shape
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return self._values([member.value for member in kind], _class_name(kind), kind, where, kind)
        return _single(kind, facts, where, self._within[-1])

    def _union(self, options: Sequence[Any], facts: Sequence[Any], where: str, tag: Any, first: Any) -> Shape:
        rest = [option for option in options if option is not types.NoneType]
        optional = len(rest) < len(options)
        if len(rest) == 1:
            shape = self._type(rest[0], facts, where, tag)
        elif all(isinstance(one, type) and issubclass(one, BaseModel) for one in rest) and isinstance(tag, str):
            shape = self._tagged(rest, where, tag)
        else:
            instead = "use one type, or models told apart by Field(discriminator='...')"
            raise UnsupportedType(where=where, type="a union", instead=instead)
        if not optional:
            return shape
        branches = shape.schema if isinstance(shape.schema, list) else [shape.schema]
        if "null" in branches:
            return shape
        # Avro reads a default as the first branch's.
        schema = [*branches, "null"] if first not in (None, PydanticUndefined) else ["null", *branches]
        return Shape(schema, _unless_none(shape.pack), _unless_none(shape.bare), shape.exact, shape.flat)

    def _tagged(self, models: Sequence[type[BaseModel]], where: str, tag: str) -> Shape:
        packs: dict[type, Change] = {}
        bares: dict[Json, Change] = {}
        schemas: list[Json] = []
        exact = True
        for model in models:
            record = self.record(model, f"{where}({model.__name__})")
            schemas.append(record.shape.schema)
            exact = exact and record.shape.exact
            packs[model] = _named(record.name, record.shape.pack or vars)
            # Without its tag two branches could look alike, and two decisions would have one digest.
            bare = record_bare(record.fields, keep=tag) or (lambda dumped: dumped)
            for value in get_args(model.model_fields[tag].annotation):
                bares[getattr(value, "value", value)] = bare

        def pack(value: Any) -> Any:
            return next(packs[kind] for kind in type(value).__mro__ if kind in packs)(value)

        return Shape(schemas, pack, lambda dumped: bares[dumped[tag]](dumped), exact, flat=False)

    def _values(self, values: list[Any], name: str, owner: object, where: str, kind: Any) -> Shape:
        """Enum or Literal: an Avro enum where its values can be symbols, else the values' own type."""
        pack = None if get_origin(kind) is Literal else _value_of
        held = {type(value) for value in values}
        if held == {str}:
            if all(_NAME.fullmatch(value) for value in values):
                symbols = list(dict.fromkeys(values))
                if not self._own(name, owner, where):
                    return Shape(name, pack)
                return Shape({"type": "enum", "name": name, "symbols": symbols}, pack)
            return Shape("string", pack)
        if len(held) == 1 and held <= {int, bool}:
            return Shape(_PLAIN[held.pop()], pack)
        instead = "use values of one type: str, int or bool"
        raise UnsupportedType(where=where, type=_type_name(kind), instead=instead)

    def _list(self, item: Shape) -> Shape:
        return Shape(
            {"type": "array", "items": item.schema}, _each(item.pack), _each(item.bare), item.exact, flat=False
        )

    def _dict(self, item: Shape) -> Shape:
        schema = {"type": "map", "values": item.schema}
        return Shape(schema, _each_value(item.pack), _each_value(item.bare), item.exact, flat=False)

    def _own(self, name: str, owner: object, where: str) -> bool:
        """Take a name in the schema; False when its owner has defined it already."""
        if name not in self._owners:
            self._owners[name] = owner
            return True
        if self._owners[name] != owner:
            raise UnsupportedType(where=where, type=name, instead="two types of one call have this name; rename one")
        return False


def _single(kind: Any, facts: Sequence[Any], where: str, model: type[BaseModel]) -> Shape:
    if kind in (datetime, AwareDatetime):
        return Shape({"type": "long", "logicalType": "timestamp-micros"}, _pack_moment(where), exact=False)
    if kind is time:
        return Shape({"type": "long", "logicalType": "time-micros"}, _pack_time(where))
    if kind is Decimal:
        return _decimal(facts, where)
    if kind is bytes:
        config = model.model_config
        if config.get("ser_json_bytes") != "base64" or config.get("val_json_bytes") != "base64":
            instead = "add ConfigDict(ser_json_bytes='base64', val_json_bytes='base64'): JSON must hold them too"
            raise UnsupportedType(where=where, type="bytes", instead=instead)
        return Shape("bytes", flat=False)
    if isinstance(kind, type) and kind in _PLAIN:
        return Shape(_PLAIN[kind])
    name = _type_name(kind)
    plain = "use a plain type: str, int, bool, float, UUID, Decimal, datetime, a model, list or dict[str, ...]"
    raise UnsupportedType(where=where, type=name, instead=_INSTEAD.get(name.partition("[")[0], plain))


def _decimal(facts: Sequence[Any], where: str) -> Shape:
    found = {
        name: value
        for fact in facts
        for name in ("max_digits", "decimal_places")
        if (value := getattr(fact, name, None)) is not None
    }
    if len(found) < 2:
        instead = "give its precision, as in Field(max_digits=12, decimal_places=2)"
        raise UnsupportedType(where=where, type="Decimal", instead=instead)
    precision, scale = found["max_digits"], found["decimal_places"]
    exponent = Decimal(1).scaleb(-scale)
    exactly = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def pack(value: Decimal) -> Decimal:
        try:
            return exactly.quantize(Decimal(value), exponent)
        except DecimalException:
            why = f"{value} has more than {precision} digits, {scale} of them decimals"
            raise UnencodableValue(where=where, why=why) from None

    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return Shape(schema, pack, exact=False)


def _pack_moment(where: str) -> Change:
    def pack(value: datetime) -> datetime:
        if value.tzinfo is None:
            raise UnencodableValue(where=where, why=f"{value.isoformat()} has no UTC offset; add one, such as Z")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise UnencodableValue(where=where, why=f"{value.isoformat()} is outside years 1 to 9999 in UTC") from None

    return pack


def _pack_time(where: str) -> Change:
    def pack(value: time) -> time:
        if value.tzinfo is not None:
            raise UnencodableValue(where=where, why=f"{value.isoformat()} has an offset; a time of day has none")
        return value

    return pack


def _record_pack(fields: Sequence[Field]) -> Change | None:
    changes = [(field.name, field.shape.pack) for field in fields if field.shape.pack is not None]
    if not changes:
        return vars

    def pack(value: BaseModel) -> dict[str, Any]:
        datum = dict(vars(value))
        for name, change in changes:
            datum[name] = change(datum[name])
        return datum

    return pack


def record_bare(fields: Sequence[Field], keep: str | None = None) -> Change | None:
    """A function that drops from a record's JSON form the fields that hold their defaults, all but `keep`."""
    if not any(field.shape.bare or (field.default is not ABSENT and field.name != keep) for field in fields):
        return None
    plan = [(field.name, ABSENT if field.name == keep else field.default, field.shape.bare) for field in fields]

    def bare(dumped: Mapping[str, Json]) -> dict[str, Json]:
        kept = {}
        for name, default, change in plan:
            value = dumped[name]
            if value != default:
                kept[name] = value if change is None else change(value)
        return kept

    return bare


def _value_of(value: Any) -> Any:
    return getattr(value, "value", value)  # already the bare value under use_enum_values


def _named(name: str, change: Change) -> Change:
    return lambda value: (name, change(value))


def _unless_none(change: Change | None) -> Change | None:
    return change and (lambda value: None if value is None else change(value))


def _each(change: Change | None) -> Change | None:
    return change and (lambda values: [change(value) for value in values])


def _each_value(change: Change | None) -> Change | None:
    return change and (lambda values: {key: change(value) for key, value in values.items()})


def _check_model(model: type[BaseModel], where: str) -> None:
    why = None
    if getattr(model, "__pydantic_root_model__", False):
        why = "a root model", "use the type that it wraps"
    elif model.model_config.get("extra") == "allow":
        why = "a model with extra='allow'", "name its fields: what has no name would be lost on the way"
    elif model.model_computed_fields:
        why = "a model with computed fields", "make them plain properties: they would be stored as if decided"
    if why is not None:
        raise UnsupportedType(where=where, type=why[0], instead=why[1])


def _avro_field(field: Field) -> Json:
    default = avro_default(field)
    return {"name": field.name, "type": field.shape.schema} | ({} if default is ABSENT else {"default": default})


def avro_default(field: Field) -> Json:
    """The default as Avro writes it in a schema, ABSENT where it has no simple form there."""
    default, schema = field.default, field.shape.schema
    if default is ABSENT:
        return ABSENT
    lead = schema[0] if isinstance(schema, list) else schema
    if default is None or default in ([], {}):
        fits = lead == "null" or (isinstance(lead, dict) and lead["type"] in ("array", "map") and default is not None)
        return default if fits else ABSENT
    if field.shape.flat and (isinstance(lead, str) or lead["type"] == "enum" or lead.get("logicalType") == "uuid"):
        return default
    return ABSENT


def _class_name(kind: type) -> str:
    """A class' name inside its module; brackets and dots of generic and nested classes become _."""
    return _identifier(kind.__qualname__.rpartition("<locals>.")[2])


def _identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind).replace("typing.", "")


def _is_text(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        return _is_text(get_args(kind)[0])
    return kind is str
