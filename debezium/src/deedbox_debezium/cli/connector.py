"""`deedbox connector`: Debezium's connector of the box, in Kafka Connect."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from deedbox.cli import show
from deedbox.cli.options import AsJson, DatabaseUrl, Schema
from deedbox.settings import Settings
from deedbox_debezium import connector
from deedbox_debezium.cli.options import ConnectUrl

app: typer.Typer = typer.Typer(help="Debezium's connector of the box.", no_args_is_help=True)

NOT_READING = 1  # exit code of `status` when the connector does not read
SHOWN = 100  # characters of a setting's value in the table of a plan

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE: replace or add a setting, as database.hostname=db.internal. Repeatable."),
]


@app.command()
def plan(
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    connect_url: ConnectUrl = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Show what would change, and let Connect validate it. Changes nothing."""
    found = connector.plan(_settings(database_url, schema, connect_url), _overrides(set_))
    if as_json:
        show.as_json(asdict(found))
    else:
        show.line(f"{found.connector}: {'exists' if found.exists else 'is new'}, {len(found.changes)} changes")
        rows = [(change.name, _short(change.before), _short(change.after)) for change in found.changes]
        if rows:
            show.table(("setting", "now", "then"), rows)
        for problem in found.problems:
            show.line(f"not accepted: {problem}")
    if found.problems:
        raise typer.Exit(NOT_READING)


@app.command()
def apply(
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    connect_url: ConnectUrl = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Put the connector there, or change it, and wait until it reads."""
    settings, overrides = _settings(database_url, schema, connect_url), _overrides(set_)
    with show.waiting("until the connector reads its slot"):
        found = connector.apply(settings, overrides)
    _show(found, as_json)


@app.command()
def status(
    database_url: DatabaseUrl = None, schema: Schema = None, connect_url: ConnectUrl = None, as_json: AsJson = False
) -> None:
    """Show connector, task and slot. Exit code 1 if it does not read."""
    found = connector.status(_settings(database_url, schema, connect_url))
    _show(found, as_json)
    if not found.reading:
        raise typer.Exit(NOT_READING)


@app.command()
def restart(
    database_url: DatabaseUrl = None, schema: Schema = None, connect_url: ConnectUrl = None, as_json: AsJson = False
) -> None:
    """Restart connector and task, and wait until it reads."""
    settings = _settings(database_url, schema, connect_url)
    with show.waiting("until the connector reads its slot again"):
        found = connector.restart(settings)
    _show(found, as_json)


@app.command()
def remove(
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    connect_url: ConnectUrl = None,
    keep_slot: Annotated[bool, typer.Option("--keep-slot", help="Leave the slot; it holds back WAL.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the connector and its slot. The outbox rows stay."""
    settings = _settings(database_url, schema, connect_url)
    with show.waiting("until the connector has stopped and let go of its slot"):
        done = connector.remove(settings, keep_slot=keep_slot)
    if as_json:
        show.as_json({"removed": done})
    else:
        show.line("removed" if done else "there was none")


def _settings(database_url: str | None, schema: str | None, connect_url: str | None) -> Settings:
    return Settings.load(database_url, schema, connect_url=connect_url)


def _overrides(given: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in given or []]
    for name, equals, _ in pairs:
        if not equals:
            raise typer.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--set")
    return {name.strip(): value for name, _, value in pairs}


def _short(value: str | None) -> str | None:
    return value if value is None or len(value) <= SHOWN else value[: SHOWN - 1] + "…"


def _show(found: connector.Status, as_json: bool) -> None:
    if as_json:
        show.as_json(asdict(found) | {"reading": found.reading})
        return
    state, slot = found.state, found.slot
    show.facts(
        [
            ("connector", found.connector),
            ("state", state.state if state else "there is none"),
            ("tasks", ", ".join(task.state for task in state.tasks) if state else None),
            ("failure", state.failure if state else None),
            ("slot", ("read" if slot.active else "not read") if slot else "there is none"),
            ("WAL held back", f"{slot.retained} bytes ({slot.wal_status})" if slot else None),
            ("reading", "yes" if found.reading else "no"),
        ]
    )
