"""Deedbox for code that blocks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

from deedbox.core import BoxCore, first_step, must_open
from deedbox.errors import StepTaken
from deedbox.ledger import Ledger
from deedbox.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    import psycopg


class Deedbox(BoxCore):
    """A box, from the side of an agent that blocks; its parameters are BoxCore's.

    It owns at most four connections and one that listens: a model's answer or an approval of three days pins none.
    """

    @functools.cached_property
    def _ledger(self) -> Ledger:
        ledger = Ledger(self)
        atexit.register(_close, weakref.ref(ledger))
        return ledger

    def run(self, run_id: str, *, messages: Iterable[Any] = (), patience: timedelta | None = None) -> Run:
        """Open the run `run_id` with its first messages, or resume it.

        `patience` bounds each wait for open calls; without it a run waits as long as it takes. Raises InvalidRunId,
        UnknownRun, RunTaken, and NotReady when the database is not as it must be.
        """
        step = first_step(run_id, messages)
        if must_open(step, self._ledger.find(run_id)):
            try:
                with self._ledger.single() as conn:
                    self._ledger.commit(conn, step)
            except StepTaken:  # somebody was quicker: with the same messages?
                must_open(step, self._ledger.find(run_id))
        run = Run(self, self._ledger, run_id, patience)
        self._ledger.read(run.journal)
        return run

    def connection(self) -> contextlib.AbstractContextManager[psycopg.Connection]:
        """A connection of the box's pool, inside a transaction that commits at the end of the block."""
        return self._ledger.connection()

    def close(self) -> None:
        """Give the connections back. A closed box opens again when it is used."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close(ledger: weakref.ref[Ledger]) -> None:
    if (alive := ledger()) is not None:
        alive.close()
