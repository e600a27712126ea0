"""From the outbox to Kafka through the real Debezium."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Message

from deedbox.errors import ConnectorInvalid
from deedbox_debezium import connector, topics
from deedbox_debezium.ledger import Ledger
from tests.support.pipeline import Pipeline
from tests.support.shop import Shop

HEADERS = ["id", "type", "action_id", "key", "attempt", "traceparent", "created_at"]
# every byte value, what JSON and text converters trip over, and the length of a varint's edge
GOLDEN = [
    bytes(range(256)),
    b"\x00",
    b"{}",
    b'"\xff"',
    b"\xc3\x01" + bytes(126),
    "é\u2028".encode("utf-16"),
    b"x" * 900_000,
]


def _emit(shop: Shop, payload: bytes, *, topic: str = "_result", key: str = "r:1:0", trace: str | None = None) -> UUID:
    with shop.connect() as conn:
        row = conn.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, action_id, key, attempt, traceparent, payload)"
            " VALUES (%s, 'order-1', 'result', %s, %s, 2, %s, %s) RETURNING id",
            (topic, uuid4(), key, trace, payload),
        ).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def _pairs(message: Message) -> list[tuple[str, bytes | None]]:
    pairs: Any = message.headers() or []  # typed as several shapes; read, it is always this one
    return list(pairs)


def _headers(message: Message) -> dict[str, bytes | None]:
    return dict(_pairs(message))


def test_the_committed_bytes_are_the_kafka_value(pipeline: Pipeline) -> None:  # I13
    ids = {str(_emit(pipeline.shop, payload)): payload for payload in GOLDEN}
    with pipeline.reader("_result") as reader:
        came = {(_headers(message)["id"] or b"").decode(): message.value() for message in reader.take(len(GOLDEN))}
    assert came == ids


def test_the_headers_are_exactly_these(pipeline: Pipeline) -> None:  # I13
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    first, second = _emit(pipeline.shop, b"x", topic="_dead", trace=trace), _emit(pipeline.shop, b"y", topic="_dead")
    with pipeline.reader("_dead") as reader:
        one, other = reader.take(2)
    assert [name for name, _ in _pairs(one)] == HEADERS
    headers = _headers(one)
    assert headers["id"] == str(first).encode()
    assert (headers["type"], headers["key"], headers["attempt"]) == (b"result", b"r:1:0", b"2")
    assert headers["traceparent"] == trace.encode()
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", headers["created_at"] or b"")
    assert UUID((headers["action_id"] or b"").decode()).version == 4
    assert one.key() == b"order-1"
    assert _headers(other)["id"] == str(second).encode()
    assert _headers(other)["traceparent"] is None


def test_what_is_committed_while_connect_is_dead_comes_when_it_is_back(pipeline: Pipeline) -> None:  # I5
    pipeline.stack.kill("connect")
    emitted = {str(_emit(pipeline.shop, bytes([number]), topic="_step")) for number in range(20)}
    pipeline.stack.start("connect")
    seen: set[str] = set()
    with pipeline.reader("_step") as reader:
        while seen != emitted:
            (message,) = reader.take(1, within=60)
            seen.add((_headers(message)["id"] or b"").decode())


def test_a_dropped_slot_emits_again_what_nobody_answered(pipeline: Pipeline) -> None:  # I5
    with pipeline.reader("_schema") as reader:
        before = {message.value() for message in reader.take(1)}
        connector.remove(pipeline.settings)
        assert connector.status(pipeline.settings).slot is None
        status = connector.apply(pipeline.settings)
        assert status.reading
        # the writer schemas are among what `unpublished` shows
        assert reader.take(1)[0].value() is not None
        assert before


def test_applying_again_changes_nothing(pipeline: Pipeline) -> None:
    assert connector.plan(pipeline.settings).changes == ()
    assert connector.apply(pipeline.settings).reading
    done = topics.apply(pipeline.stack.kafka, pipeline.settings.prefix, Ledger(pipeline.settings).topics())
    assert done.missing == ()
    assert done.different == {}


def test_a_wrong_password_is_told_before_anything_is_changed(pipeline: Pipeline) -> None:
    with pytest.raises(ConnectorInvalid, match=r"could not log in to the database.*_connect"):
        connector.apply(pipeline.settings, {"database.password": "guessed"})
    assert connector.status(pipeline.settings).reading


def test_a_topic_with_other_partitions_is_reported_and_left(pipeline: Pipeline) -> None:
    kafka, prefix = pipeline.stack.kafka, pipeline.settings.prefix
    topics.apply(kafka, prefix, {"odd": 2})
    found = topics.apply(kafka, prefix, {"odd": 3})
    assert found.different[f"{prefix}.odd"] == ("it has 2 partitions, wanted 3 (adding some would move keys)",)
    assert topics.plan(kafka, prefix, {"odd": 2}).different == {}
