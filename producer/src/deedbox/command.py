"""The command `deedbox`: this distribution's commands and those that others add.

They add them through the entry-point group `deedbox.commands`: each is a function `register(app: typer.Typer) -> None`.
"""

from __future__ import annotations

import io
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import psycopg

from deedbox.errors import DeedboxError

if TYPE_CHECKING:
    import typer

FAILED = 1
BAD_INPUT = 2  # what click itself exits with for a wrong option
STOPPED = 130  # what a shell says of a program that Ctrl-C ended


def main() -> None:
    """Run the command line; what a person can mend is one line, and so is Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode
    try:
        app = build()
    except ModuleNotFoundError as problem:
        if problem.name not in {"typer", "rich"}:
            raise
        sys.exit("The command line needs more packages than are installed: pip install 'deedbox[cli]'")
    except KeyboardInterrupt as stop:
        sys.exit(stopped(stop))
    try:
        app()
    except DeedboxError as problem:
        _fail(str(problem), BAD_INPUT)
    except psycopg.errors.InsufficientPrivilege as problem:
        _fail(f"The database role may not do this ({_line(problem)}): `deedbox init --roles` says what is for whom", 1)
    except psycopg.OperationalError as problem:
        if not (problem.sqlstate or "08").startswith(("08", "57P")):  # the connection's, the server's end
            raise
        _fail(f"Postgres cannot be reached: {_line(problem)}", FAILED)


def build() -> typer.Typer:
    """The app with every command that is installed, in a fixed order."""
    import typer  # noqa: PLC0415  # of the extra [cli]

    from deedbox.cli.commands import Commands  # noqa: PLC0415  # needs it, too

    app = typer.Typer(
        name="deedbox",
        cls=Commands,
        help="An agent's tool calls happen once, or are known not to have.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for entry in sorted(entry_points(group="deedbox.commands"), key=lambda entry: entry.value):
        entry.load()(app)
    return app


def stopped(stop: KeyboardInterrupt) -> int:
    """Say that Ctrl-C ended it, and what it has to say of that; the exit code."""
    told = f"stopped: {stop}" if str(stop) else "stopped"
    below = "\n" if sys.stderr.isatty() else ""  # the terminal has written ^C
    sys.stderr.write(f"{below}{told}\n")
    return STOPPED


def _fail(text: str, code: int) -> None:
    sys.stderr.write(f"error: {text}\n")
    sys.exit(code)


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())
