"""A Kafka consumer that does what a test says, turn by turn, for states into which a real one cannot be brought."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, TopicPartition

from deedbox_consumers.record import Place
from deedbox_consumers.source.feed import Feed

TOPIC = "shop.charge_customer"
PATIENCE = 30.0  # seconds: a bound on each wait, met only when something is broken

Call = tuple[Any, ...]


class Message:
    """A record at an offset, or an error."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self._place = partition, offset
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes]]:
        return []


class Unreadable(Message):
    """A record with a header whose name is not UTF-8, as the client tells it: the second question ends the process."""

    def __init__(self, partition: int, offset: int) -> None:
        super().__init__(partition, offset)
        self._asked = False

    def headers(self) -> list[tuple[str, bytes]]:
        assert not self._asked
        self._asked = True
        raise SystemError("returned a result with an exception set") from UnicodeDecodeError("utf-8", b"\xff", 0, 1, "")


def end_of(partition: int, offset: int) -> Message:
    """Nothing is left to be read of the partition."""
    return Message(partition, offset, KafkaError(KafkaError._PARTITION_EOF))


class Scripted:
    """The consumer. `calls` is all that was asked of it, `threads` who asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.threads: set[int] = set()
        self.more: list[Message] = []  # what the next consume() finds
        self.refuses: Exception | None = None  # what a commit raises
        self._does: SimpleQueue[Callable[[], Message | None]] = SimpleQueue()
        self._polls = threading.Semaphore(0)
        self._moved: dict[str, Callable[[Any, list[TopicPartition]], None]] = {}

    # ---- for the test

    def turn(self, does: Callable[[], Message | None] = lambda: None) -> None:
        """Let a poll do this, and wait until the feed polls again: it has then acted on it."""
        self._does.put(does)
        assert self._polls.acquire(timeout=PATIENCE), "the feed polls no more"

    def let_go(self, does: Callable[[], Message | None] = lambda: None) -> None:
        """Let a poll do this, which may be the last one."""
        self._does.put(does)

    def move(self, how: str, *partitions: int) -> None:
        """A turn with a rebalance: assign, revoke or lose these."""
        self.turn(lambda: self._moved[how](self, [TopicPartition(TOPIC, number) for number in partitions]))

    def bring(self, *messages: Message) -> None:
        """A turn with messages."""
        first, *self.more = messages
        self.turn(lambda: first)

    def of(self, *names: str) -> list[Call]:
        """The calls of these methods."""
        return [call for call in self.calls if call[0] in names]

    def await_poll(self) -> None:
        """Wait until the feed polls for the first time."""
        assert self._polls.acquire(timeout=PATIENCE)

    # ---- for the feed

    def _asked(self, *call: Any) -> None:
        self.calls.append(call)
        self.threads.add(threading.get_ident())

    def subscribe(self, topics: list[str], **moved: Callable[[Any, list[TopicPartition]], None]) -> None:
        self._asked("subscribe", *topics)
        self._moved = {
            "assign": moved["on_assign"],
            "revoke": moved["on_revoke"],
            "lose": moved["on_lost"],
        }

    def poll(self, timeout: float) -> Message | None:
        self._asked("poll", timeout)
        self._polls.release()
        return self._does.get()()

    def consume(self, most: int, timeout: float) -> list[Message]:
        self._asked("consume", most, timeout)
        more, self.more = self.more, []
        return more

    def store_offsets(self, *, offsets: Sequence[TopicPartition]) -> None:
        self._asked("store", *((one.partition, one.offset) for one in offsets))

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        self._asked("commit", *((one.partition, one.offset) for one in offsets))
        assert not asynchronous
        if self.refuses is not None:
            raise self.refuses

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._asked("pause", *(one.partition for one in partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._asked("resume", *(one.partition for one in partitions))

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._asked("assign", *(one.partition for one in partitions))

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        self._asked("unassign", *(one.partition for one in partitions))

    def close(self) -> None:
        self._asked("close")


class Fed:
    """A feed on a scripted consumer, and what it told."""

    def __init__(self) -> None:
        self.consumer = Scripted()
        self.places: list[Place] = []
        self.dropped: list[list[int]] = []
        self.problems: list[BaseException] = []
        self.failed = threading.Event()
        self.waiting = 0  # records in lanes that have room for ten
        self.polled: Callable[[], object] = lambda: None
        self.feed = Feed(
            TOPIC,
            {},
            deliver=self.places.extend,
            drop=lambda partitions: self.dropped.append(list(partitions)),
            full=self._full,
            fail=self._fail,
            note=self._note,
            client=lambda _: self.consumer,
        )

    def __enter__(self) -> Self:
        self.feed.start()
        self.consumer.await_poll()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.feed.end()
        self.consumer.let_go()
        self.feed.join(PATIENCE)

    def answer(self, *offsets: int, partition: int = 0) -> None:
        """The ledger answers for the newest delivery of these offsets; the feed takes note in the turn after."""
        for offset in offsets:
            newest = [one for one in self.places if (one.partition, one.offset) == (partition, offset)]
            self.feed.answer(newest[-1])
        self.consumer.turn()

    def _full(self, resting: bool) -> bool:
        return self.waiting > (5 if resting else 10)

    def _note(self) -> None:
        self.polled()

    def _fail(self, problem: BaseException) -> None:
        self.problems.append(problem)
        self.failed.set()
