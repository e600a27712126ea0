"""The command `deedbox`: this distribution's commands and those that others add.

They add them through the entry-point group `deedbox.commands`: each is a function `register(app: typer.Typer) -> None`.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import psycopg

from deedbox.errors import DeedboxError

if TYPE_CHECKING:
    import typer

BAD_INPUT = 2  # what click itself exits with for a wrong option


def main() -> None:
    """Run the command line; a DeedboxError is one line and exit code 2."""
    try:
        app = build()
    except ModuleNotFoundError as problem:
        if problem.name not in {"typer", "rich"}:
            raise
        sys.exit("The command line needs more packages than are installed: pip install 'deedbox[cli]'")
    try:
        app()
    except DeedboxError as problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(BAD_INPUT)
    except Exception as problem:
        if (reason := _unreachable(problem)) is None:
            raise
        sys.stderr.write(f"error: Postgres cannot be reached: {reason}\n")
        sys.exit(1)


def build() -> typer.Typer:
    """The app with every command that is installed, in a fixed order."""
    import typer  # noqa: PLC0415  # of the extra [cli]

    app = typer.Typer(
        name="deedbox",
        help="An agent's tool calls happen once, or are known not to have.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for entry in sorted(entry_points(group="deedbox.commands"), key=lambda entry: entry.value):
        entry.load()(app)
    return app


def _unreachable(problem: Exception) -> str | None:

    if isinstance(problem, psycopg.OperationalError) and problem.sqlstate is None:
        return " ".join(str(problem).split())
    return None
