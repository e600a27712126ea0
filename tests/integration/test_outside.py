"""What comes to a run from outside while it goes on: messages, a cancel, an abort. Each is a step in its place."""

from __future__ import annotations

import threading
from typing import Any, Literal

import psycopg
import pytest
from psycopg import sql

from deedbox import AsyncDeedbox, Deedbox, user
from deedbox.chat import Json
from deedbox.errors import NotMessages, RunClosed, StepTaken, Unsettled
from tests.support.commands import Commands
from tests.support.shop import TOOLS, Shop, asks, charge, lookup, says

HELLO = [user("go")]
MORE = user("and be quick")


def decided(box: Deedbox, run_id: str, *calls: Any) -> Any:
    """A run with one decision."""
    run = box.run(run_id, messages=HELLO)
    next(iter(run)).commit(asks(*calls))
    return run


def pay(cents: int = 1) -> Any:
    return charge(customer="c", cents=cents)


def statuses(conn: psycopg.Connection) -> list[str]:
    """Of the calls, in order."""
    return [status for (status,) in conn.execute("SELECT status FROM outcome ORDER BY action_id")]


def kinds(conn: psycopg.Connection) -> list[str]:
    """Of the steps."""
    return [kind for (kind,) in conn.execute("SELECT kind FROM step ORDER BY run_id, n")]


def roles(messages: list[Json]) -> list[str]:
    """Who says what."""
    return [str(message["role"]) for message in messages]


def test_what_is_said_while_calls_are_open_stands_behind_their_answers(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """Between a call and its answer nothing may stand: the conversation could never be sent again."""
    run = decided(box, "r", pay(), lookup(order="o"))
    box.run("r").send(MORE)  # by another process, say
    with shop.hands() as hands:
        hands.do_all()
    turn = next(iter(run))
    assert roles(turn.messages) == ["user", "assistant", "tool", "tool", "user"]
    assert turn.messages[-1] == MORE
    turn.commit(says("done"))
    assert run.finished
    again = box.run("r")
    assert roles(again.messages) == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert kinds(conn) == ["input", "decision", "input", "decision"]


def test_who_is_answered_goes_on_when_more_is_said(box: Deedbox) -> None:
    run = box.run("r", messages=HELLO)
    next(iter(run)).commit(says("hello"))
    assert list(run) == []
    run.send(MORE, user("please"))
    assert not run.finished
    turn = next(iter(run))
    assert roles(turn.messages) == ["user", "assistant", "user", "user"]
    turn.commit(says("yes"))
    assert run.text == "yes"


def test_nothing_is_said_while_calls_are_open_where_that_is_refused(box: Deedbox, conn: psycopg.Connection) -> None:
    run = decided(box, "r", pay())
    with pytest.raises(Unsettled, match="r:1:0"):
        run.send(MORE, open_calls="refuse")
    with pytest.raises(NotMessages):
        run.send()
    assert kinds(conn) == ["input", "decision"]


def test_what_was_never_sent_is_withdrawn_and_what_runs_is_not(  # I16
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    run = decided(box, "r", pay(1), pay(2), pay(3))
    with shop.hands() as hands:
        first, second, third = hands.pending()
        hands.claim([first, second])
        hands.finish(second, 1, "unknown")  # waits to be repeated
        run.send(MORE, open_calls="cancel")
        assert statuses(conn) == ["running", "retry", "cancelled"]
        assert hands.claim([third]) == {third: ("final", None)}
        hands.finish(first, 1, result={"id": "x"})
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() WHERE action_id = %s", [second])
        hands.sweep()
        hands.do_all()
    turn = next(iter(run))
    assert roles(turn.messages) == ["user", "assistant", "tool", "tool", "tool", "user"]
    assert "cancelled and not performed" in str(turn.messages[-2])


def test_a_cancel_waits_for_a_claim_and_leaves_its_call(  # I4 I16
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    run = decided(box, "r", pay())
    with shop.hands() as hands:
        (id_,) = hands.pending()
        with hands.conn.transaction():
            hands.claim([id_])
            cancel = threading.Thread(target=run.cancel, args=["changed my mind"])
            cancel.start()
            waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%commit_step%'"
            while not conn.execute(waits).fetchall():
                pass
        cancel.join()
        assert statuses(conn) == ["running"]
        assert hands.finish(id_, 1, result={"id": "x"}) == "recorded"
    assert kinds(conn) == ["input", "decision", "cancel"]


def test_a_cancel_says_why_and_asks_the_model_nothing(box: Deedbox, conn: psycopg.Connection) -> None:
    run = decided(box, "r", pay())
    run.cancel("the customer has left")
    run.cancel("again")  # nothing is open: nothing to do
    assert kinds(conn) == ["input", "decision", "cancel"]
    turn = next(iter(run))
    assert "Reason: the customer has left" in str(turn.messages[-1])
    turn.commit(says("a pity"))
    run.cancel()
    assert run.finished


def test_an_abort_is_the_last_step(box: Deedbox, conn: psycopg.Connection) -> None:  # I15
    run = decided(box, "r", pay())
    late = box.run("r")
    run.abort("fraud")
    run.abort("twice")
    assert run.finished
    assert list(box.run("r")) == []
    assert statuses(conn) == ["cancelled"]
    with pytest.raises(RunClosed):
        late.send(MORE)
    assert kinds(conn) == ["input", "decision", "abort"]
    assert conn.execute("SELECT note FROM step WHERE kind = 'abort'").fetchall() == [({"reason": "fraud"},)]


def test_an_aborted_run_waits_for_what_is_under_way(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    run = decided(box, "r", pay())
    with shop.hands() as hands:
        (id_,) = hands.take()
        run.abort()
        assert statuses(conn) == ["running"]
        hands.finish(id_, 1, result={"id": "x"})
    assert list(run) == []
    assert statuses(conn) == ["done"]


@pytest.mark.parametrize("what", [None, "cancel", "abort"])
def test_a_decision_that_came_second_is_not_made(  # I2 I4
    box: Deedbox, shop: Shop, conn: psycopg.Connection, what: Literal["cancel", "abort"] | None
) -> None:
    """The caller's rows go with it, and the model is asked again with what is new."""
    conn.execute("CREATE TABLE mine (n int)")
    run = decided(box, "r", pay())
    with shop.hands() as hands:
        hands.do_all()
    turn = next(iter(run))
    other = box.run("r")
    if what is None:
        other.send(MORE)
    else:
        other._append(lambda: other.withdrawal(what, "no"), None)  # as if its call was still open
    with turn.transaction(asks(pay(2))) as ours:
        ours.execute(sql.SQL("INSERT INTO {} VALUES (1)").format(sql.Identifier(shop.schema, "mine")))
    assert conn.execute("SELECT FROM mine").fetchall() == []
    assert len(statuses(conn)) == 1
    if what == "abort":
        assert list(run) == []
        return
    turn = next(iter(run))
    assert (MORE in turn.messages) == (what is None)
    assert turn.commit(asks(pay(2)))


def test_in_your_own_transaction_it_goes_with_it(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I2
    run = decided(box, "r", pay())
    with shop.connect() as own:
        with pytest.raises(ZeroDivisionError), own.transaction():
            run.abort("no", on=own)
            raise ZeroDivisionError
        assert statuses(conn) == ["pending"]
        other = box.run("r")
        with own.transaction():
            run.send(MORE, on=own)
        with pytest.raises(StepTaken), own.transaction():
            other._ledger.commit(own, other.input([MORE], while_open=True))
    assert kinds(conn) == ["input", "decision", "input"]


def test_going_on_while_a_call_is_in_doubt_its_end_is_told_once(  # I11
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    run = decided(box, "r", pay(), lookup(order="o"))
    with shop.hands() as hands:
        taken = hands.take()
        doubt, read = taken
        hands.finish(read, 1, result={"status": "paid"})
        hands.finish(doubt, 1, "unknown")
        conn.execute("UPDATE outcome SET status = 'in_doubt', next_at = 'infinity' WHERE action_id = %s", [doubt])
    with pytest.raises(Unsettled):
        next(iter(run))
    turn = next(run.going_on())
    assert "still being settled" in str(turn.messages)
    turn.commit(says("I will see"))
    with pytest.raises(Unsettled):  # there is nothing to be said
        next(run.going_on())
    done = '{"id": "ch_1"}'
    conn.execute("SELECT resolve('r:1:0', %s, 'ann', NULL)", [done])
    turn = next(iter(box.run("r")))
    assert roles(turn.messages) == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert "that was still being settled has ended" in str(turn.messages[-1])
    assert "ch_1" in str(turn.messages[-1])
    turn.commit(says("good"))
    again = box.run("r")
    assert again.finished
    assert str(again.messages).count("has ended") == 1


def test_a_run_that_waits_hears_of_an_abort(box: Deedbox) -> None:
    run = decided(box, "r", pay())
    ended = threading.Thread(target=lambda: list(run))
    ended.start()
    box.run("r").abort()
    ended.join(30)
    assert not ended.is_alive()


def test_races_have_one_order_and_no_call_is_outside_of_it(  # I4 I16
    box: Deedbox, conn: psycopg.Connection
) -> None:
    """After an abort nothing is open that was never sent, and no step follows it."""
    for number in range(20):
        run_id = f"race-{number}"
        decided(box, run_id, pay(number + 1))
        begin = threading.Barrier(4)

        def decide(run_id: str = run_id, begin: threading.Barrier = begin, number: int = number) -> None:
            run = box.run(run_id)
            begin.wait()
            for turn in run.going_on():
                try:
                    turn.commit(asks(pay(1000 + number)))
                except (RunClosed, Unsettled):
                    return

        def send(run_id: str = run_id, begin: threading.Barrier = begin) -> None:
            begin.wait()
            try:
                box.run(run_id).send(MORE)
            except RunClosed:
                return

        def cancel(run_id: str = run_id, begin: threading.Barrier = begin) -> None:
            begin.wait()
            try:
                box.run(run_id).cancel()
            except RunClosed:
                return

        threads = [threading.Thread(target=act) for act in (decide, send, cancel)]
        for thread in threads:
            thread.start()
        begin.wait()
        box.run(run_id).abort()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    rows = conn.execute("SELECT run_id, n, kind FROM step ORDER BY run_id, n").fetchall()
    runs: dict[str, list[str]] = {}
    for run_id, n, kind in rows:
        assert n == len(runs.setdefault(run_id, []))
        runs[run_id].append(kind)
    assert len(runs) == 20
    assert all(kinds.index("abort") == len(kinds) - 1 for kinds in runs.values())
    assert set(statuses(conn)) == {"cancelled"}


async def test_so_it_is_in_asyncio(shop: Shop, conn: psycopg.Connection) -> None:
    async with AsyncDeedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:
        run = await box.run("r", messages=HELLO)
        turn = await anext(aiter(run))
        await turn.commit(asks(pay()))
        await run.send(MORE)
        await run.cancel("no")
        turn = await anext(aiter(run))
        assert roles(turn.messages) == ["user", "assistant", "tool", "user"]
        await turn.commit(asks(pay(2)))
        await run.abort("enough")
        assert [turn async for turn in run.going_on()] == []
    assert kinds(conn) == ["input", "decision", "input", "cancel", "decision", "abort"]
    assert statuses(conn) == ["cancelled", "cancelled"]


def test_a_run_tells_why_it_was_ended(
    box: Deedbox, shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deedbox = Commands(monkeypatch, capsys, shop.url, shop.schema)
    decided(box, "r", pay()).abort("fraud")
    assert "aborted" in deedbox("runs", "list").out
    shown = deedbox("runs", "show", "r").out
    assert "run r: aborted" in shown
    assert 'reason: "fraud"' in shown
