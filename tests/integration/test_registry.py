"""`deedbox tools apply`: what is registered, and what may change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from deedbox import Tool, repeatable
from deedbox.errors import ToolChanged
from deedbox.registry import Applied, apply
from tests.support.shop import Receipt, Shop


def _tool(fields: dict[str, Any], result: type[BaseModel] = Receipt) -> Any:
    args = type(
        "Ask",
        (BaseModel,),
        {"__annotations__": {n: kind for n, (kind, _) in fields.items()}}
        | {n: default for n, (_, default) in fields.items() if default is not ...}
        | {"__doc__": "Ask.", "__module__": __name__},
    )
    return Tool("ask", args=args, result=result, effect=repeatable)


OLD = {"a": (str, ...)}


def test_tool_topic_and_schemas_are_registered_once(shop: Shop, conn: psycopg.Connection) -> None:
    assert apply(conn, [_tool(OLD)], schema=shop.schema) == [Applied("ask", "new")]
    assert apply(conn, [_tool(OLD)], schema=shop.schema) == [Applied("ask", "unchanged")]
    assert conn.execute("SELECT partitions FROM topic WHERE name = 'ask'").fetchone() == (6,)
    assert conn.execute(
        "SELECT count(*) FROM avro a JOIN tool t ON a.fingerprint = ANY (t.args_fingerprints) WHERE name = 'ask'"
    ).fetchone() == (1,)


def test_writer_schemas_travel_too(shop: Shop, conn: psycopg.Connection) -> None:
    schemas = conn.execute("SELECT encode(fingerprint, 'hex'), schema::text FROM avro ORDER BY 1").fetchall()
    sent = conn.execute(
        "SELECT aggregateid, convert_from(payload, 'UTF8') FROM outbox WHERE type = 'schema' ORDER BY 1"
    ).fetchall()
    assert sent == schemas


def test_a_field_with_a_default_may_come_and_every_writer_stays(shop: Shop, conn: psycopg.Connection) -> None:
    apply(conn, [_tool(OLD)], schema=shop.schema)
    assert apply(conn, [_tool(OLD | {"b": (int, 0)})], schema=shop.schema) == [Applied("ask", "changed")]
    assert apply(conn, [_tool(OLD)], schema=shop.schema) == [Applied("ask", "changed")]  # a release taken back
    writers = conn.execute("SELECT cardinality(args_fingerprints) FROM tool WHERE name = 'ask'").fetchone()
    assert writers == (2,)


@pytest.mark.parametrize(
    "new",
    [{"a": (int, ...)}, {}, OLD | {"b": (int, ...)}, {"b": (str, ...)}],
    ids=["another type", "a required field gone", "a required field more", "renamed"],
)
def test_a_change_that_recorded_calls_cannot_follow_is_refused_whole(
    shop: Shop, conn: psycopg.Connection, new: dict[str, Any]
) -> None:
    apply(conn, [_tool(OLD)], schema=shop.schema)
    before = conn.execute("SELECT * FROM tool ORDER BY name").fetchall()
    other = Tool(
        "other", args=type(_tool(OLD).args)("Other", (BaseModel,), {"__doc__": "x"}), result=Receipt, effect=repeatable
    )
    with pytest.raises(ToolChanged, match="ask"):
        apply(conn, [other, _tool(new)], schema=shop.schema)
    assert conn.execute("SELECT * FROM tool ORDER BY name").fetchall() == before


def test_compatibility_is_judged_against_every_stored_writer(shop: Shop, conn: psycopg.Connection) -> None:
    """Two steps that are each compatible may not be together: transitive."""
    apply(conn, [_tool({"a": (str, ...), "b": (int, 0)})], schema=shop.schema)
    apply(conn, [_tool({"a": (str, ...)})], schema=shop.schema)
    with pytest.raises(ToolChanged):
        apply(conn, [_tool({"a": (str, ...), "b": (str, "")})], schema=shop.schema)


def test_facts_of_a_tool_are_brought_up_to_date(shop: Shop, conn: psycopg.Connection) -> None:
    tool = _tool(OLD)
    apply(conn, [tool], schema=shop.schema)
    tool.deadline = timedelta(seconds=7)
    apply(conn, [tool], schema=shop.schema)
    assert conn.execute("SELECT deadline FROM tool WHERE name = 'ask'").fetchone() == (timedelta(seconds=7),)
