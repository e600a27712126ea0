"""The ledger's migrations: numbered SQL files, applied in order under one lock, each once.

A database that is behind is brought up to date by `deedbox init`; running it again, or many at once, is harmless.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, LiteralString, cast

import psycopg
from psycopg import sql

from deedbox.errors import MigrationChanged, NotMigrated
from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Migration:
    """One numbered file: `number`, `name` as on disk without the ending, `text`."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All migrations of this version, in order."""
    files = (file for file in resources.files(__package__).joinpath("migrations").iterdir() if file.name[:4].isdigit())
    return [
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    ]


def migrate(conn: psycopg.Connection, *, schema: str = "deedbox", prefix: str | None = None) -> list[str]:
    """Bring the ledger in `schema` up to this version; returns the names of the migrations that were applied.

    The connection must belong to the owner of the database. `prefix` counts at the first time only. All of it is one
    transaction. Raises MigrationChanged when an applied file differs from this version's.
    """
    statements = Statements(__package__, "migrate.sql", schema)
    with conn.transaction():
        conn.execute(statements["lock"], [f"{schema}.migrate"])
        conn.execute(statements["prepare"])
        _enter(conn, schema, prefix or schema)
        applied = {number: checksum for number, checksum in conn.execute(statements["applied"])}
        done = []
        for migration in migrations():
            if migration.number not in applied:
                conn.execute(_literal(migration.text))
                conn.execute(statements["record"], [migration.number, migration.name, migration.checksum])
                done.append(migration.name)
            elif applied[migration.number] != migration.checksum:
                raise MigrationChanged(name=migration.name, schema=schema)
        return done


def grant_roles(conn: psycopg.Connection, *, schema: str = "deedbox", connect_password: str | None = None) -> None:
    """Create the box's roles and grant each what it needs; again and again without harm.

    Needs CREATEROLE, and a superuser for the REPLICATION of the connector's role. Without a password that role cannot
    log in.
    """
    with conn.transaction():
        _enter(conn, schema, schema)
        conn.execute(_setting("deedbox.connect_password"), [connect_password or ""])
        conn.execute(_literal(_roles()))


def script(*, schema: str = "deedbox", prefix: str | None = None, roles: bool = False) -> Iterator[str]:
    """The same as SQL text, for a DBA to read and run with psql; `roles` adds the roles."""
    statements = Statements(__package__, "migrate.sql", schema)
    yield "BEGIN;"
    yield statements["prepare"].as_string(None)
    yield f"SET LOCAL search_path = {schema}, pg_temp;"
    yield f"SET LOCAL deedbox.prefix = '{prefix or schema}';"
    for migration in migrations():
        yield f"-- {migration.name}\n{migration.text}"
        facts: Sequence[object] = [migration.number, migration.name, migration.checksum]
        yield "INSERT INTO migration (number, name, checksum) VALUES ({}, '{}', '{}');".format(*facts)
    if roles:
        yield f"SET LOCAL deedbox.connect_password = '';  -- a password lets {prefix or schema}_connect log in\n{_roles()}"
    yield "COMMIT;"


def missing(applied: int | None, schema: str) -> NotMigrated | None:
    """The error for a ledger at migration number `applied` (None: there is none), or None when it is not behind."""
    newest = migrations()[-1].number
    if applied is not None and applied >= newest:
        return None
    return NotMigrated(schema=schema, found=applied or "nothing", wanted=newest)


def _enter(conn: psycopg.Connection, schema: str, prefix: str) -> None:
    conn.execute(_setting("search_path"), [f"{schema}, pg_temp"])
    conn.execute(_setting("deedbox.prefix"), [prefix])


def _setting(name: str) -> sql.Composed:
    return sql.SQL("SELECT set_config({}, %s, true)").format(sql.Literal(name))


def _roles() -> str:
    return resources.files(__package__).joinpath("migrations", "roles.sql").read_text("utf-8")


def _literal(text: str) -> sql.SQL:
    return sql.SQL(cast("LiteralString", text))
