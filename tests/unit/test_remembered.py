"""What is remembered, and not for ever."""

from __future__ import annotations

import pytest

from deedbox_consumers import remembered
from deedbox_consumers.remembered import Remembered


def test_it_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "ENOUGH", 3)
    known: Remembered[int] = Remembered()
    for number in range(10):
        known.add(number)
        assert number in known
        assert len(known) <= 3
    known.discard(9)
    assert 9 not in known
