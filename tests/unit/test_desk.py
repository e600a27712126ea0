"""What the desk remembers."""

from __future__ import annotations

import pytest

from deedbox_consumers import desk
from deedbox_consumers.desk import _remember


def test_what_it_remembers_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "REMEMBERED", 3)
    known: set[int] = set()
    for number in range(10):
        _remember(known, number)
        assert number in known
        assert len(known) <= 3
