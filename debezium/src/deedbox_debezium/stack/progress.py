"""What a starting stack says meanwhile: nothing, or lines and a download bar on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars


class Progress(Protocol):
    """Where a stack reports what it is doing. Called from several threads."""

    def say(self, text: str) -> None:
        """One thing that a person should know."""
        ...

    def download(self, what: str, size: int) -> AbstractContextManager[Callable[[int], None]]:
        """A download of `size` bytes begins; the function given takes the number of bytes that came in."""
        ...


class Silent:
    """Says nothing."""

    def say(self, text: str) -> None:
        """Drop it."""

    @contextmanager
    def download(self, what: str, size: int) -> Iterator[Callable[[int], None]]:  # noqa: ARG002  # Progress asks for them
        """Drop it."""
        yield lambda _: None


class Shown:
    """Says it on standard error, with a bar while something is downloaded (standard output stays for results)."""

    def say(self, text: str) -> None:
        """Print the line."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    @contextmanager
    def download(self, what: str, size: int) -> Iterator[Callable[[int], None]]:
        """Show a bar."""
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Bars(*columns, console=Console(stderr=True)) as bars:
            bar = bars.add_task(what, total=size)
            yield lambda count: bars.advance(bar, count)
