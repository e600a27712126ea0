"""How far the source has come: the ledger's heartbeats, as they arrive through the whole pipeline.

Everything that was emitted before a heartbeat is in Kafka when the heartbeat is. So when the ends that the partitions
had then are read and answered for, the sweep need not emit those calls again; and must, if nobody has claimed them.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from deedbox_consumers.source.feed import MOST, is_fatal
from deedbox_consumers.source.message import headers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deedbox_consumers.source.feed import Feed

log: logging.Logger = logging.getLogger("deedbox.kafka")

POLL = 0.5  # seconds
ANSWER_WITHIN = 5.0  # seconds; the next heartbeat comes then


class Heartbeat:
    """Reads the topic of heartbeats from its end, and marks the feeds."""

    def __init__(
        self, topic: str, settings: Mapping[str, Any], feeds: Sequence[Feed], fail: Callable[[BaseException], None]
    ) -> None:
        self._topic = topic
        self._settings = {**settings, "enable.auto.commit": False, "enable.partition.eof": False}
        self._feeds = feeds
        self._fail = fail
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"deedbox-{topic}", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def end(self) -> None:
        """Stop listening."""
        self._ended.set()

    def join(self, timeout: float) -> None:
        """Wait for the end."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _main(self) -> None:
        try:
            consumer = Consumer(self._settings)
            # Another one asks for the ends: a broker answers one connection in order, and so after the fetch under way,
            # which waits for half a second.
            asks = Consumer(self._settings)
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_END)])  # it has one partition
            try:
                while not self._ended.is_set():
                    message = consumer.poll(POLL)
                    if message is not None and (at := _newest([message, *consumer.consume(MOST, 0)])) is not None:
                        self._mark(asks, at)
            finally:
                asks.close()
                consumer.close()
        except Exception as problem:  # noqa: BLE001 - the worker ends with it
            self._fail(problem)

    def _mark(self, asks: Consumer, at: datetime) -> None:
        for feed in self._feeds:
            try:
                ends = {partition: _end(asks, feed.topic, partition) for partition in feed.partitions}
            except KafkaException as problem:
                log.warning("%s: its ends are not known (%s): the next heartbeat will tell", feed.topic, problem)
            else:
                feed.mark(at, ends)


def _newest(messages: Sequence[Any]) -> datetime | None:
    """The moment of the last heartbeat among these; raises KafkaException for an error that is the end."""
    newest = None
    for message in messages:
        if (error := message.error()) is None:
            newest = _moment(message) or newest
        elif is_fatal(error):
            raise KafkaException(error)
    return newest


def _end(asks: Consumer, topic: str, partition: int) -> int:
    """The partition's end, asked of the broker."""
    _, end = asks.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_WITHIN, cached=False)
    return int(end)


def _moment(message: Any) -> datetime | None:
    """When a heartbeat was emitted, in UTC; None for a message that is none."""
    text = dict(headers_of(message) or ()).get("created_at")
    try:
        at = datetime.fromisoformat(text.decode()) if text else None
        return at.astimezone(UTC) if at is not None and at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
