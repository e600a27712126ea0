"""Traps that others fell into and that need no Kafka: leases, late finishers, keys that are stuck, drains."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from deedbox import Deedbox
from deedbox_consumers import Attempt, Worker, desk, jam, worker
from deedbox_consumers.lane import Lanes
from deedbox_consumers.source import poll
from tests.support.fleet import PATIENCE, Provider, decide, ids, outcomes, status, wait_until
from tests.support.shop import Receipt, Shop, charge, lookup, mail


def test_a_key_that_is_stuck_never_slows_other_keys_however_many_wait_behind_it(
    shop: Shop, box: Deedbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many calls wait behind one that hangs as the tool's room has places: the room is for those that get on."""
    monkeypatch.setattr(worker, "ROOM", 5)
    monkeypatch.setattr(jam, "SHORT_OF_ROOM", 0.0)
    monkeypatch.setattr(jam, "EVERY", 0.01)
    provider, go = Provider(), asyncio.Event()

    async def hang(args: Any, _: Attempt) -> None:
        if args.text == "hangs":
            await go.wait()

    provider.on[mail.name] = hang
    loops: list[asyncio.AbstractEventLoop] = []
    provider.on[charge.name] = lambda *_: loops.append(asyncio.get_running_loop())
    # It stands alone: what a commit tells its worker is taken however full the room is.
    alone = Worker(None, provider.handlers(), database_url=shop.url, schema=shop.schema, concurrency=5)
    with alone:
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
        stuck = decide(box, mail(to="stuck@x", text="hangs"), *(mail(to="stuck@x", text=str(n)) for n in range(20)))
        for number in range(3):
            other = decide(box, *(mail(to=f"{number}.{n}@x", text="other") for n in range(20)))
            assert outcomes(box, other) == ["done"] * 20
        loops[0].call_soon_threadsafe(go.set)
        assert outcomes(box, stuck) == ["done"] * 21


def test_nor_does_one_that_is_stuck_in_the_ledger_or_many_of_them(
    shop: Shop, box: Deedbox, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their predecessors are in doubt elsewhere: no lane has claimed anything, and all are blocked."""
    monkeypatch.setattr(worker, "ROOM", 5)
    monkeypatch.setattr(jam, "SHORT_OF_ROOM", 0.0)
    monkeypatch.setattr(jam, "EVERY", 0.01)
    with shop.hands() as hands:
        doubts = [decide(box, mail(to=f"{key}@x", text="in doubt")) for key in range(8)]
        for id_, attempt in hands.take().items():
            hands.finish(id_, attempt, "unknown")
        conn.execute("UPDATE outcome SET status = 'in_doubt', next_at = 'infinity'")
        behind = [decide(box, *(mail(to=f"{key}@x", text=str(n)) for n in range(10))) for key in range(8)]
    provider = Provider()
    with Worker(None, provider.handlers(), database_url=shop.url, schema=shop.schema, concurrency=5):
        for number in range(3):
            other = decide(box, *(mail(to=f"{number}.{n}@y", text="other") for n in range(20)))
            assert outcomes(box, other) == ["done"] * 20
        for doubt in doubts:
            done = '{"id": "x"}'
            conn.execute("SELECT resolve(%s, %s, 'ann', NULL)", [f"{doubt.id}:1:0", done])
        for run in behind:
            assert outcomes(box, run) == ["done"] * 10


def test_calls_that_are_blocked_or_paused_fill_no_page_of_what_is_pending(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """The source poll would bring them again and again, and no other call beside them."""
    with shop.hands() as hands:
        first, *behind = ids(conn, decide(box, *(mail(to="a@x", text=str(n)) for n in range(5))))
        hands.claim([first])
        hands.finish(first, 1, "unknown")
        paused = decide(box, lookup(order="o"))
        (last,) = ids(conn, decide(box, charge(customer="c", cents=1)))
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        conn.execute("UPDATE outcome SET status = 'in_doubt', next_at = 'infinity' WHERE action_id = %s", [first])
        conn.execute("UPDATE tool SET paused = true WHERE name = 'read_order'")
        assert hands.pending() == [last]
        conn.execute("UPDATE tool SET paused = false")
        assert set(hands.pending()) == {last, *ids(conn, paused)}
        # When the doubt is over, all of them come at one look, in their order.
        over = "UPDATE outcome SET status = 'done', unsettled = false, next_at = NULL WHERE action_id = %s"
        conn.execute(over, [first])
        assert [id_ for id_ in hands.pending() if id_ in behind] == behind


def test_calls_of_one_key_that_waited_for_a_worker_are_brought_together(
    shop: Shop, box: Deedbox, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parked by a sweep, since no worker was there for long: one look has to be enough for all of them."""
    monkeypatch.setattr(poll, "WIDE", 3600.0)
    run = decide(box, *(mail(to="a@x", text=str(n)) for n in range(20)))
    conn.execute("UPDATE outcome SET next_at = clock_timestamp() + interval '1 h'")
    provider = Provider()
    with Worker(None, provider.handlers(), database_url=shop.url, schema=shop.schema):
        assert outcomes(box, run) == ["done"] * 20
    assert [int(key.rsplit(":", 1)[1]) for key in provider.requests] == list(range(20))


def test_a_call_that_another_has_done_meanwhile_holds_up_none_behind_it(
    shop: Shop, box: Deedbox, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source poll reads a row after it was told of it: by then the attempt that it could be for may be over."""
    monkeypatch.setattr(desk, "ABSENT_FOR", 3600.0)
    tell: list[Callable[[list[UUID]], object]] = []
    open_ = poll.Poll.open

    async def opened(source: poll.Poll, lanes: Lanes) -> None:
        loop = asyncio.get_running_loop()
        tell.append(lambda ids: loop.call_soon_threadsafe(source.nudge, ids))
        await open_(source, lanes)

    monkeypatch.setattr(poll.Poll, "open", opened)
    done = decide(box, mail(to="a@x", text="1"))
    with shop.hands() as hands:
        hands.do_all()
    with Worker(box, Provider().handlers(), poll=timedelta(hours=1)):
        tell[0](ids(conn, done))
        assert outcomes(box, decide(box, mail(to="a@x", text="2"))) == ["done"]


def test_who_has_lost_its_lease_is_told_and_logged_and_what_it_says_changes_nothing(  # I7 I8
    shop: Shop, box: Deedbox, conn: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """temporalio/sdk-python#1048 and dust-tt/dust#29171: a timed-out activity ran on beside its retry, unnoticed.

    The task is not cancelled: what it knows in the end settles a doubt, so it is told (`attempt.lost`) and kept.
    """
    provider, at_work = Provider(), threading.Event()

    async def until_lost(_: Any, attempt: Attempt) -> Receipt:
        at_work.set()
        while not attempt.lost:  # noqa: ASYNC110 - as a handler does between two of its requests
            await asyncio.sleep(0.01)
        return Receipt(id="of the attempt that was lost")

    provider.on[charge.name] = until_lost
    run = decide(box, charge(customer="c", cents=1))
    with (
        shop.hands() as other,
        caplog.at_level(logging.WARNING, "deedbox.worker"),
        Worker(box, provider.handlers(), lease=timedelta(seconds=1)),
    ):
        assert at_work.wait(PATIENCE)
        # As when this process had been stopped past its lease, and another took the call up.
        conn.execute("DELETE FROM worker WHERE owner <> %s", [other.owner])
        conn.execute("SELECT * FROM judge(%s, 'its worker died')", [ids(conn, run)])
        wait_until(lambda: other.claim(ids(conn, run))[ids(conn, run)[0]] == ("claimed", 2))
        wait_until(lambda: conn.execute("SELECT attempt, status, settled FROM late").fetchall() == [(1, "done", False)])
        assert status(conn, run) == ("running", 2, True)
        other.finish(ids(conn, run)[0], 2, result={"id": "of the other"})
    assert conn.execute("SELECT result ->> 'id' FROM outcome").fetchall() == [("of the other",)]
    assert "judged this worker dead" in caplog.text
    assert "what this attempt knows is kept as late" in caplog.text


def test_the_sweep_takes_up_only_what_nobody_has(  # I5 I7
    shop: Shop, box: Deedbox, conn: psycopg.Connection
) -> None:
    """JasperFx/wolverine#587 and spring-projects/spring-modulith#663: recovery took what had just been inserted."""
    run = decide(box, *(charge(customer="c", cents=cents) for cents in (1, 2, 3)))
    new, at_work, over = ids(conn, run)
    with shop.hands() as hands, shop.hands() as other:
        hands.claim([at_work, over])
        hands.finish(over, 1, result={"id": "x"})
        assert [turn for _ in range(5) for turn in other.sweep() if turn[2] is not None] == []
        assert other.claim([new, at_work]) == {new: ("claimed", 1), at_work: ("running", None)}
    calls = "SELECT count(*) FROM outbox WHERE type = 'call'"
    assert conn.execute(calls).fetchone() == (3,)
