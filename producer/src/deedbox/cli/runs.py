"""`deedbox runs`: what an agent did, step by step."""

from __future__ import annotations

import contextlib
import json as jsonlib
from datetime import datetime
from typing import Annotated, Any

import typer

from deedbox.chat import anthropic_chat, openai_chat, openai_responses
from deedbox.cli import show
from deedbox.cli.options import AsJson, DatabaseUrl, Schema, ledger
from deedbox.errors import NoSuchRun, UnreadableReply
from deedbox.journal import OPEN
from deedbox.keys import check_run_id
from deedbox.statements import Statements

app: typer.Typer = typer.Typer(help="Runs and their journals.", no_args_is_help=True)


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, newest first.")] = 20,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """List the newest runs."""
    with ledger(database_url, schema) as (conn, settings):
        statements = Statements("deedbox", "operate.sql", settings.schema)
        rows = conn.execute(statements["runs"], {"limit": limit}).fetchall()
    columns = ["run", "status", "created", "last step", "kind", "open calls"]
    if json:
        show.as_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        told = [(run, status, show.moment(created), *rest) for run, status, created, *rest in rows]
        show.table(columns, told, empty="There are no runs.")


@app.command("show")
def show_(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """Show a run: each step, what it decided, and what became of it."""
    check_run_id(run_id)
    with ledger(database_url, schema) as (conn, settings):
        statements = Statements("deedbox", "agent.sql", settings.schema)
        run = conn.execute(statements["run"], {"run": run_id}).fetchone()
        if run is None:
            raise NoSuchRun(run_id=run_id)
        from_start = {"run": run_id, "n": 0}
        steps = [_step(row) for row in conn.execute(statements["steps"], from_start)]
        for row in conn.execute(statements["calls"], from_start):
            steps[row[2]]["calls"].append(_call(row))
    aborted = steps[-1]["kind"] == "abort"
    status = "aborted" if aborted else "finished" if run[0] == "running" and _finished(steps) else run[0]
    if json:
        show.as_json({"run": run_id, "status": status, "created_at": datetime.fromisoformat(run[1]), "steps": steps})
        return
    show.line(f"run {run_id}: {status}, since {show.moment(run[1])}")
    for step in steps:
        show.line(f"\n{step['n']:>4}  {step['kind']}  {show.moment(step['created_at'])}")
        if reason := step["note"].get("reason"):
            show.indented(f"reason: {show.short(reason)}", 6)
        for message in step["messages"]:
            show.indented(f"{message.get('role', 'message')}: {show.short(message.get('content'))}", 6)
        if text := said(step["reply"]):
            show.indented(f"assistant: {show.short(text)}", 6)
        for wrong in step["invalid"]:
            show.indented(f"{wrong['tool']}: not a call: {wrong['error']}", 6)
        for call in step["calls"]:
            told = call["result"] if call["status"] == "done" else call["error"]
            show.indented(f"{call['key']}  {call['tool']}({show.short(call['args'])})", 6)
            more = f"  {show.short(told)}" if told is not None else ""
            show.indented(f"{call['status']}, attempt {call['attempt']}{more}", 8)


def _finished(steps: list[dict[str, Any]]) -> bool:
    """Whether the last step asks for nothing and no call is open."""
    last = steps[-1]
    if last["kind"] != "decision" or last["calls"] or last["invalid"]:
        return False
    return not any(call["status"] in OPEN for step in steps for call in step["calls"])


def said(reply: dict[str, Any] | None) -> str:
    """The text of a recorded reply, in whichever dialect it is; empty when it has none."""
    for chat in (openai_chat, openai_responses, anthropic_chat):
        with contextlib.suppress(UnreadableReply):
            return chat.text(reply or {})
    return ""


def _step(row: tuple[Any, ...]) -> dict[str, Any]:
    n, kind, reply, messages, shown, calls, note, created_at = row
    asked = jsonlib.loads(calls or "[]")
    return {
        "n": n,
        "kind": kind,
        "created_at": datetime.fromisoformat(created_at),
        "messages": jsonlib.loads(messages or "[]"),
        "reply": jsonlib.loads(reply or "null"),
        "shown": jsonlib.loads(shown or "[]"),
        "note": jsonlib.loads(note or "{}"),
        "invalid": [item for item in asked if item.get("error")],
        "calls": [],
    }


def _call(row: tuple[Any, ...]) -> dict[str, Any]:
    id_, key, _step, _call, tool, args, status, attempt, unsettled, result, error = row
    return {
        "key": key,
        "id": id_,
        "tool": tool,
        "args": jsonlib.loads(args),
        "status": status,
        "attempt": attempt,
        "unsettled": unsettled,
        "result": jsonlib.loads(result or "null"),
        "error": jsonlib.loads(error or "null"),
    }
