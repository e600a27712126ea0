"""An event loop in which time passes only when nothing else is to be done, and then at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from selectors import SelectorKey
from typing import Any, TypeVar

T = TypeVar("T")


class Hurried(asyncio.SelectorEventLoop):
    """Its clock jumps to the next timer, so an hour's wait is over when all that could come before it has come."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0
        selector: Any = vars(self)["_selector"]
        look = selector.select

        def select(timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
            ready: list[tuple[SelectorKey, int]] = look(timeout if timeout is None else 0)
            if not ready and timeout is not None:
                self._ahead += timeout
            return ready

        selector.select = select

    def time(self) -> float:
        """Seconds since the loop was made, all of them skipped."""
        return self._ahead


def run_hurried(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; what waits for ever is found by the test's own limit."""
    with asyncio.Runner(loop_factory=Hurried) as runner:
        return runner.run(work)


async def all_quiet() -> None:
    """Wait until everything has come as far as it can without time passing."""
    await asyncio.sleep(0.000_001)
