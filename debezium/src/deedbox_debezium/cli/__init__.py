"""The pipeline's commands: stack, connector, topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox_debezium.cli import connector, stack, topics

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the pipeline's commands."""
    app.add_typer(stack.app, name="stack")
    app.add_typer(connector.app, name="connector")
    app.add_typer(topics.app, name="topics")
