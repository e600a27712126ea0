"""The oracle sees what it is there to see."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.books import Effect, Request
from tests.chaos.oracle import OPEN, Decided, Verdict, judge
from tests.chaos.provider import CHARGES, REFUNDS


def decided(status: str, tool: str = "charge", about: str = "r:1:0") -> Decided:
    return Decided(f"box:{about}", tool, about, status)


def asked(*dids: str, about: str = "r:1:0", key: str | None = None) -> list[Request]:
    return [Request(CHARGES, about, key or f"box:{about}", did, 0.0) for did in dids]


def happened(count: int = 1, about: str = "r:1:0") -> list[Effect]:
    return [Effect(CHARGES, about, f"box:{about}", 0.0)] * count


def verdict(call: Decided, requests: Sequence[Request] = (), effects: Sequence[Effect] = ()) -> Verdict:
    return judge([call], requests, effects)


def test_done_once_is_as_it_should_be() -> None:
    found = verdict(decided("done"), asked("effect"), happened())
    assert found == Verdict(calls=1)
    assert found.holds


def test_a_repeat_that_the_key_caught_is_counted_and_no_harm() -> None:
    found = verdict(decided("done"), asked("effect", "replay", "replay"), happened())
    assert found == Verdict(calls=1, repeats=2)


@pytest.mark.parametrize("status", ["done", "in_doubt", "refused"])
def test_two_effects_are_double_whatever_the_ledger_says(status: str) -> None:
    found = verdict(decided(status, "refund"), asked("effect", "effect"), happened(2))
    assert len(found.double) == 1
    assert not found.holds


def test_done_without_an_effect_is_lost() -> None:
    assert len(verdict(decided("done")).lost) == 1


@pytest.mark.parametrize("status", OPEN)
def test_open_when_everything_is_quiet_is_lost(status: str) -> None:
    assert len(verdict(decided(status)).lost) == 1


@pytest.mark.parametrize("status", ["refused", "gave_up", "cancelled"])
def test_an_effect_that_the_ledger_denies_is_wrong(status: str) -> None:
    assert len(verdict(decided(status), asked("effect"), happened()).wrong) == 1
    assert verdict(decided(status), asked("nothing")).holds


@pytest.mark.parametrize("effects", [0, 1])
def test_doubt_is_named_and_holds_whatever_happened(effects: int) -> None:
    found = verdict(decided("in_doubt", "refund"), asked("effect"), happened(effects))
    assert found == Verdict(calls=1, in_doubt=1)


def test_doubt_about_a_key_that_never_ends_is_wrong() -> None:
    assert len(verdict(decided("in_doubt"), asked("effect"), happened()).wrong) == 1


def test_an_effect_that_nobody_decided_is_wrong() -> None:
    found = judge([], asked("effect"), happened())
    assert len(found.wrong) == 1


def test_another_key_at_the_repeat_is_wrong() -> None:
    requests = [*asked("effect"), *asked("effect", key="box:other")]
    assert len(verdict(decided("done"), requests, happened()).wrong) == 1


def test_a_rekeyed_repeat_is_no_other_call(  # I6
) -> None:
    requests = [*asked("nothing"), *asked("effect", key="box:r:1:0~1")]
    assert verdict(decided("done"), requests, happened()).holds


def test_the_key_of_another_call_is_wrong() -> None:
    assert len(verdict(decided("done"), asked("effect", key="box:r:1:1"), happened()).wrong) == 1


def test_a_question_is_no_repeat() -> None:
    lookup = Request(REFUNDS, "", "box:r:1:0", "lookup", 0.0)
    assert verdict(decided("done"), [*asked("effect"), lookup], happened()) == Verdict(calls=1)


@pytest.mark.parametrize("written", [1, 3])
def test_a_row_of_the_callers_that_is_not_what_its_decisions_make_it_is_wrong(written: int) -> None:
    assert len(judge([], [], [], [("r", written, 2)]).wrong) == 1
    assert judge([], [], [], [("r", 2, 2)]).holds
