"""A tool's topic and its group, from the outside; and consumers that say what they were asked for, and by whom."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.pipeline import Pipeline

WITHIN = 30.0  # seconds for an answer of the broker


class Topic:
    """A tool's topic, from the outside."""

    def __init__(self, pipeline: Pipeline, tool: str) -> None:
        self.name = f"{pipeline.shop.schema}.{tool}"
        self._kafka: dict[str, Any] = {"bootstrap.servers": pipeline.stack.kafka}
        self._admin = AdminClient(self._kafka)

    def produce(self, headers: dict[str, bytes | None], value: bytes | None, key: bytes | None = b"k") -> None:
        producer = Producer(self._kafka)
        producer.produce(self.name, value, key, headers=list(headers.items()))
        assert producer.flush(WITHIN) == 0

    def produce_many(self, value: bytes, count: int) -> None:
        """So many records in the first partition."""
        producer = Producer(self._kafka)
        for _ in range(count):
            producer.produce(self.name, value, b"k", partition=0)
        assert producer.flush(WITHIN) == 0

    def produce_in_transactions(self, headers: dict[str, bytes | None], value: bytes, commits: list[bool]) -> None:
        """A record in each partition in each transaction, which commits or not: its end is an offset, too."""
        producer = Producer(self._kafka | {"transactional.id": self.name})
        producer.init_transactions(WITHIN)
        for commit in commits:
            producer.begin_transaction()
            for partition in range(6):
                producer.produce(self.name, value, b"k", partition=partition, headers=list(headers.items()))
            producer.flush(WITHIN)
            (producer.commit_transaction if commit else producer.abort_transaction)(WITHIN)

    def members(self) -> dict[str, int]:
        """The members of the tool's group, and how many partitions each has."""
        (group,) = self._admin.describe_consumer_groups([self.name], request_timeout=WITHIN).values()
        return {member.member_id: len(member.assignment.topic_partitions) for member in group.result().members}

    def lag(self) -> int:
        """How many offsets the tool's group has not committed."""
        consumer = Consumer(self._kafka | {"group.id": self.name})
        try:
            mine = [TopicPartition(self.name, number) for number in range(6)]
            committed = consumer.committed(mine, timeout=WITHIN)
            ends = [consumer.get_watermark_offsets(one, timeout=WITHIN)[1] for one in mine]
            return sum(end - max(one.offset, 0) for one, end in zip(committed, ends, strict=True))
        finally:
            consumer.close()


class Watched:
    """A real consumer that keeps what it was asked for. `all` are those of the test."""

    all: list[Watched]

    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer = Consumer(settings)
        self.group: str = settings["group.id"]
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.brought = 0  # messages that were no errors
        self.all.append(self)

    def poll(self, timeout: float) -> Any:
        message = self._ask("poll", timeout)
        self.brought += message is not None and message.error() is None
        return message

    def consume(self, most: int, timeout: float) -> list[Any]:
        messages: list[Any] = self._ask("consume", most, timeout)
        self.brought += sum(message.error() is None for message in messages)
        return messages

    def subscribe(self, topics: list[str], **moved: Callable[[Any, Any], None]) -> None:
        """The callbacks ask this one, too."""
        self._ask("subscribe", topics, **{name: partial(self._call_back, call) for name, call in moved.items()})

    def _call_back(self, call: Callable[[Any, Any], None], _: Consumer, partitions: Any) -> None:
        call(self, partitions)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._ask, name)

    def _ask(self, name: str, *words: Any, **more: Any) -> Any:
        self.threads.add(threading.get_ident())
        if name != "poll":
            self.calls.append(name)
        ask: Callable[..., Any] = getattr(self._consumer, name)
        return ask(*words, **more)


def headers_of(action_id: str, **changed: bytes | None) -> dict[str, bytes | None]:
    """The headers of an emission of this call, some changed."""
    return {
        "id": action_id.encode(),
        "type": b"call",
        "action_id": action_id.encode(),
        "key": b"odd:1:0",
        "attempt": b"1",
        "traceparent": None,
        "created_at": b"2026-11-30T12:00:00Z",
        **changed,
    }
