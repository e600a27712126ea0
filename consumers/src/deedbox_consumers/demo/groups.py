"""When a consumer group is ready: its members have been given their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from deedbox_consumers.demo.failure import DemoFailed, tail
from deedbox_debezium.patience import wait_for

if TYPE_CHECKING:
    from pathlib import Path

ASK_WITHIN = 10.0  # seconds for one answer of the broker


def await_members(kafka: str, group: str, *, within: float, log: Path) -> None:
    """Wait until the group is stable and not empty. Raises DemoFailed."""
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    if not wait_for(lambda: _ready(admin, group), within):
        raise DemoFailed(what=f"The group {group} has no members after {within:.0f} s", log=log, tail=tail(log))


def _ready(admin: AdminClient, group: str) -> bool:
    try:
        found = admin.describe_consumer_groups([group], request_timeout=ASK_WITHIN)[group].result()
    except KafkaException:
        return False  # the group's coordinator is not there yet
    return found.state == ConsumerGroupState.STABLE and len(found.members) > 0
