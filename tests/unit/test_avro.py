"""What models can travel, how, and which versions of them understand each other."""

import io
import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, NaiveDatetime, RootModel, computed_field, create_model
from typing_extensions import TypeAliasType

from deedbox.avro import AvroSchema, compatible, read, schema_of, settled, to_datum, travelled, write
from deedbox.errors import BadPayload, UnencodableValue, UnstorableNumber, UnsupportedType
from deedbox.stored import from_stored, to_stored


class Color(Enum):
    red = "red"
    green = "green"


class Size(IntEnum):
    small = 1
    large = 2


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


class Bank(BaseModel):
    kind: Literal["bank", "giro"]
    iban: str
    since: datetime | None = None


Way = Annotated[Card | Bank, Field(discriminator="kind")]
Cents = NewType("Cents", int)
Names = TypeAliasType("Names", list[str])


class All(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    text: str
    number: Annotated[int, Field(gt=0)]
    cents: Cents
    share: float
    yes: bool
    raw: bytes
    id: UUID
    price: Decimal = Field(max_digits=12, decimal_places=2)
    at: AwareDatetime
    later: datetime
    day: date
    clock: time
    color: Color
    size: Size
    word: Literal["a", "b"]
    phrase: Literal["a b", "c"]
    level: Literal[1, 2]
    true: Literal[True]
    names: Names
    colors: dict[str, Color]
    card: Card
    way: Way
    ways: list[Way]
    maybe_way: Way | None
    maybe: int | None = None
    old_style: Optional[str] = "x"  # noqa: UP045 - people write it
    discount: Annotated[Decimal, Field(max_digits=4, decimal_places=3)] | None = None


def everything() -> All:
    return All(
        text="é",
        number=2**63 - 1,
        cents=Cents(5),
        share=0.1,
        yes=True,
        raw=b"\0\xff",
        id=UUID(int=1),
        price=Decimal("-1234567890.12"),
        at=datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))),
        later=datetime.max.replace(tzinfo=UTC),
        day=date.min,
        clock=time.max,
        color=Color.green,
        size=Size.large,
        word="b",
        phrase="a b",
        level=2,
        true=True,
        names=["x"],
        colors={"k": Color.red},
        card=Card(number="1"),
        way=Bank(kind="giro", iban="2"),
        ways=[Card(number="3"), Bank(kind="bank", iban="4")],
        maybe_way=Card(number="5"),
        discount=Decimal("0.5"),
    )


def test_every_supported_type_comes_back() -> None:
    value = everything()
    assert travelled(value) == value
    assert json.loads(schema_of(All).json)["fields"][7]["type"] == {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 12,
        "scale": 2,
    }


def test_a_settled_value_comes_back_in_the_same_form() -> None:  # I3
    value = settled(everything())
    assert travelled(value).model_dump_json() == value.model_dump_json()
    assert value.at.tzinfo is UTC
    assert str(value.discount) == "0.500"


class Charge(BaseModel):
    customer: str
    cents: int = Field(gt=0)
    note: str | None = None


def test_the_schema_of_a_model_never_changes() -> None:  # I13
    assert schema_of(Charge).json == (
        '{"type":"record","name":"Charge","fields":[{"name":"customer","type":"string"},'
        '{"name":"cents","type":"long"},{"name":"note","type":["null","string"],"default":null}]}'
    )
    assert schema_of(Charge).fingerprint.hex() == "2e1e767cb790ed1e"
    assert write(Charge(customer="cus_8812", cents=4900)) == b"\x10cus_8812\xc8L\x00"


def test_the_fingerprint_is_the_specifications() -> None:
    assert AvroSchema.load('"int"').fingerprint == (0x7275D51A3F395C8F).to_bytes(8, "little")


def test_a_schema_is_made_once() -> None:
    assert schema_of(Charge) is schema_of(Charge)


def test_names_come_from_classes_alone() -> None:
    T = TypeVar("T")

    class Page(BaseModel, Generic[T]):
        items: list[T]

    class Outer(BaseModel):
        class Inner(BaseModel):
            page: Page[Charge]

        inner: Inner

    names = [found["name"] for found in _records(json.loads(schema_of(Outer).json))]
    assert names == ["Outer", "Outer_Inner", "Page_Charge", "Charge"]


def _records(schema: Any) -> list[Any]:
    found = []
    if isinstance(schema, dict):
        found = [schema] if schema.get("type") == "record" else []
        for part in schema.values():
            found += _records(part)
    elif isinstance(schema, list):
        found = [one for part in schema for one in _records(part)]
    return found


def test_defaults_stand_in_the_schema_as_avro_writes_them() -> None:
    class Defaults(BaseModel):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

        price: Decimal = Field(default=Decimal("-1.5"), max_digits=9, decimal_places=2)
        at: datetime = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        day: date = date(1970, 1, 2)
        clock: time = time(0, 0, 1)
        color: Color = Color.red
        size: Size = Size.large
        id: UUID = UUID(int=0)
        raw: bytes = b"\xff"
        names: list[str] = Field(default_factory=list)
        maybe: str | None = "x"

    fields = {field["name"]: field for field in json.loads(schema_of(Defaults).json)["fields"]}
    assert {name: field["default"] for name, field in fields.items()} == {
        "price": (-150).to_bytes(2, "big", signed=True).decode("latin-1"),
        "at": 1_000_000,
        "day": 1,
        "clock": 1_000_000,
        "color": "red",
        "size": 2,
        "id": "00000000-0000-0000-0000-000000000000",
        "raw": "\xff",
        "names": [],
        "maybe": "x",
    }
    assert fields["maybe"]["type"] == ["string", "null"]  # Avro reads a default as the first branch's
    fastavro.parse_schema(json.loads(schema_of(Defaults).json))


class Node(BaseModel):
    children: "list[Node]"


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


class Computed(BaseModel):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2


def test_two_types_of_one_name_are_refused() -> None:
    first = create_model("Same", a=(int, ...))
    second = create_model("Same", b=(int, ...))
    with pytest.raises(UnsupportedType, match="have this name"):
        schema_of(create_model("Both", one=(first, ...), two=(second, ...)))


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        (Any, "name the type"),
        (object, "name the type"),
        (None, "Optional"),
        (int | str, "discriminator"),
        (Card | Bank, "discriminator"),
        (Decimal, "max_digits=12"),
        (Annotated[Decimal, Field(max_digits=3)], "max_digits=12"),
        (bytes, "base64"),
        (list[bytes], "base64"),
        (timedelta, "int seconds"),
        (NaiveDatetime, "AwareDatetime"),
        (tuple[int, int], "list"),
        (set[str], "list"),
        (list, "list\\[\\.\\.\\.\\]"),
        (dict, "dict\\[str"),
        (dict[int, str], "dict\\[str"),
        (complex, "use str, int"),
        (Literal["a", 1], "one type"),
        (Enum("Mixed", {"a": 1.5}), "one type"),
        (RootModel[list[int]], "the type that it wraps"),
        (Loose, "name its fields"),
        (Computed, "plain properties"),
        (Node, "holds itself"),
        (Annotated[str, Field(exclude=True)], "kept whole"),
    ],
    ids=str,
)
def test_any_other_type_is_refused_by_its_field_with_what_to_use(kind: Any, instead: str) -> None:
    with pytest.raises(UnsupportedType, match=instead) as caught:
        schema_of(create_model("Args", thing=(kind, ...)))
    assert caught.value.where.startswith(("Args.thing", "Node.children"))


def test_none_as_the_default_of_a_type_without_none_is_refused() -> None:
    with pytest.raises(UnsupportedType, match="make the type optional"):
        schema_of(create_model("Args", thing=(int, None)))


def test_a_moment_without_a_zone_is_refused_by_its_field() -> None:
    class At(BaseModel):
        at: datetime

    with pytest.raises(UnencodableValue, match=r"At\.at .* has no UTC offset"):
        settled(At(at=datetime(2026, 1, 1)))  # noqa: DTZ001 - the point


def test_a_time_of_day_with_an_offset_is_refused_by_its_field() -> None:
    class At(BaseModel):
        at: time

    with pytest.raises(UnencodableValue, match=r"At\.at .* has an offset"):
        to_datum(At(at=time(1, tzinfo=UTC)))


def test_an_integer_beyond_64_bits_is_refused_by_its_field() -> None:
    class Deep(BaseModel):
        numbers: list[int]

    with pytest.raises(UnstorableNumber, match=r"Deep\.numbers\[1\] is an integer beyond 64 bits"):
        write(Deep(numbers=[1, 2**63]))


def test_an_amount_with_more_decimals_than_declared_is_never_rounded() -> None:
    class Price(BaseModel):
        price: Decimal = Field(max_digits=6, decimal_places=2)

    with pytest.raises(UnencodableValue, match=r"Price\.price .*1\.005 has more than 6 digits, 2 of them decimals"):
        write(Price.model_construct(price=Decimal("1.005")))
    assert travelled(Price(price=Decimal("1E+3"))).price == 1000
    assert str(settled(Price(price=Decimal("-0"))).price) == "0.00"


def test_a_moment_that_utc_has_no_year_for_is_refused() -> None:
    class At(BaseModel):
        at: datetime

    east = timezone(timedelta(hours=1))
    with pytest.raises(UnencodableValue, match="outside years 1 to 9999"):
        settled(At(at=datetime.min.replace(tzinfo=east)))


def test_what_a_model_is_configured_to_does_not_matter() -> None:
    class Inner(BaseModel):
        model_config = ConfigDict(strict=True, ser_json_bytes="base64", val_json_bytes="base64")

        raw: bytes
        id: UUID

    class Args(BaseModel):
        model_config = ConfigDict(
            strict=True, frozen=True, extra="forbid", use_enum_values=True, alias_generator=str.upper
        )

        color: Color
        inner: Inner
        way: Way
        at: datetime

    given: dict[str, Any] = {
        "COLOR": Color.red,
        "INNER": Inner(raw=b"\xff", id=UUID(int=1)),
        "WAY": Card(number="1"),
        "AT": datetime(2026, 1, 1, tzinfo=UTC),
    }
    value = Args(**given)
    assert travelled(value) == value
    assert from_stored(to_stored(value), Args) == value


def test_a_value_that_no_longer_fits_its_type_is_refused() -> None:
    wrong: Any = {"customer": 7, "cents": "x"}
    with pytest.raises(UnencodableValue, match="Charge"):
        write(Charge.model_construct(**wrong))


# --- any model ----------------------------------------------------------------------------------------------------

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
moments = st.builds(datetime.combine, st.dates(date(2, 1, 1), date(9998, 1, 1)), st.times(timezones=st.timezones()))
scalars: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, text),
    (int, st.integers(min_value=-(2**63), max_value=2**63 - 1)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (UUID, st.uuids()),
    (date, st.dates()),
    (time, st.times()),
    (datetime, moments),
    (Color, st.sampled_from(Color)),
    (Size, st.sampled_from(Size)),
    (Literal["a", "b c"], st.sampled_from(["a", "b c"])),
    (Annotated[Decimal, Field(max_digits=9, decimal_places=3)], st.decimals(-99999, 99999, places=3)),
    (Way, st.builds(Card, number=text) | st.builds(Bank, kind=st.just("bank"), iban=text, since=st.none() | moments)),
]


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """An annotation and the values that it takes."""
    shape = draw(st.sampled_from(["scalar"] * 3 + ["list", "dict", "optional", "model"] * (depth > 0)))
    kind: Any
    values: st.SearchStrategy[Any]
    listed: Any = list
    mapped: Any = dict
    if shape == "scalar":
        kind, values = draw(st.sampled_from(scalars))
        return kind, values
    if shape == "model":
        kind, values = draw(models(depth=depth - 1))
        return kind, values
    kind, values = draw(typed(depth=depth - 1))
    if shape == "list":
        return listed[kind], st.lists(values, max_size=3)
    if shape == "dict":
        return mapped[str, kind], st.dictionaries(text, values, max_size=3)
    return kind | None, st.none() | values


@st.composite
def models(draw: st.DrawFn, depth: int = 2) -> tuple[type[BaseModel], st.SearchStrategy[BaseModel]]:
    fields: dict[str, Any] = {}
    values: dict[str, st.SearchStrategy[Any]] = {}
    for name in draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)):
        kind, possible = draw(typed(depth=depth))
        default = draw(possible) if draw(st.booleans()) else ...
        fields[name], values[name] = (kind, default), possible
    number = draw(st.uuids()).hex
    model = create_model(f"Model_{number}", **fields)
    return model, st.builds(model, **values)


@st.composite
def instances(draw: st.DrawFn) -> BaseModel:
    return draw(draw(models())[1])


@given(instances())
@settings(max_examples=200, deadline=None)
def test_any_supported_model_comes_back_and_settles_to_what_comes_back(value: Any) -> None:
    came_back = travelled(value)
    assert came_back == settled(value)  # not the value: Python finds moments in a fold equal to no other zone's
    assert settled(value).model_dump_json() == came_back.model_dump_json()
    assert settled(came_back).model_dump_json() == came_back.model_dump_json()


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:  # I14
    try:
        value = read(io.BytesIO(payload), schema_of(All), All)
    except BadPayload:
        return
    assert isinstance(value, All)


# --- versions -----------------------------------------------------------------------------------------------------


def model(**fields: Any) -> type[BaseModel]:
    return create_model("Args", **fields)


def reasons(new: type[BaseModel], old: type[BaseModel]) -> list[str]:
    return compatible(schema_of(new), schema_of(old))


BASE = {"customer": (str, ...), "cents": (int, ...)}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"note": (str | None, None)},
        {"note": (str, "none"), "tags": (list[str], Field(default_factory=list))},
        {"tip": (Annotated[Decimal, Field(max_digits=5, decimal_places=2)], Decimal(0))},
    ],
)
def test_fields_with_defaults_may_come_and_go(change: dict[str, Any]) -> None:
    old, new = model(**BASE), model(**BASE, **change)
    assert reasons(new, old) == reasons(old, new) == []
    old_value = old(customer="a", cents=1)
    assert read(io.BytesIO(write(old_value)), schema_of(old), new).model_dump(include={"customer"}) == {"customer": "a"}
    new_value = new(customer="a", cents=1)
    assert read(io.BytesIO(write(new_value)), schema_of(new), old) == old_value


def test_a_reader_drops_what_it_does_not_know_even_if_it_forbids_extra() -> None:
    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid")
        customer: str

    writer = model(**BASE, note=(str, ""))
    payload = write(writer(customer="a", cents=1, note="n"))
    assert read(io.BytesIO(payload), schema_of(writer), Args) == Args(customer="a")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"note": (str, ...)}, "note was added without a default"),
        ({"note": (str, Field(default_factory=lambda: "now"))}, "note was added without a default"),
        ({"cents": (str, ...)}, "cents was long and is string"),
        ({"cents": (datetime, ...)}, "cents was long and is long timestamp-micros"),
        ({"cents": (int | None, ...)}, "cents was long and is long or null"),
        ({"customer": (Literal["a"], ...)}, "customer was string and is enum"),
        ({"customer": (list[str], ...)}, "customer was string and is array"),
    ],
)
def test_what_cannot_be_read_both_ways_is_named(change: dict[str, Any], reason: str) -> None:
    assert reasons(model(**BASE | change), model(**BASE)) == [reason]


def test_a_required_field_that_is_gone_is_named() -> None:
    assert reasons(model(customer=(str, ...)), model(**BASE)) == ["cents was removed and had no default"]


def test_another_number_of_decimals_is_another_type() -> None:
    two = model(price=(Annotated[Decimal, Field(max_digits=9, decimal_places=2)], ...))
    four = model(price=(Annotated[Decimal, Field(max_digits=9, decimal_places=4)], ...))
    assert schema_of(two).fingerprint == schema_of(four).fingerprint  # the specification leaves logical types out
    assert reasons(four, two) == ["price was bytes decimal(9,2) and is bytes decimal(9,4)"]


def test_changes_deep_inside_are_named_by_their_path() -> None:
    def args(*words: str, **more: Any) -> type[BaseModel]:
        word: Any = Literal[words]
        item = create_model("Item", word=(word, ...), **more)
        return model(items=(list[item], ...), by=(dict[str, item], ...), one=(item | None, None))

    places = ["by[]", "items[]", "one"]
    found = reasons(args("a", "b"), args("a"))
    assert found == [f"{place}.word gained or lost the values b" for place in places]
    found = reasons(args("a", size=(int, ...)), args("a"))
    assert found == [f"{place}.size was added without a default" for place in places]


def test_another_class_name_is_another_record() -> None:
    new, old = create_model("New", a=(int, 1)), create_model("Old", a=(int, 1))
    assert reasons(new, old) == ["the record was named Old and is named New"]


def test_infinity_and_nan_travel_as_avro_has_them_and_are_stopped_by_the_digest() -> None:
    class Share(BaseModel):
        share: float

    assert math.isinf(travelled(Share(share=math.inf)).model_dump()["share"])
