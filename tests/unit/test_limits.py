"""Limits that are none are refused where they are written."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from deedbox.errors import InvalidLimits
from deedbox_consumers import Limits


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"concurrency": 1},
        {"rate": 0.1, "per": timedelta(hours=1)},
        {"rate": 5},
        {"breaker": 1, "open_for": timedelta(milliseconds=1)},
    ],
)
def test_what_can_be_kept_to_is_taken(limits: dict[str, Any]) -> None:
    Limits(**limits)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("concurrency", 0),
        ("concurrency", True),
        ("concurrency", 2.0),
        ("rate", 0),
        ("rate", -1.0),
        ("rate", math.nan),
        ("rate", math.inf),
        ("rate", "5"),
        ("breaker", 0),
        ("breaker", 2.5),
        ("per", timedelta(0)),
        ("per", 60),
        ("open_for", timedelta(seconds=-1)),
        ("open_for", None),
    ],
)
def test_what_is_no_limit_is_refused_by_name(name: str, given: object) -> None:
    with pytest.raises(InvalidLimits, match=rf"Limits\({name}="):
        Limits(**{name: given})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
