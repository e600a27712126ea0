"""What type checkers must accept and refuse of the public API; checked, never run.

A line that must be an error carries one ignore for mypy and one for pyright. Both checkers report an ignore that is
not needed, so an error that is lost is itself an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, assert_type

from pydantic import BaseModel, Field

from deedbox.avro import schema_of
from deedbox.chat import Answer, Asked, Chat, anthropic_chat, openai_chat, openai_responses, plain, user
from deedbox.codec import AvroCodec, Codec
from deedbox.effects import Effect, provider_key, repeatable
from deedbox.outcomes import Cancelled, Done, GaveUp, InDoubt, Outcome, Pending, Refused, Rejected, outcome_of
from deedbox.tool import Call, Tool
from deedbox_consumers import (
    Attempt,
    CannotTell,
    DidNotHappen,
    Handlers,
    Happened,
    Limits,
    Perform,
    Probed,
)


class Charge(BaseModel):
    """Charge the customer's default card."""

    customer: str
    cents: int = Field(gt=0)
    note: str | None = None


class Receipt(BaseModel):
    id: str


charge = Tool("charge_customer", args=Charge, result=Receipt, effect=provider_key(timedelta(hours=24)))


# --- a call is typed by its arguments model -----------------------------------------------------------------------

assert_type(charge(customer="cus_8812", cents=4900), Call[Charge, Receipt])
assert_type(charge(customer="cus_8812", cents=4900).args, Charge)
assert_type(charge(customer="cus_8812", cents=4900).args.cents, int)
assert_type(charge.parse("{}"), Call[Charge, Receipt])
assert_type(charge.parse({"customer": "cus_8812"}), Call[Charge, Receipt])
assert_type(charge.recall("{}"), Call[Charge, Receipt])
assert_type(charge.call(Charge(customer="a", cents=1)), Call[Charge, Receipt])

charge(customer="cus_8812", cents="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge(customer="cus_8812", cent=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge(customer="cus_8812")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge("cus_8812", 4900)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge.call(Receipt(id="r"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- a tool is typed where it is defined --------------------------------------------------------------------------

Tool("t", args=Charge, result=Receipt)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Tool("t", args=Charge, result=Receipt, effect="repeatable")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Tool("t", args=Charge, result=str, effect=repeatable)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
Tool("t", args=dict, result=Receipt, effect=repeatable)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
Tool("t", args=Charge, result=Receipt, effect=repeatable, deadline=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

assert_type(repeatable, Effect)
assert_type(charge.args, type[Charge])
assert_type(charge.result, type[Receipt])


def takes_any(tools: list[Tool[..., Any, Any]]) -> None:
    """Tools of every kind are one list."""
    openai_chat.tools(tools)


takes_any([charge, Tool("look_up", args=Receipt, result=Charge, effect=repeatable, description="Look up.")])


# --- an outcome is matched whole ----------------------------------------------------------------------------------


def told(outcome: Outcome[Receipt]) -> str:
    """Every outcome has its words; `Done` knows its result."""
    match outcome:
        case Done(result):
            assert_type(result, Receipt)
            return result.id
        case Refused(code, message):
            return f"{code}: {message}"
        case GaveUp(reason) | Rejected(reason) | Cancelled(reason) | InDoubt(reason):
            assert_type(reason, str)
            return reason
        case Pending(status):
            return status


def half_told(outcome: Outcome[Receipt]) -> str:  # type: ignore[return]  # pyright: ignore[reportReturnType]
    """A forgotten outcome is an error."""
    match outcome:  # type: ignore[exhaustive-match]
        case Done(result):
            return result.id


assert_type(outcome_of("done", {"id": "r"}, None, Receipt), Outcome[Receipt])
told(outcome_of("done", {}, None, Charge))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- codecs, chats ------------------------------------------------------------------------------------------------

codec: Codec = AvroCodec({schema_of(Charge).fingerprint: schema_of(Charge).json})
assert_type(codec.decode(b"", Charge), Charge)
assert_type(charge(customer="a", cents=1).payload(codec), bytes)


def looked_up(fingerprint: bytes) -> str | None:
    """A lookup in place of a mapping."""
    return None if fingerprint else ""


AvroCodec(looked_up)
AvroCodec({"c301": "{}"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]

dialects: list[Chat] = [openai_chat, openai_responses, anthropic_chat]
reply: Mapping[str, Any] = {}
assert_type(openai_chat.calls(plain(reply)), list[Asked])
assert_type(openai_chat.answers(plain(reply), [Answer("done")]), list[dict[str, Any]])
assert_type(user("Charge cus_8812 49.00"), dict[str, Any])
openai_chat.answers(plain(reply), ["done"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


# --- handlers, probes, middleware ---------------------------------------------------------------------------------


async def timing(args: BaseModel, attempt: Attempt, perform: Perform) -> Any:
    """A middleware, in any words for its arguments."""
    return await perform(args, attempt)


def not_async(args: BaseModel, attempt: Attempt, perform: Perform) -> BaseModel:
    """No middleware."""
    raise NotImplementedError


handlers = Handlers(middleware=[timing])
Handlers(middleware=[not_async])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
Handlers(middleware=[lambda args: args])  # type: ignore[list-item, misc]  # pyright: ignore[reportArgumentType]


@handlers.handle(charge, limits=Limits(concurrency=8, rate=50, per=timedelta(minutes=1), breaker=5))
async def charge_customer(args: Charge, attempt: Attempt) -> Receipt:
    """It stays what it was."""
    attempt.mark_sent()
    assert_type(attempt.marked, bool)
    return Receipt(id=attempt.key)


@handlers.probe(charge)
async def was_charged(args: Charge, attempt: Attempt) -> Probed[Receipt]:
    """Each answer by its name."""
    if args.cents == 1:
        return Happened(Receipt(id=attempt.key))
    return DidNotHappen() if args.cents else CannotTell("the provider is down")


@handlers.probe(charge)
def was_charged_in_a_thread(args: Charge, attempt: Attempt) -> Happened[Receipt] | CannotTell:
    """Sync, and only some of the answers."""
    return CannotTell("no")


assert_type(Happened(Receipt(id="r")).result, Receipt)
handlers.handle(charge, limits=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
handlers.handle(charge, Limits())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Limits(per=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@handlers.handle(charge)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def gives_something_else(args: Charge, attempt: Attempt) -> Charge:
    """Not the tool's result."""
    return args


@handlers.probe(charge)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def gives_the_bare_result(args: Charge, attempt: Attempt) -> Receipt:
    """A probe says whether; a result alone does not."""
    return Receipt(id="r")


@handlers.probe(charge)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def gives_another_result(args: Charge, attempt: Attempt) -> Happened[Charge]:
    """Not the tool's result."""
    return Happened(args)


@handlers.probe(charge)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def asks_nobody(args: Charge) -> DidNotHappen:
    """It takes the attempt, too: its key is what to ask for."""
    return DidNotHappen()
