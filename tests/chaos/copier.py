"""Duplicate delivery: records of the tools' topics are produced again, as if an acknowledgement had been lost."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterable
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, Producer, TopicPartition

LONGEST: Final = 2.0  # seconds until a copy is produced: while the call waits, while it runs, when it is done
AGAIN: Final = b"chaos"  # a header that tells a copy from what it was copied from


class Copier:
    """Produces each record of these topics again with the chance `share`, from now on.

    Half of the copies go into any partition, but for the topics in `ordered`: there the order is in the partition.
    """

    def __init__(
        self, kafka: str, topics: Iterable[str], *, ordered: Container[str] = (), share: float = 1.0, seed: int = 0
    ) -> None:
        self.copies = 0
        self.share = share
        self._ordered = ordered
        self._chance = random.Random(seed)
        self._ended = threading.Event()
        self._producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": f"copier-{uuid.uuid4()}",
                "log_level": 0,
                "enable.auto.commit": False,
            }
        )
        places = []
        for topic in topics:
            for partition in self._consumer.list_topics(topic, timeout=30).topics[topic].partitions:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
                places.append(TopicPartition(topic, partition, end))
        self._partitions = 1 + max(place.partition for place in places)
        self._consumer.assign(places)
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._thread = threading.Thread(target=self._run, name="copier", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()
        self._producer.flush(30)

    def _run(self) -> None:
        """Errors are the broker's, which may be away: it is asked again."""
        while not self._ended.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None and self._chance.random() < self.share:
                self._keep(message)
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                heapq.heappop(self._waiting)[2]()
            self._producer.poll(0)

    def _keep(self, message: Any) -> None:
        headers = message.headers() or []
        if any(name == AGAIN.decode() for name, _ in headers):
            return
        partition = message.partition()
        if message.topic() not in self._ordered and self._chance.random() < 0.5:
            partition = self._chance.randrange(self._partitions)

        def produce() -> None:
            copied = [*headers, (AGAIN.decode(), AGAIN)]
            self._producer.produce(message.topic(), message.value(), message.key(), partition, headers=copied)
            self.copies += 1

        at = time.monotonic() + self._chance.random() * LONGEST
        heapq.heappush(self._waiting, (at, next(self._numbers), produce))
