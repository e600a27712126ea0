"""One tool's topic: a consumer, and the thread that owns it and makes every call to it.

confluent-kafka lets one call at a time into a consumer: a pause or commit from another thread would wait for the poll
under way. So the worker's loop only leaves word here, and the thread acts on it in its next turn.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from deedbox_consumers.clock import now
from deedbox_consumers.source.message import place_of
from deedbox_consumers.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from deedbox_consumers.record import Place

log: logging.Logger = logging.getLogger("deedbox.kafka")

POLL = 0.05  # seconds; a record ends the wait, so this bounds only how late an answer, a pause or a stop is noticed
MOST = 500  # messages a turn
REPEAT = 60.0  # seconds between two log lines about the same broker that does not answer
# Seconds in which a partition that was taken from us may be nobody's: until the group has moved it, and its new owner's
# next renewal has told the ledger that it is behind.
NOBODYS = 30.0
NOTHING: Final = datetime.fromtimestamp(0, UTC)  # what has been received of a partition that has just come to us

CONFIG: dict[str, Any] = {
    "client.id": "deedbox-worker",
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,  # a killed worker's partitions move on after this; its calls do sooner, by the sweep
    "heartbeat.interval.ms": 1_000,  # how soon a member hears of a rebalance: until then its new partitions rest
    "enable.auto.offset.store": False,  # an offset counts when the ledger answers for its call
    "auto.commit.interval.ms": 1_000,
    "enable.partition.eof": True,  # tells how far the source has come when nothing is there to be read
    "queued.min.messages": 2_000,  # what is prefetched is fetched again after a pause
    "queued.max.messages.kbytes": 8_192,
    "fetch.queue.backoff.ms": 10,  # the default rests for a second whenever the prefetch is full
    "topic.metadata.refresh.interval.ms": 10_000,  # a topic that is created after the worker started is found
    "reconnect.backoff.max.ms": 2_000,
    "log_level": 2,  # critical: what fails for now is said by Complaints, with the address
}


class Complaints:
    """Says that an address does not answer: at once, then now and then, however many consumers find it out."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self._last = -REPEAT
        self._lock = threading.Lock()

    def __call__(self, error: KafkaError) -> None:
        """One consumer has found it out; called in its thread."""
        with self._lock:
            if now() - self._last < REPEAT:
                return
            self._last = now()
        log.warning("Kafka at %s does not answer (%s): trying again", self._kafka, error.str())


def config(kafka: str, group: str, complain: Callable[[KafkaError], None]) -> dict[str, Any]:
    """The settings of a consumer, which tells `complain` what hinders it for now."""
    return CONFIG | {"bootstrap.servers": kafka, "group.id": group, "error_cb": complain, "logger": log}


def is_fatal(error: KafkaError) -> bool:
    """Whether a consumer with this error can never go on; the one that says so does not call itself fatal."""
    return error.fatal() or error.code() == KafkaError._FATAL


class Feed:
    """The messages of one topic, for the members of one group.

    `deliver` gets places as they come, `drop` the partitions that were taken away, `full` says whether to rest, `fail`
    what the thread could not cope with, `note` that it has polled; all are called in the thread. `client` makes the
    consumer of its settings.
    """

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, Any],
        *,
        deliver: Callable[[Sequence[Place]], None],
        drop: Callable[[Collection[int]], None],
        full: Callable[[bool], bool],
        fail: Callable[[BaseException], None],
        note: Callable[[], object],
        client: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self.topic = topic
        self.received: datetime = NOTHING  # everything emitted before this moment was received and answered for
        self.age: float = 0.0  # for how many seconds the first record that is not answered for has been waiting
        self._settings = dict(settings)
        self._deliver = deliver
        self._drop = drop
        self._full = full
        self._fail = fail
        self._note_turn = note
        self._client = client
        self._answers: deque[Place] = deque()
        self._told: deque[tuple[datetime, Mapping[int, int]]] = deque()
        self._marks: list[tuple[datetime, Mapping[int, int]]] = []
        self._watermarks: dict[int, Watermark] = {}
        self._epoch = 0
        self._full_before = False
        self._resting: dict[int, bool] = {}  # partitions that were told to rest, or to go on
        self._new = True  # no partition has come to us yet: others may have left theirs for us
        self._unsure_until = now() + NOBODYS  # until then no mark counts
        self._held = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"deedbox-{topic}", daemon=True)

    def start(self) -> None:
        """Join the group and read."""
        self._thread.start()

    def answer(self, place: Place) -> None:
        """The ledger answers for this place now."""
        self._answers.append(place)

    def mark(self, at: datetime, ends: Mapping[int, int]) -> None:
        """At the moment `at` these were the ends of the partitions that we had: `received` follows when all is read."""
        self._told.append((at, ends))

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that are ours now."""
        return tuple(self._watermarks)

    def hold(self) -> None:
        """Read no more, but stay in the group."""
        self._held.set()

    def end(self) -> None:
        """Commit what is answered for and leave the group."""
        self._ended.set()

    def join(self, timeout: float) -> None:
        """Wait for the end."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    # ---- in the thread

    def _main(self) -> None:
        try:
            consumer = self._client(self._settings)
            consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            try:
                while not self._ended.is_set():
                    self._turn(consumer)
                self._settle()
            finally:
                consumer.close()
        except Exception as problem:  # noqa: BLE001 - the worker ends with it
            self._fail(problem)

    def _turn(self, consumer: Consumer) -> None:
        message = consumer.poll(POLL)
        self._note_turn()
        if message is not None:
            self._receive([message, *consumer.consume(MOST, 0)])
        self._settle()
        if offsets := self._offsets({number: one.to_commit() for number, one in self._watermarks.items()}):
            consumer.store_offsets(offsets=offsets)
        self.age = max((watermark.age for watermark in self._watermarks.values()), default=0.0)
        self._advance()
        self._rest(consumer)

    def _receive(self, messages: Sequence[Any]) -> None:
        places = []
        for message in messages:
            if (error := message.error()) is not None:
                self._note(message, error)
            elif (watermark := self._watermarks.get(message.partition())) is not None:
                watermark.receive(message.offset())
                places.append(place_of(message, watermark.epoch))
        if places:
            self._deliver(places)

    def _note(self, message: Any, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if (watermark := self._watermarks.get(message.partition())) is not None:
                watermark.reach(message.offset())
        elif is_fatal(error):
            raise KafkaException(error)
        else:
            log.warning("%s: %s", self.topic, error.str())

    def _settle(self) -> None:
        """Take note of the answers that have come; those to an older assignment are nobody's."""
        while self._answers:
            place = self._answers.popleft()
            watermark = self._watermarks.get(place.partition)
            if watermark is not None and watermark.epoch == place.epoch:
                watermark.answer(place.offset)

    def _offsets(self, lows: Mapping[int, int | None]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition, low) for partition, low in lows.items() if low is not None]

    def _advance(self) -> None:
        """Follow the marks. One counts if all that was ours then is ours now, and nothing may be nobody's."""
        while self._told:
            self._marks[1:] = [self._told.popleft()]  # the first one must get its chance, the newest is the most useful
        if now() < self._unsure_until:
            self._marks.clear()
        while self._marks:
            at, ends = self._marks[0]
            if ends.keys() >= self._watermarks.keys():
                reached = ((watermark.through, ends[partition]) for partition, watermark in self._watermarks.items())
                if not all(through is not None and through >= end for through, end in reached):
                    return
                self.received = at
            del self._marks[0]

    def _rest(self, consumer: Consumer) -> None:
        """Let every partition rest or go on, as is right at this moment: each is told that was last told otherwise.

        A rebalance brings partitions that rest since they were here before, and leaves resting those that stay.
        """
        self._full_before = self._full(self._full_before)
        wanted = self._held.is_set() or self._full_before
        if told := [partition for partition in self._watermarks if self._resting.get(partition) is not wanted]:
            (consumer.pause if wanted else consumer.resume)([TopicPartition(self.topic, one) for one in told])
            self._resting.update(dict.fromkeys(told, wanted))

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._epoch += 1
        for partition in partitions:
            self._watermarks[partition.partition] = Watermark(self._epoch)
            self._resting.pop(partition.partition, None)
            self.received = NOTHING
        if partitions and self._new:
            self._new, self._unsure_until = False, 0.0
        consumer.incremental_assign(list(partitions))

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._settle()
        mine = [item.partition for item in partitions if item.partition in self._watermarks]
        # Also what is stored already: its own commit may be a second away.
        if offsets := self._offsets({partition: self._watermarks[partition].low for partition in mine}):
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as problem:
                log.warning("%s: its offsets could not be committed, so calls will come twice: %s", self.topic, problem)
        self._forget(mine)
        consumer.incremental_unassign(list(partitions))

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Others have them already: nothing may be committed."""
        self._forget([item.partition for item in partitions])
        consumer.incremental_unassign(list(partitions))

    def _forget(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self._watermarks.pop(partition, None)
            self._resting.pop(partition, None)
        if partitions:
            self._unsure_until = now() + NOBODYS
            self._drop(partitions)
