"""`deedbox topics`: what the ledger writes to, created in Kafka."""

from __future__ import annotations

from typing import Annotated

import typer

from deedbox.cli import show
from deedbox.cli.options import AsJson, DatabaseUrl, Schema
from deedbox.errors import ExtraMissing
from deedbox.settings import Settings
from deedbox_debezium.cli.options import Kafka
from deedbox_debezium.ledger import Ledger

try:
    from deedbox_debezium import topics
except ModuleNotFoundError as _missing:
    if _missing.name != "confluent_kafka":
        raise
    topics = None  # type: ignore[assignment]  # a module or nothing: asked before each use

app: typer.Typer = typer.Typer(help="Kafka's topics of the box.", no_args_is_help=True)


@app.command()
def plan(database_url: DatabaseUrl = None, schema: Schema = None, kafka: Kafka = None, as_json: AsJson = False) -> None:
    """Show which topics are missing or otherwise than wanted. Changes nothing."""
    _run(database_url, schema, kafka, as_json, carry_out=False, replication=-1)


@app.command()
def apply(
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    kafka: Kafka = None,
    replication: Annotated[int, typer.Option(help="Replication factor; -1 is the broker's default.")] = -1,
    as_json: AsJson = False,
) -> None:
    """Create the missing topics. What exists otherwise is reported and left as it is."""
    _run(database_url, schema, kafka, as_json, carry_out=True, replication=replication)


def _run(
    database_url: str | None, schema: str | None, kafka: str | None, as_json: bool, *, carry_out: bool, replication: int
) -> None:
    if topics is None:
        raise ExtraMissing(what="`deedbox topics`", extra="deedbox-debezium[kafka]")
    settings = Settings.load(database_url, schema, kafka=kafka)
    ledger = Ledger(settings)
    prefix, names, where = ledger.box().prefix, ledger.topics(), settings.need("kafka")
    with show.waiting("for Kafka"):
        done = (
            topics.apply(where, prefix, names, replication=replication)
            if carry_out
            else topics.plan(where, prefix, names)
        )
    if as_json:
        missing = [{"name": topic.name, "partitions": topic.partitions} for topic in done.missing]
        key = "created" if carry_out else "missing"
        show.as_json({key: missing, "present": done.present, "different": done.different})
        return
    verdict = "created" if carry_out else "missing"
    rows = [(topic.name, verdict, f"{topic.partitions} partitions") for topic in done.missing]
    rows += [(name, "present", "") for name in done.present]
    rows += [(name, "different", "; ".join(lines)) for name, lines in done.different.items()]
    show.table(("topic", "", ""), sorted(rows))
