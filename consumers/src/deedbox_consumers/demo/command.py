"""`deedbox demo`: the double-charge story on the real parts."""

from __future__ import annotations

import io
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from deedbox.cli.options import AsJson
from deedbox_consumers.demo import report
from deedbox_consumers.demo.acts import Story
from deedbox_consumers.demo.failure import DemoFailed
from deedbox_consumers.demo.stage import Stage
from deedbox_consumers.demo.timeline import Timeline
from deedbox_consumers.demo.witness import Witness
from deedbox_debezium.stack import Stack

if TYPE_CHECKING:
    from types import FrameType

    from deedbox_consumers.demo.evidence import Score

FAILED = 1
INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended


def demo(
    folder: Annotated[Path, typer.Option(help="Where all that it leaves lies.")] = Path(".deedbox"),
    as_json: AsJson = False,
) -> None:
    """Charge a customer twice, then not: an agent and its worker are killed on real Postgres, Kafka and Debezium.

    First an agent without Deedbox is killed between the charge and saving it, and charges twice. Then the same agent on
    Deedbox, while a worker, the agent and Kafka Connect are killed with SIGKILL at the worst moment. The payment
    provider is a process of its own that counts.

    The parts are fetched at the first time (about 85 MB) and started in the folder; a stack that runs there already is
    used and left running. Exit code 0 if every decision on Deedbox was charged exactly once and no completion was asked
    for twice, else 1.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode
    console = Console(stderr=as_json, highlight=False)
    began = time.monotonic()
    try:
        with Timeline(console) as timeline:
            scores = _play(folder, timeline)
    except DemoFailed as problem:
        console.print(Text.assemble(("\nThe demo could not go on: ", "bold red"), str(problem)), soft_wrap=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        console.print("Stopped, with everything that was started.")
        raise typer.Exit(INTERRUPTED) from None
    report.show(scores, console)
    console.print(f"\nLogs and the provider's books are in {folder / 'demo'}.", markup=False)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(scores, time.monotonic() - began), indent=2) + "\n")
    raise typer.Exit(0 if report.holds(scores) else FAILED)


def _play(folder: Path, timeline: Timeline) -> list[Score]:
    timeline.head("0. The real parts")
    with ExitStack() as parts:
        stack = parts.enter_context(_stack(folder, timeline))
        with timeline.waiting("ledger, topics and connector are put there"):
            stage = parts.enter_context(Stage(stack))
        timeline.say("ledger, topics, connector and the payment provider are ready")
        witness = parts.enter_context(Witness(stage, timeline.tell))
        stage.hear = witness.hear
        story = Story(stage, witness, timeline)
        story.tidy()
        return [act() for act in (story.naive, story.worker_killed, story.agent_killed, story.connect_killed)]


@contextmanager
def _stack(folder: Path, timeline: Timeline) -> Iterator[Stack]:
    """The folder's stack: one that runs whole is used and left, else it runs as long as this process."""
    found = Stack(folder, progress=timeline)
    if all(part["answers"] for part in found.status().values()):
        timeline.say(f"the stack of {folder} runs already: it is used and left running")
        yield found
        return
    with Stack(folder, supervised=True, progress=timeline) as stack:
        with timeline.waiting("PostgreSQL, Kafka and Kafka Connect start"):
            stack.up()
        yield stack


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
