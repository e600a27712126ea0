"""What became of a call, as types: match on them.

`InDoubt` and `Pending` are not final. Only `Done` carries a result; only `Refused` is the provider's own no.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from deedbox.stored import from_stored

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Done(Generic[R_co]):
    """The tool did it and answered `result`."""

    result: R_co


@dataclass(frozen=True)
class Refused:
    """The provider said no, and will say no again: nothing happened."""

    code: str
    message: str


@dataclass(frozen=True)
class GaveUp:
    """The attempts are used up and it is known that nothing is still under way; a dead letter tells why."""

    reason: str


@dataclass(frozen=True)
class Rejected:
    """A person or a rule said no before anything was sent."""

    reason: str


@dataclass(frozen=True)
class Cancelled:
    """Withdrawn before anything was sent."""

    reason: str


@dataclass(frozen=True)
class InDoubt:
    """It may have happened and nobody knows yet; never tell a model that it failed (I11)."""

    reason: str


@dataclass(frozen=True)
class Pending:
    """Not settled yet; `status` is the ledger's word: held, pending, running or retry."""

    status: str


# A union, not a base class: with a base class mypy binds `case Done(result)` to Any.
Outcome: TypeAlias = Done[R] | Refused | GaveUp | Rejected | Cancelled | InDoubt | Pending

_Reasoned: TypeAlias = GaveUp | Rejected | Cancelled | InDoubt
_REASONED: dict[str, type[_Reasoned]] = {
    "gave_up": GaveUp,
    "rejected": Rejected,
    "cancelled": Cancelled,
    "in_doubt": InDoubt,
}


def outcome_of(status: str, result: object, error: Mapping[str, Any] | None, model: type[M]) -> Outcome[M]:
    """The typed outcome of one ledger row.

    `result` is the JSON value of a `done` call, `error` the ledger's object with `reason`, or `code` and `message`.
    Raises UnreadableStored when the result no longer fits the model.
    """
    told = error or {}
    if status == "done":
        return Done(from_stored(json.dumps(result), model))
    if status == "refused":
        return Refused(str(told.get("code", "")), str(told.get("message", "")))
    if status in _REASONED:
        return _REASONED[status](str(told.get("reason") or told.get("message") or ""))
    return Pending(status)
