"""`deedbox tools`: the register of tools."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from psycopg.rows import dict_row

from deedbox import registry
from deedbox.cli import show
from deedbox.cli.options import AsJson, By, DatabaseUrl, Note, Schema, author, ledger
from deedbox.errors import NoSuchTool, NoTools
from deedbox.statements import Statements
from deedbox.tool import Tool

if TYPE_CHECKING:
    from deedbox.step import AnyTool

app: typer.Typer = typer.Typer(help="The tools that are registered.", no_args_is_help=True)


@app.command("apply")
def apply(
    module: Annotated[
        str, typer.Argument(metavar="MODULE", help="The module whose top level defines the tools, such as shop.tools.")
    ],
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """Register the tools of a module: their schemas and topics. All of them, or none when one breaks compatibility."""
    tools = tools_of(module)
    with ledger(database_url, schema) as (conn, settings):
        done = registry.apply(conn, tools, schema=settings.schema)
    if json:
        show.as_json([asdict(item) for item in done])
    else:
        show.table(["tool", "change"], [(item.tool, item.change) for item in done])


@app.command("list")
def list_(database_url: DatabaseUrl = None, schema: Schema = None, json: AsJson = False) -> None:
    """List the registered tools, and which are paused."""
    with ledger(database_url, schema) as (conn, settings), conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(Statements("deedbox", "operate.sql", settings.schema)["tools"]).fetchall()
    if json:
        show.as_json(
            [
                row | {name: value.total_seconds() for name, value in row.items() if isinstance(value, timedelta)}
                for row in rows
            ]
        )
        return
    columns = ["tool", "effect", "deadline", "attempts", "window", "paused"]
    told = [
        (
            row["tool"],
            row["effect"],
            show.span(row["deadline"]),
            row["attempts"],
            show.span(row["window"]),
            "yes" if row["paused"] else "",
        )
        for row in rows
    ]
    show.table(columns, told, empty="No tool is registered: `deedbox tools apply MODULE` does it.")
    for row in rows:
        if row["paused"] and row["paused_at"] is not None:
            why = f": {row['paused_note']}" if row["paused_note"] else ""
            show.line(f"{row['tool']} is paused since {show.moment(row['paused_at'])} by {row['paused_by']}{why}")


@app.command("pause")
def pause(
    tool: Annotated[str, typer.Argument(metavar="TOOL")],
    *,
    note: Note = None,
    by: By = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """Begin no more calls of TOOL until it is resumed. Agents go on deciding; calls under way are not touched."""
    _pause(tool, author(by, note), paused=True, database_url=database_url, schema=schema, json=json)


@app.command("resume")
def resume(
    tool: Annotated[str, typer.Argument(metavar="TOOL")],
    *,
    note: Note = None,
    by: By = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """Let the calls of TOOL go on."""
    _pause(tool, author(by, note), paused=False, database_url=database_url, schema=schema, json=json)


def _pause(
    tool: str,
    who: dict[str, str | None],
    *,
    paused: bool,
    database_url: str | None,
    schema: str | None,
    json: bool,
) -> None:
    with ledger(database_url, schema) as (conn, settings):
        statement = Statements("deedbox", "operate.sql", settings.schema)["pause"]
        (known,) = conn.execute(statement, {"tool": tool, "paused": paused, **who}).fetchone() or (False,)
        if not known:
            raise NoSuchTool(tool=tool, schema=settings.schema)
    if json:
        show.as_json({"tool": tool, "paused": paused})
    elif paused:
        show.line(f"{tool} is paused: no call of it is begun. `deedbox tools resume {tool}` lets them go on.")
    else:
        show.line(f"{tool} goes on.")


def tools_of(module: str) -> list[AnyTool]:
    """The tools at the top level of a module, found from the working directory too; raises NoTools."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise
        raise NoTools(module=module, why="there is no such module here") from problem
    tools = {value.name: value for value in vars(found).values() if isinstance(value, Tool)}
    if not tools:
        raise NoTools(module=module, why="no Tool stands at its top level")
    return list(tools.values())
