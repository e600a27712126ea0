"""A step commits whole, once, with the caller's rows, or not at all."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from deedbox import AsyncDeedbox, AsyncTurn, Deedbox, PlanDivergence, StepTaken, Turn, user
from deedbox.errors import (
    InvalidArguments,
    InvalidRunId,
    NotAHandle,
    NotMigrated,
    NoTransaction,
    PayloadTooLarge,
    RunClosed,
    RunTaken,
    ToolNotApplied,
    TurnLeft,
    UnknownRun,
    UnknownTool,
    Unsettled,
)
from deedbox.journal import Step
from deedbox.outcomes import Done, InDoubt
from tests.support.shop import TOOLS, Receipt, Shop, asks, charge, lookup, mail, says

HELLO = [user("Charge cus_1 49.00")]
ONE = charge(customer="cus_1", cents=4900)


@pytest.fixture
def account(shop: Shop) -> Any:
    """A row that must be debited once per decision: not idempotent."""
    with shop.connect() as conn:
        conn.execute("CREATE TABLE account (balance int)")
        conn.execute("INSERT INTO account VALUES (100)")
    return lambda: _one(shop, "SELECT balance FROM account")


def _one(shop: Shop, query: str) -> Any:
    with shop.connect() as conn:
        row = conn.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def _counts(shop: Shop) -> dict[str, int]:
    return {name: _one(shop, f"SELECT count(*) FROM {name}") for name in ("step", "action", "outcome", "outbox")}


def _debit(shop: Shop) -> bytes:
    return f"UPDATE {shop.schema}.account SET balance = balance - 1".encode()


def test_step_calls_outbox_and_the_callers_rows_commit_together(box: Deedbox, shop: Shop, account: Any) -> None:  # I2
    turn = next(iter(box.run("r", messages=HELLO)))
    before = _counts(shop)
    with turn.transaction(asks(ONE, ONE)) as conn:
        conn.execute(_debit(shop))
        assert _counts(shop) == before
        assert account() == 100
    after = _counts(shop)
    assert {name: after[name] - before[name] for name in after} == {"step": 1, "action": 2, "outcome": 2, "outbox": 3}
    assert account() == 99


def test_the_callers_rollback_takes_everything_along(box: Deedbox, shop: Shop, account: Any) -> None:  # I2
    turn = next(iter(box.run("r", messages=HELLO)))
    before = _counts(shop)
    with pytest.raises(ZeroDivisionError), turn.transaction(asks(ONE)) as conn:
        conn.execute(_debit(shop))
        raise ZeroDivisionError
    assert _counts(shop) == before
    assert account() == 100
    with shop.connect() as own:
        with pytest.raises(ZeroDivisionError), own.transaction():
            turn.commit(asks(ONE), on=own)
            raise ZeroDivisionError
        assert _counts(shop) == before
        with own.transaction():
            own.execute(_debit(shop))
            with pytest.raises(ZeroDivisionError), own.transaction():  # a savepoint
                turn.commit(asks(ONE), on=own)
                raise ZeroDivisionError
        assert _counts(shop) == before
        assert account() == 99


def test_an_inner_transaction_or_commit_of_the_block_does_not_escape_the_decision(  # I2
    box: Deedbox, shop: Shop, account: Any
) -> None:
    """In psycopg the first `conn.transaction()` on an idle connection would be the outermost one, and commit."""
    first, second = box.run("r", messages=HELLO), box.run("r")
    a, b = next(iter(first)), next(iter(second))
    with a.transaction(asks(ONE)) as conn, conn.transaction():
        conn.execute(_debit(shop))
    with b.transaction(asks(ONE)) as conn, conn.transaction():
        conn.execute(_debit(shop))
    assert account() == 99
    third = box.run("other", messages=HELLO)
    with pytest.raises(psycopg.ProgrammingError), next(iter(third)).transaction(asks(ONE)) as conn:
        conn.execute(_debit(shop))
        conn.commit()
    assert account() == 99


def test_a_block_whose_statement_failed_decides_nothing(box: Deedbox, shop: Shop) -> None:  # I2
    turn = next(iter(box.run("r", messages=HELLO)))
    before = _counts(shop)
    with pytest.raises(NoTransaction, match="failed"), turn.transaction(asks(ONE)) as conn:
        with pytest.raises(psycopg.errors.UndefinedTable):
            conn.execute("SELECT * FROM nowhere")
    assert _counts(shop) == before


def test_a_decision_without_rows_of_yours_is_one_call(box: Deedbox, shop: Shop) -> None:  # I2 I4
    run, other = box.run("r", messages=HELLO), box.run("r")
    mine, theirs = next(iter(run)), next(iter(other))
    assert [call.key for call in mine.commit(asks(ONE))] == ["r:1:0"]
    assert theirs.commit(asks(ONE)) == []
    with shop.hands() as hands:
        assert hands.do_all() == 1
    run.settle()


def test_two_that_open_a_run_with_other_messages_are_told(shop: Shop) -> None:  # I4
    opened: list[object] = []

    def open_it(text: str, start: threading.Barrier) -> None:
        with Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:
            box.run(f"warm-{text}", messages=[user(text)])
            for race in range(20):
                start.wait()
                try:
                    opened.append(box.run(f"race-{race}", messages=[user(text)]).messages[0]["content"] == text)
                except RunTaken:
                    opened.append(None)

    barrier = threading.Barrier(2)
    openers = [threading.Thread(target=open_it, args=[text, barrier]) for text in "ab"]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join()
    assert opened.count(True) == opened.count(None) == 20


def test_a_closed_box_opens_again_and_is_woken(box: Deedbox, shop: Shop) -> None:
    for name in ("before", "after"):
        run = box.run(name, messages=HELLO)
        next(iter(run)).commit(asks(ONE))
        with shop.hands() as hands, box._ledger.watch(name) as news:
            assert news.wait(30)  # listening has begun: whoever waits is woken once
            news.clear()
            hands.do_all()
            assert news.wait(30)
        box.close()


def test_two_drivers_with_a_non_idempotent_caller_row_debit_once(shop: Shop, account: Any) -> None:  # I2 I4
    reply = asks(ONE)
    races = 50
    errors: list[BaseException] = []

    def drive(start: threading.Barrier) -> None:
        try:
            with Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:
                for race in range(races):
                    run = box.run(f"race-{race}", messages=HELLO)
                    start.wait()
                    for turn in run:
                        if turn.number > 1:
                            break
                        with turn.transaction(reply) as conn:
                            conn.execute(_debit(shop))
                        break
        except BaseException as problem:  # noqa: BLE001  # shown by the test's own thread
            errors.append(problem)
            start.abort()

    barrier = threading.Barrier(2)
    drivers = [threading.Thread(target=drive, args=[barrier]) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert errors == []
    assert account() == 100 - races
    assert _one(shop, "SELECT count(*) FROM action") == races
    assert _one(shop, "SELECT count(*) FROM step WHERE n = 1") == races


def test_a_commit_whose_answer_got_lost_is_found_and_not_repeated(box: Deedbox, shop: Shop, account: Any) -> None:  # I2
    run = box.run("r", messages=HELLO)
    turn = next(iter(run))
    with turn.transaction(asks(ONE)) as conn:
        conn.execute(_debit(shop))
    # A process that crashed after COMMIT, before its answer, knows nothing of this step and decides again.
    with Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as other:
        behind = other.run("r")
        with shop.connect() as own:
            again = next(iter(box.run("fresh", messages=HELLO)))
            step = again.run.decision(asks(ONE), None)
            assert step.n == 1
            with pytest.raises(StepTaken), own.transaction():
                own.execute(_debit(shop))
                lost = _turn_at_one(behind)
                lost.commit(asks(ONE), on=own)
    assert account() == 99
    with shop.hands() as hands:
        hands.do_all()
    for turn in run:
        with turn.transaction(says("done")):
            pass
    assert run.text == "done"


def _turn_at_one(run: Any) -> Any:
    run.journal.steps = [Step(0, "input", None, HELLO, [], [], {}, "")]
    return Turn(run, run._ledger)


def test_the_same_key_asked_for_something_else_is_refused(box: Deedbox, shop: Shop) -> None:  # I3
    first, second = box.run("r", messages=HELLO), box.run("r")
    a, b = next(iter(first)), next(iter(second))
    with a.transaction(asks(ONE)):
        pass
    dearer = charge(customer="cus_1", cents=5000)
    with pytest.raises(PlanDivergence, match=r"r:1:0.*4900.*5000"), b.transaction(asks(dearer)):
        pass
    with pytest.raises(PlanDivergence, match="no call"), shop.connect() as own, own.transaction():
        _turn_at_one(second).commit(asks(ONE, ONE), on=own)
    with pytest.raises(PlanDivergence, match="read_order"), shop.connect() as own, own.transaction():
        _turn_at_one(second).commit(asks(lookup(order="1")), on=own)


def test_a_new_default_does_not_diverge(box: Deedbox, shop: Shop) -> None:  # I3
    """Facts B9: stored arguments are read with today's model before a divergence is declared."""
    first, second = box.run("r", messages=HELLO), box.run("r")
    a, b = next(iter(first)), next(iter(second))
    with a.transaction(asks(ONE)):
        pass
    with shop.connect() as conn:  # as an earlier release would have stored it: without the new field, another digest
        conn.execute("UPDATE action SET args = args - 'memo', digest = sha256('old')")
    with b.transaction(asks(ONE)):
        pass
    assert b.run.journal.stale


def test_a_turn_left_without_a_commit_raises(box: Deedbox) -> None:
    run = box.run("r", messages=HELLO)
    with pytest.raises(TurnLeft, match="Turn 1 of run r"):
        for _ in run:
            pass


def test_a_commit_that_is_not_through_yet_is_no_commit(box: Deedbox, shop: Shop) -> None:  # I2
    """Facts B2: a step in an open transaction of the caller's would be waited for for ever."""
    run = box.run("r", messages=HELLO)
    with shop.connect() as own, pytest.raises(TurnLeft), own.transaction():
        for turn in run:
            turn.commit(asks(ONE), on=own)


def test_commit_joins_a_connection_that_is_not_in_autocommit(box: Deedbox, shop: Shop) -> None:
    run = box.run("r", messages=HELLO)
    with psycopg.Connection[Any].connect(shop.url, row_factory=dict_row) as own:
        for turn in run:
            calls = turn.commit(calls=[ONE], on=own)
            own.commit()
            assert [call.key for call in calls] == ["r:1:0"]
            break


@pytest.mark.parametrize("state", ["closed", "failed", "autocommit", "foreign", "async"])
async def test_on_takes_a_connection_that_can_take_part(box: Deedbox, shop: Shop, state: str) -> None:
    turn = next(iter(box.run("r", messages=HELLO)))
    before = _counts(shop)
    own: Any = shop.connect()
    problem: type[Exception] = NoTransaction
    if state == "closed":
        own.close()
    elif state == "failed":
        own.autocommit = False
        with pytest.raises(psycopg.errors.SyntaxError):
            own.execute("SELEC")
    elif state == "foreign":
        own.close()
        own, problem = object(), NotAHandle
    elif state == "async":
        own.close()
        own, problem = await psycopg.AsyncConnection.connect(shop.url), NotAHandle
    with pytest.raises(problem):
        turn.commit(asks(ONE), on=own)
    if state == "async":
        await own.close()
    elif state in {"failed", "autocommit"}:
        own.close()
    assert _counts(shop) == before


def test_a_run_resumes_where_it_stopped_and_asks_nothing_twice(shop: Shop) -> None:
    asked: list[int] = []
    script = [asks(ONE), asks(lookup(order="8812")), says("done")]

    def drive(stop_after: int | None) -> str:
        with Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as box, shop.hands() as hands:
            run = box.run("r", messages=HELLO)
            hands.do_all({"id": "ch_1", "status": "open"})
            for turn in run:
                asked.append(turn.number)
                with turn.transaction(script[turn.number - 1]):
                    pass
                if stop_after == turn.number:
                    return ""
                hands.do_all({"id": "ch_1", "status": "open"})
            return run.text

    drive(1)
    drive(2)
    assert drive(None) == "done"
    assert drive(None) == "done"
    assert asked == [1, 2, 3]


def test_what_the_model_saw_is_recorded_and_shown_again_verbatim(box: Deedbox, shop: Shop) -> None:
    run = box.run("r", messages=HELLO)
    seen = []
    with shop.hands() as hands:
        for turn in run:
            seen.append(turn.messages)
            bad = ("charge_customer", {"customer": "x", "cents": -1})
            with turn.transaction(asks(ONE, bad, ("no_such_tool", {})) if turn.number == 1 else says("done")):
                pass
            hands.do_all()
    answers = seen[1][-3:]
    assert [answer["tool_call_id"] for answer in answers] == ["call_0", "call_1", "call_2"]
    assert json.loads(answers[0]["content"]) == {"id": "ch_1"}
    assert "greater than 0" in answers[1]["content"]
    assert "no_such_tool" in answers[2]["content"]
    again = box.run("r")
    assert list(again) == []
    assert again.messages[:-1] == seen[1]
    assert again.text == "done"


def test_invalid_calls_keep_the_positions_of_valid_siblings(box: Deedbox, shop: Shop) -> None:
    turn = next(iter(box.run("r", messages=HELLO)))
    with turn.transaction(asks(("no_such_tool", {}), ONE)):
        pass
    assert _one(shop, "SELECT array_agg(key) FROM action") == ["r:1:1"]


def test_a_reply_with_only_invalid_calls_is_answered_at_once(box: Deedbox) -> None:
    run = box.run("r", messages=HELLO)
    for turn in run:
        with turn.transaction(asks(("no_such_tool", {})) if turn.number == 1 else says("sorry")):
            pass
    assert run.text == "sorry"


def test_a_call_in_doubt_stops_the_run_and_is_named(box: Deedbox, shop: Shop) -> None:  # I11
    run = box.run("r", messages=HELLO)
    turn = next(iter(run))
    with turn.transaction(asks(ONE)):
        pass
    with shop.hands() as hands:
        ((id_, attempt),) = hands.take().items()
        hands.conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '2 days'")
        hands.finish(id_, attempt, "unknown", error={"reason": "no answer"})
    with pytest.raises(Unsettled, match="r:1:0"):
        run.settle()
    call = next(iter(turn.run.journal.calls.values()))
    assert call.status == "in_doubt"
    (answer,) = run.journal.answers()
    assert "still being settled" in answer["content"]
    assert run.outcome(_committed(ONE, "r:1:0")) == InDoubt("no answer")


def _committed(call: Any, key: str) -> Any:
    return replace(call, key=key)


def test_what_gave_up_reaches_the_model_as_an_operators_matter(box: Deedbox, shop: Shop) -> None:  # I11
    run = box.run("r", messages=HELLO)
    turn = next(iter(run))
    with turn.transaction(asks(ONE)):
        pass
    with shop.hands() as hands:
        ((id_, attempt),) = hands.take().items()
        hands.finish(id_, attempt, "gave_up", error={"reason": "connection refused, 10 times"})
    run.settle()
    (answer,) = run.journal.answers()
    assert "operator" in answer["content"]
    assert "connection refused" not in answer["content"]


def test_a_step_is_refused_while_an_earlier_call_is_open(box: Deedbox, shop: Shop) -> None:
    """Facts A10: nothing is decided on top of what is not known."""
    run = box.run("r", messages=HELLO)
    turn = next(iter(run))
    with turn.transaction(asks(ONE)):
        pass
    with shop.connect() as own:
        with pytest.raises(Unsettled, match="r:1:0"), own.transaction():
            _bare(turn).commit(says("done"), on=own)
        verdict = (
            "SELECT verdict, detail FROM commit_step('r', 2, 'decision', NULL, NULL, NULL, NULL, NULL, 1,"
            " '{0}', %s, %s, %s, %s, '{NULL}', true, %s, NULL)"
        )
        same = [["charge_customer"], [ONE.stored], [ONE.digest], [b"x"]]
        assert own.execute(verdict, [*same, False]).fetchone() == ("repeated", "r:1:0")
        assert own.execute(verdict, [*same, True]).fetchone() == ("fresh", None)


def _bare(turn: Any) -> Any:
    return Turn(turn.run, turn._ledger)


def test_a_step_out_of_order_or_after_the_end_is_refused(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I4
    box.run("r", messages=HELLO)
    step = (
        "SELECT verdict FROM commit_step(%s, %s, 'decision', NULL, NULL, NULL, NULL, NULL, 0,"
        " '{}', '{}', '{}', '{}', '{}', '{}', false, false, NULL)"
    )
    assert conn.execute(step, ["r", 2]).fetchone() == ("gap",)
    assert conn.execute(step, ["nobody", 1]).fetchone() == ("unknown",)
    conn.execute("UPDATE run SET status = 'closed'")
    turn = next(iter(box.run("r")))
    with pytest.raises(RunClosed), turn.transaction(says("x")):
        pass


def test_bad_input_is_refused_before_anything_is_written(box: Deedbox, shop: Shop) -> None:  # I14
    run = box.run("r", messages=HELLO)
    before = _counts(shop)
    turn = next(iter(run))
    stranger = Deedbox(shop.url, tools=[], schema=shop.schema)
    with pytest.raises(UnknownTool, match="charge_customer"):
        next(iter(stranger.run("r"))).run.decision(None, [ONE])
    stranger.close()
    with pytest.raises(InvalidRunId):
        box.run("a b", messages=HELLO)
    with pytest.raises(UnknownRun):
        box.run("nobody")
    with pytest.raises(RunTaken):
        box.run("r", messages=[user("something else")])
    with pytest.raises(InvalidArguments, match="NUL"):
        charge(customer="\0", cents=1)
    with pytest.raises(InvalidArguments, match="surrogate"):
        charge(customer="\ud800", cents=1)
    with pytest.raises(PayloadTooLarge), turn.transaction(calls=[charge(customer="x" * 900_001, cents=1)]):
        pass
    assert _counts(shop) == before


def test_text_that_postgres_cannot_hold_is_answered_to_the_model(box: Deedbox, shop: Shop) -> None:  # I14
    run = box.run("r", messages=HELLO)
    huge = {"customer": "x" * 900_001, "cents": 1}
    bad = [("charge_customer", {"customer": text, "cents": 1}) for text in ("\0", "\ud800")]
    for turn in run:
        reply = asks(*bad, ("charge_customer", huge)) if turn.number == 1 else says("ok\0 \ud800")
        with turn.transaction(reply):
            pass
    assert _one(shop, "SELECT count(*) FROM action") == 0
    assert box.run("r").text == "ok\0 \ud800"


def test_a_step_too_large_for_a_record_travels_without_its_texts(box: Deedbox, shop: Shop) -> None:
    box.run("r", messages=[user("x" * 1_000_000)])
    assert box.run("r").messages == [user("x" * 1_000_000)]
    assert _one(shop, "SELECT octet_length(payload) < 100 FROM outbox WHERE type = 'step'")


def test_a_database_that_is_not_ready_says_what_to_do(shop: Shop) -> None:
    with Deedbox(shop.url, tools=TOOLS, schema="nowhere") as box, pytest.raises(NotMigrated, match="deedbox init"):
        box.run("r", messages=HELLO)
    with shop.connect() as conn:
        conn.execute("UPDATE tool SET args_fingerprints = '{\"\\\\x0000000000000000\"}' WHERE name = 'send_mail'")
    with Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as box, pytest.raises(ToolNotApplied, match="send_mail"):
        box.run("r", messages=HELLO)


def test_calls_of_one_order_key_are_chained_in_order_of_decision(box: Deedbox, shop: Shop) -> None:
    """Facts A6: handed over by an upsert, never by id."""
    calls = [mail(to="a", text="1"), mail(to="a", text="2"), mail(to="b", text="3")]
    for name in ("r1", "r2"):
        turn = next(iter(box.run(name, messages=HELLO)))
        with turn.transaction(asks(*calls)):
            pass
    chain = "SELECT a.key, b.key FROM action a LEFT JOIN action b ON b.id = a.after ORDER BY a.id"
    with shop.connect() as conn:
        rows = conn.execute(chain).fetchall()
    assert rows == [
        ("r1:1:0", None),
        ("r1:1:1", "r1:1:0"),
        ("r1:1:2", None),
        ("r2:1:0", "r1:1:1"),
        ("r2:1:1", "r2:1:0"),
        ("r2:1:2", "r1:1:2"),
    ]


async def test_an_async_box_does_the_same(shop: Shop, account: Any) -> None:  # I2 I4
    async with AsyncDeedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:
        run = await box.run("r", messages=HELLO)
        calls: list[Any] = []
        with shop.hands() as hands:
            async for turn in run:
                if turn.number == 1:
                    async with await psycopg.AsyncConnection.connect(shop.url) as own:
                        await own.execute(_debit(shop))
                        calls = await turn.commit(asks(ONE), on=own)
                    hands.do_all()
                else:
                    async with turn.transaction(says("done")) as conn:
                        await conn.execute(_debit(shop))
        assert run.text == "done"
        assert run.outcome(calls[0]) == Done(Receipt(id="ch_1"))
        assert account() == 98
        behind = await box.run("r")
        behind.journal.add([], [])
        with pytest.raises(StepTaken):
            async with await psycopg.AsyncConnection.connect(shop.url) as own:
                await own.execute(_debit(shop))
                await _async_turn(behind).commit(asks(ONE), on=own)
        assert account() == 98


def _async_turn(run: Any) -> Any:
    run.journal.steps = [Step(0, "input", None, HELLO, [], [], {}, "")]
    return AsyncTurn(run, run._ledger)


def test_many_commits_in_one_transaction_of_the_caller(box: Deedbox, shop: Shop) -> None:
    turns = [next(iter(box.run(f"r{at}", messages=HELLO))) for at in range(3)]
    with shop.connect() as own, own.transaction():
        for turn in turns:
            turn.commit(asks(ONE), on=own)
    assert _one(shop, "SELECT count(*) FROM action") == 3
