"""The topics of a box: created with their partitions and settings, reported if they are otherwise, never changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

# The last three are documented as members of this module; its __init__ does not mark them as exported.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from deedbox.errors import KafkaUnreachable, TopicRefused
from deedbox_debezium.patience import attempts

if TYPE_CHECKING:
    from collections.abc import Mapping

log: logging.Logger = logging.getLogger(__name__)

PARTITIONS: Final = 6  # per tool: fixed for life, since adding one moves keys
PATIENCE: Final = 30.0  # seconds to go on asking a broker that does not answer
ASK_WITHIN: Final = 5.0  # seconds for one attempt
CREATE_WITHIN: Final = 30.0  # seconds for the controller's answer

# LogAppendTime: a row's own time may be hours off or old, which Kafka refuses or deletes at once.
# 1 MiB: the outbox takes 900,000 bytes of payload; headers and framing need the rest.
COMMON: Final = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "1048576"}
EVENTS: Final = COMMON | {"cleanup.policy": "delete", "retention.ms": "604800000"}  # 7 days
SCHEMAS: Final = COMMON | {"cleanup.policy": "compact"}  # the last record of each fingerprint, for ever
# One record every 5 s that is old after a minute; segments roll hourly, or the retention would not reach them.
HEARTBEAT: Final = COMMON | {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "3600000"}
SPECIAL: Final = {"_schema": SCHEMAS, "_heartbeat": HEARTBEAT}
PARKING: Final = ""  # `{prefix}.`: where the router puts a row whose topic's name is malformed


@dataclass(frozen=True)
class Topic:
    """A topic as it should be: full name, partitions, settings."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True)
class Plan:
    """What is missing, what is right, and what is otherwise (topic → one line per difference)."""

    missing: tuple[Topic, ...]
    present: tuple[str, ...]
    different: Mapping[str, tuple[str, ...]]


def wanted(prefix: str, names: Mapping[str, int]) -> list[Topic]:
    """The topics of a box: those of the ledger (name → partitions) and the parking topic."""
    topics = [Topic(f"{prefix}.{name}", partitions, SPECIAL.get(name, EVENTS)) for name, partitions in names.items()]
    return [*topics, Topic(f"{prefix}.{PARKING}", 1, EVENTS)]


def plan(kafka: str, prefix: str, names: Mapping[str, int], *, patience: float = PATIENCE) -> Plan:
    """Compare the box's topics with the broker's. Changes nothing.

    Raises KafkaUnreachable if no broker answers for `patience` seconds.
    """
    return _plan(_admin(kafka), kafka, wanted(prefix, names), patience)


def apply(
    kafka: str, prefix: str, names: Mapping[str, int], *, replication: int = -1, patience: float = PATIENCE
) -> Plan:
    """Create what is missing and give the plan that was carried out. Again and again without harm.

    `replication` -1 takes the broker's `default.replication.factor`. A topic that exists otherwise is reported and left
    as it is. Raises KafkaUnreachable, or TopicRefused with the broker's reason.
    """
    # kept in a variable: a collected client fails its futures
    admin = _admin(kafka)
    found = _plan(admin, kafka, wanted(prefix, names), patience)
    if found.missing:
        new = [
            NewTopic(topic.name, topic.partitions, replication, config=dict(topic.settings)) for topic in found.missing
        ]
        for name, created in admin.create_topics(new, operation_timeout=CREATE_WITHIN).items():
            try:
                created.result()
            except KafkaException as problem:
                error = problem.args[0]
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:  # two of us at once
                    raise TopicRefused(topic=name, reason=error.str()) from problem
    return found


def _admin(kafka: str) -> AdminClient:
    # librdkafka would print each failed connection to standard error; we say it ourselves, once per attempt
    return AdminClient({"bootstrap.servers": kafka, "log_level": 0, "socket.connection.setup.timeout.ms": 5000})


def _plan(admin: AdminClient, kafka: str, topics: list[Topic], patience: float) -> Plan:
    present = _partitions(admin, kafka, patience)
    existing = [topic for topic in topics if topic.name in present]
    settings = _settings(admin, existing)
    different = {
        topic.name: lines
        for topic in existing
        if (lines := tuple(_differences(topic, present[topic.name], settings[topic.name])))
    }
    missing = tuple(topic for topic in topics if topic.name not in present)
    return Plan(missing, tuple(topic.name for topic in existing if topic.name not in different), different)


def _differences(topic: Topic, partitions: int, settings: Mapping[str, str | None]) -> list[str]:
    lines = [
        f"{name} is {settings.get(name)}, wanted {value}"
        for name, value in topic.settings.items()
        if settings.get(name) != value
    ]
    if partitions != topic.partitions:
        lines.insert(0, f"it has {partitions} partitions, wanted {topic.partitions} (adding some would move keys)")
    return lines


def _partitions(admin: AdminClient, kafka: str, patience: float) -> dict[str, int]:
    problem: KafkaException | None = None
    for number in attempts(patience):
        try:
            found = admin.list_topics(timeout=min(ASK_WITHIN, patience)).topics
            return {name: len(metadata.partitions) for name, metadata in found.items()}
        except KafkaException as latest:
            problem = latest
            log.warning("no Kafka broker answers at %s yet (attempt %d)", kafka, number)
    reason = problem.args[0].str() if problem else None
    raise KafkaUnreachable(kafka=kafka, seconds=patience, reason=reason) from problem


def _settings(admin: AdminClient, topics: list[Topic]) -> dict[str, dict[str, str | None]]:
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
    answers = admin.describe_configs(resources, request_timeout=CREATE_WITHIN)
    return {
        resource.name: {name: entry.value for name, entry in answer.result().items()}
        for resource, answer in answers.items()
    }
