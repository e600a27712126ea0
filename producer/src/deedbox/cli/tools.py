"""`deedbox tools`: the register of tools."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from deedbox import registry
from deedbox.cli import show
from deedbox.cli.options import AsJson, DatabaseUrl, Schema, ledger
from deedbox.errors import NoTools
from deedbox.statements import Statements
from deedbox.tool import Tool

if TYPE_CHECKING:
    from deedbox.step import AnyTool

app: typer.Typer = typer.Typer(help="The tools that are registered.", no_args_is_help=True)


@app.command("apply")
def apply(
    module: Annotated[str, typer.Argument(help="The module whose top level defines the tools, such as shop.tools.")],
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
    """List the registered tools."""
    with ledger(database_url, schema) as (conn, settings):
        rows = conn.execute(Statements("deedbox", "registry.sql", settings.schema)["tools"]).fetchall()
    columns = ["tool", "title", "effect", "paused"]
    if json:
        show.as_json([dict(zip(columns, row, strict=False)) for row in rows])
    else:
        show.table(columns, [row[:4] for row in rows])


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
