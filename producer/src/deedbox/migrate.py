"""The ledger's migrations: numbered SQL files, applied in order under one lock, each once.

A database that is behind is brought up to date by `deedbox init`; running it again, or many at once, is harmless.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from deedbox.errors import MigrationChanged, NotMigrated
from deedbox.settings import check_name
from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "deedbox"


@dataclass(frozen=True)
class Migration:
    """One numbered file: `number`, `name` as on disk without the ending, its SHA-256 in hexadecimal, its text."""

    number: int
    name: str
    checksum: str
    text: str = field(repr=False)


def migrations() -> list[Migration]:
    """All migrations of this version, in order."""
    found = []
    for file in resources.files(PACKAGE).joinpath("migrations").iterdir():
        if file.name[:4].isdigit():
            text = file.read_text("utf-8")
            checksum = hashlib.sha256(text.encode()).hexdigest()
            found.append(Migration(int(file.name[:4]), file.name.removesuffix(".sql"), checksum, text))
    return sorted(found, key=lambda migration: migration.number)


def migrate(conn: psycopg.Connection[Any], *, schema: str = "deedbox", prefix: str | None = None) -> list[str]:
    """Bring the ledger in `schema` up to this version; returns the names of the migrations that were applied.

    The connection must belong to the owner of the database. `prefix` counts at the first time only. All of it is one
    transaction. Raises WrongSetting, and MigrationChanged when an applied file differs from this version's.
    """
    statements, entry = Statements(PACKAGE, "migrate.sql", schema), _entry(schema, prefix)
    with conn.transaction():
        conn.execute(statements["lock"], [f"{schema}.migrate"])
        conn.execute(statements["prepare"])
        conn.execute(statements["enter"], entry)
        applied: dict[int, str] = dict(conn.execute(statements["applied"]).fetchall())
        done = []
        for migration in migrations():
            if migration.number not in applied:
                conn.execute(migration.text.encode())
                conn.execute(statements["record"], asdict(migration))
                done.append(migration.name)
            elif applied[migration.number] != migration.checksum:
                raise MigrationChanged(name=migration.name, schema=schema)
        return done


def grant_roles(conn: psycopg.Connection[Any], *, schema: str = "deedbox", connect_password: str | None = None) -> None:
    """Create the box's roles and grant each what it needs; again and again without harm.

    Needs CREATEROLE, and a superuser for the REPLICATION of the connector's role. Without a password that role cannot
    log in.
    """
    statements = Statements(PACKAGE, "migrate.sql", schema)
    with conn.transaction():
        conn.execute(statements["lock"], [f"{schema}.migrate"])
        conn.execute(statements["enter"], _entry(schema, None, connect_password))
        conn.execute(_roles().encode())


def script(*, schema: str = "deedbox", prefix: str | None = None, roles: bool = False) -> Iterator[str]:
    """The same as SQL text, for a DBA to read and run with psql; `roles` adds the roles."""
    statements = Statements(PACKAGE, "migrate.sql", schema)
    yield _filled(statements["begin"], {})
    yield statements["prepare"].as_string(None)
    yield _filled(statements["enter"], _entry(schema, prefix))
    for migration in migrations():
        yield f"-- {migration.name}\n{migration.text}"
        yield _filled(statements["record"], asdict(migration))
    if roles:
        yield _roles()
    yield _filled(statements["commit"], {})


def missing(applied: int | None, schema: str) -> NotMigrated | None:
    """The error for a ledger at migration number `applied` (None: there is none), or None when it is not behind."""
    newest = migrations()[-1].number
    if applied is not None and applied >= newest:
        return None
    return NotMigrated(schema=schema, found=applied or "nothing", wanted=newest)


def _entry(schema: str, prefix: str | None, connect_password: str | None = None) -> dict[str, str]:
    check_name("schema", schema)
    check_name("prefix", prefix or schema)
    return {
        "path": f"{schema}, pg_temp",
        "prefix": prefix or schema,
        "connect_password": connect_password or "",
    }


def _filled(statement: sql.Composed, values: dict[str, Any]) -> str:
    return (
        statement.as_string(None) % {name: sql.Literal(value).as_string(None) for name, value in values.items()} + ";"
    )


def _roles() -> str:
    return resources.files(PACKAGE).joinpath("migrations", "roles.sql").read_text("utf-8")
