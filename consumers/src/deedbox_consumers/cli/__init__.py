"""The consumers' commands: worker, demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox_consumers.cli import worker
from deedbox_consumers.demo.command import demo

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the consumers' commands."""
    app.command("worker")(worker.worker)
    app.command("demo")(demo)
