"""The report: a table for people, one JSON object for programs."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.figures import Figure


def table(figures: Iterable[Figure]) -> Table:
    """A line per figure: median, raw values, and the limit it has."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "median", "unit", "raw values", "limit", ""):
        made.add_column(name, justify="right" if name in {"median", "raw values"} else "left")
    for each in figures:
        raw = " ".join(number(value) for value in each.raw) if len(each.raw) > 1 else ""
        made.add_row(each.name, number(each.median), each.unit, raw, str(each.limit or ""), verdict(each))
    return made


def verdict(figure: Figure) -> str:
    """In a word: nothing without a limit."""
    match figure.holds:
        case None:
            return ""
        case True:
            return "met"
        case False:
            return "BROKEN" if figure.breaks_bar else "not met"


def number(value: float) -> str:
    """Three digits or so, thousands apart."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def as_json(figures: Sequence[Figure], loads: Sequence[float], seconds: float) -> dict[str, Any]:
    """Everything, raw values included."""
    return {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "load_average": list(loads),
        "seconds": round(seconds, 1),
        "bars_hold": not any(figure.breaks_bar for figure in figures),
        "figures": [
            {
                "name": figure.name,
                "unit": figure.unit,
                "median": figure.median,
                "raw": list(figure.raw),
                "limit": None
                if figure.limit is None
                else {"sense": figure.limit.sense, "value": figure.limit.value, "bar": figure.limit.is_bar},
                "holds": figure.holds,
            }
            for figure in figures
        ],
    }
