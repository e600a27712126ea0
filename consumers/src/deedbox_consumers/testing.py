"""For tests of handlers: an attempt without a ledger.

async def test_a_charge_carries_the_key(provider):
    receipt = await charge_customer(Charge(customer="cus_8812", cents=4900), attempt(state=provider))
    assert provider.charges[receipt.id].key == "box:run:1:0"
"""

from __future__ import annotations

from typing import Any

from deedbox_consumers.attempt import Attempt
from deedbox_consumers.clock import now

__all__ = ["attempt"]


def attempt(
    key: str = "box:run:1:0",
    number: int = 1,
    time_left: float = 60.0,
    state: Any = None,
    lost: bool = False,
    *,
    tool: str = "tool",
) -> Attempt:
    """An attempt as a worker would make it.

    key        the idempotency key, `{box}:{run}:{step}:{call}`
    number     which try this is, from 1
    time_left  seconds until its deadline
    state      what the lifespan of the handlers would have yielded
    lost       whether the worker's lease has passed
    tool       the tool's name
    """
    call = key.partition(":")[2] or key
    until = now() + time_left
    return Attempt(key=key, call=call, tool=tool, number=number, until=until, lost=lambda: lost, state=state)
