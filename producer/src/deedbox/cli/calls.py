"""`deedbox calls`: what was decided, and where it stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from psycopg.rows import dict_row

from deedbox.cli import show
from deedbox.cli.options import AsJson, By, DatabaseUrl, Key, Note, OfRun, OfTool, Schema, author, ledger
from deedbox.cli.resolve import Said, resolve
from deedbox.cli.result import parse
from deedbox.errors import NoSuchCall
from deedbox.journal import OPEN
from deedbox.keys import check_run_id, idempotency_key, split_key
from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

app: typer.Typer = typer.Typer(help="Calls and their outcomes.", no_args_is_help=True)


class Status(StrEnum):
    """A status to look for."""

    open = "open"
    held = "held"
    pending = "pending"
    running = "running"
    retry = "retry"
    in_doubt = "in_doubt"
    done = "done"
    refused = "refused"
    gave_up = "gave_up"
    rejected = "rejected"
    cancelled = "cancelled"
    all = "all"


Limit = Annotated[int, typer.Option(min=1, max=100_000, help="How many at most.")]


@app.command("list")
def list_(
    *,
    status: Annotated[list[Status] | None, typer.Option(help="Repeatable; default: open.")] = None,
    tool: OfTool = None,
    run: OfRun = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """List calls, newest first, and why each is where it is; by default those that are open."""
    wanted = _statuses(status)
    which = "open_calls" if wanted <= OPEN else "newest_calls"
    if run is not None:
        check_run_id(run)
        which = "calls_of_run"
    with ledger(database_url, schema) as (conn, settings), conn.cursor(row_factory=dict_row) as cursor:
        statement = Statements("deedbox", "operate.sql", settings.schema)[which]
        facts = {"statuses": sorted(wanted), "tool": tool, "run": run, "limit": limit + 1}
        *rows, last = [*cursor.execute(statement, facts), None][: limit + 1]
    if json:
        show.as_json(rows)
        return
    columns = ["call", "tool", "status", "attempt", "decided", "why"]
    told = [
        (row["key"], row["tool"], row["status"], row["attempt"], show.moment(row["decided_at"]), why(row))
        for row in rows
    ]
    show.table(columns, told, empty="No such call is there." if status or tool or run else "No call is open.")
    if last is not None:
        show.line(f"There are more: --limit {limit * 10} shows them.")


@app.command("show")
def show_(key: Key, database_url: DatabaseUrl = None, schema: Schema = None, json: AsJson = False) -> None:
    """Show the call KEY: what was decided, where it stands, and what was done to it."""
    split_key(key)
    with ledger(database_url, schema) as (conn, settings), conn.cursor(row_factory=dict_row) as cursor:
        statements = Statements("deedbox", "operate.sql", settings.schema)
        call = cursor.execute(statements["call"], {"key": key}).fetchone()
        if call is None:
            raise NoSuchCall(key=key)
        dead, late, audit = (
            cursor.execute(statements[name], {"id": call["id"]}).fetchall()
            for name in ("letters_of", "late_of", "audit_of")
        )
    paused = call.pop("paused")
    call["provider_key"] = idempotency_key(call.pop("box"), key, call["rekeyed"])
    if json:
        show.as_json(call | {"dead": dead, "late": late, "audit": audit})
        return
    show.facts(_facts(call))
    if paused and call["status"] in OPEN:
        show.line(f"\nIts tool is paused: `deedbox tools resume {call['tool']}` lets its calls go on.")
    if call["status"] == "in_doubt":
        show.line(
            "\nIt may have happened. Ask the provider by its key, then say what you found:"
            f"\n  deedbox calls resolve {key} --happened '{{…}}'"
            f"\n  deedbox calls resolve {key} --did-not-happen [--again]"
        )
    _letters(key, dead)
    if late:
        show.heading("known too late to be recorded")
        columns = ["at", "attempt", "said", "it was", "what"]
        show.table(
            columns, [(show.moment(row["at"]), row["attempt"], row["status"], _late(row), _what(row)) for row in late]
        )
    if audit:
        show.heading("done by hand")
        columns = ["at", "by", "what", "status", "note"]
        rows = [
            (show.moment(row["at"]), row["who"], row["verb"], f"{row['was']} → {row['became']}", row["note"])
            for row in audit
        ]
        show.table(columns, rows)


@app.command("late")
def late_(
    *,
    tool: OfTool = None,
    run: OfRun = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """List what workers knew too late to record. First the alarms: an effect that came after its call was closed."""
    if run is not None:
        check_run_id(run)
    with ledger(database_url, schema) as (conn, settings), conn.cursor(row_factory=dict_row) as cursor:
        statement = Statements("deedbox", "operate.sql", settings.schema)["late"]
        *rows, last = [*cursor.execute(statement, {"tool": tool, "run": run, "limit": limit + 1}), None][: limit + 1]
    if json:
        show.as_json(rows)
        return
    told = [
        (row["key"], row["tool"], show.moment(row["at"]), row["attempt"], row["now"], _late(row), _what(row))
        for row in rows
    ]
    show.table(["call", "tool", "at", "attempt", "now", "it was", "what"], told, empty="Nothing came too late.")
    if last is not None:
        show.line(f"There are more: --limit {limit * 10} shows them.")


@app.command("resolve")
def resolve_(
    key: Key,
    *,
    happened: Annotated[str | None, typer.Option(metavar="JSON", help="It happened, and this is its result.")] = None,
    did_not_happen: Annotated[bool, typer.Option("--did-not-happen", help="It did not: a dead letter.")] = False,
    again: Annotated[bool, typer.Option("--again", help="It did not: perform it again.")] = False,
    rekey: Annotated[bool, typer.Option("--rekey", help="With --again: under a new idempotency key.")] = False,
    note: Note = None,
    by: By = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """Say what became of the call KEY, which is in doubt. Ask the provider first: `calls show KEY` has its key.

    The result is checked against the tool's, and nothing is written unless it fits. Exit code 3 if it was refused.
    """
    split_key(key)
    if (happened is None) is not did_not_happen:
        raise typer.BadParameter("give one of --happened JSON and --did-not-happen")
    if (again and not did_not_happen) or (rekey and not again):
        raise typer.BadParameter("--again goes with --did-not-happen, and --rekey with --again")
    result = None if happened is None else parse(happened)
    with ledger(database_url, schema) as (conn, settings):
        statements = Statements("deedbox", "operate.sql", settings.schema)
        said = resolve(conn, statements, key, result, author(by, note), again=again, rekey=rekey)
    _told(said, json)


def _told(said: Said, json: bool) -> None:
    if json:
        show.as_json(
            {"key": said.key, "verdict": said.verdict, "status": said.status, "provider_key": said.provider_key}
        )
    else:
        show.line(said.words)
    if said.refused:
        raise typer.Exit(3)


def why(row: Mapping[str, Any]) -> str | None:
    """Why a call is where it is, in a sentence."""
    error = row["error"] or {}
    reason = error.get("reason") or error.get("message")
    if code := error.get("code"):
        reason = f"{code}: {reason}" if reason else code
    if row["status"] == "pending" and row["paused"]:
        return "its tool is paused"
    if row["status"] == "pending" and row["behind"]:
        return f"it waits for {row['behind']}"
    if row["status"] == "retry" and row["next_at"]:
        return f"again at {show.moment(row['next_at'])}{f': {reason}' if reason else ''}"
    return str(reason) if reason else None


def _statuses(given: Sequence[Status] | None) -> frozenset[str]:
    wanted: set[str] = set()
    for status in given or [Status.open]:
        if status is Status.all:
            return frozenset(each.value for each in Status) - {"open", "all"}
        wanted |= OPEN if status is Status.open else {status.value}
    return frozenset(wanted)


def _facts(call: Mapping[str, Any]) -> list[tuple[str, Any]]:
    doubt = call["unsettled"] and call["status"] != "in_doubt"
    told = {
        "call": call["key"],
        "id": call["id"],
        "provider's key": call["provider_key"],
        "tool": call["tool"],
        "args": show.short(call["args"], 10_000),
        "status": call["status"] + (" (an earlier attempt may have happened)" if doubt else ""),
        "attempts": f"{call['attempt']}; of {call['most_sends']} sends {call['sends']} are used"
        if call["attempt"]
        else "none",
        "next": "it is asked whether it happened" if call["probe"] and call["status"] in OPEN else None,
        "worker": call["owner"] if call["status"] == "running" else None,
        "result": None if call["result"] is None else show.short(call["result"], 10_000),
        "error": None if call["error"] is None else show.short(call["error"], 10_000),
    }
    moments = {"decided": "decided_at", "first sent": "first_sent_at", "claimed": "claimed_at"}
    moments |= {
        "looked at again": "next_at",
        "in doubt since" if call["status"] == "in_doubt" else "ended": "finished_at",
    }
    told |= {name: show.moment(call[column]) for name, column in moments.items() if isinstance(call[column], datetime)}
    return list(told.items())


def _letters(key: str, dead: Sequence[Mapping[str, Any]]) -> None:
    if not dead:
        return
    show.heading("dead letters" if len(dead) > 1 else "dead letter")
    for letter in dead:
        closed = (
            letter["closed_as"]
            and f"{letter['closed_as']} by {letter['closed_by']}, {show.moment(letter['closed_at'])}"
        )
        known = "its effect is there" if letter["happened"] else None
        show.facts(
            [
                ("gave up", show.moment(letter["at"])),
                ("attempt", letter["attempt"]),
                ("reason", letter["reason"] or "none was given"),
                ("known", known),
                ("closed", closed or f"no: `deedbox dead show {key}` says what can be done"),
            ]
        )


def _late(row: Mapping[str, Any]) -> str:
    if row["alarm"]:
        return "an effect after closing"
    return "what settled it" if row["settled"] else "kept"


def _what(row: Mapping[str, Any]) -> str | None:
    said = row["result"] if row["error"] is None else row["error"]
    return None if said is None else show.short(said)
