"""A real worker on a real Postgres: effects, probes, limits, pauses, and retries that stay in the lane."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client import REGISTRY

from deedbox import Deedbox, Run, Tool, probe
from deedbox.errors import NoHandler, NoProbe, Unsettled
from deedbox.outcomes import Done, GaveUp, InDoubt
from deedbox_consumers import (
    Attempt,
    CannotTell,
    DidNotHappen,
    Handlers,
    Happened,
    Limits,
    OutcomeUnknown,
    RetryLater,
    Worker,
)
from tests.support.fleet import Provider, decide, outcomes, status, wait_until
from tests.support.shop import MONEY, Charge, Receipt, Shop, charge, payout, refund, wire

NAMES = [tool.name for tool in MONEY]


def outcome_of(run: Run, tool: Tool[..., Any, Any]) -> Any:
    """The typed outcome of the run's first call."""
    call = next(iter(run.journal.calls.values()))
    return run.outcome(replace(tool.call(tool.args.model_validate(call.args)), key=call.key, id=call.id))


def after_the_effect(problem: BaseException, tries: int = 1) -> Callable[[Any, Attempt], Any]:
    """A handler that does it and loses the answer, for its first tries."""
    left = tries

    def fail(_args: Any, _attempt: Attempt) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise problem

    return fail


def test_what_cannot_be_repeated_is_in_doubt_and_not_repeated(
    bank: Deedbox, conn: psycopg.Connection
) -> None:  # I7 I11
    provider = Provider()
    provider.on["wire_money"] = after_the_effect(TimeoutError("read timed out"))
    with Worker(bank, provider.money(), tools=["wire_money"]):
        run = decide(bank, wire(customer="c", cents=1))
        with pytest.raises(Unsettled, match="in_doubt"):
            run.settle()
        assert isinstance(outcome_of(run, wire), InDoubt)
        other = decide(bank, wire(customer="d", cents=1))
        assert outcomes(bank, other) == ["done"]
    assert len(provider.requests) == 2
    assert status(conn, run) == ("in_doubt", 1, True)


def test_a_lost_answer_is_found_by_the_probe(bank: Deedbox, conn: psycopg.Connection) -> None:  # I7
    provider = Provider()
    provider.on["refund"] = after_the_effect(OutcomeUnknown("no answer"))
    with Worker(bank, provider.money(), tools=["refund"]):
        run = decide(bank, refund(customer="c", cents=1))
        assert outcomes(bank, run) == ["done"]
    (key,) = provider.requests
    assert provider.probes == [key]
    assert status(conn, run) == ("done", 2, False)


def counted(name: str, **labels: str) -> float:
    """What this process has counted so far."""
    return REGISTRY.get_sample_value(name, labels) or 0


def test_a_probe_that_fails_has_found_nothing_out_and_is_asked_again(bank: Deedbox, conn: psycopg.Connection) -> None:
    doubts = counted("deedbox_outcomes_total", tool="refund", status="in_doubt")
    provider, answers = Provider(), iter([CannotTell("it is down"), None])

    def say(_args: Any, attempt: Attempt) -> Any:
        match next(answers, "yes"):
            case "yes":
                return Happened(Receipt(id=attempt.key))
            case None:
                raise ValueError("a bug")
            case word:
                return word

    provider.on["refund"] = after_the_effect(OutcomeUnknown("no answer"))
    provider.on["refund?"] = say
    with Worker(bank, provider.money(), tools=["refund"]):
        run = decide(bank, refund(customer="c", cents=1))
        wait_until(lambda: status(conn, run)[0] == "done")
    assert len(provider.requests) == 1
    assert len(provider.probes) == 3
    assert counted("deedbox_outcomes_total", tool="refund", status="in_doubt") == doubts + 1  # it stayed in doubt


def test_an_unkeyed_call_that_did_not_happen_is_sent_again_when_nothing_can_arrive_any_more(
    bank: Deedbox, conn: psycopg.Connection
) -> None:  # I7 I16
    provider = Provider()
    conn.execute("UPDATE tool SET deadline = '0.5 s', settle_after = '0 s' WHERE name = 'refund'")
    provider.on["refund"] = after_the_effect(OutcomeUnknown("no answer"))
    provider.on["refund?"] = lambda *_: DidNotHappen()
    with Worker(bank, provider.money(), tools=["refund"]):
        run = decide(bank, refund(customer="c", cents=1))
        assert outcomes(bank, run) == ["done"]
    assert len(provider.requests) == 2
    assert len(set(provider.requests)) == 1


def test_short_retries_stay_in_the_lane(bank: Deedbox, conn: psycopg.Connection) -> None:
    provider = Provider()
    provider.on["wire_money"] = after_the_effect(RetryLater(0.01), tries=3)
    with Worker(bank, provider.money(), tools=["wire_money"]):
        run = decide(bank, wire(customer="c", cents=1))
        assert outcomes(bank, run) == ["done"]
    assert [attempt.number for attempt in provider.attempts] == [1, 2, 3, 4]
    assert conn.execute("SELECT count(*) FROM outbox WHERE type = 'call'").fetchone() == (1,)


def test_a_call_that_gave_up_is_an_outcome_and_a_dead_letter(bank: Deedbox, conn: psycopg.Connection) -> None:
    provider = Provider()
    conn.execute("UPDATE tool SET attempts = 2")
    provider.on["wire_money"] = after_the_effect(ConnectionRefusedError("nobody there"), tries=9)
    with Worker(bank, provider.money(), tools=["wire_money"]):
        run = decide(bank, wire(customer="c", cents=1))
        assert outcomes(bank, run) == ["gave_up"]
        outcome = outcome_of(run, wire)
    assert isinstance(outcome, GaveUp)
    assert outcome.reason.startswith("after 2 attempts: ConnectionRefusedError")
    assert conn.execute("SELECT key, tool, attempt, happened FROM dead").fetchall() == [
        (f"{run.id}:1:0", "wire_money", 2, False)
    ]


def test_a_paused_tool_is_not_claimed_holds_up_no_other_and_goes_on(
    bank: Deedbox, conn: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    conn.execute("SELECT pause('wire_money', true, 'ann', NULL)")
    with caplog.at_level(logging.INFO, "deedbox.worker"), Worker(bank, provider.money(), tools=NAMES):
        paused = [decide(bank, wire(customer="c", cents=cents)) for cents in range(1, 20)]
        assert outcomes(bank, decide(bank, refund(customer="c", cents=1))) == ["done"]
        assert len(provider.requests) == 1
        conn.execute("SELECT pause('wire_money', false, 'ann', NULL)")
        for run in paused:
            assert outcomes(bank, run) == ["done"]
    assert "wire_money is resumed" in caplog.text


def test_a_tool_with_all_its_slots_stuck_holds_up_no_other(bank: Deedbox) -> None:
    provider, go = Provider(), threading.Event()

    async def hang(_args: Any, _attempt: Attempt) -> Receipt:
        await asyncio.to_thread(go.wait)
        return Receipt(id="late")

    provider.on["wire_money"] = hang
    with Worker(bank, provider.money(), tools=NAMES, concurrency=3, poll=timedelta(milliseconds=10)):
        stuck = [decide(bank, wire(customer="c", cents=cents)) for cents in range(1, 7)]
        wait_until(lambda: len(provider.requests) == 3)
        assert outcomes(bank, decide(bank, payout(customer="c", cents=1))) == ["done"]
        go.set()
        for run in stuck:
            assert outcomes(bank, run) == ["done"]


def test_concurrency_is_bounded_per_tool(bank: Deedbox) -> None:
    provider, at_once, most = Provider(), 0, 0

    async def count(_args: Any, _attempt: Attempt) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1

    provider.on["wire_money"] = count
    with Worker(bank, provider.money(wire_money=Limits(concurrency=2)), tools=NAMES):
        for run in [decide(bank, *(wire(customer="c", cents=n + 1) for n in range(5))) for _ in range(3)]:
            assert outcomes(bank, run) == ["done"] * 5
    assert most == 2


def test_a_provider_that_is_down_is_left_alone_and_then_asked_by_one_call(bank: Deedbox) -> None:
    provider, up = Provider(), threading.Event()

    def fail(_args: Any, _attempt: Attempt) -> Any:
        if not up.is_set():
            raise ConnectionRefusedError

    provider.on["wire_money"] = fail
    limits = Limits(concurrency=1, breaker=3, open_for=timedelta(seconds=1))
    with Worker(bank, provider.money(wire_money=limits), tools=NAMES):
        runs = [decide(bank, wire(customer="c", cents=n + 1)) for n in range(6)]
        wait_until(lambda: len(provider.requests) >= 3)
        up.set()
        for run in runs:
            assert outcomes(bank, run) == ["done"]
    assert len(provider.requests) <= 6 + 4


def test_a_tool_with_a_probe_needs_one(bank: Deedbox) -> None:
    handlers = Handlers()

    @handlers.handle(refund)
    async def do(_args: Charge, _attempt: Attempt) -> Receipt:
        return Receipt(id="x")

    with pytest.raises(NoProbe, match=r"handlers\.probe\(refund\)"):
        Worker(bank, handlers, tools=["refund"])


def test_a_middleware_that_fails_after_the_effect_fires_nothing_again(box: Deedbox) -> None:  # I6
    """strands-agents/harness-sdk #4338: a hook raised after the tool had completed, and the whole batch ran again."""
    done: list[str] = []

    async def log_it(args: Any, attempt: Attempt, perform: Any) -> Any:
        await perform(args, attempt)
        raise ValueError("the log is full")

    handlers = Handlers(middleware=[log_it])

    @handlers.handle(charge)
    async def do(_args: Charge, attempt: Attempt) -> Receipt:
        done.append(attempt.key)
        return Receipt(id="ch_1")

    with Worker(box, handlers, tools=["charge_customer"]):
        run = decide(box, charge(customer="c", cents=1))
        assert outcomes(box, run) == ["done"]
        assert outcome_of(run, charge) == Done(Receipt(id="ch_1"))
    assert len(done) == 1


def test_what_is_cancelled_before_it_is_performed_uses_up_its_attempts(box: Deedbox, conn: psycopg.Connection) -> None:
    async def refresh(*_: Any) -> Any:
        shared = asyncio.get_running_loop().create_future()
        shared.cancel()  # by another handler, which had no more time
        await shared

    handlers = Handlers(middleware=[refresh])

    @handlers.handle(charge)
    async def do(_args: Charge, attempt: Attempt) -> Receipt:
        raise AssertionError("nothing performs it")

    conn.execute("UPDATE tool SET attempts = 2")
    with Worker(box, handlers, tools=["charge_customer"]):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["gave_up"]


def test_bytes_that_no_worker_can_read_are_given_up_so_that_the_agent_is_told(
    box: Deedbox, shop: Shop, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:  # I14
    monkeypatch.setattr("deedbox_consumers.desk.BEHIND", timedelta(seconds=0))
    conn.execute("UPDATE tool SET attempts = 2")
    run = decide(box, charge(customer="c", cents=1), charge(customer="d", cents=2))
    conn.execute("UPDATE outbox SET payload = '\\xc301' WHERE key = %s", [f"{run.id}:1:0"])
    provider = Provider()
    with Worker(box, provider.handlers()):
        assert outcomes(box, run) == ["gave_up", "done"]
    assert len(provider.requests) == 1


def test_a_call_of_a_tool_without_its_probe_is_refused_at_the_definition() -> None:
    tool = Tool("ask_me", args=Charge, result=Receipt, effect=probe())
    handlers = Handlers()

    @handlers.probe(tool)
    async def ask(_args: Charge, _attempt: Attempt) -> DidNotHappen:
        return DidNotHappen()

    with pytest.raises(NoHandler, match=r"handlers\.handle"):
        Worker(None, handlers, tools=["ask_me"], database_url="postgresql://nowhere")
