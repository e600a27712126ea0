"""The bytes of a call: Avro single-object encoding (`C3 01`, fingerprint, datum).

A codec is two methods, so one can wrap another: an encrypting codec seals what the inner one wrote.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from pydantic import BaseModel

from deedbox.avro import AvroSchema, read, schema_of, write_to
from deedbox.errors import BadPayload, UnknownSchema

M = TypeVar("M", bound=BaseModel)

MARK = b"\xc3\x01"
HEADER = len(MARK) + 8

Writers = Mapping[bytes, str] | Callable[[bytes], "str | None"]


class Codec(Protocol):
    """What turns a model into the bytes of a payload and back."""

    def encode(self, value: BaseModel) -> bytes:
        """The payload; raises UnsupportedType, UnencodableValue."""
        ...

    def decode(self, payload: bytes, model: type[M]) -> M:
        """The model; raises UnknownSchema when the writer's schema must be looked up first, else BadPayload."""
        ...


class AvroCodec:
    """Single-object encoding; `writers` gives the JSON of a schema by its fingerprint (a model's own is known)."""

    def __init__(self, writers: Writers | None = None) -> None:
        lookup = writers if writers is not None else {}
        self._lookup: Callable[[bytes], str | None] = lookup.get if isinstance(lookup, Mapping) else lookup
        self._known: dict[bytes, AvroSchema] = {}

    def encode(self, value: BaseModel) -> bytes:
        """The payload of a model; raises UnsupportedType, UnencodableValue."""
        sink = io.BytesIO()
        sink.write(MARK + schema_of(type(value)).fingerprint)
        write_to(sink, value)
        return sink.getvalue()

    def decode(self, payload: bytes, model: type[M]) -> M:
        """The model in a payload; raises UnknownSchema, BadPayload."""
        if len(payload) < HEADER or payload[:2] != MARK:
            raise BadPayload(model=model.__name__, reason="it does not begin with C3 01 and a fingerprint")
        writer = self._writer(bytes(payload[2:HEADER]), model)
        source = io.BytesIO(payload)
        source.seek(HEADER)
        return read(source, writer, model)

    def _writer(self, fingerprint: bytes, model: type[BaseModel]) -> AvroSchema:
        own = schema_of(model)
        if fingerprint == own.fingerprint:
            return own
        if fingerprint not in self._known:
            text = self._lookup(fingerprint)
            if text is None:
                raise UnknownSchema(fingerprint=fingerprint, hex=fingerprint.hex())
            self._known[fingerprint] = AvroSchema.load(text)
        return self._known[fingerprint]
