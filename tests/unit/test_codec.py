"""Bytes on the wire: golden, looked up when unknown, refused when bad."""

from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from deedbox.avro import schema_of
from deedbox.codec import AvroCodec, Codec
from deedbox.errors import BadPayload, UnknownSchema

M = TypeVar("M", bound=BaseModel)


class Charge(BaseModel):
    customer: str
    cents: int


CHARGE = Charge(customer="cus_8812", cents=4900)
GOLDEN = bytes.fromhex("c3017d166d7f8ada0969") + b"\x10cus_8812\xc8L"


def test_the_bytes_of_a_call_never_change() -> None:  # I13
    assert AvroCodec().encode(CHARGE) == GOLDEN


def test_a_models_own_schema_is_always_known() -> None:
    assert AvroCodec().decode(GOLDEN, Charge) == CHARGE


def test_an_unknown_schema_is_named_so_that_it_can_be_looked_up() -> None:
    older = create_model("Charge", customer=(str, ...))
    payload = AvroCodec().encode(older(customer="a"))
    with pytest.raises(UnknownSchema) as caught:
        AvroCodec().decode(payload, Charge)
    assert caught.value.fingerprint == schema_of(older).fingerprint
    assert caught.value.fingerprint.hex() in str(caught.value)


def test_a_schema_that_becomes_known_is_read_with_the_same_codec() -> None:
    newer = create_model("Charge", customer=(str, ...), cents=(int, ...), note=(str, ""))
    payload = AvroCodec().encode(newer(customer="cus_8812", cents=4900, note="n"))
    stored: dict[bytes, str] = {}
    codec = AvroCodec(stored)
    with pytest.raises(UnknownSchema):
        codec.decode(payload, Charge)
    stored[schema_of(newer).fingerprint] = schema_of(newer).json
    assert codec.decode(payload, Charge) == CHARGE


def test_a_lookup_may_be_a_function_and_is_asked_once() -> None:
    newer = create_model("Charge", customer=(str, ...), cents=(int, ...), note=(str, ""))
    asked: list[bytes] = []

    def lookup(fingerprint: bytes) -> str:
        asked.append(fingerprint)
        return schema_of(newer).json

    codec = AvroCodec(lookup)
    payload = codec.encode(newer(customer="cus_8812", cents=4900))
    assert codec.decode(payload, Charge) == codec.decode(payload, Charge) == CHARGE
    assert asked == [schema_of(newer).fingerprint]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc3\x01",
        b"\xc3\x01" + b"\0" * 7,
        b"\x00\x01" + GOLDEN[2:],
        GOLDEN[:-1],
        GOLDEN + b"\0",
        b'{"customer":1}',
    ],
)
def test_a_payload_that_is_cut_or_goes_on_or_is_something_else_is_refused(payload: bytes) -> None:  # I14
    with pytest.raises(BadPayload, match="Charge"):
        AvroCodec().decode(payload, Charge)


def test_values_that_the_model_does_not_take_are_refused_by_name() -> None:  # I14
    loose = create_model("Charge", customer=(str, ...), cents=(str, ...))
    codec = AvroCodec({schema_of(loose).fingerprint: schema_of(loose).json})
    with pytest.raises(BadPayload, match="cents: Input should be a valid integer"):
        codec.decode(codec.encode(loose(customer="a", cents="many")), Charge)


@given(st.binary(max_size=40))
def test_any_bytes_behind_a_known_header_are_read_or_refused(rest: bytes) -> None:  # I14
    with suppress(BadPayload):
        assert isinstance(AvroCodec().decode(GOLDEN[:10] + rest, Charge), Charge)


def test_a_codec_can_wrap_another() -> None:
    class Sealed:
        def __init__(self, inner: Codec) -> None:
            self.inner = inner

        def encode(self, value: BaseModel) -> bytes:
            return bytes(byte ^ 0x5A for byte in self.inner.encode(value))

        def decode(self, payload: bytes, model: type[M]) -> M:
            return self.inner.decode(bytes(byte ^ 0x5A for byte in payload), model)

    codec: Codec = Sealed(AvroCodec())
    assert codec.encode(CHARGE) != GOLDEN
    assert codec.decode(codec.encode(CHARGE), Charge) == CHARGE
