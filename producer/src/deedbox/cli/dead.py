"""`deedbox dead`: dead letters, and what a person does with them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from psycopg.rows import dict_row

from deedbox.cli import show
from deedbox.cli.batches import in_batches
from deedbox.cli.moments import moment
from deedbox.cli.options import AsJson, By, DatabaseUrl, Key, Note, OfRun, OfTool, Schema, author, ledger
from deedbox.cli.verdicts import DROP, REDRIVE, REFUSED, REKEY
from deedbox.errors import NoSuchCall, NothingChosen
from deedbox.keys import check_run_id, idempotency_key, split_key
from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    import psycopg

app: typer.Typer = typer.Typer(help="Calls that gave up, until a person has dealt with each.", no_args_is_help=True)

SOME_REFUSED = 3  # exit code
GROUPS = 30  # reasons that a person reads; what more there are is counted

Keys = Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Calls (run:step:call).")]
Since = Annotated[str | None, typer.Option(help="That gave up since then: an age (2h, 7d) or a time in UTC.")]
Before = Annotated[str | None, typer.Option(help="That gave up before then.")]
Reason = Annotated[str | None, typer.Option(metavar="SUBSTRING", help="Whose reason holds these words.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would be done, and write nothing.")]


@dataclass(frozen=True)
class Filter:
    """Which dead letters are meant."""

    tool: str | None = None
    run: str | None = None
    since: str | None = None
    before: str | None = None
    reason: str | None = None

    @property
    def given(self) -> bool:
        """Whether it leaves any out."""
        return any(vars(self).values())

    def parameters(self) -> dict[str, Any]:
        """As the statement `letters` takes them; raises InvalidRunId, BadParameter."""
        if self.run is not None:
            check_run_id(self.run)
        return vars(self) | {"since": moment(self.since), "before": moment(self.before)}


@app.command("list")
def list_(
    *,
    tool: OfTool = None,
    run: OfRun = None,
    since: Since = None,
    before: Before = None,
    reason: Reason = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many at most.")] = 50,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """List the dead letters that nobody has dealt with, newest first."""
    chosen = Filter(tool, run, since, before, reason)
    with ledger(database_url, schema) as (conn, settings):
        found = _letters(conn, Statements("deedbox", "operate.sql", settings.schema), chosen, limit + 1)
    if json:
        show.as_json(found[:limit])
        return
    rows = [(row["key"], row["tool"], show.moment(row["at"]), row["attempt"], _reason(row)) for row in found[:limit]]
    show.table(["call", "tool", "gave up", "attempts", "reason"], rows, empty="There are no dead letters.")
    if len(found) > limit:
        show.line("There are more: --limit shows them.")


@app.command("show")
def show_(key: Key, database_url: DatabaseUrl = None, schema: Schema = None, json: AsJson = False) -> None:
    """Show the dead letters of the call KEY, and what can be done."""
    split_key(key)
    with ledger(database_url, schema) as (conn, settings), conn.cursor(row_factory=dict_row) as cursor:
        statements = Statements("deedbox", "operate.sql", settings.schema)
        call = cursor.execute(statements["call"], {"key": key}).fetchone()
        if call is None:
            raise NoSuchCall(key=key)
        letters = cursor.execute(statements["letters_of"], {"id": call["id"]}).fetchall()
        verdicts = {
            rekey: next(iter(cursor.execute(statements["redrivable"], {"ids": [call["id"]], "rekey": rekey})))[
                "verdict"
            ]
            for rekey in (False, True)
        }
    provider_key = idempotency_key(call["box"], key, call["rekeyed"])
    if json:
        shown = {name: call[name] for name in ("key", "tool", "args", "status", "error")}
        can = {"redrive": verdicts[False], "redrive_rekey": verdicts[True]}
        show.as_json(shown | {"provider_key": provider_key, "dead": letters} | can)
        return
    args = show.short(call["args"], 10_000)
    named = [("call", key), ("provider's key", provider_key), ("tool", call["tool"]), ("args", args)]
    show.facts([*named, ("status", call["status"])])
    if not letters:
        show.line("\nIt has no dead letter.")
    for letter in letters:
        show.heading("dead letter" if letter["closed_at"] is None else f"dead letter, {letter['closed_as']}")
        known = "its effect is there" if letter["happened"] else None
        raw = (call["error"] or {}).get("raw") if letter["closed_at"] is None else None
        closed = letter["closed_at"] and f"{show.moment(letter['closed_at'])} by {letter['closed_by']}"
        told = [("gave up", show.moment(letter["at"])), ("attempt", letter["attempt"]), ("reason", letter["reason"])]
        show.facts([*told, ("known", known), ("its result", raw), ("closed", closed)])
    if any(letter["closed_at"] is None for letter in letters):
        show.heading("what can be done")
        show.facts(
            [
                ("redrive", _can(key, verdicts[False])),
                ("redrive --rekey", _can(key, verdicts[True])),
                ("drop", "leaves it as it is, and lets those behind it go on."),
            ]
        )


@app.command("redrive")
def redrive(
    keys: Keys = None,
    *,
    tool: OfTool = None,
    run: OfRun = None,
    since: Since = None,
    before: Before = None,
    reason: Reason = None,
    all_: All = False,
    rekey: Annotated[
        bool, typer.Option("--rekey", help="Under a new key: only of calls that surely did not happen.")
    ] = False,
    dry_run: DryRun = False,
    note: Note = None,
    by: By = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """Put dead letters back to work: each is performed again, under the same idempotency key.

    Again and again without harm. Exit code 3 if some were refused; the table says why.
    """
    chosen, who = Filter(tool, run, since, before, reason), author(by, note)
    with ledger(database_url, schema) as (conn, settings):
        statements = Statements("deedbox", "operate.sql", settings.schema)
        name = "redrivable" if dry_run else "redrive"

        def act(ids: Sequence[UUID]) -> Iterable[tuple[UUID, str]]:
            return conn.execute(statements[name], {"ids": ids, "rekey": rekey, **who}).fetchall()

        meant = _meant(conn, statements, keys, chosen, all_)
        verdicts = in_batches([row["id"] for row in meant], act)
    _close(meant, verdicts, REKEY if rekey else REDRIVE, dry_run=dry_run, json=json)


@app.command("drop")
def drop(
    keys: Keys = None,
    *,
    tool: OfTool = None,
    run: OfRun = None,
    since: Since = None,
    before: Before = None,
    reason: Reason = None,
    all_: All = False,
    dry_run: DryRun = False,
    note: Note = None,
    by: By = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    json: AsJson = False,
) -> None:
    """Deal with dead letters no more. The calls stay as they are; those behind them in an order that stops go on."""
    chosen, who = Filter(tool, run, since, before, reason), author(by, note)
    with ledger(database_url, schema) as (conn, settings):
        statements = Statements("deedbox", "operate.sql", settings.schema)

        def act(ids: Sequence[UUID]) -> Iterable[tuple[UUID, str]]:
            return conn.execute(statements["droppable" if dry_run else "drop"], {"ids": ids, **who}).fetchall()

        meant = _meant(conn, statements, keys, chosen, all_)
        verdicts = in_batches([row["id"] for row in meant], act)
    _close(meant, verdicts, DROP, dry_run=dry_run, json=json)


def _meant(
    conn: psycopg.Connection[Any], statements: Statements, keys: Sequence[str] | None, chosen: Filter, all_: bool
) -> list[dict[str, Any]]:
    """The calls that are meant; raises NothingChosen, NoSuchCall."""
    if sum((bool(keys), chosen.given, all_)) > 1:
        raise typer.BadParameter("give keys, or filters, or --all: one of these")
    if keys:
        wanted = dict.fromkeys(keys)
        for key in wanted:
            split_key(key)
        with conn.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(statements["chosen"], {"keys": list(wanted)}).fetchall()
        if missing := wanted.keys() - {row["key"] for row in rows}:
            raise NoSuchCall(key=next(key for key in wanted if key in missing))
        return rows
    if not chosen.given and not all_:
        raise NothingChosen(filters="--tool, --run, --since, --before, --reason")
    return _letters(conn, statements, chosen)[::-1]


def _letters(
    conn: psycopg.Connection[Any], statements: Statements, chosen: Filter, limit: int | None = None
) -> list[dict[str, Any]]:
    """The letters that are meant, newest first."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statements["letters"], chosen.parameters() | {"limit": limit}).fetchall()


def _close(
    meant: Sequence[Mapping[str, Any]],
    verdicts: Mapping[UUID, str],
    words: Mapping[str, str],
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """Say what became of them, or would; exit code 3 if some were refused."""
    counts = Counter(verdicts.values())
    if json:
        calls = [{"key": row["key"], "tool": row["tool"], "verdict": verdicts[row["id"]]} for row in meant]
        show.as_json({"dry_run": dry_run, "counts": counts, "calls": calls})
    elif not meant:
        show.line("No dead letter is meant by that: there was nothing to do.")
    else:
        if dry_run:
            _groups(meant, verdicts)
            show.heading("nothing was written; it would be")
        show.table(
            ["calls", "verdict", "that is"], [(n, verdict, words[verdict]) for verdict, n in counts.most_common()]
        )
        refused = [row for row in meant if verdicts[row["id"]] in REFUSED]
        if refused and not dry_run:
            show.heading("refused")
            rows = [(row["key"], row["tool"], verdicts[row["id"]]) for row in refused[:GROUPS]]
            show.table(["call", "tool", "verdict"], rows)
            if len(refused) > GROUPS:
                show.line(f"and {len(refused) - GROUPS} more: --json lists them all")
    if REFUSED & counts.keys():
        raise typer.Exit(SOME_REFUSED)


def _groups(meant: Sequence[Mapping[str, Any]], verdicts: Mapping[UUID, str]) -> None:
    groups = Counter((row["tool"], verdicts[row["id"]], row["reason"] or "none was given") for row in meant)
    first = groups.most_common(GROUPS)  # the largest
    show.table(
        ["calls", "tool", "verdict", "reason"], [(n, tool, verdict, reason) for (tool, verdict, reason), n in first]
    )
    if len(groups) > GROUPS:
        show.line(
            f"and {len(groups) - GROUPS} more reasons, of {sum(groups.values()) - sum(n for _, n in first)} calls"
        )


def _reason(row: Mapping[str, Any]) -> str:
    return f"its effect is there; {row['reason']}" if row["happened"] else row["reason"] or "none was given"


def _can(key: str, verdict: str) -> str:
    return "can be done." if verdict == "redriven" else f"no: {REDRIVE[verdict].replace('KEY', key)}"
