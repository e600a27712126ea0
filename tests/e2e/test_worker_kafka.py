"""What only a worker on Kafka can meet: odd records, early records, rebalances, a broker that is away."""

from __future__ import annotations

import logging
import threading
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from deedbox import Deedbox
from deedbox.codec import AvroCodec
from deedbox_consumers import Worker, desk
from deedbox_debezium.stack.ports import is_free
from tests.support.fleet import Provider, decide, outcomes, status, wait_until
from tests.support.pipeline import Pipeline
from tests.support.shop import charge, lookup
from tests.support.topic import Topic, headers_of


def worker(pipeline: Pipeline, provider: Provider, **more: Any) -> Worker:
    options: dict[str, Any] = {"kafka": pipeline.stack.kafka, **more}
    shop = pipeline.shop
    return Worker(None, provider.handlers(), source="kafka", database_url=shop.url, schema=shop.schema, **options)


def test_odd_records_are_set_aside_with_bytes_and_position_and_the_lane_goes_on(  # I14
    pipeline: Pipeline, box: Deedbox, conn: psycopg.Connection
) -> None:
    provider, topic = Provider(), Topic(pipeline, charge.name)
    good = charge(customer="c", cents=1).payload(AvroCodec())
    topic.produce({}, b"no headers")
    topic.produce(headers_of(str(uuid4()), type=b"party"), good)
    topic.produce(headers_of("17"), good)
    topic.produce(headers_of(str(uuid4())), None)
    topic.produce(headers_of(str(uuid4()), key=b"\xff\x00"), b"bytes \x00\xff")
    topic.produce(headers_of(str(uuid4())), b"\xc3\x01" + bytes(8) + b"unknown schema")
    with worker(pipeline, provider):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
        wait_until(lambda: conn.execute("SELECT count(*) FROM stray").fetchone() == (6,))
    rows = conn.execute("SELECT topic, partition, offset_, record_key, headers, payload, reason FROM stray ORDER BY at")
    strays = {row[6]: row for row in rows.fetchall()}
    bare = strays["it has no header action_id, attempt, created_at, id, key, traceparent, type"]
    assert (bare[0], bare[3], bare[4], bare[5]) == (topic.name, b"k", {}, b"no headers")
    party = next(row for reason, row in strays.items() if "party" in reason)
    assert party[4]["type"] == "party"
    assert party[5] == good
    assert len({row[1:3] for row in strays.values()}) == 6
    assert topic.lag() == 0
    assert len(provider.requests) == 1


def test_a_record_whose_row_never_appears_is_set_aside(  # I1 I5 I14
    pipeline: Pipeline, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zehelein/pg-transactional-outbox#4: absent is "not yet"; after a while it is alerted."""
    monkeypatch.setattr(desk, "ABSENT_FOR", 0.2)
    provider, topic, ghost = Provider(), Topic(pipeline, lookup.name), str(uuid4())
    topic.produce(headers_of(ghost), lookup(order="o").payload(AvroCodec()))
    with worker(pipeline, provider):
        said = "SELECT reason FROM stray WHERE headers->>'action_id' = %s"
        wait_until(lambda: conn.execute(said, [ghost]).fetchall())
    assert not provider.requests
    assert topic.lag() == 0


def test_what_is_claimed_is_committed_though_it_is_not_over(  # I5
    pipeline: Pipeline, box: Deedbox, conn: psycopg.Connection
) -> None:
    provider, let = Provider(), threading.Event()
    provider.on[lookup.name] = lambda *_: let.wait(60) and None
    topic = Topic(pipeline, lookup.name)
    with worker(pipeline, provider):
        run = decide(box, lookup(order="o"))
        wait_until(lambda: status(conn, run)[0] == "running")
        wait_until(lambda: topic.lag() == 0)
        assert status(conn, run)[0] == "running"
        let.set()
        assert outcomes(box, run) == ["done"]


def test_the_ledger_learns_how_far_its_workers_have_received(  # I5
    pipeline: Pipeline, box: Deedbox, conn: psycopg.Connection
) -> None:
    provider = Provider()
    with worker(pipeline, provider):
        run = decide(box, charge(customer="c", cents=1))
        assert outcomes(box, run) == ["done"]
        through = (
            "SELECT bool_and((w.received_through ->> tool.name)::timestamptz > uuid_time(a.id))"
            " FROM worker w, tool, action a WHERE a.key = %s"
        )
        wait_until(lambda: conn.execute(through, [f"{run.id}:1:0"]).fetchone() == (True,))


def test_workers_that_come_and_go_repeat_nothing(pipeline: Pipeline, box: Deedbox) -> None:  # I5 I8
    provider = Provider()
    runs = []
    with worker(pipeline, provider):
        for _ in range(3):
            runs += [decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 51))) for _ in range(2)]
            with worker(pipeline, provider):
                for run in runs:
                    assert outcomes(box, run) == ["done"] * 50
    assert len(provider.effects) == 300
    assert set(provider.effects.values()) == {1}


def test_a_broker_that_is_away_is_named_and_awaited(
    pipeline: Pipeline, box: Deedbox, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    run = decide(box, charge(customer="c", cents=1))
    nobody = "127.0.0.1:9"  # discard: nothing listens there
    with caplog.at_level(logging.WARNING, "deedbox.kafka"), worker(pipeline, provider, kafka=nobody):
        wait_until(
            lambda: any(f"Kafka at {nobody} does not answer" in record.getMessage() for record in caplog.records)
        )
    with worker(pipeline, provider):
        assert outcomes(box, run) == ["done"]


@pytest.mark.timeout(400)  # a JVM starts in a minute on a busy machine
def test_kafka_dies_and_comes_back(pipeline: Pipeline, box: Deedbox) -> None:  # I5
    provider = Provider()
    with worker(pipeline, provider):
        assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
        pipeline.stack.kill("kafka")
        # The last threads of a killed JVM may hold its port for a moment longer; the stack would choose another one.
        wait_until(lambda: is_free(int(pipeline.stack.kafka.rpartition(":")[2])))
        run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 11)))
        pipeline.stack.up()
        assert outcomes(box, run, patience=200) == ["done"] * 10
    assert set(provider.effects.values()) == {1}
