"""A worker process of the chaos: it is told where to break itself."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from deedbox import signals
from deedbox_consumers import Worker
from deedbox_consumers.cli.worker import serve
from tests.chaos import tools

PLACES: Final = ("before_claim", "after_claim", "before_effect", "after_effect", "before_record", "after_record")


def arm(place: str, how: str) -> None:
    """SIGKILL or SIGSTOP this process at `place`; `place:3` is the third time that it is reached."""
    name, _, nth = place.partition(":")
    if name:
        signals.arm(name, _strike(signal.Signals[how]), nth=int(nth or 1))


def _strike(number: signal.Signals) -> Callable[[], None]:
    # This very thread: sent to the process, a stop may let it run on for a moment.
    return lambda: signal.pthread_kill(threading.get_ident(), number)


def main(
    url: str,
    schema: str,
    provider: str,
    names: list[str],
    lease: float,
    kafka: str | None = None,
    place: str = "",
    how: str = "SIGKILL",
) -> None:
    """Work until SIGTERM. `names` are the tools to perform."""
    os.environ[tools.PROVIDER] = provider
    arm(place, how)
    options: dict[str, Any] = {"source": "kafka", "kafka": kafka} if kafka else {"source": "poll"}
    performed = [tools.family_of(name).tool(name.removeprefix(tools.family_of(name).name)) for name in names]
    length = timedelta(seconds=lease)
    serve(Worker(None, tools.handlers(performed), database_url=url, schema=schema, lease=length, **options))
