"""Who listens to the ledger's heartbeats, and who is asked how far the topics go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from deedbox_consumers.source import heartbeat
from deedbox_consumers.source.heartbeat import Heartbeat

PATIENCE = 30.0


class Beat:
    """A message with the moment that it tells, or an error."""

    def __init__(self, moment: str, error: KafkaError | None = None) -> None:
        self._moment = moment
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def headers(self) -> list[tuple[str, bytes]]:
        return [("created_at", self._moment.encode())]


class Unreadable(Beat):
    """A message with a header whose name is not UTF-8."""

    def headers(self) -> list[tuple[str, bytes]]:
        raise SystemError("returned a result with an exception set")


class Broker:
    """Both consumers, and the feed that is marked; `asked` is who was asked for an end, and whether it also reads."""

    topic = "shop.charge_customer"
    partitions = (0, 1)

    def __init__(self, *beats: Beat) -> None:
        self._beats = list(beats)
        self.asked: list[bool] = []
        self.marks: list[tuple[datetime, dict[int, int]]] = []
        self.problems: list[BaseException] = []
        self.over = threading.Event()

    def open(self, _: Any) -> Any:
        return _Consumer(self)

    def mark(self, at: datetime, ends: dict[int, int]) -> None:
        self.marks.append((at, ends))
        self.over.set()

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)
        self.over.set()

    def take(self) -> list[Beat]:
        beats, self._beats = self._beats, []
        return beats


class _Consumer:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reads = False
        self._more: list[Beat] = []

    def assign(self, _: Any) -> None:
        self._reads = True

    def poll(self, _: float) -> Beat | None:
        beats = self._broker.take()
        self._more = beats[1:]
        return beats[0] if beats else None

    def consume(self, _: int, timeout: float) -> list[Beat]:
        assert timeout == 0
        return self._more

    def get_watermark_offsets(self, place: Any, **_: Any) -> tuple[int, int]:
        self._broker.asked.append(self._reads)
        return 0, 10 + place.partition

    def close(self) -> None:
        pass


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Broker]:
    """What becomes of these messages."""

    def listen(*beats: Beat) -> Broker:
        broker = Broker(*beats)
        monkeypatch.setattr(heartbeat, "Consumer", broker.open)
        feeds: Any = [broker]
        one = Heartbeat("shop._heartbeat", {}, feeds, broker.fail)
        one.start()
        assert broker.over.wait(PATIENCE)
        one.end()
        one.join(PATIENCE)
        return broker

    return listen


def test_the_newest_counts_and_the_ends_are_asked_of_one_that_reads_nothing(listen: Callable[..., Broker]) -> None:
    """A broker answers a connection in order: behind a fetch each answer took half a second, so marks fell back."""
    broker = listen(Beat("2026-11-30T12:00:00Z"), Beat("2026-11-30T12:00:05Z"), Beat("nonsense"), Unreadable(""))
    assert broker.marks == [(datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC), {0: 10, 1: 11})]
    assert broker.asked == [False, False]


def test_an_error_that_passes_is_passed_over_and_a_fatal_one_ends_the_worker(listen: Callable[..., Broker]) -> None:
    passes, fatal = KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._FATAL)
    assert len(listen(Beat("", passes), Beat("2026-11-30T12:00:00Z")).marks) == 1
    (problem,) = listen(Beat("2026-11-30T12:00:00Z"), Beat("", fatal)).problems
    assert isinstance(problem, KafkaException)
