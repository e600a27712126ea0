"""The walk over a model that finds its record.

Loud on what it does not support: a type that is not listed here is an UnsupportedType that names the field, never a
guess. Names in the schema come from class names alone, so moving a class to another module changes nothing.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, PlainValidator, WrapValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import TypeAliasType

from deedbox.errors import UnsupportedType
from deedbox.scalars import PLAIN, avro_json, scalar
from deedbox.shapes import ABSENT, Field, Json, Record, Shape, array_of, map_of, one_of, optional

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALIDATORS = (AfterValidator, BeforeValidator, PlainValidator, WrapValidator)
_SUPPORTED = "str, int, bool, float, UUID, Decimal, datetime, date, time, an enum, a model, list or dict[str, ...]"
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


@cache
def record_of(model: type[BaseModel]) -> Record:
    """The record of a model; raises UnsupportedType."""
    walk = _Walk()
    record = walk.record(model, model.__name__)
    return replace(record, vetted=walk.vetted)


class _Walk:
    """One walk: what has been defined so far, and what it stands in."""

    def __init__(self) -> None:
        self._records: dict[type[BaseModel], Record] = {}
        self._owners: dict[str, object] = {}
        self._within: list[Any] = []
        self.vetted = False

    def record(self, model: type[BaseModel], where: str) -> Record:
        if model in self._records:
            return self._records[model].known
        _check_model(model, where)
        decorators = model.__pydantic_decorators__
        self.vetted = self.vetted or bool(decorators.field_validators or decorators.model_validators)
        name = class_name(model)
        with self._inside(model, where):
            self._own(name, model, where)
            fields = tuple(self._field(model, name, info) for name, info in model.model_fields.items())
        self._records[model] = Record.of(name, fields)
        return self._records[model]

    def _field(self, model: type[BaseModel], name: str, info: FieldInfo) -> Field:
        where = f"{model.__name__}.{name}"
        _check_field(name, info, where)
        default = info.default
        if info.default_factory in (list, dict):  # any other factory may give another value tomorrow
            default = info.default_factory()
        shape = self._type(info.annotation, info.metadata, where, info.discriminator, null_first=default is None)
        if default is PydanticUndefined:
            return Field(name, shape, ABSENT, ABSENT)
        if default is None and "null" not in shape.branches:
            raise UnsupportedType(where=where, type="None as its default", instead="make the type optional")
        if shape.flat and shape.pack is not None:
            default = shape.pack(default)
        in_schema = avro_json(default) if shape.flat or default in (None, [], {}) else ABSENT
        return Field(name, shape, _dumped(model, name, default), in_schema)

    def _type(self, kind: Any, facts: Sequence[Any], where: str, tag: Any = None, null_first: bool = True) -> Shape:
        """The shape of an annotation; `facts` are the metadata around it, `tag` the discriminator of a union."""
        origin, inner = get_origin(kind), get_args(kind)
        self.vetted = self.vetted or any(isinstance(fact, _VALIDATORS) for fact in facts)
        if origin is Annotated:
            around = [item for item in inner[1:] if isinstance(item, FieldInfo)]
            own = [fact for item in inner[1:] for fact in (item.metadata if isinstance(item, FieldInfo) else [item])]
            tag = next((item.discriminator for item in around if item.discriminator), tag)
            return self._type(inner[0], [*facts, *own], where, tag, null_first)
        if isinstance(kind, TypeAliasType):
            with self._inside(kind, where):
                return self._type(kind.__value__, facts, where, tag, null_first)
        if isinstance(kind, NewType):
            return self._type(kind.__supertype__, facts, where, tag, null_first)
        if origin in (Union, types.UnionType):
            return self._union(inner, facts, where, tag, null_first)
        if origin is Literal:
            return self._values(inner, _identifier(where), inner, where)
        if origin is list:
            return array_of(self._type(inner[0], (), f"{where}[]"))
        if origin is dict and _is_text(inner[0]):
            return map_of(self._type(inner[1], (), f"{where}{{}}"))
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return self.record(kind, where).shape
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return self._values([member.value for member in kind], class_name(kind), kind, where)
        shape = scalar(kind, facts, where)
        if shape is None:
            raise _unsupported(kind, where)
        if kind is bytes:
            _check_bytes(next(kind for kind in reversed(self._within) if isinstance(kind, type)), where)
        return shape

    def _union(self, options: Sequence[Any], facts: Sequence[Any], where: str, tag: Any, null_first: bool) -> Shape:
        rest = [option for option in options if option is not types.NoneType]
        shape = self._type(rest[0], facts, where, tag) if len(rest) == 1 else self._tagged(rest, where, tag)
        return optional(shape, null_first) if len(rest) < len(options) else shape

    def _tagged(self, models: Sequence[Any], where: str, tag: Any) -> Shape:
        if not isinstance(tag, str) or not all(isinstance(one, type) and issubclass(one, BaseModel) for one in models):
            instead = "use one type, or models told apart by Field(discriminator='...')"
            raise UnsupportedType(where=where, type="a union", instead=instead)
        records = {model: self.record(model, f"{where}({model.__name__})") for model in models}
        kinds = [(model, kind) for model in models for kind in get_args(model.model_fields[tag].annotation)]
        return one_of(tag, records, {getattr(kind, "value", kind): model for model, kind in kinds})

    def _values(self, values: Sequence[Any], name: str, owner: object, where: str) -> Shape:
        """Enum or Literal: an Avro enum where its values can be symbols, else the values' own type."""
        kinds = {type(value) for value in values}
        if len(kinds) > 1 or not kinds <= {str, int, bool}:
            listed = "values of " + " and ".join(sorted(kind.__name__ for kind in kinds))
            raise UnsupportedType(where=where, type=listed, instead="use values of one type: str, int or bool")
        schema = PLAIN[kinds.pop()]
        if schema == "string" and all(_NAME.fullmatch(value) for value in values):
            symbols = list(dict.fromkeys(values))
            schema = {"type": "enum", "name": name, "symbols": symbols} if self._own(name, owner, where) else name
        return Shape(schema, _value_of if isinstance(owner, type) else None, flat=True)

    def _own(self, name: str, owner: object, where: str) -> bool:
        """Take a name in the schema; False when its owner has defined it already."""
        known = name in self._owners
        if self._owners.setdefault(name, owner) != owner:
            raise UnsupportedType(where=where, type=name, instead="two types of one call have this name; rename one")
        return not known

    @contextmanager
    def _inside(self, kind: Any, where: str) -> Iterator[None]:
        if kind in self._within:
            raise UnsupportedType(where=where, type=kind.__name__, instead="it holds itself; pass ids, or a flat list")
        self._within.append(kind)
        yield
        self._within.pop()


def class_name(kind: type) -> str:
    """A class' name inside its module; brackets and dots of generic and nested classes become _."""
    return _identifier(kind.__qualname__.rpartition("<locals>.")[2])


def _check_model(model: type[BaseModel], where: str) -> None:
    model.model_rebuild()  # annotations that were ahead of their classes; nothing when complete
    if getattr(model, "__pydantic_root_model__", False):
        raise UnsupportedType(where=where, type="a root model", instead="use the type that it wraps")
    if model.model_config.get("extra") == "allow":
        instead = "name its fields: what has no name would be lost on the way"
        raise UnsupportedType(where=where, type="a model with extra='allow'", instead=instead)
    if model.model_computed_fields:
        instead = "make them plain properties: they would be stored as if decided"
        raise UnsupportedType(where=where, type="a model with computed fields", instead=instead)


def _check_field(name: str, info: FieldInfo, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise UnsupportedType(where=where, type=name, instead="use a name of letters, digits and _")
    if info.exclude:
        raise UnsupportedType(where=where, type="an excluded field", instead="what is decided is kept whole")


def _check_bytes(model: type[BaseModel], where: str) -> None:
    config = model.model_config
    if not config.get("ser_json_bytes") == config.get("val_json_bytes") == "base64":
        instead = "add ConfigDict(ser_json_bytes='base64', val_json_bytes='base64'): they are kept as JSON too"
        raise UnsupportedType(where=where, type="bytes", instead=instead)


def _dumped(model: type[BaseModel], name: str, default: Any) -> Json:
    """A field's default in its JSON form."""
    made = model.__new__(model)  # not constructed: neither other defaults nor hooks belong here
    vars(made)[name] = default
    return made.model_dump(mode="json", include={name}, by_alias=False, warnings=False)[name]


def _unsupported(kind: Any, where: str) -> UnsupportedType:
    plain = isinstance(kind, type) and get_origin(kind) is None
    name = kind.__name__ if plain else str(kind).replace("typing.", "")
    return UnsupportedType(where=where, type=name, instead=_INSTEAD.get(name.partition("[")[0], f"use {_SUPPORTED}"))


def _value_of(value: Any) -> Any:
    return getattr(value, "value", value)  # already the bare value under use_enum_values


def _identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")


def _is_text(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        return _is_text(get_args(kind)[0])
    return kind is str
