"""What can be wrong between the outbox and Kafka, and with the local stack."""

from __future__ import annotations

from pathlib import Path

from deedbox.errors.base import NotReady


class NoLogicalDecoding(NotReady):
    """Database {database} runs with wal_level={found} and Debezium needs logical: ALTER SYSTEM SET wal_level = 'logical', restart PostgreSQL, try again. Without Kafka (source poll) it is not needed."""

    database: str
    found: str


class NoPublication(NotReady):
    """There is no publication {publication} for {schema}.outbox: it is made by `deedbox init`; if it was dropped, drop the slot too and restore it."""

    publication: str
    schema: str


class NoConnectRole(NotReady):
    """Role {role} cannot log in, replicate and read {schema}.outbox: set DEEDBOX_CONNECT_PASSWORD and run `deedbox init --roles`."""

    role: str
    schema: str


class SlotInUse(NotReady):
    """Replication slot {slot} is still read by somebody: end that reader, then try again."""

    slot: str


class ConnectUnreachable(NotReady):
    """Kafka Connect at {url} did not answer for {seconds:.0f} s ({reason}): start it, or give its address with --connect-url or DEEDBOX_CONNECT_URL."""

    url: str
    reason: object
    seconds: float


class ConnectRefused(NotReady):
    """Kafka Connect answered {status} to {asked}: {reason}"""

    asked: str
    status: int
    reason: str


class ConnectorInvalid(NotReady):
    """Kafka Connect does not accept connector {connector}; nothing was changed: {problems}"""

    connector: str
    problems: str


class ConnectorFailed(NotReady):
    """Connector {connector} does not run: {reason}. Mend that, then `deedbox connector restart`; `deedbox connector status` shows more."""

    connector: str
    reason: str


class NoConnector(NotReady):
    """There is no connector {connector}: put it there with `deedbox connector apply`."""

    connector: str


class KafkaUnreachable(NotReady):
    """No Kafka broker answered at {kafka} for {seconds:.0f} s ({reason}): start it, or give its address with --kafka or DEEDBOX_KAFKA."""

    kafka: str
    reason: object
    seconds: float


class TopicRefused(NotReady):
    """Kafka did not create topic {topic}: {reason}"""

    topic: str
    reason: str


class JarRefused(NotReady):
    """{jar} cannot be used: {reason}. Nothing of it was kept; check the network and any mirror, then start again."""

    jar: str
    reason: str


class NoStack(NotReady):
    """There is no local stack in {folder}: start one with `deedbox stack up`, or name its folder with --folder."""

    folder: Path


class StackFailed(NotReady):
    """{part} of the local stack did not come up: {reason} Its log: {log}. Start again, or empty it with `deedbox stack reset`."""

    part: str
    reason: str
    log: str
