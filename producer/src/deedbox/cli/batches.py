"""An act on many calls, a batch at a time: each batch is a transaction, so whatever stops it, what is done is done."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

SIZE = 500  # calls: a batch holds its locks for a moment, and a person sees it go on
SILENT = 2.0  # seconds; what is over by then needs no progress

T = TypeVar("T")


def in_batches(ids: Sequence[UUID], act: Callable[[Sequence[UUID]], Iterable[tuple[UUID, str]]]) -> dict[UUID, str]:
    """The verdict of each call. Ctrl-C ends it between two batches, and is raised with how far it came."""
    verdicts: dict[UUID, str] = {}
    began, shown = time.monotonic(), False
    try:
        for start in range(0, len(ids), SIZE):
            verdicts |= dict(act(ids[start : start + SIZE]))
            if sys.stderr.isatty() and time.monotonic() - began > SILENT:
                shown = True
                sys.stderr.write(f"\r{len(verdicts)} of {len(ids)} ")
                sys.stderr.flush()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{len(verdicts)} of {len(ids)} are done and stay so; the same command goes on with the rest"
        ) from None
    finally:
        if shown:
            sys.stderr.write("\r" + " " * 40 + "\r")
    return verdicts
