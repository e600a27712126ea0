"""The tools that the agents decide and the workers perform: one for each way in which a repeat can be told."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import httpx2
from pydantic import BaseModel

from deedbox import Call, Tool, provider_key
from deedbox.effects import Effect
from deedbox.errors import OutcomeUnknown, Refusal, RetryLater
from deedbox_consumers import Attempt, Handlers
from tests.chaos.provider import CHARGES, REFUNDS, REMEMBERED

PROVIDER: Final = "CHAOS_PROVIDER"  # environment: the provider's base URL, as this process is to reach it
DEADLINE: Final = timedelta(seconds=5)
# A stopped process or a stalled link delivers late, at most as long as a fault lasts. No fault lasts longer than this.
LONGEST: Final = timedelta(seconds=4)
ATTEMPTS: Final = 1000  # chaos repeats a call more often than the world does


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

    def tool(self, suffix: str = "") -> Tool[..., Pay, Receipt]:
        """A tool of this family."""
        return Tool(
            f"{self.name}{suffix}",
            args=Pay,
            result=Receipt,
            effect=self.effect,
            order_by=self.order_by,
            deadline=DEADLINE,
            attempts=ATTEMPTS,
        )

    @property
    def sure(self) -> bool:
        """Whether its key outlives all that happens here, so that nothing of it is ever in doubt."""
        return self.effect.window is not None and self.effect.window > timedelta(hours=1)


CHARGE: Final = Family("charge", CHARGES, provider_key(timedelta(hours=24)))
MAIL: Final = Family("mail", CHARGES, provider_key(timedelta(hours=24)), blocks=True, order_by="to")
REFUND: Final = Family("refund", REFUNDS, provider_key(timedelta(seconds=REMEMBERED), margin=LONGEST))
FAMILIES: Final = {family.name: family for family in (CHARGE, MAIL, REFUND)}


def family_of(tool: str) -> Family:
    """The family of a tool's name."""
    return FAMILIES[tool.partition("_")[0]]


def tools(suffixes: Iterable[str] = ("",), families: Iterable[Family] = FAMILIES.values()) -> list[Tool[..., Any, Any]]:
    """One tool of each family for each suffix."""
    return [family.tool(suffix) for suffix in suffixes for family in families]


def call(tool: Tool[..., Any, Any], about: str) -> Call[Any, Any]:
    """A call of the tool. Mails go to few, so that they queue."""
    return tool(about=about, to=f"to-{hash_of(about) % 5}")


def hash_of(text: str) -> int:
    """The same in every process, which `hash` is not."""
    return sum((at + 1) * byte for at, byte in enumerate(text.encode()))


def handlers(given: Iterable[Tool[..., Any, Any]]) -> Handlers:
    """A handler for each tool: one request to the provider, and its answer read as a careful author would."""
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
            return read(await attempt.state[0].post(family.path, **_request(args, attempt)))

        def perform_blocking(args: Pay, attempt: Attempt) -> Receipt:
            return read(attempt.state[1].post(family.path, **_request(args, attempt)))

        handlers.handle(tool)(perform_blocking if family.blocks else perform)

    for tool in given:
        add(tool)
    return handlers


def read(reply: httpx2.Response) -> Receipt:
    """What the provider's answer means."""
    if reply.status_code == 503:
        raise RetryLater(0.2)
    if reply.status_code in {402, 422}:
        raise Refusal(str(reply.status_code), reply.text)
    if reply.status_code != 201:
        raise OutcomeUnknown(f"{reply.status_code}: {reply.text}")
    return Receipt.model_validate_json(reply.content)


def _request(args: Pay, attempt: Attempt) -> dict[str, Any]:
    return {
        "json": args.model_dump(),
        "headers": {"Idempotency-Key": attempt.key},
        "timeout": max(attempt.time_left, 0.001),
    }
