"""The topics of a box."""

from __future__ import annotations

import pytest

from deedbox.errors import KafkaUnreachable
from deedbox_debezium.topics import plan, wanted


def test_a_box_has_its_ledgers_topics_and_a_parking_topic() -> None:
    topics = {topic.name: topic for topic in wanted("shop", {"charge": 6, "_schema": 1, "_heartbeat": 1})}
    assert list(topics) == ["shop.charge", "shop._schema", "shop._heartbeat", "shop."]
    assert topics["shop.charge"].partitions == 6
    assert topics["shop.charge"].settings["cleanup.policy"] == "delete"
    assert topics["shop._schema"].settings["cleanup.policy"] == "compact"
    assert topics["shop._heartbeat"].settings["retention.ms"] == "3600000"
    assert {topic.settings["message.timestamp.type"] for topic in topics.values()} == {"LogAppendTime"}
    assert {topic.settings["max.message.bytes"] for topic in topics.values()} == {"1048576"}


def test_a_wrong_address_is_asked_again_and_then_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:1 .*DEEDBOX_KAFKA"):
        plan("127.0.0.1:1", "shop", {"charge": 6}, patience=0.3)
    assert "no Kafka broker answers at 127.0.0.1:1 yet" in caplog.text
