"""`deedbox worker`: a worker as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from deedbox.cli.options import DatabaseUrl, Schema
from deedbox.errors import NoHandlers
from deedbox_consumers.handlers import Handlers
from deedbox_consumers.health import serve_health
from deedbox_consumers.source import SourceName
from deedbox_consumers.worker import CONCURRENCY, THREADS, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbox_consumers.health import Progress

CUT_OFF = 1  # exit code after a second SIGTERM
FAILED = 1  # as Python's own after an error


def worker(
    handlers: Annotated[str, typer.Argument(metavar="MODULE:HANDLERS", help="Such as shop.tools:handlers.")],
    *,
    tools: Annotated[
        str | None, typer.Option(help="Names, with commas between; default: all that have a handler.")
    ] = None,
    source: Annotated[SourceName, typer.Option(help="Where calls come from.")] = "kafka",
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    kafka: Annotated[
        str | None, typer.Option(help="Bootstrap servers; default: DEEDBOX_KAFKA, or this folder's.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Async handlers of one tool at work at once.")] = CONCURRENCY,
    threads: Annotated[int, typer.Option(help="Sync handlers of one tool at work at once.")] = THREADS,
    health_port: Annotated[
        int | None, typer.Option(help="Answer /livez and /metrics there; 0: on a free port, which is logged.")
    ] = None,
) -> None:
    """Perform the calls of tools. Start as many as you like, one per core, on any machine.

    SIGTERM or Ctrl-C: no new calls, those under way get 25 s to end. Once more: it ends at once, and their outcome is
    unknown until the sweep has judged it.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    one = Worker(
        None,
        handlers_of(handlers),
        tools=None if tools is None else [name.strip() for name in tools.split(",") if name.strip()],
        source=source,
        database_url=database_url,
        schema=schema,
        kafka=kafka,
        concurrency=concurrency,
        threads=threads,
    )
    with healthy(one.progress, health_port):
        serve(one)


@contextlib.contextmanager
def healthy(progress: Progress, port: int | None) -> Iterator[None]:
    """Answer for this process' health on a port, if one is wanted. Raises PortTaken."""
    if port is None:
        yield
        return
    with serve_health(progress, port) as health:
        logging.getLogger("deedbox.worker").info("/livez and /metrics are answered on port %d", health.port)
        yield


def serve(one: Worker) -> None:
    """Run a worker as this process' main: the first SIGTERM or SIGINT drains it, the second ends the process."""
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        if asked:
            os._exit(CUT_OFF)
        asked = True
        one.stop()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)  # not the loop's own way: a handler may block the loop
    try:
        asyncio.run(one.run())
    finally:
        if one.blocked:
            _cut_off(one.blocked, sys.exception())


def _cut_off(blocked: int, problem: BaseException | None) -> None:
    """End although handlers block their threads: Python would wait for these, for ever if need be."""
    log = logging.getLogger("deedbox.worker")
    log.warning("%d handlers still block a thread: they are cut off", blocked, exc_info=problem)
    sys.stderr.flush()
    os._exit(0 if problem is None else FAILED)


def handlers_of(target: str) -> Handlers:
    """The Handlers at MODULE:NAME, found from the working directory too; raises NoHandlers."""
    module, colon, name = target.partition(":")
    if not colon:
        raise NoHandlers(target=target, why="write MODULE:NAME")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise
        raise NoHandlers(target=target, why=f"there is no module {module} here") from problem
    handlers = getattr(found, name, None)
    if not isinstance(handlers, Handlers):
        raise NoHandlers(target=target, why=f"{name} is not a deedbox_consumers.Handlers")
    return handlers
