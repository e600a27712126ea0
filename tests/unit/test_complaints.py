"""A broker that does not answer is named at once, and then now and then, not by every consumer every few seconds."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from deedbox_consumers.source import feed
from deedbox_consumers.source.feed import REPEAT, Complaints, config

DOWN = KafkaError(KafkaError._TRANSPORT)


def test_what_every_consumer_finds_out_is_said_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    monkeypatch.setattr(feed, "now", lambda: clock[0])
    complain = Complaints("kafka:9092")
    consumers = [config("kafka:9092", group, complain)["error_cb"] for group in ("a", "b")]
    with caplog.at_level(logging.WARNING, "deedbox.kafka"):
        for clock[0], said in ((0.0, 1), (5.0, 1), (REPEAT - 1, 1), (REPEAT, 2), (REPEAT + 5, 2)):
            for tell in consumers:
                tell(DOWN)
            assert len(caplog.messages) == said
    assert "Kafka at kafka:9092 does not answer" in caplog.messages[0]
