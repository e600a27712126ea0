"""A ledger row becomes the outcome that its status names."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from deedbox.errors import UnreadableStored
from deedbox.outcomes import Cancelled, Done, GaveUp, InDoubt, Outcome, Pending, Refused, Rejected, outcome_of
from deedbox.stored import from_stored, to_stored


class Receipt(BaseModel):
    model_config = ConfigDict(strict=True, ser_json_bytes="base64", val_json_bytes="base64")

    id: UUID
    paid: Decimal = Field(default=Decimal(0), max_digits=9, decimal_places=2, alias="amountPaid")
    proof: bytes = b""


RECEIPT = {"id": "00000000-0000-0000-0000-000000000007", "paid": "49.00", "proof": "_w=="}


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        ("refused", {"code": "card_declined", "message": "no funds"}, Refused("card_declined", "no funds")),
        ("gave_up", {"reason": "10 attempts"}, GaveUp("10 attempts")),
        ("rejected", {"reason": "too much"}, Rejected("too much")),
        ("cancelled", {"message": "aborted"}, Cancelled("aborted")),
        ("in_doubt", {"reason": "no answer"}, InDoubt("no answer")),
        ("in_doubt", None, InDoubt("")),
        ("held", None, Pending("held")),
        ("running", None, Pending("running")),
        ("retry", {"reason": "connection refused"}, Pending("retry")),
    ],
)
def test_a_status_becomes_its_type(status: str, error: dict[str, Any] | None, outcome: Outcome[Receipt]) -> None:
    assert outcome_of(status, None, error, Receipt) == outcome


def test_a_result_is_read_from_json_even_by_a_strict_model() -> None:
    outcome = outcome_of("done", RECEIPT, None, Receipt)
    assert isinstance(outcome, Done)
    assert outcome.result == Receipt(id=UUID(int=7), amountPaid=Decimal("49.00"), proof=b"\xff")


def test_a_result_that_no_longer_fits_says_what_does_not() -> None:
    with pytest.raises(UnreadableStored, match=r"Receipt: id: Field required"):
        outcome_of("done", {"paid": "1.00"}, None, Receipt)


def test_what_is_stored_comes_back_under_the_names_of_fields() -> None:
    receipt = from_stored('{"id": "00000000-0000-0000-0000-000000000007", "paid": "1.00", "gone": 1}', Receipt)
    assert to_stored(receipt) == '{"id":"00000000-0000-0000-0000-000000000007","paid":"1.00","proof":""}'
