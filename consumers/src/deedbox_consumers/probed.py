"""What a probe finds out about an earlier attempt: whether it happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Happened(Generic[R_co]):
    """It happened, and this is the tool's result."""

    result: R_co


@dataclass(frozen=True)
class DidNotHappen:
    """It did not happen, and the provider would know if it had.

    What the provider only might not show yet is CannotTell; a request that may still be on its way is the ledger's
    worry: it waits until the last attempt is settled before it believes this.
    """


@dataclass(frozen=True)
class CannotTell:
    """The provider could not be asked, or does not know; it is asked again later."""

    reason: str


Probed: TypeAlias = Happened[R] | DidNotHappen | CannotTell
