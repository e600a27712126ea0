"""The sweep's turns: what counts as one that got on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from deedbox_consumers.cli.sweep import _note
from deedbox_consumers.health import Progress
from deedbox_consumers.ledger import Swept
from deedbox_consumers.sweep import sweep
from tests.support.hurried import run_hurried


class Turns:
    """A ledger whose turns come to what the test says; after the last one nothing is asked any more."""

    def __init__(self, *turns: Sequence[Swept] | Exception) -> None:
        self._turns = list(turns)
        self.over = asyncio.Event()

    async def sweep(self) -> Sequence[Swept]:
        if not self._turns:
            self.over.set()
            await asyncio.Event().wait()
        turn = self._turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn


async def _swept(ledger: Any, lanes: Any = None, tools: Sequence[str] = ()) -> list[bool]:
    """What is noted of all its turns."""
    noted: list[bool] = []
    task = asyncio.create_task(sweep(ledger, lanes, tools, noted.append))
    await ledger.over.wait()
    task.cancel()
    return noted


def test_a_turn_that_comes_to_nothing_is_told_from_one_that_succeeds() -> None:
    away = psycopg.OperationalError("connection refused")
    assert run_hurried(_swept(Turns(away, [], away, []))) == [False, True, False, True]


def test_to_the_sweep_as_a_process_only_success_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("deedbox_consumers.health.now", lambda: clock[0])
    progress = Progress()
    progress.expect("sweep", timedelta(minutes=5))
    clock[0] = 301.0
    _note(progress, False)
    assert progress.parts()["sweep"].stuck
    _note(progress, True)
    assert not progress.parts()["sweep"].stuck


def test_what_it_sets_free_is_left_to_others_while_a_tool_has_no_room() -> None:
    """It was emitted, too, so it comes back by itself; a lane that is full takes no more than its room."""
    freed = [Swept("retried", tool, uuid4(), "pending") for tool in ("full", "free", "not ours")]

    class Ledger(Turns):
        async def records(self, ids: Sequence[UUID]) -> Sequence[UUID]:
            return ids

    put: list[UUID] = []
    lanes = SimpleNamespace(full=lambda tool: tool == "full", put=put.append)
    run_hurried(_swept(Ledger(freed), lanes, ["full", "free"]))
    assert put == [freed[1].id]
