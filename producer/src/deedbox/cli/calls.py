"""`deedbox calls`: one call, whole."""

from __future__ import annotations

import json as jsonlib

import typer

from deedbox.cli import show
from deedbox.cli.options import AsJson, DatabaseUrl, Schema, ledger
from deedbox.errors import NoSuchCall
from deedbox.keys import split_key
from deedbox.statements import Statements

app: typer.Typer = typer.Typer(help="Calls and their outcomes.", no_args_is_help=True)

_JSON = {"args", "result", "error"}
_FACTS = (
    "id",
    "key",
    "tool",
    "args",
    "kind",
    "status",
    "attempt",
    "unsettled",
    "owner",
    "result",
    "error",
    "decided_at",
    "claimed_at",
    "first_sent_at",
    "next_at",
    "finished_at",
)


@app.callback()
def calls() -> None:
    """Calls and their outcomes."""


@app.command("show")
def show_(key: str, database_url: DatabaseUrl = None, schema: Schema = None, json: AsJson = False) -> None:
    """Show the call KEY (run:step:call): what was decided, and where it stands."""
    split_key(key)
    with ledger(database_url, schema) as (conn, settings):
        row = conn.execute(Statements("deedbox", "agent.sql", settings.schema)["call"], {"key": key}).fetchone()
    if row is None:
        raise NoSuchCall(key=key)
    found = dict(zip(_FACTS, row, strict=True))
    if json:
        show.as_json(
            {name: jsonlib.loads(value or "null") if name in _JSON else value for name, value in found.items()}
        )
    else:
        show.facts(found.items())
