"""`deedbox stack`: the real parts in this folder, without Docker or system packages."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from psycopg.conninfo import conninfo_to_dict

from deedbox.cli import show
from deedbox.cli.options import AsJson
from deedbox.errors import NoStack
from deedbox.settings import LOCAL
from deedbox_debezium.stack import PartName, Shown, Silent, Stack
from deedbox_debezium.stack.postgres import programs

app: typer.Typer = typer.Typer(help="A local stack: PostgreSQL, Kafka, Connect, Debezium.", no_args_is_help=True)

DOWN = 3  # exit code of `status` when a part does not answer, as of `systemctl status`

Folder = Annotated[Path, typer.Option(help="Where everything of the stack lies.")]
Nearest = Annotated[
    Path | None, typer.Option(help="Where everything of the stack lies; default: .deedbox here or above.")
]


class Part(StrEnum):
    """A part's name on the command line."""

    postgres = "postgres"
    kafka = "kafka"
    connect = "connect"


@app.command()
def up(
    parts: Annotated[list[Part] | None, typer.Argument(help="Default: all.")] = None,
    folder: Folder = Path(".deedbox"),
    attach: Annotated[bool, typer.Option("--attach", help="Stay, and stop it all at Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the parts that do not run, and wait until each answers."""
    # a `kill` then ends like Ctrl-C: what was started is stopped again
    signal.signal(signal.SIGTERM, _interrupt)
    stack = Stack(folder, supervised=attach, progress=Silent() if as_json else Shown())
    try:
        stack.up(*_names(parts))
        _report(stack, as_json)
        if attach:
            signal.pause()
    except KeyboardInterrupt:
        if attach:
            stack.down()
        raise


@app.command()
def down(folder: Folder = Path(".deedbox"), as_json: AsJson = False) -> None:
    """Stop all parts; their data stays."""
    stopped = Stack(folder).down()
    if as_json:
        show.as_json({"stopped": stopped})
    else:
        show.line(f"stopped: {', '.join(stopped) or 'nothing ran'}")


@app.command()
def status(folder: Folder = Path(".deedbox"), as_json: AsJson = False) -> None:
    """Show which parts run, answer, and where. Exit code 3 if one does not answer."""
    stack = Stack(folder)
    _report(stack, as_json)
    if not all(part["answers"] for part in stack.status().values()):
        raise typer.Exit(DOWN)


@app.command()
def url(folder: Nearest = None) -> None:
    """Print the URL of the stack's database, password included: psql "$(deedbox stack url)"."""
    show.line(_known(folder).database_url)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(more: typer.Context, folder: Nearest = None) -> None:
    """Open psql on the stack's database. What follows is psql's own: deedbox stack psql -c 'TABLE orders'."""
    place = conninfo_to_dict(_known(folder).database_url)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    told = {names[name]: str(value) for name, value in place.items() if name in names}
    # The password goes into the environment, since everybody can see arguments.
    os.execve(programs() / "psql", ["psql", *more.args], os.environ | told)  # noqa: S606 - a shell is not wanted


@app.command()
def logs(
    part: Part,
    folder: Folder = Path(".deedbox"),
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many, from the end.")] = 50,
) -> None:
    """Show the end of a part's log."""
    path = Stack(folder).logs(_names([part])[0])
    if not path.exists():
        show.line(f"there is no {path}")
        raise typer.Exit(1)
    with path.open(encoding="utf-8", errors="replace") as file:
        sys.stdout.writelines(deque(file, maxlen=lines))


@app.command()
def reset(
    folder: Folder = Path(".deedbox"),
    everything: Annotated[bool, typer.Option("--all", help="Ports, passwords and downloads, too.")] = False,
) -> None:
    """Stop all parts and delete their data; ports, passwords and downloads are kept."""
    stack = Stack(folder)
    if everything:
        stack.erase()
    else:
        stack.reset()
    show.line(f"emptied: {stack.folder}")


def _names(parts: list[Part] | None) -> list[PartName]:
    return [part.value for part in parts or []]


def _known(folder: Path | None) -> Stack:
    """The stack of the folder, or the nearest; raises NoStack when none was ever started there."""
    here = Path.cwd()
    near = (place / LOCAL.parent for place in (here, *here.parents) if (place / LOCAL).is_file())
    stack = Stack(folder or next(near, LOCAL.parent))
    if "postgres" not in stack.state.ports:
        raise NoStack(folder=stack.folder)
    return stack


def _report(stack: Stack, as_json: bool) -> None:
    parts = stack.status()
    if as_json:
        show.as_json({"folder": str(stack.folder), "parts": parts})
        return
    rows = [
        (
            name,
            "answers" if facts["answers"] else "runs" if facts["running"] else "is down",
            facts["address"],
            facts["pid"],
        )
        for name, facts in parts.items()
    ]
    show.table(("part", "", "address", "process"), rows)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
