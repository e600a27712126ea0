"""Keys that are stuck, and what is taken back when they get on."""

from __future__ import annotations

from uuid import UUID

import pytest

from deedbox_consumers import stuck
from deedbox_consumers.stuck import Stuck

KEY = ("charge", "a")
CALLS = [UUID(int=number) for number in range(5)]


def test_what_was_left_is_taken_back_in_its_order_once_the_key_gets_on() -> None:
    keys = Stuck()
    keys.leave(KEY, CALLS[3:])
    keys.leave(KEY, CALLS[:4])
    assert KEY in keys
    assert keys.getting_on() == []
    keys.get_on(KEY)
    assert KEY not in keys
    assert keys.getting_on() == [KEY]
    assert keys.take(KEY, 2) == CALLS[:2]
    assert keys.take(KEY, 9) == CALLS[2:]
    assert keys.getting_on() == []


def test_a_key_that_is_stuck_again_keeps_what_was_not_taken_back() -> None:
    keys = Stuck()
    keys.leave(KEY, CALLS)
    keys.get_on(KEY)
    keys.take(KEY, 1)
    keys.leave(KEY, CALLS[:1])
    assert KEY in keys
    assert keys.getting_on() == []
    keys.get_on(KEY)
    assert keys.take(KEY, 9) == CALLS


def test_a_key_that_was_never_stuck_gets_on_unnoticed() -> None:
    keys = Stuck()
    keys.get_on(KEY)
    assert keys.getting_on() == []


def test_of_too_many_keys_all_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "REMEMBERED", 2)
    keys = Stuck()
    for order_key in ("a", "b", "c"):
        keys.leave(("charge", order_key), [])
    assert [("charge", order_key) in keys for order_key in ("a", "b", "c")] == [False, False, True]


def test_of_more_than_can_be_remembered_only_the_key_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "REMEMBERED", 3)
    keys, other = Stuck(), ("charge", "b")
    keys.leave(KEY, CALLS[:3])
    keys.leave(other, CALLS[3:])
    assert other in keys
    keys.get_on(other)
    assert other not in keys
    assert keys.getting_on() == []
    keys.get_on(KEY)
    keys.take(KEY, 9)
    keys.leave(other, CALLS[3:])  # there is room again
    keys.get_on(other)
    assert keys.take(other, 9) == CALLS[3:]
