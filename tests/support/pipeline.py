"""The pipeline of one shop: its roles, its topics, its connector, and what came out."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from deedbox.migrate import grant_roles
from deedbox.settings import Settings
from deedbox_debezium import connector, topics
from deedbox_debezium.ledger import Ledger
from deedbox_debezium.stack import Stack
from tests.support.shop import Shop


@dataclass(frozen=True)
class Pipeline:
    """A shop's pipeline that runs."""

    stack: Stack
    shop: Shop
    settings: Settings

    @contextlib.contextmanager
    def reader(self, *names: str) -> Iterator[Reader]:
        """Read these topics (without prefix) from their present beginning."""
        with contextlib.closing(Reader(self.stack.kafka, [f"{self.settings.prefix}.{name}" for name in names])) as one:
            yield one


class Reader:
    """A consumer without a group's moods: assigned, from the first record."""

    def __init__(self, kafka: str, names: list[str]) -> None:
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"reader-{uuid.uuid4()}"})
        known = self._consumer.list_topics(timeout=10).topics
        self._consumer.assign([TopicPartition(name, number, 0) for name in names for number in known[name].partitions])

    def take(self, count: int, within: float = 30) -> list[Message]:
        """The next `count` records; fails if they do not come."""
        found: list[Message] = []
        deadline = time.monotonic() + within
        while len(found) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(found)} of {count} records came within {within} s")
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            if problem := message.error():
                raise KafkaException(problem)
            found.append(message)
        return found

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


@contextlib.contextmanager
def open_pipeline(stack: Stack, shop: Shop) -> Iterator[Pipeline]:
    """Roles, topics and connector for this shop; connector and slot are gone at the end."""
    settings = Settings(shop.url, shop.schema, shop.schema, stack.kafka, stack.connect_url)
    with shop.connect() as conn:
        grant_roles(conn, schema=shop.schema, connect_password=stack.connect_password)
    topics.apply(stack.kafka, shop.schema, Ledger(settings).topics())
    connector.apply(settings)
    try:
        yield Pipeline(stack, shop, settings)
    finally:
        connector.remove(settings)
