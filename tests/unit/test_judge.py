"""What is reported of an attempt: only what is known."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel

from deedbox import Tool, provider_key, repeatable
from deedbox.effects import Effect
from deedbox_consumers import (
    Attempt,
    CannotTell,
    DidNotHappen,
    Happened,
    OutcomeUnknown,
    Refusal,
    RetryLater,
    StoredFailure,
)
from deedbox_consumers import judge as judging
from deedbox_consumers.clock import now
from deedbox_consumers.judge import LONGEST_DELAY, HandlerEnded, LeasePassed, answered, backoff, judge, unanswered
from deedbox_consumers.record import Claimed, Record
from deedbox_consumers.report import GIVEN_BACK, RAW_LIMIT, REASON_LIMIT, RESULT_LIMIT, Report, done

DAY = timedelta(hours=24)


class Args(BaseModel):
    """Do it."""

    text: str = ""


class Result(BaseModel):
    text: str


def claimed(effect: Effect = repeatable, *, keyed: bool = False, sent: bool = True, lost: bool = False) -> Claimed:
    tool = Tool("do_it", args=Args, result=Result, effect=effect)
    attempt = Attempt(key="box:run:1:0", call="run:1:0", number=1, until=now() + 60, lost=lambda: lost)
    record = Record(uuid4(), "do_it", "run:1:0", "k", b"x")
    return Claimed(record, tool, Args(), attempt, uuid4(), keyed=keyed, sent=sent)


def reason(report: Report) -> str:
    return str(json.loads(report.error or "{}")["reason"])


def test_a_result_is_done_and_settles() -> None:
    assert done(claimed().tool, Result(text="ok")) == Report("done", unsettled=False, result='{"text":"ok"}')


def test_a_mapping_that_fits_is_a_result() -> None:
    assert done(claimed().tool, {"text": "ok"}).result == '{"text":"ok"}'


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "does not fit Result"),
        (Args(text="other model"), "does not fit Result"),
        (Result(text="a\0b"), "NUL"),
        (Result(text="\ud800"), "surrogate"),
        (Result(text="x" * RESULT_LIMIT), "bytes"),
        (Result(text="\u20ac" * (RESULT_LIMIT // 3)), "bytes"),
    ],
)
def test_a_result_that_cannot_be_kept_is_a_dead_letter_whose_effect_is_known(value: object, says: str) -> None:  # I14
    report = done(claimed().tool, value)
    assert (report.status, report.unsettled, report.result) == ("gave_up", False, None)
    assert says in reason(report)
    assert report.error is not None
    assert len(report.error) < RAW_LIMIT * 6 + REASON_LIMIT * 6 + 100
    json.loads(report.error.encode())


@pytest.mark.parametrize(("keyed", "sent", "settles"), [(True, True, False), (False, True, None), (True, False, None)])
def test_a_refusal_settles_an_earlier_doubt_only_under_a_trusted_key(  # I16
    keyed: bool, sent: bool, settles: bool | None
) -> None:
    report = judge(Refusal("card_declined", "no funds"), claimed(provider_key(DAY), keyed=keyed, sent=sent))
    assert (report.status, report.unsettled) == ("refused", settles)
    assert json.loads(report.error or "")["code"] == "card_declined"
    assert json.loads(report.error or "")["message"] == "no funds"


@pytest.mark.parametrize(
    ("problem", "closing", "lost"),
    [
        (LeasePassed(), False, True),
        (asyncio.CancelledError(), True, False),
        (asyncio.CancelledError(), False, True),
    ],
)
def test_what_this_worker_stopped_before_it_was_sent_is_given_back(  # I7
    problem: BaseException, closing: bool, lost: bool
) -> None:
    assert judge(problem, claimed(sent=False, lost=lost), closing=closing) == GIVEN_BACK
    assert unanswered(problem, claimed(sent=True, lost=lost), closing=closing) == GIVEN_BACK


def test_what_somebody_else_cancelled_counts_as_an_attempt() -> None:
    """As a shared token refresh that was cancelled: given back it would be claimed again at once, for ever."""
    report = judge(asyncio.CancelledError(), claimed(sent=False))
    assert (report.status, report.unsettled, report.broken) == ("retry", None, False)
    assert report.delay is not None
    assert unanswered(asyncio.CancelledError(), claimed()).status == "cannot_tell"


def test_what_failed_before_it_was_sent_is_tried_again_within_its_budget() -> None:  # I7
    for problem in (ValueError("no"), TimeoutError(), OutcomeUnknown("a middleware's guess")):
        report = judge(problem, claimed(sent=False))
        assert (report.status, report.unsettled, report.broken) == ("retry", None, False)


def test_retry_later_waits_as_long_as_it_says_and_leaves_doubts_as_they_were() -> None:
    report = judge(RetryLater(timedelta(seconds=7)), claimed())
    assert (report.status, report.delay, report.unsettled) == ("retry", timedelta(seconds=7), None)
    assert judge(RetryLater(2.5), claimed()).delay == timedelta(seconds=2.5)


@pytest.mark.parametrize(
    ("problem", "end", "broken"),
    [
        (ValueError("odd"), "unknown", True),
        (TimeoutError(), "unknown", True),
        (OutcomeUnknown("read timed out"), "unknown", True),
        (ConnectionResetError(), "unknown", True),
        (HandlerEnded("SystemExit"), "unknown", True),
        (asyncio.CancelledError(), "unknown", True),
        (ConnectionRefusedError(111, "refused"), "retry", True),
        (RetryLater(1), "retry", False),
    ],
)
def test_how_it_ended_is_told_and_the_ledger_decides_what_follows(  # I7 I16
    problem: BaseException, end: str, broken: bool
) -> None:
    report = judge(problem, claimed())
    assert (report.status, report.unsettled, report.broken) == (end, None, broken)
    assert report.delay is not None


def test_the_longest_delay_is_never_passed() -> None:
    assert {backoff(number) <= LONGEST_DELAY for number in (1, 7, 1023, 1024, 2**31 - 1)} == {True}


@pytest.mark.parametrize(("sent", "end"), [(True, "unknown"), (False, "retry")])
def test_what_cannot_be_judged_ends_its_attempt_only(  # I14 I16
    monkeypatch: pytest.MonkeyPatch, sent: bool, end: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(judging, "classify", fail)
    report = judge(ValueError(), claimed(sent=sent))
    assert (report.status, report.unsettled, report.delay) == (end, None, LONGEST_DELAY)
    assert reason(report).endswith("ZeroDivisionError: odd")


def test_a_stored_failure_is_marked_as_one() -> None:
    report = judge(StoredFailure("http_500", "stored"), claimed(provider_key(DAY)))
    assert report.status == "stored"
    assert json.loads(report.error or "")["stored"] is True


def test_after_the_mark_nothing_is_taken_as_not_sent() -> None:  # I16
    call = claimed()
    call.attempt.mark_sent()
    assert judge(ConnectionRefusedError(111, "refused"), call).status == "unknown"


def test_what_a_probe_says() -> None:
    call = claimed()
    assert answered(Happened(Result(text="ok")), call) == Report("done", unsettled=False, result='{"text":"ok"}')
    assert answered(DidNotHappen(), call).status == "absent"
    assert reason(answered(CannotTell("it is down"), call)).endswith("it is down")
    assert reason(answered(True, call)).endswith("the probe returned a bool")
    assert unanswered(TimeoutError("slow"), call).status == "cannot_tell"
    assert answered(Happened(None), call).status == "gave_up"  # it happened, and nobody knows its result


def test_a_reason_is_bounded_and_storable() -> None:  # I14
    report = judge(ValueError("\0\ud800" + "x" * 10_000), claimed())
    assert report.error is not None
    text = reason(report)
    assert "\0" not in text
    text.encode()
    assert len(text) < REASON_LIMIT + 20


def test_an_attempt_knows_its_time_and_whether_it_is_lost() -> None:
    lost = False
    attempt = Attempt(key="k", call="c", number=2, until=now() - 1, lost=lambda: lost)
    assert attempt.time_left == 0
    assert not attempt.lost
    lost = True
    assert attempt.lost
    assert repr(attempt) == "Attempt('k', number=2)"
