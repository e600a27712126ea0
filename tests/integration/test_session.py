"""A worker's connection, which is made anew whenever it is lost, until it is closed."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from deedbox.statements import Statements
from deedbox_consumers.session import Session, SessionClosed
from tests.support.fleet import wait_until
from tests.support.shop import Shop

NAME = "deedbox-worker test"


@pytest.fixture
def say(shop: Shop) -> Statements:
    return Statements("deedbox_consumers", "worker.sql", shop.schema)


@pytest.fixture
def session(shop: Shop, say: Statements) -> Session:
    return Session(shop.url, NAME, say["session"])


async def test_one_that_was_closed_connects_no_more(
    session: Session, say: Statements, conn: psycopg.Connection
) -> None:
    await session.open()
    assert len(await session.rows(say["box"])) == 1
    await session.close()
    for ask in (session.rows, session.once):
        with pytest.raises(SessionClosed):
            await ask(say["box"])
    there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    await asyncio.to_thread(wait_until, lambda: conn.execute(there, [NAME]).fetchone() == (0,))


async def test_one_that_is_closed_while_it_connects_leaves_no_connection(session: Session, say: Statements) -> None:
    asked = asyncio.create_task(session.rows(say["box"]))
    await asyncio.sleep(0)
    await session.close()
    with pytest.raises(SessionClosed):
        await asked


async def test_two_who_find_it_lost_get_the_same_new_one(
    session: Session, say: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [asyncio.create_task(session.once(say["box"])) for _ in range(2)]
    made: list[object] = []
    connect = session._connect

    async def count() -> psycopg.AsyncConnection[tuple[object, ...]]:
        made.append(None)
        return await connect()

    monkeypatch.setattr(session, "_connect", count)
    await asyncio.gather(*asked)
    await session.close()
    assert len(made) == 1


async def test_that_nobody_answers_is_said_once_until_somebody_does(
    session: Session, say: Statements, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect, away = session._connect, True

    async def perhaps() -> psycopg.AsyncConnection[tuple[object, ...]]:
        if away:
            raise psycopg.OperationalError("connection refused")
        return await connect()

    monkeypatch.setattr(session, "_connect", perhaps)

    def said() -> int:
        return caplog.text.count("Postgres does not answer (connection refused)")

    for times in (1, 2):
        for _ in range(3):
            with pytest.raises(psycopg.OperationalError):
                await session.once(say["box"])
        assert said() == times
        away = False
        await session.once(say["box"])
        assert session._conn is not None
        await session._conn.close()
        away = True
    await session.close()
