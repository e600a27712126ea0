"""`deedbox demo`: the double-charge story on the real parts."""

from __future__ import annotations

import io
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from deedbox.cli.options import AsJson
from deedbox.errors import ExtraMissing, NotReady

if TYPE_CHECKING:
    from types import FrameType

FAILED = 1
INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended


def demo(
    folder: Annotated[Path, typer.Option(help="Where all that it leaves lies.")] = Path(".deedbox"),
    as_json: AsJson = False,
) -> None:
    """Play the double-charge story on real Postgres, Kafka and Debezium.

    First an agent without Deedbox is killed between the charge and the save:
    it charges twice. Then the same agent on Deedbox, while a worker, the agent
    and Kafka Connect are killed (SIGKILL) at the worst moment. The payment
    provider is a process of its own, with its own books.

    The first time it fetches the parts (72 MB). They run as long as the
    demo does; what runs in the folder already is used and left running.

    Exit code 0: on Deedbox every decision was charged exactly once, and no
    completion was asked for twice. Else 1.
    """
    try:
        from deedbox_consumers.demo import report  # noqa: PLC0415  # other commands do without these packages
        from deedbox_consumers.demo.play import play  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        raise ExtraMissing(what="The demo", extra="deedbox-consumers[demo]") from problem
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode
    console = Console(stderr=as_json, highlight=False)
    began = time.monotonic()
    try:
        scores = play(folder, console)
    except NotReady as problem:
        console.print(Text.assemble(("\nThe demo cannot go on. ", "bold red"), str(problem)), soft_wrap=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        console.print("\nStopped, with everything that was started.")
        raise typer.Exit(INTERRUPTED) from None
    report.show(scores, console)
    console.print(f"\nLogs and the provider's books are in {folder / 'demo'}.", markup=False)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(scores, time.monotonic() - began), indent=2) + "\n")
    if not report.holds(scores):
        raise typer.Exit(FAILED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
