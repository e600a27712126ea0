"""What a worker does with a call, on a real Postgres."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from deedbox import AsyncDeedbox, Deedbox, user
from deedbox.errors import NotMigrated, ToolNotApplied, WorkerEnded
from deedbox.outcomes import Done, GaveUp, Refused
from deedbox_consumers import Attempt, Handlers, Happened, OutcomeUnknown, Refusal, RetryLater, Worker, report
from deedbox_consumers import execute as executing
from deedbox_consumers.report import Report
from tests.support.fleet import PATIENCE, Provider, decide, ids, outcomes, status, wait_until
from tests.support.shop import TOOLS, Receipt, Shop, charge, lookup, mail, refund


def test_beside_the_agent_it_is_woken_by_the_commit(box: Deedbox) -> None:  # I1
    provider = Provider()
    # It would look by itself only after an hour.
    with Worker(box, provider.handlers(), poll=timedelta(hours=1)):
        run = decide(box, call := charge(customer="c", cents=4900))
        assert outcomes(box, run) == ["done"]
    (made,) = run.journal.calls.values()
    assert made.result == {"id": "ch_4900"}
    assert call.key is None


async def test_as_a_task_of_an_event_loop(shop: Shop) -> None:
    provider = Provider()
    box = AsyncDeedbox(shop.url, tools=TOOLS, schema=shop.schema)
    async with box, Worker(box, provider.handlers()):
        run = await box.run("r", messages=[user("go")])
        async for turn in run:
            if turn.number == 2:
                break
            async with turn.transaction(calls=[charge(customer="c", cents=1), lookup(order="o")]):
                pass
    assert [made.status for made in run.journal.calls.values()] == ["done", "done"]


def test_a_refusal_is_the_outcome(box: Deedbox) -> None:
    provider = Provider()

    def refuse(*_: object) -> None:
        raise Refusal("card_declined", "no funds")

    provider.on[charge.name] = refuse
    with Worker(box, provider.handlers()):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["refused"]
    assert len(provider.requests) == 1


@pytest.mark.parametrize(("status", "becomes"), [(401, "in_doubt"), (402, "refused")])
def test_a_no_at_the_door_leaves_the_doubt_of_an_earlier_attempt(
    box: Deedbox, status: int, becomes: str
) -> None:  # I16
    provider = Provider()

    def answer(_: object, attempt: Attempt) -> None:
        if attempt.number == 1:
            raise OutcomeUnknown("the answer was lost")
        httpx2.Response(status, request=httpx2.Request("POST", "http://provider.invalid")).raise_for_status()

    provider.on[charge.name] = answer
    with Worker(box, provider.handlers()):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == [becomes]


def test_what_is_unknown_is_repeated_under_the_same_key(box: Deedbox) -> None:  # I6 I7
    provider = Provider()

    def charged_and_silent(_: object, attempt: Attempt) -> None:
        if attempt.number == 1:
            raise OutcomeUnknown("the answer was lost")

    provider.on[charge.name] = charged_and_silent
    with Worker(box, provider.handlers()):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
    assert [attempt.number for attempt in provider.attempts] == [1, 2]
    assert len(provider.effects) == 1


def test_what_was_plainly_not_sent_is_tried_again_and_leaves_no_doubt(box: Deedbox, conn: psycopg.Connection) -> None:
    provider = Provider()
    tried = threading.Event()

    def refuse_connection(*_: object) -> None:
        tried.set()
        raise ConnectionRefusedError(111, "refused")

    provider.on[charge.name] = refuse_connection
    with Worker(box, provider.handlers()):
        run = decide(box, charge(customer="c", cents=1))
        assert tried.wait(60)
        wait_until(lambda: status(conn, run)[0] != "running")
        assert not status(conn, run)[2]


def test_an_async_handler_is_ended_at_its_deadline_and_its_outcome_is_unknown(  # I7 I16
    box: Deedbox, conn: psycopg.Connection
) -> None:
    conn.execute("UPDATE tool SET deadline = '0.5 s'")
    provider = Provider()
    provider.on[charge.name] = lambda *_: asyncio.sleep(3600)
    with Worker(box, provider.handlers()):
        run = decide(box, charge(customer="c", cents=1))
        wait_until(lambda: status(conn, run)[2])
        assert status(conn, run)[0] in {"retry", "pending", "running"}


def test_a_sync_handler_runs_on_but_its_call_is_judged_at_the_deadline(  # I7 I8
    box: Deedbox, conn: psycopg.Connection
) -> None:
    conn.execute("UPDATE tool SET deadline = '0.5 s'")
    provider, let = Provider(), threading.Event()
    provider.on[lookup.name] = lambda *_: let.wait(60) and None
    with Worker(box, provider.handlers(), threads=1) as worker:
        run = decide(box, lookup(order="o"))
        wait_until(lambda: status(conn, run)[2])
        let.set()
        assert outcomes(box, run) == ["done"]
    assert worker.blocked == 0


def test_a_tool_whose_threads_all_hang_has_work_that_does_not_get_on(box: Deedbox, conn: psycopg.Connection) -> None:
    """To /livez its worker is stuck when the deadline is long over, though in the ledger nothing of it runs."""
    conn.execute("UPDATE tool SET deadline = '0.5 s'")
    provider, let = Provider(), threading.Event()
    provider.on[lookup.name] = lambda *_: let.wait(60) and None
    with Worker(box, provider.handlers(), threads=2) as worker:

        def idle(name: str = lookup.name) -> bool:
            return worker.progress.parts()[f"handle {name}"].idle

        run = decide(box, lookup(order="o"))
        wait_until(lambda: len(provider.attempts) == 2 and status(conn, run)[0] != "running")
        assert not idle()
        assert idle(charge.name)
        let.set()
        assert outcomes(box, run) == ["done"]
        wait_until(idle)


def test_a_tool_with_a_thread_that_gets_on_is_not_stuck(box: Deedbox, conn: psycopg.Connection) -> None:
    conn.execute("UPDATE tool SET deadline = '0.5 s'")
    provider, let = Provider(), threading.Event()
    hang = iter((let,))
    provider.on[lookup.name] = lambda *_: next(hang).wait(60) if len(provider.attempts) == 1 else None
    with Worker(box, provider.handlers(), threads=2) as worker:
        assert outcomes(box, decide(box, lookup(order="o"))) == ["done"]
        wait_until(lambda: worker.progress.parts()[f"handle {lookup.name}"].idle)
        let.set()


def test_sync_handlers_run_beside_each_other(box: Deedbox) -> None:
    provider, all_there = Provider(), threading.Barrier(4)
    provider.on[lookup.name] = lambda *_: all_there.wait(60) and None
    with Worker(box, provider.handlers(), threads=4):
        run = decide(box, *(lookup(order=str(number)) for number in range(4)))
        assert outcomes(box, run) == ["done"] * 4


def test_no_more_are_at_work_than_allowed(box: Deedbox) -> None:
    provider, at_work, most = Provider(), 0, 0

    async def work(*_: object) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.01)
        at_work -= 1

    provider.on[charge.name] = work
    with Worker(box, provider.handlers(), concurrency=3):
        run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 21)))
        assert outcomes(box, run) == ["done"] * 20
    assert most == 3


def test_one_bad_result_in_500_spoils_only_itself(box: Deedbox, conn: psycopg.Connection) -> None:  # I14
    provider = Provider()
    provider.on[charge.name] = lambda args, _: Receipt(id="\0" if args.cents == 250 else "ok")
    with Worker(box, provider.handlers()):
        run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 501)))
        ended = outcomes(box, run)
    assert ended.count("done") == 499
    assert ended[249] == "gave_up"
    row = conn.execute("SELECT error->>'reason', unsettled FROM outcome WHERE status = 'gave_up'").fetchone()
    assert row is not None
    assert "NUL" in row[0]
    assert row[1] is False
    assert set(provider.effects.values()) == {1}


def test_a_result_that_the_database_refuses_spoils_only_itself(  # I14
    box: Deedbox, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = report.done

    def unchecked(tool: Any, value: Any) -> Report:
        bad = {"no json": "{", "nul": '"\0"', "surrogate": '"\ud800"', "large": '"' + "x" * 950_000 + '"'}
        return Report("done", unsettled=False, result=bad[value.id]) if value.id in bad else checked(tool, value)

    monkeypatch.setattr(executing, "done", unchecked)
    provider = Provider()
    words = {7: "no json", 19: "nul", 20: "surrogate", 33: "large"}
    provider.on[charge.name] = lambda args, _: Receipt(id=words.get(args.cents, "ok"))
    with Worker(box, provider.handlers()):
        run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 41)))
        ended = outcomes(box, run)
    assert [at + 1 for at, end in enumerate(ended) if end == "gave_up"] == list(words)
    assert ended.count("done") == 36
    assert conn.execute("SELECT count(*) FROM outcome WHERE unsettled").fetchone() == (0,)


def test_outcomes_reach_the_agent_as_types(box: Deedbox) -> None:
    provider = Provider()

    def answer(args: Any, _: Attempt) -> Any:
        if args.cents == 2:
            raise Refusal("declined", "no")
        return Receipt(id="x") if args.cents == 1 else {"odd": True}

    provider.on[charge.name] = answer
    calls = [charge(customer="c", cents=cents) for cents in (1, 2, 3)]
    with Worker(box, provider.handlers()):
        run = box.run("r", messages=[user("go")])
        turn = next(iter(run))
        with box.connection() as conn:
            made = turn.commit(calls=calls, on=conn)
        assert outcomes(box, run) == ["done", "refused", "gave_up"]
        done, refused, gave_up = (run.outcome(call) for call in made)
    assert done == Done(Receipt(id="x"))
    assert refused == Refused("declined", "no")
    assert isinstance(gave_up, GaveUp)
    assert "does not fit Receipt" in gave_up.reason


def test_an_open_predecessor_blocks_its_order_key_and_no_other(box: Deedbox, conn: psycopg.Connection) -> None:
    provider = Provider()
    with Worker(box, provider.handlers(), tools=["charge_customer"]):
        run = decide(box, mail(to="a@x", text="1"), mail(to="a@x", text="2"), mail(to="b@x", text="3"))
    first, second, third = ids(conn, run)
    conn.execute(
        "UPDATE outcome SET status = 'in_doubt', unsettled = true, next_at = 'infinity' WHERE action_id = %s", [first]
    )
    with Worker(box, provider.handlers()):
        wait_until(lambda: status(conn, run, 2)[0] == "done")
        assert status(conn, run, 1)[:2] == ("pending", 0)
        conn.execute(
            "UPDATE outcome SET status = 'done', unsettled = false, next_at = NULL WHERE action_id = %s", [first]
        )
        wait_until(lambda: status(conn, run, 1)[0] == "done")
    assert [key.rsplit(":", 1)[1] for key in provider.requests] == ["2", "1"]
    assert [second, third] == ids(conn, run)[1:]


def test_the_lifespan_is_the_handlers_state(box: Deedbox) -> None:
    provider, said = Provider(), list[str]()
    handlers = provider.handlers()

    @handlers.lifespan
    async def resources() -> AsyncIterator[list[str]]:
        said.append("open")
        yield said
        said.append("closed")

    provider.on[charge.name] = lambda _, attempt: attempt.state.append("used")
    with Worker(box, handlers):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
    assert said == ["open", "used", "closed"]


def test_a_lost_connection_is_made_anew(  # I5
    box: Deedbox, conn: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    with caplog.at_level(logging.CRITICAL), Worker(box, provider.handlers()):
        for _ in range(3):
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'deedbox-worker%'"
            )
            run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 4)))
            assert outcomes(box, run) == ["done"] * 3
    assert not caplog.records
    assert len(provider.effects) == 9


def test_what_the_database_lacks_is_said_at_the_start(shop: Shop, conn: psycopg.Connection) -> None:
    handlers = Provider().handlers()
    with pytest.raises(NotMigrated), Worker(None, handlers, database_url=shop.url, schema="nothing_here"):
        pass
    conn.execute("UPDATE tool SET result_fingerprints = ARRAY['\\x0102030405060708'::bytea] WHERE name = 'send_mail'")
    with (
        pytest.raises(ToolNotApplied, match="send_mail"),
        Worker(None, handlers, database_url=shop.url, schema=shop.schema),
    ):
        pass


async def test_what_it_cannot_cope_with_ends_it_loudly(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(None, Provider().handlers(), database_url=shop.url, schema=shop.schema)
    with pytest.raises(psycopg.errors.UndefinedFunction):
        async with worker:
            with shop.connect() as conn:
                conn.execute("DROP FUNCTION pending")
            await asyncio.to_thread(wait_until, lambda: caplog.records)
    assert "cannot go on" in caplog.text


async def test_what_it_cannot_cope_with_leaves_no_call_running_and_no_connection(  # I7
    shop: Shop, box: Deedbox, conn: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    provider, ended = Provider(), list[str]()

    async def close_slowly(*_: object) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.to_thread(conn.execute, "SELECT 1")  # as a client that says goodbye to its server
            ended.append("in order")
            raise

    provider.on[charge.name] = close_slowly
    run = decide(box, charge(customer="c", cents=1))
    with pytest.raises(psycopg.errors.UndefinedFunction):
        async with Worker(None, provider.handlers(), database_url=shop.url, schema=shop.schema):
            await asyncio.to_thread(wait_until, lambda: provider.requests)
            conn.execute("DROP FUNCTION pending")
            await asyncio.to_thread(wait_until, lambda: "cannot go on" in caplog.text)
    assert ended == ["in order"]
    assert status(conn, run)[0] in {"pending", "retry"}
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'deedbox-worker%'"
    await asyncio.to_thread(wait_until, lambda: conn.execute(ours).fetchone() == (0,))


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "problem",
    [_Mute(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), OutcomeUnknown(ValueError()), RetryLater(1e10)],  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ids=["mute", "exit", "interrupt", "generator", "odd reason", "for ever"],
)
@pytest.mark.parametrize("tool", ["charge_customer", "read_order"])
def test_whatever_a_handler_raises_ends_its_attempt_and_nothing_else(  # I14
    box: Deedbox, problem: BaseException, tool: str
) -> None:
    provider = Provider()
    broken = charge(customer="c", cents=1) if tool == "charge_customer" else lookup(order="1")

    def raise_once(_args: Any, attempt: Attempt) -> Any:
        if attempt.number == 1:
            raise problem

    provider.on[tool] = raise_once
    with Worker(box, provider.handlers()):
        run, fine = decide(box, broken), decide(box, mail(to="a", text="b"))
        assert outcomes(box, fine) == ["done"]
        if not isinstance(problem, RetryLater):
            assert outcomes(box, run) == ["done"]


def plainly_wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators do that were written for sync functions."""

    @functools.wraps(function)
    def wrapper(*given: Any) -> Any:
        return function(*given)

    return wrapper


def test_an_async_function_in_a_plain_wrapper_is_performed(box: Deedbox) -> None:
    handlers, performed = Handlers(), list[str]()

    @handlers.handle(charge)
    @plainly_wrapped
    async def charge_customer(_: Any, attempt: Attempt) -> Receipt:
        await asyncio.sleep(0)
        performed.append(attempt.key)
        return Receipt(id="ch")

    with Worker(box, handlers, tools=[charge.name]):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
    assert len(performed) == 1


def test_an_async_probe_in_a_plain_wrapper_is_asked(bank: Deedbox) -> None:
    handlers = Handlers()

    @handlers.handle(refund)
    async def pay_back(*_: Any) -> Receipt:
        raise OutcomeUnknown("no answer")

    @handlers.probe(refund)
    @plainly_wrapped
    async def was_paid_back(*_: Any) -> Any:
        await asyncio.sleep(0)
        return Happened(Receipt(id="re"))

    with Worker(bank, handlers, tools=[refund.name]):
        assert outcomes(bank, decide(bank, refund(customer="c", cents=1))) == ["done"]


def test_what_a_plain_wrapper_gives_back_after_the_deadline_is_no_result(  # I8
    box: Deedbox, conn: psycopg.Connection
) -> None:
    class Work:
        def __await__(self) -> Any:
            raise AssertionError("nobody waits for it any more")

    provider, go = Provider(), threading.Event()
    provider.on[lookup.name] = lambda _, attempt: go.wait(PATIENCE) and Work() if attempt.number == 1 else None
    conn.execute("UPDATE tool SET deadline = '0.5 s'")
    with Worker(box, provider.handlers(), threads=1):
        run = decide(box, lookup(order="o"))
        wait_until(lambda: status(conn, run)[2])
        go.set()
        assert outcomes(box, run) == ["done"]
    assert conn.execute("SELECT status FROM late").fetchall() == []


def test_an_answer_that_comes_after_the_deadline_is_kept_and_settles_its_doubt(  # I8
    box: Deedbox, conn: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    provider, go = Provider(), threading.Event()

    def answer_late(_args: Any, _attempt: Attempt) -> Any:
        assert go.wait(PATIENCE)

    provider.on["read_order"] = answer_late
    conn.execute("UPDATE tool SET deadline = '0.5 s'")
    conn.execute("UPDATE tool SET attempts = 1")
    with Worker(box, provider.handlers()):
        run = decide(box, lookup(order="1"))
        wait_until(lambda: conn.execute("SELECT status FROM outcome").fetchall() == [("in_doubt",)])
        go.set()
        wait_until(lambda: conn.execute("SELECT status FROM outcome").fetchall() == [("done",)])
        assert outcomes(box, run) == ["done"]
    assert "it answered when its attempt was over" in caplog.text
    assert "somebody else" not in caplog.text


def test_an_agent_is_told_that_the_worker_beside_it_has_ended(box: Deedbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbox_consumers.desk.execute", _break)
    with pytest.raises(ZeroDivisionError), Worker(box, Provider().handlers()):
        run = decide(box, charge(customer="c", cents=1))
        with pytest.raises(WorkerEnded, match="ZeroDivisionError"):
            run.settle()


async def _break(*_: object) -> None:
    raise ZeroDivisionError


def test_a_worker_can_be_used_again(box: Deedbox) -> None:
    worker = Worker(box, Provider().handlers())
    for _ in ("once", "again"):
        with worker:
            assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
