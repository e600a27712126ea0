"""`deedbox init`: the ledger's schema, and the roles."""

from __future__ import annotations

from typing import Annotated

import typer

from deedbox import migrate
from deedbox.cli import show
from deedbox.cli.options import DatabaseUrl, Schema, ledger
from deedbox.settings import Settings
from deedbox.statements import Statements


def init(
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    prefix: Annotated[
        str | None,
        typer.Option(help="Of topics, groups, slot, connector; default: the schema. Set once."),
    ] = None,
    roles: Annotated[
        bool,
        typer.Option("--roles", help="Create the roles too; DEEDBOX_CONNECT_PASSWORD lets the connector's log in."),
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print what would be run, for a DBA.")] = False,
) -> None:
    """Create the ledger, or bring it up to this version. Again and again without harm, also by many at once."""
    if sql:
        settings = Settings.load(database_url, schema, prefix)
        for part in migrate.script(schema=settings.schema, prefix=settings.prefix, roles=roles):
            print(part)
        return
    with ledger(database_url, schema, migrated=False) as (conn, settings):
        wanted = Settings.load(database_url, schema, prefix)
        done = migrate.migrate(conn, schema=settings.schema, prefix=wanted.prefix)
        show.line(f"schema {settings.schema}: {', '.join(done) if done else 'up to date'}")
        if roles:
            migrate.grant_roles(conn, schema=settings.schema, connect_password=wanted.connect_password)
            box = conn.execute(Statements("deedbox", "agent.sql", settings.schema)["box"]).fetchone()
            prefix = box[1] if box else wanted.prefix  # the first init has chosen it
            show.line(f"roles {prefix}_agent, {prefix}_worker, {prefix}_operator, {prefix}_connect: granted")
