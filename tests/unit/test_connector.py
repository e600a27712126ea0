"""The connector's configuration, and how Connect's answers are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from deedbox.errors import ConnectRefused, ConnectUnreachable
from deedbox_debezium.connector import render
from deedbox_debezium.ledger import Box
from deedbox_debezium.rest import ConnectorState, Rest, Task, reason

BOX = Box(schema="ledger", prefix="shop", database="orders")
README = Path(__file__).resolve().parents[2] / "debezium" / "README.md"


def test_every_name_follows_the_box() -> None:
    config = render(BOX)
    assert config["name"] == "shop-outbox"
    assert config["topic.prefix"] == "shop"
    assert config["slot.name"] == config["publication.name"] == "shop_outbox"
    assert config["table.include.list"] == config["snapshot.select.statement.overrides"] == "ledger.outbox"
    assert "FROM ledger.unpublished" in config["snapshot.select.statement.overrides.ledger.outbox"]
    assert re.fullmatch(config["predicates.isOutbox.pattern"], "shop.ledger.outbox")
    assert config["database.user"] == "shop_connect"
    assert config["database.dbname"] == "orders"
    assert "@{" not in json.dumps(config)


def test_the_headers_are_these_and_no_others() -> None:
    placement = render(BOX)["transforms.outbox.table.fields.additional.placement"]
    # the router always adds the row's id itself
    assert placement.split(",") == [
        f"{name}:header" for name in ("type", "action_id", "key", "attempt", "traceparent", "created_at")
    ]
    assert render(BOX)["extended.headers.enabled"] == "false"


def test_what_loses_rows_is_off() -> None:
    config = render(BOX)
    assert config["heartbeat.interval.ms"] == "0"
    assert config["provide.transaction.metadata"] == "false"
    assert config["lsn.flush.mode"] == "connector"
    assert config["errors.tolerance"] == "none"
    assert config["publication.autocreate.mode"] == "disabled"


@pytest.mark.parametrize("topic", ["charge_customer", "_step", "_result", "_dead", "_heartbeat", "_schema", "t" * 63])
def test_a_topic_of_the_ledger_is_routed(topic: str) -> None:
    assert _routed(topic) == f"shop.{topic}"


@pytest.mark.parametrize("topic", ["", "Charge", "a b", "a/b", "a\nb", "9lives", "__x", "t" * 64, "a.b", "é"])
def test_a_malformed_topic_is_parked(topic: str) -> None:  # I14
    assert _routed(topic) == "shop."


def test_a_setting_can_be_replaced() -> None:
    config = render(BOX, {"database.hostname": "db.internal", "signal.kafka.topic": "signals"})
    assert config["database.hostname"] == "db.internal"
    assert config["signal.kafka.topic"] == "signals"


@pytest.mark.parametrize("name", ["connector.json", "connect.properties", "server.properties", "postgresql.conf"])
def test_every_property_is_explained_in_the_readme(name: str) -> None:
    text = (files("deedbox_debezium") / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        properties = [str(each) for each in json.loads(text)]
    else:
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        properties = [line.partition("=")[0].strip() for line in lines]
    readme = README.read_text(encoding="utf-8")
    unexplained = [each for each in properties if f"`{each.replace('@{schema}', '…')}`" not in readme]
    assert unexplained == []


def test_the_innermost_cause_is_the_reason() -> None:
    trace = (
        "org.apache.kafka.connect.errors.ConnectException: An exception occurred\n\tat io.debezium.X.y(X.java:1)\n"
        "Caused by: io.debezium.DebeziumException: Creation of replication slot failed\n\tat …\n"
        "Caused by: org.postgresql.util.PSQLException: FATAL: role is gone\n\tat …\n\t... 5 more\n"
    )
    assert reason(trace) == "PSQLException: FATAL: role is gone"
    assert reason("java.lang.NoClassDefFoundError: org/x/Y\n\tat …") == "NoClassDefFoundError: org/x/Y"


def test_a_failed_task_means_not_running() -> None:
    failed = ConnectorState("RUNNING", "", (Task(0, "FAILED", "a.B: broken\n"),))
    assert not failed.running
    assert failed.failure == "B: broken"
    assert not ConnectorState("RUNNING", "", ()).running
    assert ConnectorState("RUNNING", "", (Task(0, "RUNNING", ""),)).running


def test_a_rebalancing_worker_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    with _connect([(409, {"message": "rebalance"}), (200, {"name": "x"})]) as (rest, asked):
        assert rest.config("x") == {"name": "x"}
    assert asked == ["GET /connectors/x/config"] * 2
    assert "does not answer yet" in caplog.text


def test_no_connector_is_none_and_not_an_error() -> None:
    with _connect([(404, {"message": "Connector x not found"})]) as (rest, _):
        assert rest.state("x") is None


def test_a_refusal_carries_connects_words() -> None:
    with _connect([(400, {"message": "Connector config is odd"})]) as (rest, _):
        with pytest.raises(ConnectRefused, match="400 to PUT /connectors/x/config: Connector config is odd"):
            rest.put("x", {})


def test_an_absent_worker_is_an_error_that_names_the_address() -> None:
    with pytest.raises(ConnectUnreachable, match=r"http://127\.0\.0\.1:1 did not answer"):
        Rest("http://127.0.0.1:1", patience=0.1).config("x")


def test_validation_names_each_setting_and_says_what_connect_hides() -> None:
    hidden = "Invalid value: the value resolved from the config provider reference failed validation"
    answer = {
        "configs": [
            {"value": {"name": "poll.interval.ms", "errors": ["A long value is expected"]}},
            {"value": {"name": "database.hostname", "errors": [hidden]}},
            {"value": {"name": "slot.name", "errors": []}},
        ]
    }
    with _connect([(200, answer)]) as (rest, asked):
        odd, login = rest.problems(render(BOX))
    assert asked == ["PUT /connector-plugins/PostgresConnector/config/validate"]
    assert odd == "poll.interval.ms: A long value is expected"
    assert "could not log in" in login
    assert "shop_connect" in login


def _routed(topic: str) -> str:
    config = render(BOX)
    # Java writes a named group without P; Kafka's router replaces the first match, or keeps the value if none
    pattern = config["transforms.outbox.route.topic.regex"].replace("(?<", "(?P<")
    match = re.fullmatch(pattern, topic, re.ASCII)
    assert match is not None
    return config["transforms.outbox.route.topic.replacement"].replace("${routedByValue}", match["routedByValue"] or "")


@contextmanager
def _connect(answers: list[tuple[int, Any]]) -> Iterator[tuple[Rest, list[str]]]:
    """A Connect worker that gives these answers, one after the other."""
    asked: list[str] = []

    class Worker(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(f"{self.command} {self.path}")
            status, body = answers.pop(0)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Worker) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Rest(f"http://127.0.0.1:{server.server_port}", patience=5), asked
        finally:
            server.shutdown()
