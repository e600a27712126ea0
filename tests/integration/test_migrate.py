"""`deedbox init`: idempotent, safe when many run it at once, and the roles can do no more than they should."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from deedbox.command import build
from deedbox.errors import MigrationChanged, WrongSetting
from deedbox.migrate import grant_roles, migrate, migrations, script
from tests.support.shop import Shop, charge


@pytest.fixture
def schema(database_url: str) -> Iterator[str]:
    """The name of a schema that is not there yet."""
    name = f"fresh_{os.getpid()}"
    yield name
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))


def test_many_may_initialise_at_once(database_url: str, schema: str) -> None:
    def init(_: int) -> list[str]:
        with psycopg.connect(database_url, autocommit=True) as conn:
            return migrate(conn, schema=schema)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(init, range(8)))
    assert sorted(map(len, done)) == [0] * 7 + [len(migrations())]


def test_the_script_for_a_dba_makes_the_same_ledger(database_url: str, schema: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("\n".join(script(schema=schema, prefix="other")).encode())
        assert migrate(conn, schema=schema) == []
        box = sql.SQL("SELECT prefix FROM {}.box").format(sql.Identifier(schema))
        assert conn.execute(box).fetchone() == ("other",)
        published = "SELECT pubname FROM pg_publication_tables WHERE schemaname = %s"
        assert conn.execute(published, [schema]).fetchall() == [("other_outbox",)]


@pytest.mark.parametrize("name", ["Odd-Name", "Shop", "a b", '"x', ""])
def test_a_schema_that_not_every_part_could_spell_is_refused(database_url: str, name: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn, pytest.raises(WrongSetting):
        migrate(conn, schema=name, prefix="fine")


def test_an_applied_migration_with_another_text_is_refused(shop: Shop, conn: psycopg.Connection) -> None:
    conn.execute("UPDATE migration SET checksum = 'other' WHERE number = 3")
    with pytest.raises(MigrationChanged, match="0003_commit"):
        migrate(conn, schema=shop.schema)


def test_a_ledger_can_be_dropped_and_made_anew(database_url: str, schema: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        migrate(conn, schema=schema)
        conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
        assert migrate(conn, schema=schema)


def test_two_boxes_have_different_ids(shop: Shop, database_url: str, schema: str, conn: psycopg.Connection) -> None:
    """Facts A15: the same run id in staging and production is not the same key at a provider."""
    with psycopg.connect(database_url, autocommit=True) as other:
        migrate(other, schema=schema)
        theirs = other.execute(sql.SQL("SELECT id FROM {}.box").format(sql.Identifier(schema))).fetchone()
    assert theirs != conn.execute("SELECT id FROM box").fetchone()


AGENT_MAY_NOT = [
    "INSERT INTO outcome (action_id, tool, status) VALUES (uuidv7(), 'charge_customer', 'done')",
    "UPDATE outcome SET status = 'done'",
    "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('_result', 'x', 'result', 'x')",
    "DELETE FROM step",
    "SELECT * FROM claim('{}', uuidv7())",
    "SELECT * FROM finish(uuidv7(), '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    "SELECT * FROM sweep()",
    "SELECT * FROM emit('{}')",
    "SELECT payload FROM outbox",
]
WORKER_MAY_NOT = [
    "SELECT * FROM action",
    "SELECT * FROM step",
    "UPDATE outcome SET status = 'done'",
    "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('charge_customer', 'x', 'call', 'x')",
    "SELECT commit_step('', 0, '', NULL, NULL, NULL, NULL, '{}', 0, '{}', '{}', '{}', '{}', '{}', '{}', true, true, '')",  # noqa: E501
    "SELECT * FROM judge('{}', 'x')",
    "SELECT announce('{}')",
]
CONNECT_MAY_NOT = ["SELECT * FROM action", "SELECT * FROM outcome", "DELETE FROM outbox", "SELECT * FROM sweep()"]


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        (role, statement)
        for role, all_ in (("agent", AGENT_MAY_NOT), ("worker", WORKER_MAY_NOT), ("connect", CONNECT_MAY_NOT))
        for statement in all_
    ],
)
def test_a_role_can_do_no_more_than_it_should(shop: Shop, conn: psycopg.Connection, role: str, statement: str) -> None:
    grant_roles(conn, schema=shop.schema)
    try:
        conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(f"{shop.schema}_{role}")))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement.encode())
    finally:
        conn.execute("RESET ROLE")
        _drop_roles(conn, shop.schema)


def test_agent_and_worker_roles_suffice_for_their_work(shop: Shop, conn: psycopg.Connection) -> None:
    grant_roles(conn, schema=shop.schema)
    grant_roles(conn, schema=shop.schema)
    try:
        commit = (
            "SELECT verdict FROM commit_step('r', %s, %s, NULL, NULL, NULL, NULL, NULL, %s, %s, %s, %s, %s, %s, %s,"
            " false, false, NULL)"
        )
        call = charge(customer="c", cents=1)
        conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(f"{shop.schema}_agent")))
        assert conn.execute(commit, [0, "input", 0, [], [], [], [], [], []]).fetchone() == ("fresh",)
        one = [[0], [call.tool.name], [call.stored], [call.digest], [b"x"], [None]]
        assert conn.execute(commit, [1, "decision", 1, *one]).fetchone() == ("fresh",)
        assert conn.execute("SELECT status FROM agent_actions").fetchall() == [("pending",)]
        conn.execute("RESET ROLE")
        with shop.connect() as own:
            own.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(f"{shop.schema}_worker")))
            own.execute("SELECT enlist('01a22dbe-0000-7000-8000-000000000000', '{charge_customer}', 'poll', '20 s')")
            ids = [row[0] for row in own.execute("SELECT * FROM pending('{charge_customer}', NULL, 9)")]
            claimed = own.execute("SELECT verdict FROM claim(%s, '01a22dbe-0000-7000-8000-000000000000')", [ids])
            assert claimed.fetchall() == [("claimed",)]
            own.execute("SELECT * FROM records(%s)", [ids])
            own.execute("SELECT * FROM sweep()")
    finally:
        conn.execute("RESET ROLE")
        _drop_roles(conn, shop.schema)


def test_an_operator_s_role_suffices_for_its_commands(
    shop: Shop, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant_roles(conn, schema=shop.schema)
    role = f"{shop.schema}_operator"
    try:
        monkeypatch.setenv("PGOPTIONS", f"-c role={role}")
        run = CliRunner().invoke
        place = ["--database-url", shop.url, "--schema", shop.schema]
        for command in (
            ["calls", "list"],
            ["calls", "late"],
            ["runs", "list"],
            ["tools", "list"],
            ["dead", "list"],
            ["dead", "redrive", "--all"],
            ["dead", "redrive", "--all", "--dry-run"],
            ["dead", "drop", "--all"],
            ["tools", "pause", "charge_customer"],
        ):
            done = run(build(), [*command, *place])
            assert done.exit_code == 0, (command, done.output, done.exception)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(build(), ["tools", "apply", "tests.support.shop", *place], catch_exceptions=False)
    finally:
        conn.execute("RESET ROLE")
        _drop_roles(conn, shop.schema)


def _drop_roles(conn: psycopg.Connection, schema: str) -> None:
    for role in ("agent", "worker", "operator", "connect"):
        name = sql.Identifier(f"{schema}_{role}")
        conn.execute(sql.SQL("DROP OWNED BY {}").format(name))
        conn.execute(sql.SQL("DROP ROLE {}").format(name))
