"""How commands print: a table for people, JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def as_json(value: Any) -> None:
    """Print one JSON value."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def line(text: str) -> None:
    """Print a line as it is."""
    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Print rows under their columns; None is shown as a dash."""
    drawn = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        drawn.add_row(*("-" if cell is None else escape(str(cell)) for cell in row))
    Console(highlight=False).print(drawn)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, leaving out what has none."""
    drawn = Table("name", "value", show_header=False, box=None, pad_edge=False)
    for name, value in pairs:
        if value is not None:
            drawn.add_row(name, escape(str(value)), style=None)
    Console(highlight=False).print(drawn)
