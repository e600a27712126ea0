"""The digest is the decision: golden values hold it still."""

import hashlib
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from deedbox.digest import canonical, check_storable, digest_of
from deedbox.errors import UnstorableNumber, UnstorableText


class Charge(BaseModel):
    customer: str
    cents: int


class ChargeWithNote(BaseModel):
    customer: str
    cents: int
    note: str | None = None
    tags: list[str] = Field(default_factory=list)


class Words(BaseModel):
    words: dict[str, str]


class Speed(Enum):
    fast = "fast"


class Everything(BaseModel):
    id: UUID
    at: datetime
    speed: Speed
    big: int
    share: float
    words: dict[str, str]


def test_the_digest_of_a_plain_call_never_changes() -> None:  # I3
    written = b'{"args":{"cents":4900,"customer":"cus_8812"},"tool":"charge_customer"}'
    digest = digest_of("charge_customer", Charge(customer="cus_8812", cents=4900))
    assert digest == hashlib.sha256(written).digest()
    assert digest.hex() == "182e5be3bd0247c7b8155cb6f13fc8e5d385b50bcea279ddecc27fb00e9235e1"


def test_the_digest_of_every_kind_of_value_never_changes() -> None:  # I3
    args = Everything(
        id=UUID(int=7),
        at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        speed=Speed.fast,
        big=2**53,
        share=0.1,
        words={"ß": "é\n", "a": "😀"},
    )
    written = (
        '{"args":{"at":"2026-11-30T12:00:00Z","big":"9007199254740992","id":"00000000-0000-0000-0000-000000000007",'
        '"share":0.1,"speed":"fast","words":{"a":"😀","ß":"é\\n"}},"tool":"all"}'
    )
    assert digest_of("all", args) == hashlib.sha256(written.encode()).digest()


def test_tool_and_arguments_both_count() -> None:  # I3
    charge = Charge(customer="a", cents=1)
    assert digest_of("charge", charge) != digest_of("refund", charge)
    assert digest_of("charge", charge) != digest_of("charge", Charge(customer="a", cents=2))


def test_a_field_that_gained_a_default_changes_no_recorded_call() -> None:  # I3
    assert digest_of("t", Charge(customer="a", cents=1)) == digest_of("t", ChargeWithNote(customer="a", cents=1))
    assert digest_of("t", ChargeWithNote(customer="a", cents=1, note="")) != digest_of(
        "t", Charge(customer="a", cents=1)
    )


def test_a_default_given_in_words_is_still_the_default() -> None:  # I3
    said = ChargeWithNote(customer="a", cents=1, note=None, tags=[])
    assert digest_of("t", said) == digest_of("t", ChargeWithNote(customer="a", cents=1))


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str = ""


class Bank(BaseModel):
    kind: Literal["bank"] = "bank"
    number: str = ""


class Pay(BaseModel):
    way: Annotated[Card | Bank, Field(discriminator="kind")]
    ways: list[Annotated[Card | Bank, Field(discriminator="kind")]] = []


def test_branches_that_look_alike_without_their_tag_are_told_apart() -> None:  # I3
    assert digest_of("pay", Pay(way=Card(number="1"))) != digest_of("pay", Pay(way=Bank(number="1")))
    assert digest_of("pay", Pay(way=Card(), ways=[Card()])) != digest_of("pay", Pay(way=Card(), ways=[Bank()]))


def test_an_integer_and_its_text_are_two_decisions_in_two_fields() -> None:  # I3
    class Text(BaseModel):
        big: str

    class Number(BaseModel):
        big: int

    # The same words only where JSON has no exact number; no tool has both as one field without being incompatible.
    assert digest_of("t", Text(big="5")) != digest_of("t", Number(big=5))


@pytest.mark.parametrize("number", [2**53 - 1, -(2**53) + 1])
def test_integers_that_json_holds_exactly_stay_numbers(number: float) -> None:
    assert canonical({"n": number}) == f'{{"n":{number}}}'.encode()


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**63 - 1, -(2**63)])
def test_integers_beyond_are_text(number: float) -> None:
    assert canonical({"n": [number]}) == f'{{"n":["{number}"]}}'.encode()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(json_values)
def test_the_fast_way_writes_the_bytes_of_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("args", "where"),
    [
        (Charge(customer="a\0b", cents=1), r"charge\.customer holds a NUL"),
        (ChargeWithNote(customer="a", cents=1, tags=["x", "\ud800"]), r"charge\.tags\[1\] holds half of a surrogate"),
        (Words.model_construct(words={"a\0": "x"}), r"charge\.words, a key holds a NUL"),
    ],
)
def test_text_that_postgres_cannot_store_is_refused_by_its_path(args: BaseModel, where: str) -> None:  # I14
    with pytest.raises(UnstorableText, match=where):
        check_storable(args.model_dump(), "charge")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 2**63, -(2**63) - 1])
def test_numbers_that_cannot_be_stored_are_refused_by_their_path(number: float) -> None:  # I14
    with pytest.raises(UnstorableNumber, match=r"charge\.list\[0\] is"):
        check_storable({"list": [number]}, "charge")


def test_a_digest_is_not_made_of_what_cannot_be_stored() -> None:  # I14
    with pytest.raises(UnstorableText, match=r"charge\.customer"):
        digest_of("charge", Charge(customer="\0", cents=1))
    with pytest.raises(UnstorableNumber, match=r"charge\.cents"):
        digest_of("charge", Charge(customer="", cents=2**63))
