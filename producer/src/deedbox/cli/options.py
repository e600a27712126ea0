"""Options that several commands share, and the connection they lead to."""

from __future__ import annotations

import contextlib
import os
import pwd
from typing import TYPE_CHECKING, Annotated

import psycopg
import typer

from deedbox import migrate
from deedbox.errors import DeedboxError
from deedbox.settings import Settings
from deedbox.statements import Statements
from deedbox.stored import check_storable

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTE_LIMIT = 2_000  # characters: a note is read by people, and becomes part of an outcome

DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="Of the ledger; default: DEEDBOX_DATABASE_URL, or this folder's stack."),
]
Schema = Annotated[str | None, typer.Option(help="Of the ledger; default: DEEDBOX_SCHEMA, or deedbox.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Of a call: run:step:call.")]
By = Annotated[str | None, typer.Option(help="Who does it, for the audit; default: the user of this system.")]
Note = Annotated[str | None, typer.Option(help="Why, for the audit.")]
OfTool = Annotated[str | None, typer.Option("--tool", help="Only of this tool.")]
OfRun = Annotated[str | None, typer.Option("--run", help="Only of this run.")]


@contextlib.contextmanager
def ledger(
    database_url: str | None, schema: str | None, *, migrated: bool = True
) -> Iterator[tuple[psycopg.Connection, Settings]]:
    """A connection (autocommit) and the settings; raises NotMigrated when the ledger is behind."""
    settings = Settings.load(database_url, schema)
    url = settings.need("database_url")
    with psycopg.connect(url, autocommit=True, application_name="deedbox-cli", client_encoding="utf8") as conn:
        conn.execute(Statements("deedbox", "operate.sql", settings.schema)["session"])
        if migrated:
            statements = Statements("deedbox", "migrate.sql", settings.schema)
            (exists,) = conn.execute(statements["exists"], [f"{settings.schema}.migration"]).fetchone() or (False,)
            (newest,) = (exists and conn.execute(statements["newest"]).fetchone()) or (None,)
            if problem := migrate.missing(newest, settings.schema):
                raise problem
        yield conn, settings


def author(by: str | None, note: str | None) -> dict[str, str | None]:
    """Who acts and why, as the ledger's verbs take them."""
    if by is not None and not by.strip():
        raise typer.BadParameter("it is empty", param_hint="--by")
    for name, text in (("--by", by), ("--note", note)):
        try:
            check_storable(text, name)
        except DeedboxError:
            raise typer.BadParameter("it holds bytes that are no text", param_hint=name) from None
        if text is not None and len(text) > NOTE_LIMIT:
            raise typer.BadParameter(f"it is longer than {NOTE_LIMIT} characters", param_hint=name)
    return {"who": by or _user(), "note": note}


def _user() -> str:
    """The user's name; in a container there may be none."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return f"uid {os.getuid()}"
