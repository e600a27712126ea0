"""What is reported of an attempt: only what is known."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel

from deedbox import Tool, provider_key, repeatable
from deedbox.effects import Effect
from deedbox_consumers import Attempt, OutcomeUnknown, Refusal, RetryLater
from deedbox_consumers.clock import now
from deedbox_consumers.judge import judge, not_sent
from deedbox_consumers.record import Claimed, Record
from deedbox_consumers.report import RAW_LIMIT, REASON_LIMIT, RESULT_LIMIT, Report, done

DAY = timedelta(hours=24)


class Args(BaseModel):
    """Do it."""

    text: str = ""


class Result(BaseModel):
    text: str


def claimed(
    effect: Effect = repeatable, *, number: int = 1, attempts: int = 3, window: float | None = None, sent: bool = True
) -> Claimed:
    tool = Tool("do_it", args=Args, result=Result, effect=effect, attempts=attempts)
    attempt = Attempt(key="box:run:1:0", call="run:1:0", number=number, until=now() + 60)
    ends = None if window is None else now() + window
    return Claimed(Record(uuid4(), "do_it", "run:1:0", "k", b"x"), tool, Args(), attempt, uuid4(), ends, sent)


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


@pytest.mark.parametrize(("effect", "settles"), [(provider_key(DAY), False), (repeatable, None)])
def test_a_refusal_settles_an_earlier_doubt_only_under_the_providers_key(  # I16
    effect: Effect, settles: bool | None
) -> None:
    report = judge(Refusal("card_declined", "no funds"), claimed(effect))
    assert (report.status, report.unsettled) == ("refused", settles)
    assert json.loads(report.error or "")["code"] == "card_declined"
    assert json.loads(report.error or "")["message"] == "no funds"


def test_what_was_never_sent_is_given_back_whatever_was_raised() -> None:  # I7
    for problem in (ValueError("no"), TimeoutError(), Refusal("a", "b")):
        assert judge(problem, claimed(sent=False)) == Report("pending")


def test_retry_later_waits_as_long_as_it_says_and_leaves_doubts_as_they_were() -> None:
    report = judge(RetryLater(timedelta(seconds=7)), claimed())
    assert (report.status, report.delay, report.unsettled) == ("retry", timedelta(seconds=7), None)
    assert judge(RetryLater(2.5), claimed()).delay == timedelta(seconds=2.5)


def test_put_off_too_often_is_given_up() -> None:
    report = judge(RetryLater(1), claimed(number=3, attempts=3))
    assert (report.status, report.unsettled) == ("gave_up", None)


@pytest.mark.parametrize(
    "problem", [ValueError("odd"), TimeoutError(), OutcomeUnknown("read timed out"), ConnectionResetError()]
)
def test_anything_else_is_unknown_and_repeated_where_that_is_safe(problem: Exception) -> None:  # I7 I16
    for call in (claimed(repeatable), claimed(provider_key(DAY), window=3600)):
        report = judge(problem, call)
        assert (report.status, report.unsettled) == ("retry", True)


@pytest.mark.parametrize(
    "call",
    [
        claimed(provider_key(DAY), window=30),  # another attempt of 60 s would end outside
        claimed(provider_key(DAY), window=3600, number=3, attempts=3),
        claimed(repeatable, number=3, attempts=3),
    ],
)
def test_unknown_without_a_safe_repeat_is_in_doubt(call: Claimed) -> None:  # I7 I16
    report = judge(OutcomeUnknown("read timed out"), call)
    assert (report.status, report.unsettled, reason(report)) == ("in_doubt", True, "read timed out")


def test_refused_connections_were_plainly_not_sent() -> None:
    class ConnectError(Exception):
        __module__ = "httpx2._exceptions"

    class Mine(ConnectError):
        pass

    class Namesake(Exception):
        __module__ = "shop.errors"

    assert not_sent(ConnectionRefusedError())
    assert not_sent(ConnectError())
    assert not_sent(Mine())
    assert not not_sent(Namesake())
    assert not not_sent(ConnectionResetError())
    report = judge(ConnectionRefusedError(111, "refused"), claimed())
    assert (report.status, report.unsettled) == ("retry", None)


def test_a_reason_is_bounded_and_storable() -> None:  # I14
    report = judge(ValueError("\0\ud800" + "x" * 10_000), claimed(number=3))
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
