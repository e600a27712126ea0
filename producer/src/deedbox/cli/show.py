"""How commands print: tables and facts for people, one JSON value for programs.

On a terminal what is wide is wrapped; into a pipe or a file each row is one line, however long, unless COLUMNS says
how wide it may be. What others wrote (a provider's message, a model's text) reaches no terminal as control characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

UNBOUNDED = 1_000_000  # columns: no line is as long
NARROWEST = 40  # columns; below that nothing is gained by wrapping
GAP = 2  # columns between columns
# Control characters, halves of surrogate pairs, and marks that turn the direction of what follows.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def as_json(value: Any) -> None:
    """Print one JSON value."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=_plain)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, default=_plain)
    print(text)


def line(text: str) -> None:
    """Print a line as it is."""
    print("\n".join(map(printable, text.split("\n"))))


def indented(text: str, by: int) -> None:
    """Print a paragraph that begins so many columns to the right; what is wrapped, two more."""
    first, *more = _folded(printable(text), _width() - by - GAP) or [""]
    _print(" " * by + first)
    for part in more:
        _print(" " * (by + GAP) + part)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "There are none.") -> None:
    """Print rows under their columns; None is shown as a dash.

    Give what names the row first and the widest column last. Where a line is too narrow, a long name gets one of its
    own, then the last column; where that is not enough, each row is a block. No value is cut, and only the last
    column is wrapped.
    """
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if not cells:
        line(empty)
        return
    spans = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    for inline in (len(columns), len(columns) - 1):
        if first := _first(cells, spans[:inline], _width()):
            _print(_padded(columns, [first, *spans[1:inline]]), bold=True)
            for row in cells:
                head, *rest = row[:inline]
                if cell_len(head) > first:
                    _print(head)
                    head = ""
                _print(_padded([head, *rest], [first, *spans[1:inline]]))
                _wrapped("".join(f"{columns[-1]}: {row[-1]}" for _ in row[inline:] if row[-1] != "-"))
            return
    for row in cells:
        _block(columns, row)


def _first(cells: Sequence[Sequence[str]], spans: Sequence[int], width: int) -> int:
    """How wide the first column is to be, for these to fit; 0 when most of its cells would have no room."""
    room = width - sum(spans[1:]) - GAP * (len(spans) - 1)
    fitting = [size for row in cells if (size := cell_len(row[0])) <= room]
    return min(spans[0], room) if len(fitting) * 2 > len(cells) else 0


def _block(columns: Sequence[str], row: Sequence[str]) -> None:
    """A row that is too wide for a line. A value stays whole: its spaces do not break."""
    _print(row[0], bold=True)
    named = [
        f"{name} {cell}".replace(" ", "\xa0") for name, cell in zip(columns[1:], row[1:], strict=True) if cell != "-"
    ]
    if row[-1] != "-" and len(", ".join(named)) > _width() - GAP:
        _wrapped(", ".join(named[:-1]))
        _wrapped(f"{columns[-1]}: {row[-1]}")
    else:
        _wrapped(", ".join(named))


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, leaving out what has none."""
    told = [(name, printable(str(value))) for name, value in pairs if value is not None]
    span = max((cell_len(name) for name, _ in told), default=0)
    for name, value in told:
        first, *more = _folded(value, _width() - span - GAP) or [""]
        _print(_padded([name, first], [span, 0]))
        for part in more:
            _print(" " * (span + GAP) + part)


def heading(text: str) -> None:
    """Print what the lines below are about."""
    print()
    _print(printable(text), bold=True)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """While it lasts, show on a terminal what is being waited for, and for how long already."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("waits {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(what, total=None)
        yield


def moment(at: datetime | str | None) -> str | None:
    """A moment for people, in UTC and to the second: 2026-11-30 21:04:11Z."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return None if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def span(length: timedelta | None) -> str | None:
    """A length of time for people: 36h, 90s, 1m30s, 7d."""
    if length is None:
        return None
    left, told = round(length.total_seconds(), 3), ""
    if left > 0 and left % 3600 == 0 and left <= 48 * 3600:
        return f"{left / 3600:.0f}h"  # windows are said in hours up to two days
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if left >= size:
            told += f"{left // size:.0f}{unit}"
            left %= size
    return told + (f"{left:g}s" if left or not told else "")


def short(value: Any, limit: int = 100) -> str:
    """A JSON value in one line of at most `limit` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """The text with what a terminal would obey, and what no encoding has, spelled out."""
    return _UNPRINTABLE.sub(lambda found: _spelled(found[0]), text)


def _spelled(character: str) -> str:
    escaped = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    code = ord(character)
    return escaped or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)


def _width() -> int:
    """Columns of the terminal; a pipe has as many as are wanted."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return max(int(os.environ["COLUMNS"]), NARROWEST)
    return max(Console().width, NARROWEST) if sys.stdout.isatty() else UNBOUNDED


def _print(text: str, *, bold: bool = False) -> None:
    text = text.rstrip()
    if bold and sys.stdout.isatty():
        Console(highlight=False, soft_wrap=True).print(Text(text, "bold"))
    else:
        print(text)


def _padded(row: Sequence[str], spans: Sequence[int]) -> str:
    padded = (cell + " " * max(0, size - cell_len(cell)) for cell, size in zip(row, spans, strict=False))
    return (" " * GAP).join(padded)


def _wrapped(text: str) -> None:
    for part in _folded(text, _width() - GAP):
        _print(" " * GAP + part.replace("\xa0", " "))


def _folded(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, NARROWEST // 2), break_on_hyphens=False)
