"""The timeline: who did what when, for people, in the order in which it happened."""

from __future__ import annotations

import heapq
import itertools
import textwrap
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from rich.console import Console

SETTLE = 0.25  # seconds that a line waits for one that happened earlier and is heard of later
INDENT = 19  # columns of the moment and of who
STYLES = {
    "model": "magenta",
    "agent": "cyan",
    "provider": "yellow",
    "debezium": "blue",
    "worker 1": "green",
    "worker 2": "green",
    "sweep": "green",
    "stack": "dim",
}


class Timeline:
    """Prints lines of the form moment, who, what; moments are seconds since it began.

    Below the last line it shows, on a terminal, what is being waited for. It is the stack's progress too.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.time()
        self._waiting: list[tuple[float, int, Text]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="timeline", daemon=True)
        self._waits = Progress(SpinnerColumn(style="dim"), TextColumn("[dim]{task.description}"))
        self._loads = Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._below = Live(
            Group(self._waits, self._loads),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._below.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.flush()
        self._below.stop()

    def tell(self, at: float, who: str, text: str, style: str = "") -> None:
        """Print a line in its place; `at` in seconds since the epoch."""
        if self.console.is_terminal:
            text = f"\n{' ' * INDENT}".join(textwrap.wrap(text, max(20, self.console.width - INDENT)))
        line = Text.assemble((f"{at - self._began:7.2f}  ", "dim"), (f"{who:<9} ", STYLES.get(who, "")), (text, style))
        with self._lock:
            heapq.heappush(self._waiting, (at, next(self._order), line))

    def now(self, who: str, text: str, style: str = "") -> None:
        """Print a line about this moment."""
        self.tell(time.time(), who, text, style)

    def head(self, title: str) -> None:
        """Begin a chapter."""
        self.flush()
        self.console.print()
        self.console.print(Text(title, "bold"))

    def verdict(self, text: str, *, good: bool) -> None:
        """End a chapter."""
        self.flush()
        mark = ("✓" if good else "✗") if self.console.encoding.startswith("utf") else ("=" if good else "!")
        self.console.print(Text(f"{mark:>7}  {text}", "bold green" if good else "bold red"))

    def flush(self) -> None:
        """Print whatever still waits."""
        self._print(float("inf"))

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show what is being waited for."""
        task = self._waits.add_task(what, total=None)
        try:
            yield
        finally:
            self._waits.remove_task(task)

    # ---- what a starting stack says

    def say(self, text: str) -> None:
        """One thing that a person should know."""
        self.now("stack", text)

    @contextmanager
    def download(self, what: str, size: int) -> Iterator[Callable[[int], None]]:
        """A download of `size` bytes begins; the function given takes the number of bytes that came in."""
        if not self.console.is_terminal:
            self.say(f"fetches {what}, {size / 1e6:.0f} MB")
        task = self._loads.add_task(what, total=size)
        try:
            yield lambda count: self._loads.advance(task, count)
        finally:
            self._loads.remove_task(task)

    def _main(self) -> None:
        while not self._stop.wait(SETTLE / 2):
            self._print(time.time() - SETTLE)

    def _print(self, until: float) -> None:
        with self._lock:
            while self._waiting and self._waiting[0][0] <= until:
                self.console.print(heapq.heappop(self._waiting)[2], soft_wrap=True)
