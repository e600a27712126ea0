"""A tool is checked where it is defined, a call where it is made: before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from deedbox.codec import AvroCodec
from deedbox.digest import digest_of
from deedbox.effects import Effect, probe, provider_key, repeatable, unrepeatable
from deedbox.errors import (
    EffectsDoNotJoin,
    InvalidArguments,
    InvalidEffect,
    InvalidSettling,
    InvalidTool,
    InvalidToolName,
    PayloadTooLarge,
    StrictSchema,
    TooLong,
    UnreadableStored,
    UnsupportedType,
)
from deedbox.tool import ORDER_KEY_LIMIT, PAYLOAD_LIMIT, Tool


class Charge(BaseModel):
    """Charge the customer's default card."""

    customer: str
    cents: int = Field(gt=0, description="amount in cents")
    note: str | None = None


class Receipt(BaseModel):
    id: str


KEYED = provider_key(timedelta(hours=24))

charge = Tool("charge_customer", args=Charge, result=Receipt, effect=KEYED)


def define(**changes: Any) -> Tool[..., Any, Any]:
    given: dict[str, Any] = {"name": "tool", "args": Charge, "result": Receipt, "effect": repeatable}
    return Tool(**given | changes)


# --- definition ---------------------------------------------------------------------------------------------------


def test_a_tool_says_what_the_model_needs() -> None:
    assert charge.title == "charge_customer"
    assert charge.description == "Charge the customer's default card."
    assert charge.json_schema == {
        "type": "object",
        "properties": {
            "customer": {"type": "string"},
            "cents": {"type": "integer", "exclusiveMinimum": 0, "description": "amount in cents"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["customer", "cents"],
    }


def test_title_and_description_stand_apart_from_the_topic() -> None:
    tool = define(title="Charge-Customer", description="Take money.")
    assert (tool.name, tool.title, tool.description) == ("tool", "Charge-Customer", "Take money.")


class Silent(BaseModel):
    a: int


class Bytes(BaseModel):
    """Send."""

    raw: bytes


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"name": "charge-customer"}, InvalidToolName, "title="),
        ({"title": "charge customer"}, InvalidTool, "64 characters"),
        ({"args": Silent}, InvalidTool, "give Silent a docstring"),
        ({"args": dict}, InvalidTool, "args must be a pydantic model class"),
        ({"result": str}, InvalidTool, "result must be a pydantic model class"),
        ({"args": Bytes}, UnsupportedType, "Bytes.raw"),
        ({"result": Bytes}, UnsupportedType, "Bytes.raw"),
        ({"effect": provider_key(timedelta(minutes=6))}, InvalidTool, "shorten deadline"),
        ({"order_stops": True}, InvalidTool, "give order_by"),
        ({"give_up_after": timedelta(0)}, InvalidTool, "above zero"),
        ({"expires": timedelta(0)}, InvalidTool, "above zero"),
        ({"order_by": "account"}, InvalidTool, "customer, cents"),
        ({"deadline": timedelta(0)}, InvalidTool, "deadline"),
        ({"attempts": 0}, InvalidTool, "attempt"),
    ],
)
def test_a_tool_that_cannot_work_is_refused_where_it_is_defined(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        define(**changes)


def test_a_window_has_to_be_longer_than_its_margin() -> None:
    assert provider_key(timedelta(hours=1)) == Effect(timedelta(hours=1), timedelta(minutes=5))
    with pytest.raises(InvalidEffect, match="longer window"):
        provider_key(timedelta(minutes=5))


@pytest.mark.parametrize("name", ["deadline", "give_up_after", "expires"])
def test_no_time_of_a_tool_leaves_the_calendar(name: str) -> None:
    time: dict[str, Any] = {name: timedelta.max}
    with pytest.raises(TooLong, match=f"{name} .* 3650 days"):
        Tool("charge", args=Charge, result=Receipt, effect=unrepeatable, **time)


def test_nor_does_one_of_an_effect() -> None:
    with pytest.raises(TooLong, match="window"):
        provider_key(timedelta.max)
    with pytest.raises(TooLong, match="settle_after"):
        probe(settle_after=timedelta.max)


def test_a_key_and_a_probe_join_in_either_order_and_nothing_else_does() -> None:
    key, ask = provider_key(timedelta(hours=1), replayed="Replayed"), probe(settle_after=timedelta(minutes=20))
    # What was sent under the key has arrived before the provider may forget it.
    assert key | ask == ask | key == Effect(key.window, timedelta(minutes=20), "Replayed", timedelta(minutes=20))
    with pytest.raises(InvalidEffect, match="longer window"):
        _ = key | probe(settle_after=timedelta(hours=1))
    assert [effect.kind for effect in (key, ask, key | ask, repeatable, unrepeatable)] == [
        "provider_key",
        "probe",
        "provider_key+probe",
        "repeatable",
        "unrepeatable",
    ]
    for one, other in [(key, key), (ask, ask), (key, repeatable), (unrepeatable, ask), (key | ask, ask)]:
        with pytest.raises(EffectsDoNotJoin, match="cannot both hold"):
            _ = one | other
    with pytest.raises(InvalidSettling, match="or more"):
        probe(settle_after=timedelta(seconds=-1))


# --- strict -------------------------------------------------------------------------------------------------------


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sku: str
    count: int


class Order(BaseModel):
    """Order."""

    model_config = ConfigDict(extra="forbid")

    lines: list[Line]
    way: Literal["air", "sea"]
    note: str | None


def test_a_strict_tool_is_taken_when_every_strict_mode_takes_it() -> None:
    tool = define(args=Order, strict=True)
    assert tool.json_schema["additionalProperties"] is False
    assert tool.json_schema["required"] == ["lines", "way", "note"]


class Limited(BaseModel):
    """Limited."""

    model_config = ConfigDict(extra="forbid")

    cents: int = Field(gt=0)


class Defaulted(BaseModel):
    """Defaulted."""

    model_config = ConfigDict(extra="forbid")

    note: str = ""


class Keyed(BaseModel):
    """Keyed."""

    model_config = ConfigDict(extra="forbid")

    words: dict[str, str]


class Nested(BaseModel):
    """Nested."""

    model_config = ConfigDict(extra="forbid")

    lines: list[Silent]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (Limited, r"args\.cents uses exclusiveMinimum"),
        (Defaulted, r"args\.note has a default"),
        (Keyed, r"args\.words takes extra keys"),
        (Charge, r"args takes extra keys"),
        (Nested, r"Silent takes extra keys"),
    ],
)
def test_a_strict_tool_that_a_provider_would_refuse_is_refused_by_its_field(args: type[BaseModel], words: str) -> None:
    with pytest.raises(StrictSchema, match=words):
        define(args=args, strict=True)


# --- calls --------------------------------------------------------------------------------------------------------


def test_a_call_carries_arguments_digest_and_bytes() -> None:  # I3 I13
    call = charge(customer="cus_8812", cents=4900)
    assert call.tool is charge
    assert call.args == Charge(customer="cus_8812", cents=4900)
    assert call.digest == digest_of("charge_customer", call.args)
    assert call.stored == '{"customer":"cus_8812","cents":4900,"note":null}'
    assert AvroCodec().decode(call.payload(AvroCodec()), Charge) == call.args
    assert (call.key, call.id, call.order_key) == (None, None, None)


def test_what_the_model_wrote_is_the_same_call() -> None:  # I3
    call = charge(customer="cus_8812", cents=4900)
    assert charge.parse('{"customer": "cus_8812", "cents": 4900}') == call
    assert charge.parse({"customer": "cus_8812", "cents": 4900, "note": None}) == call
    assert charge.recall(call.stored) == call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"customer": "a", "cents": 0}', "cents: Input should be greater than 0"),
        ('{"customer": "a"}', "cents: Field required"),
        ('{"customer": 7, "cents": "x"}', "customer: .*; cents: "),
        ('{"customer": "a", "cents"', "arguments: Invalid JSON"),
        ("", "customer: Field required"),
        ("[]", "arguments: Input should be an object"),
        ({"customer": "a\0", "cents": 1}, r"customer holds a NUL"),
        ('{"customer": "\\ud800", "cents": 1}', "Invalid JSON"),
        ({"customer": "\ud800", "cents": 1}, "Invalid JSON"),
        ({"customer": "a", "cents": 2**63}, "beyond 64 bits"),
        ("[" * 5000, "recursion limit"),
    ],
)
def test_arguments_that_do_not_fit_are_told_in_words_the_model_can_act_on(arguments: Any, words: str) -> None:  # I14
    with pytest.raises(InvalidArguments, match=words) as caught:
        charge.parse(arguments)
    assert "charge_customer" in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_arguments_that_do_not_fit_are_refused_in_code_too() -> None:
    with pytest.raises(InvalidArguments, match="cents: Input should be greater than 0"):
        charge(customer="a", cents=-1)


def test_a_call_without_arguments_may_be_written_as_nothing() -> None:
    class Ping(BaseModel):
        """Ping."""

    ping = define(args=Ping)
    assert ping.parse("") == ping.parse("{}") == ping()
    assert ping().payload(AvroCodec())[10:] == b""


def test_stored_arguments_are_read_with_todays_model() -> None:  # I3
    class Older(BaseModel):
        """Charge."""

        customer: str
        cents: int

    older = Tool("charge_customer", args=Older, result=Receipt, effect=KEYED)
    call = older(customer="a", cents=1)
    assert charge.recall(call.stored).digest == call.digest
    with pytest.raises(UnreadableStored, match="cents: Field required"):
        charge.recall('{"customer": "a"}')


class Aliased(BaseModel):
    """Charge."""

    customer: str = Field(alias="customerId")


def test_an_alias_is_between_the_model_and_us() -> None:  # I3
    tool = define(args=Aliased, order_by="customer")
    assert list(tool.json_schema["properties"]) == ["customerId"]
    call = tool.parse('{"customerId": "cus_1"}')
    assert call == tool(customerId="cus_1")
    assert call.stored == '{"customer":"cus_1"}'
    assert tool.recall(call.stored) == call
    assert call.order_key == "cus_1"
    assert AvroCodec().decode(call.payload(AvroCodec()), Aliased) == call.args


class Fee(BaseModel):
    """Fee."""

    at: datetime
    fee: Decimal = Field(default=Decimal(1), max_digits=9, decimal_places=2)
    days: list[datetime] = []


def test_one_moment_and_one_amount_have_one_digest_however_they_are_written() -> None:  # I3
    tool = define(args=Fee)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    there = noon.astimezone(timezone(timedelta(hours=5)))
    plain = tool(at=noon, fee=Decimal("1.5"), days=[noon])
    other = tool(at=there, fee=Decimal("1.500"), days=[there])
    assert plain.digest == other.digest
    codec = AvroCodec()
    assert digest_of("tool", codec.decode(other.payload(codec), Fee)) == other.digest
    assert tool(at=noon).digest == tool(at=there, fee=Decimal("1.0")).digest


def test_a_moment_without_a_zone_is_told_to_the_model() -> None:
    with pytest.raises(InvalidArguments, match=r"Fee\.at .* has no UTC offset"):
        define(args=Fee).parse('{"at": "2026-01-01T12:00:00"}')


def test_a_validator_that_changes_what_it_accepted_is_found_at_the_first_call() -> None:
    class Dollars(BaseModel):
        """Charge."""

        cents: int

        @field_validator("cents")
        @classmethod
        def in_cents(cls, value: int) -> int:
            return value * 100

    with pytest.raises(InvalidTool, match="validators of Dollars change"):
        define(args=Dollars)(cents=49)


def test_a_validator_that_tidies_up_is_fine() -> None:
    class Tidy(BaseModel):
        """Charge."""

        name: str

        @field_validator("name")
        @classmethod
        def tidy(cls, value: str) -> str:
            return value.strip().lower()

    assert define(args=Tidy)(name=" A ").args == Tidy(name="a")


class Zone(Enum):
    north = "north"


class Keys(BaseModel):
    """Keys."""

    text: str = ""
    number: int = 0
    zone: Zone = Zone.north
    id: UUID = UUID(int=1)
    maybe: str | None = None


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("text", "acct_1", "acct_1"),
        ("text", "", None),
        ("number", 7, "7"),
        ("zone", Zone.north, "north"),
        ("id", UUID(int=2), "00000000-0000-0000-0000-000000000002"),
        ("maybe", None, None),
    ],
)
def test_an_order_key_is_the_fields_value_as_text(field: str, value: Any, key: str | None) -> None:
    assert define(args=Keys, order_by=field)(**{field: value}).order_key == key


def test_an_order_key_that_no_index_takes_is_refused() -> None:  # I14
    with pytest.raises(InvalidArguments, match="text: as an order key"):
        define(args=Keys, order_by="text")(text="x" * (ORDER_KEY_LIMIT + 1))


def test_a_payload_over_the_limit_is_refused() -> None:  # I14
    call = charge(customer="x" * PAYLOAD_LIMIT, cents=1)
    with pytest.raises(PayloadTooLarge, match=r"charge_customer take 9000\d\d bytes of the 900000") as caught:
        call.payload(AvroCodec())
    assert caught.value.limit == PAYLOAD_LIMIT
