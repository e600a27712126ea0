"""The core's commands: init, tools, runs, calls, dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox.cli import calls, dead, init, runs, tools

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the core's commands."""
    app.command("init")(init.init)
    app.add_typer(tools.app, name="tools")
    app.add_typer(runs.app, name="runs")
    app.add_typer(calls.app, name="calls")
    app.add_typer(dead.app, name="dead")
