"""The group of all commands, which ends in one way when a person stops it."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from deedbox.command import stopped


class Commands(TyperGroup):
    """All commands. Ctrl-C ends each with one line, which begins with `stopped`, and exit code 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise typer.Exit(stopped(stop)) from None
