"""The tools that the agents decide and the workers perform: one for each way in which a repeat can be told."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import httpx2
from pydantic import BaseModel

from deedbox import Call, Tool, probe, provider_key, unrepeatable
from deedbox.effects import Effect
from deedbox_consumers import Attempt, DidNotHappen, Handlers, Happened, Probed
from tests.chaos.provider import CHARGES, REFUNDS, REMEMBERED, TRANSFERS

PROVIDER: Final = "CHAOS_PROVIDER"  # environment: the provider's base URL, as this process is to reach it
ATTEMPTS: Final = 1000  # chaos repeats a call more often than the world does
DEADLINE: Final = timedelta(seconds=3)
# A process that is stopped, a link that is stalled, a provider that is slow: what was sent in time arrives late. No
# fault lasts longer than LONGEST, so that two of them and the provider's own second stay below what tools allow for.
LONGEST: Final = timedelta(seconds=2.5)
SETTLE: Final = timedelta(seconds=6)
FOR_EVER: Final = timedelta(hours=24)
FORGOTTEN: Final = timedelta(seconds=REMEMBERED)


class Pay(BaseModel):
    """Move money."""

    about: str  # the call, as the plan names it: so the books can be compared without a key
    to: str = ""


class Receipt(BaseModel):
    id: str


@dataclass(frozen=True)
class Family:
    """A way to be repeated or not: `path` is where the provider does it."""

    name: str
    path: str
    effect: Effect
    blocks: bool = False  # its handler is a plain function
    order_by: str | None = None
    deadline: timedelta = DEADLINE

    def tool(self, suffix: str = "") -> Tool[..., Pay, Receipt]:
        """A tool of this family."""
        return Tool(
            f"{self.name}{suffix}",
            args=Pay,
            result=Receipt,
            effect=self.effect,
            order_by=self.order_by,
            deadline=self.deadline,
            attempts=ATTEMPTS,
        )

    @property
    def sure(self) -> bool:
        """Whether its key outlives all that happens here, or it can be asked about: nothing is in doubt in the end."""
        return self.effect.window == FOR_EVER or self.asked

    @property
    def asked(self) -> bool:
        """Whether it has a probe."""
        return self.effect.settle_after is not None


def key_for(window: timedelta, margin: timedelta) -> Effect:
    """A key of the provider, which marks the answers that it repeats."""
    return provider_key(window, margin, replayed="Idempotent-Replayed")


CHARGE: Final = Family("charge", CHARGES, key_for(FOR_EVER, SETTLE))
MAIL: Final = Family("mail", CHARGES, key_for(FOR_EVER, SETTLE), blocks=True, order_by="to")
REFUND: Final = Family("refund", REFUNDS, key_for(FORGOTTEN, SETTLE))
INVOICE: Final = Family("invoice", REFUNDS, key_for(FORGOTTEN, SETTLE) | probe(settle_after=SETTLE))
PAYOUT: Final = Family("payout", TRANSFERS, probe(settle_after=SETTLE))
TRANSFER: Final = Family("transfer", TRANSFERS, unrepeatable)
# The same where nothing arrives late: a probe's no can be believed soon, and who starves is not cut off.
AMPLE: Final = timedelta(seconds=20)
DEBIT: Final = Family("debit", CHARGES, key_for(FOR_EVER, SETTLE), deadline=AMPLE)
WIRE: Final = Family("wire", TRANSFERS, unrepeatable, blocks=True, deadline=AMPLE)
ASK: Final = Family("ask", TRANSFERS, probe(settle_after=timedelta(0)))

ALL: Final = (CHARGE, MAIL, REFUND, INVOICE, PAYOUT, TRANSFER)
FAMILIES: Final = {family.name: family for family in (*ALL, DEBIT, WIRE, ASK)}


def family_of(tool: str) -> Family:
    """The family of a tool's name."""
    return FAMILIES[tool.partition("_")[0]]


def tools(suffixes: Iterable[str] = ("",), families: Iterable[Family] = ALL) -> list[Tool[..., Any, Any]]:
    """One tool of each family for each suffix."""
    return [family.tool(suffix) for suffix in suffixes for family in families]


def call(tool: Tool[..., Any, Any], about: str) -> Call[Any, Any]:
    """A call of the tool. Mails go to few, so that they queue."""
    return tool(about=about, to=f"to-{hash_of(about) % 5}")


def hash_of(text: str) -> int:
    """The same in every process, which `hash` is not."""
    return sum((at + 1) * byte for at, byte in enumerate(text.encode()))


def handlers(given: Iterable[Tool[..., Any, Any]]) -> Handlers:
    """A handler for each tool, a probe for those that have one: one request, its answer as the client has it."""
    handlers = Handlers()
    limits = httpx2.Limits(max_connections=None)

    @handlers.lifespan
    async def clients() -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.Client]]:
        base = os.environ[PROVIDER]
        async with httpx2.AsyncClient(base_url=base, limits=limits, verify=False) as beside:
            with httpx2.Client(base_url=base, limits=limits, verify=False) as blocking:
                yield beside, blocking

    def add(tool: Tool[..., Pay, Receipt]) -> None:
        family = family_of(tool.name)

        async def perform(args: Pay, attempt: Attempt) -> Receipt:
            reply = await attempt.state[0].post(family.path, **_request(args, attempt))
            return Receipt.model_validate(reply.raise_for_status().json())

        def perform_blocking(args: Pay, attempt: Attempt) -> Receipt:
            reply = attempt.state[1].post(family.path, **_request(args, attempt))
            return Receipt.model_validate(reply.raise_for_status().json())

        async def ask(_: Pay, attempt: Attempt) -> Probed[Receipt]:
            reply = await attempt.state[0].get(family.path, params={"reference": attempt.key}, timeout=_left(attempt))
            found = reply.raise_for_status().json()["found"]
            return Happened(Receipt(id=found[0])) if found else DidNotHappen()

        handlers.handle(tool)(perform_blocking if family.blocks else perform)
        if family.asked:
            handlers.probe(tool)(ask)

    for tool in given:
        add(tool)
    return handlers


def _request(args: Pay, attempt: Attempt) -> dict[str, Any]:
    return {"json": args.model_dump(), "headers": {"Idempotency-Key": attempt.key}, "timeout": _left(attempt)}


def _left(attempt: Attempt) -> float:
    return max(attempt.time_left, 0.001)
