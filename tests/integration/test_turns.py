"""One turn is one decision, and a decision is something that was given."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from deedbox import AsyncDeedbox, Deedbox, user
from deedbox.errors import NothingDecided, TurnOver
from tests.support.shop import TOOLS, Shop, asks, charge, says

HELLO = [user("go")]
ONE = asks(charge(customer="c", cents=1))


def _steps(conn: psycopg.Connection) -> Any:
    return [n for (n,) in conn.execute("SELECT n FROM step ORDER BY n")]


def test_no_reply_decides_nothing(box: Deedbox, conn: psycopg.Connection) -> None:  # I2
    """A reply of None would have ended the run for good."""
    for turn in box.run("r", messages=HELLO):
        with pytest.raises(NothingDecided, match="reply"), turn.transaction(None):
            pytest.fail("the block is not reached")
        with pytest.raises(NothingDecided):
            turn.commit()
        break
    assert _steps(conn) == [0]


def test_code_without_a_model_ends_a_run_with_an_empty_list(box: Deedbox) -> None:
    run = box.run("r", messages=HELLO)
    for turn in run:
        turn.commit(calls=[])
    assert run.finished


def test_a_turn_is_committed_once(box: Deedbox, conn: psycopg.Connection) -> None:  # I2
    for turn in box.run("r", messages=HELLO):
        with turn.transaction(ONE):
            pass
        with pytest.raises(TurnOver, match="next turn"), turn.transaction(says("done")):
            pytest.fail("the block is not reached")
        with pytest.raises(TurnOver):
            turn.commit(says("done"))
        break
    assert _steps(conn) == [0, 1]


async def test_so_it_is_in_asyncio(shop: Shop, conn: psycopg.Connection) -> None:  # I2
    async with AsyncDeedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:
        async for turn in await box.run("r", messages=HELLO):
            with pytest.raises(NothingDecided):
                await turn.commit()
            await turn.commit(ONE)
            with pytest.raises(TurnOver):
                async with turn.transaction(says("done")):
                    pytest.fail("the block is not reached")
            break
    assert _steps(conn) == [0, 1]


def test_a_turn_that_was_rolled_back_can_be_decided_again(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    for turn in box.run("r", messages=HELLO):
        with pytest.raises(ZeroDivisionError), turn.transaction(ONE):
            raise ZeroDivisionError
        with shop.connect() as own:
            with pytest.raises(ZeroDivisionError), own.transaction():
                turn.commit(ONE, on=own)
                raise ZeroDivisionError
        turn.commit(says("done"))
    assert _steps(conn) == [0, 1]
