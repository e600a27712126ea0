"""What is said when the demo cannot go on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from deedbox.errors import NotReady

if TYPE_CHECKING:
    from pathlib import Path

TAIL = 12  # lines of a log that an error shows


class DemoFailed(NotReady):
    """{what}. The end of {log}: {tail}"""

    what: str
    log: Path
    tail: str


class DemoPlays(NotReady):
    """A demo plays in {folder} already: wait for its end, or give this one another --folder."""

    folder: Path


def tail(log: Path) -> str:
    """The last lines of a log, on lines of their own."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            return "\n" + ("".join(deque(file, TAIL)).rstrip() or "(nothing)")
    except FileNotFoundError:
        return "\n(no such file)"
