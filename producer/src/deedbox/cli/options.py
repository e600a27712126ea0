"""Options that several commands share, and the connection they lead to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import psycopg
import typer

from deedbox import migrate
from deedbox.settings import Settings
from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Iterator

DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="Of the ledger; default: DEEDBOX_DATABASE_URL, or this folder's stack."),
]
Schema = Annotated[str | None, typer.Option(help="Of the ledger; default: DEEDBOX_SCHEMA, or deedbox.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]


@contextlib.contextmanager
def ledger(
    database_url: str | None, schema: str | None, *, migrated: bool = True
) -> Iterator[tuple[psycopg.Connection, Settings]]:
    """A connection (autocommit) and the settings; raises NotMigrated when the ledger is behind."""
    settings = Settings.load(database_url, schema)
    with psycopg.connect(settings.need("database_url"), autocommit=True, application_name="deedbox-cli") as conn:
        if migrated:
            statements = Statements("deedbox", "migrate.sql", settings.schema)
            (exists,) = conn.execute(statements["exists"], [f"{settings.schema}.migration"]).fetchone() or (False,)
            (newest,) = (exists and conn.execute(statements["newest"]).fetchone()) or (None,)
            if problem := migrate.missing(newest, settings.schema):
                raise problem
        yield conn, settings
