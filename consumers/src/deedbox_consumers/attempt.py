"""What a handler gets beside the arguments: this try of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbox_consumers.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable


class Attempt:
    """One try of a call.

    key      the idempotency key for the provider, `{box}:{run}:{step}:{call}`; the same at every try (I6)
    call     the call's key in its run, `{run}:{step}:{call}`
    tool     the tool's name
    number   which try this is, from 1
    state    what the lifespan of the handlers yielded
    """

    __slots__ = ("_lost", "_marked", "_until", "call", "key", "number", "state", "tool")

    def __init__(
        self,
        *,
        key: str,
        call: str,
        number: int,
        until: float,
        tool: str = "",
        lost: Callable[[], bool] = lambda: False,
        state: Any = None,
    ) -> None:
        self.key: str = key
        self.call: str = call
        self.tool: str = tool
        self.number: int = number
        self.state: Any = state
        self._until = until  # by the clock of deedbox_consumers.clock
        self._lost = lost
        self._marked = False

    def __repr__(self) -> str:
        return f"Attempt({self.key!r}, number={self.number})"

    @property
    def time_left(self) -> float:
        """Seconds until the attempt's deadline, or until its provider key is not trusted any more; never below 0."""
        return max(0.0, self._until - now())

    @property
    def lost(self) -> bool:
        """Whether this worker's lease has passed: send nothing more. What is returned is still kept."""
        return self._lost()

    def mark_sent(self) -> None:
        """Say that the effect has gone out, in a handler that makes more than one request.

        Call it right before the request that has the effect, or as soon as that one is answered. From then on no
        exception is read for what it says of its own request, such as a refused connection or a 402: it may be about
        another one. What the handler raises in words of its own (Refusal, RetryLater, StoredFailure) still counts.
        """
        self._marked = True

    @property
    def marked(self) -> bool:
        """Whether the handler has said that the effect went out."""
        return self._marked
