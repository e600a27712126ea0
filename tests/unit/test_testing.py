"""An attempt for the unit test of a handler."""

from __future__ import annotations

from pydantic import BaseModel

from deedbox_consumers import Attempt
from deedbox_consumers.testing import attempt


class Charge(BaseModel):
    """Charge."""

    customer: str
    cents: int


class Receipt(BaseModel):
    id: str


class Provider:
    """What a test puts in a provider's place."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}

    async def charge(self, args: Charge, key: str) -> str:
        self.keys["ch_1"] = key
        return "ch_1"


async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
    return Receipt(id=await attempt.state.charge(args, attempt.key))


async def test_a_handlers_test_is_three_lines() -> None:
    provider = Provider()
    receipt = await charge_customer(Charge(customer="cus_8812", cents=4900), attempt(state=provider))
    assert provider.keys[receipt.id] == "box:run:1:0"


def test_an_attempt_is_as_a_worker_would_make_it() -> None:
    plain = attempt()
    assert (plain.key, plain.call, plain.number, plain.state) == ("box:run:1:0", "run:1:0", 1, None)
    assert plain.tool
    assert attempt(tool="charge_customer").tool == "charge_customer"
    assert (plain.lost, plain.marked) == (False, False)
    assert 0 < plain.time_left <= 60


def test_an_attempt_is_what_the_test_needs() -> None:
    late = attempt("shop:order-7:2:1", number=3, time_left=0, lost=True)
    assert (late.key, late.call, late.number, late.time_left, late.lost) == (
        "shop:order-7:2:1",
        "order-7:2:1",
        3,
        0.0,
        True,
    )
