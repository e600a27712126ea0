"""Moments on the command line: an age such as 2h, or an ISO time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_AGE = re.compile(r"([0-9]{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def moment(text: str | None) -> datetime | None:
    """The moment that is meant: 2h is two hours ago; a time without an offset is in UTC."""
    if text is None:
        return None
    try:
        if age := _AGE.fullmatch(text.strip()):
            return datetime.now(UTC) - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        wanted = "give an age (90s, 30m, 2h, 7d, 4w) or a time (2026-11-30, 2026-11-30T21:04Z)"
        raise typer.BadParameter(f"{text!r} is no moment: {wanted}") from None
