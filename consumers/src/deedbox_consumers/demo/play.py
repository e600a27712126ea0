"""From the real parts to the last act."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from deedbox_consumers.demo.acts import Story
from deedbox_consumers.demo.failure import DemoPlays
from deedbox_consumers.demo.stage import Stage
from deedbox_consumers.demo.timeline import Timeline
from deedbox_consumers.demo.witness import Witness
from deedbox_debezium.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from deedbox_consumers.demo.evidence import Score


def play(folder: Path, console: Console) -> list[Score]:
    """Start what does not run, play every act, stop what was started. Raises DemoFailed, DemoPlays, StackFailed."""
    with ExitStack() as parts:
        parts.enter_context(_alone(folder))
        timeline = parts.enter_context(Timeline(console))
        timeline.head("0. The real parts")
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
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "demo.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoPlays(folder=folder) from None
        yield


@contextmanager
def _stack(folder: Path, timeline: Timeline) -> Iterator[Stack]:
    """The folder's stack: what runs already is used and left, what does not runs as long as this process."""
    found = Stack(folder, progress=timeline)
    if all(part["answers"] for part in found.status().values()):
        timeline.say(f"the stack of {folder} runs already: it is used and left running")
        yield found
        return
    first = ", for the first time: give it a minute" if not (folder / "stack.json").exists() else ""
    with Stack(folder, supervised=True, progress=timeline) as stack:
        with timeline.waiting(f"PostgreSQL, Kafka and Kafka Connect start{first}"):
            stack.up()
        yield stack
