"""The register of tools in the database: what `deedbox tools apply` fills and what agents and workers check.

Compatibility: the arguments and the result of a tool may change only so that every writer schema ever applied and the
new one read each other (Avro, full and transitive). Calls that were recorded under an old schema are still to be
performed under the new one, and a worker that is one release behind must read what a new agent wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deedbox.avro import AvroSchema, compatible, schema_of
from deedbox.errors import ToolChanged, ToolNotApplied
from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg
    from pydantic import BaseModel

    from deedbox.step import AnyTool


@dataclass(frozen=True)
class Applied:
    """What became of one tool: `change` is new, changed or unchanged."""

    tool: str
    change: str


def apply(conn: psycopg.Connection[Any], tools: Iterable[AnyTool], *, schema: str = "deedbox") -> list[Applied]:
    """Register tools, their schemas and topics, in one transaction; the connection must own the ledger.

    Raises ToolChanged, and then registers nothing, when a tool's schema breaks the rule of compatibility.
    """
    statements = Statements("deedbox", "registry.sql", schema)
    done = []
    with conn.transaction():
        conn.execute(statements["lock"], [f"{schema}.registry"])
        known = {row[0]: row for row in conn.execute(statements["tools"])}
        for tool in tools:
            before = known.get(tool.name)
            schemas = _schemas(tool)
            if before:
                _check(tool, schemas, {"args": before[4], "result": before[5]})
            conn.execute(statements["put_topic"], [tool.name])
            for item in schemas.values():
                conn.execute(statements["put_schema"], [item.fingerprint, item.json])
            facts = _facts(tool, schemas)
            conn.execute(statements["put_tool"], facts)
            done.append(Applied(tool.name, _change(before, schemas, facts)))
    return done


def check(tools: Iterable[AnyTool], current: Iterable[Sequence[Any]], schema: str) -> None:
    """Compare tools in code with rows of the statement `current`; raises ToolNotApplied for one that is unknown."""
    known = {name: (set(map(bytes, args)), set(map(bytes, results))) for name, args, results in current}
    for tool in tools:
        if tool.name not in known:
            raise ToolNotApplied(tool=tool.name, state="not registered", schema=schema)
        args, results = (item.fingerprint for item in _schemas(tool).values())
        if args not in known[tool.name][0] or results not in known[tool.name][1]:
            raise ToolNotApplied(tool=tool.name, state="registered with other arguments or results", schema=schema)


def _schemas(tool: AnyTool) -> dict[str, AvroSchema]:
    args: type[BaseModel] = tool.args
    result: type[BaseModel] = tool.result
    return {"args": schema_of(args), "result": schema_of(result)}


def _facts(tool: AnyTool, schemas: Mapping[str, AvroSchema]) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "effect": tool.effect.kind,
        "window": tool.effect.window,
        "margin": tool.effect.margin,
        "settle_after": tool.effect.settle_after,
        "deadline": tool.deadline,
        "attempts": tool.attempts,
        "give_up_after": tool.give_up_after,
        "expires": tool.expires,
        "order_by": tool.order_by,
        "order_stops": tool.order_stops,
        "args": schemas["args"].fingerprint,
        "result": schemas["result"].fingerprint,
    }


def _check(tool: AnyTool, schemas: Mapping[str, AvroSchema], writers: Mapping[str, Sequence[str]]) -> None:
    for part, new in schemas.items():
        for text in writers[part]:
            old = AvroSchema.load(text)
            if reasons := compatible(new, old):
                raise ToolChanged(tool=tool.name, part=part, reasons="; ".join(reasons))


def _change(before: Sequence[Any] | None, schemas: Mapping[str, AvroSchema], facts: Mapping[str, Any]) -> str:
    if before is None:
        return "new"
    same = (bytes(before[6][-1]), bytes(before[7][-1])) == (schemas["args"].fingerprint, schemas["result"].fingerprint)
    return "unchanged" if same and all(_plain(facts[name]) == was for name, was in before[8].items()) else "changed"


def _plain(fact: Any) -> Any:
    return fact.total_seconds() if isinstance(fact, timedelta) else fact
