"""The consumers' commands: worker, sweep, demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox_consumers.cli import sweep, worker
from deedbox_consumers.demo.command import demo

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the consumers' commands."""
    app.command("worker")(worker.worker)
    app.command("sweep")(sweep.sweep)
    app.command("demo")(demo)
