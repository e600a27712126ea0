"""The thread that owns a consumer: what it stores, commits, pauses and gives up, whatever the group does to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaError, KafkaException, libversion

from deedbox_consumers import health, watermark
from deedbox_consumers.health import Progress, serve_health
from deedbox_consumers.source import feed
from deedbox_consumers.source.message import read
from tests.support.scripted import PATIENCE, Fed, Message, Unreadable, end_of

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def fed() -> Iterator[Fed]:
    with Fed() as fed:
        yield fed


def test_holes_between_offsets_hold_nothing_back(fed: Fed) -> None:
    """spring-projects/spring-kafka#4258: offsets 0, 2, 4 of a transactional producer stopped the consumer for good."""
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 0), Message(0, 2), Message(0, 4), end_of(0, 6))
    fed.answer(2)
    fed.answer(0)
    fed.answer(4)
    # The last one is the end of a transaction, no record: it is done with what was before it.
    assert fed.consumer.of("store") == [("store", (0, 3)), ("store", (0, 6))]


def test_headers_that_cannot_be_read_stop_nothing_and_keep_their_place(fed: Fed) -> None:  # I14
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Unreadable(0, 0), Message(0, 1))
    assert [(one.offset, one.key, one.value) for one in fed.places] == [(0, b"k", b"v"), (1, b"k", b"v")]
    assert read(fed.places[0], "charge_customer") == "its headers cannot be read"
    fed.answer(1, 0)
    assert fed.consumer.of("store") == [("store", (0, 2))]


def test_nothing_is_stored_past_an_offset_that_is_not_answered(fed: Fed) -> None:  # I5
    """faust-streaming/faust#312: the commit jumped over an offset that was not finished."""
    fed.consumer.move("assign", 0, 1)
    fed.consumer.bring(*(Message(partition, offset) for partition in (0, 1) for offset in range(3)))
    fed.answer(1, 2)
    fed.answer(0, 1, partition=1)
    assert fed.consumer.of("store") == [("store", (1, 2))]
    fed.answer(0)
    assert fed.consumer.of("store")[1:] == [("store", (0, 3))]


def test_a_gap_is_forgotten_with_its_assignment_and_told_while_it_lasts(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """faust-streaming/faust#596: a gap that could never be filled held back all commits for ever."""
    moment = 100.0
    monkeypatch.setattr(watermark, "now", lambda: moment)
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 0), Message(0, 1))
    moment += 7
    fed.answer(1)
    assert fed.feed.age == 7.0
    fed.consumer.move("revoke", 0)
    assert fed.feed.age == 0.0
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 5))
    fed.answer(5)
    assert fed.consumer.of("store") == [("store", (0, 6))]


def test_what_is_answered_is_committed_before_a_partition_goes_and_nobody_is_waited_for(fed: Fed) -> None:
    """confluentinc/parallel-consumer#777 and #365: what was in flight at the revocation was done twice.

    PostHog/posthog#56097: the rebalance waited 20 s for handlers. Here it waits for nothing but the commit.
    """
    fed.consumer.move("assign", 0, 1)
    fed.consumer.bring(Message(0, 0), Message(0, 1), Message(1, 0))
    fed.feed.answer(fed.places[0])  # the feed has not taken note of it yet
    before = len(fed.consumer.calls)
    fed.consumer.move("revoke", 0)
    assert fed.consumer.calls[before:-1] == [("commit", (0, 1)), ("unassign", 0)]
    assert fed.dropped == [[0]]
    assert fed.feed.partitions == (1,)


def test_nothing_is_committed_for_partitions_that_were_lost(fed: Fed) -> None:
    """aio-libs/aiokafka#848: a late commit for what others had already, and the next rebalance, for ever."""
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 0))
    fed.feed.answer(fed.places[0])
    fed.consumer.move("lose", 0)
    fed.consumer.turn()
    assert fed.consumer.of("commit", "store", "unassign") == [("unassign", 0)]
    assert fed.dropped == [[0]]


@pytest.mark.parametrize("how", ["lose", "revoke"])
def test_an_answer_to_an_older_assignment_is_nobodys(fed: Fed, how: str) -> None:  # I8
    """confluentinc/librdkafka#5604: "lost" is not always told, and offsets were stored for what others own."""
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 0))
    before = fed.places[0]
    fed.consumer.move(how, 0)
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 0), Message(0, 1))
    fed.feed.answer(before)
    fed.consumer.turn()
    assert fed.consumer.of("store", "commit") == []
    fed.answer(0)
    assert fed.consumer.of("store") == [("store", (0, 1))]


def test_one_thread_makes_every_call_to_the_consumer(fed: Fed) -> None:
    """confluentinc/confluent-kafka-python#2322: calls of other threads wait for the poll under way.

    confluentinc/librdkafka#4059: a commit from elsewhere during a rebalance lost the assignment.
    """
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 0))
    others = [
        threading.Thread(target=word, args=given)
        for word, given in ((fed.feed.answer, fed.places), (fed.feed.mark, (AT, {0: 0})), (fed.feed.hold, ()))
    ]
    for other in others:
        other.start()
        other.join()
    fed.consumer.turn()
    fed.consumer.move("revoke", 0)
    fed.feed.end()
    fed.consumer.let_go()
    fed.feed.join(PATIENCE)
    assert {"store", "commit", "pause", "assign", "unassign", "close"} <= {call[0] for call in fed.consumer.calls}
    assert len(fed.consumer.threads) == 1
    assert threading.get_ident() not in fed.consumer.threads


def test_a_batch_is_a_short_poll_and_then_what_is_there(fed: Fed) -> None:
    """confluentinc/confluent-kafka-python#2205: whether consume(n, t) waits for n messages changed twice."""
    fed.consumer.move("assign", 0)
    assert fed.consumer.of("consume") == []
    fed.consumer.bring(Message(0, 0), Message(0, 1))
    assert fed.consumer.of("consume") == [("consume", feed.MOST, 0)]
    assert {call[1] for call in fed.consumer.of("poll")} == {feed.POLL}
    assert [place.offset for place in fed.places] == [0, 1]


def test_it_rests_when_full_until_half_is_free_and_polls_on(fed: Fed) -> None:
    """confluentinc/librdkafka#5343 and #5218: each pause fetches again what it threw away, and flapping leaked.

    confluentinc/confluent-kafka-dotnet#785: pausing does not help who polls no more.
    """
    fed.consumer.move("assign", 0, 1)
    del fed.consumer.calls[:]
    for fed.waiting in (4, 10, 11, 10, 8, 6, 9, 11, 5, 8, 10):
        fed.consumer.turn()
    assert fed.consumer.of("pause", "resume") == [("pause", 0, 1), ("resume", 0, 1)]
    assert len(fed.consumer.of("poll")) == 11


def test_no_partition_rests_for_ever_after_a_rebalance(fed: Fed) -> None:
    """spring-projects/spring-kafka#2410 and reactor/reactor-kafka#304: paused for ever, since a flag said otherwise.

    librdkafka leaves resting what stays with a member in a rebalance, and what comes back to it.
    """
    fed.waiting = 11
    fed.consumer.move("assign", 0, 1)
    fed.consumer.move("revoke", 1)
    fed.consumer.move("assign", 1, 2)
    fed.waiting = 8
    fed.consumer.move("assign", 3)
    resting = _resting(fed)
    fed.waiting = 5
    fed.consumer.turn()
    assert resting == {0, 1, 2, 3}
    assert _resting(fed) == set()


def test_a_rebalance_below_the_mark_lets_everything_go_on(fed: Fed) -> None:
    """spring-projects/spring-kafka#2410: here, a member that joins finds less than the half that was waited for."""
    fed.waiting = 11
    fed.consumer.move("assign", 0, 1)
    fed.waiting = 3
    fed.consumer.move("assign")
    assert _resting(fed) == set()


def test_a_drain_rests_whatever_comes(fed: Fed) -> None:
    fed.consumer.move("assign", 0)
    fed.feed.hold()
    fed.consumer.turn()
    fed.consumer.move("assign", 1)
    assert _resting(fed) == {0, 1}


def _resting(fed: Fed) -> set[int]:
    """The partitions that a consumer does not read, as it understands what it was told."""
    resting: set[int] = set()
    for name, *partitions in fed.consumer.of("pause", "resume"):
        resting = resting | set(partitions) if name == "pause" else resting - set(partitions)
    return resting


def test_a_commit_that_is_refused_at_the_end_of_an_assignment_ends_nothing(fed: Fed) -> None:
    """reactor/reactor-kafka#304: a commit failed, and the consumer was paused for ever."""
    fed.consumer.move("assign", 0, 1)
    fed.consumer.bring(Message(0, 0), Message(1, 0))
    fed.feed.answer(fed.places[0])
    fed.consumer.refuses = KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))
    fed.consumer.move("revoke", 0)
    assert fed.feed.partitions == (1,)
    assert _resting(fed) == set()
    fed.answer(0, partition=1)
    assert fed.consumer.of("store") == [("store", (1, 1))]
    assert not fed.problems


@pytest.mark.parametrize(
    "fatal", [KafkaError(KafkaError.INVALID_REQUEST, "no", fatal=True), KafkaError(KafkaError._FATAL)], ids=str
)
def test_a_fatal_error_ends_the_worker(fed: Fed, fatal: KafkaError) -> None:
    """confluentinc/librdkafka#5541: a member that can never come back must be started anew."""
    fed.consumer.move("assign", 0)
    fed.consumer.let_go(lambda: Message(0, 0, fatal))
    assert fed.failed.wait(PATIENCE)
    ((problem),) = fed.problems
    assert isinstance(problem, KafkaException)
    assert fed.consumer.calls[-1] == ("close",)


def test_the_client_is_one_that_does_not_lose_its_assignment_nor_itself() -> None:
    """confluentinc/librdkafka#4059 was mended in 2.10, confluentinc/librdkafka#5541 in 2.15."""
    version, _ = libversion()
    assert tuple(map(int, version.split(".")[:2])) >= (2, 15)


def test_an_error_that_passes_ends_nothing(fed: Fed) -> None:
    fed.consumer.move("assign", 0)
    fed.consumer.bring(Message(0, 0, KafkaError(KafkaError._TRANSPORT)), Message(0, 0))
    assert [place.offset for place in fed.places] == [0]


def test_a_poll_that_never_returns_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """confluentinc/librdkafka#4783: an assignor that looped for ever, in a process that looked alive."""
    moment = 100.0
    monkeypatch.setattr(health, "now", lambda: moment)
    progress = Progress()
    progress.expect("poll charge", timedelta(minutes=2))
    go_on = threading.Event()

    def loop_for_ever() -> None:
        go_on.wait(PATIENCE)

    with serve_health(progress, 0) as served, Fed() as fed:
        fed.polled = lambda: progress.note("poll charge")
        fed.consumer.let_go(loop_for_ever)
        assert _livez(served.port) == 200
        moment += 121
        assert _livez(served.port) == 503
        go_on.set()
        fed.consumer.await_poll()
        assert _livez(served.port) == 200


def _livez(port: int) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{port}/livez", timeout=PATIENCE) as reply:
            return int(reply.status)
    except HTTPError as reply:
        with reply:
            return reply.code


class TestReceivedThrough:
    """What the feed tells the ledger: which calls need not be emitted again, since they were received."""

    @pytest.fixture(autouse=True)
    def moment(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        self.now = 100.0
        monkeypatch.setattr(feed, "now", lambda: self.now)

    def test_all_that_was_there_at_the_mark_is_answered_for(self, fed: Fed) -> None:  # I5
        fed.consumer.move("assign", 0, 1)
        fed.feed.mark(AT, {0: 2, 1: 0})
        fed.consumer.bring(Message(0, 0), Message(0, 1), end_of(1, 0))
        fed.answer(0)
        assert fed.feed.received == feed.NOTHING
        fed.answer(1)
        assert fed.feed.received == AT

    def test_the_first_mark_gets_its_chance_and_then_the_newest(self, fed: Fed) -> None:
        fed.consumer.move("assign", 0)
        fed.consumer.bring(*(Message(0, offset) for offset in range(9)))
        for minute in range(9):
            fed.feed.mark(AT + timedelta(minutes=minute), {0: minute + 1})
        fed.answer(0)
        assert fed.feed.received == AT
        fed.answer(*range(1, 8))
        assert fed.feed.received == AT
        fed.answer(8)
        assert fed.feed.received == AT + timedelta(minutes=8)

    def test_a_member_without_partitions_knows_nothing_while_they_may_be_nobodys(self, fed: Fed) -> None:  # I5
        """Joining takes seconds: what waits in the topic is received by nobody then, and is not to be sent again."""
        fed.consumer.move("assign")
        fed.feed.mark(AT, {})
        fed.consumer.turn()
        assert fed.feed.received == feed.NOTHING
        self.now += feed.NOBODYS
        fed.feed.mark(AT, {})
        fed.consumer.turn()
        assert fed.feed.received == AT  # there are more members than partitions

    def test_a_member_whose_partition_was_taken_holds_its_word_until_another_has_it(self, fed: Fed) -> None:  # I5
        fed.consumer.move("assign", 0, 1)
        fed.consumer.bring(Message(0, 0), end_of(1, 0))
        fed.feed.mark(AT, {0: 1, 1: 0})
        fed.consumer.move("revoke", 0)
        fed.feed.mark(AT, {1: 0})
        fed.consumer.turn()
        assert fed.feed.received == feed.NOTHING
        self.now += feed.NOBODYS
        fed.feed.mark(AT, {1: 0})
        fed.consumer.turn()
        assert fed.feed.received == AT

    def test_a_member_that_gets_a_partition_takes_back_what_it_said(self, fed: Fed) -> None:  # I5
        fed.consumer.move("assign", 0)
        fed.consumer.bring(end_of(0, 0))
        fed.feed.mark(AT, {0: 0})
        fed.consumer.turn()
        assert fed.feed.received == AT
        fed.consumer.move("assign", 1)
        assert fed.feed.received == feed.NOTHING
        fed.feed.mark(AT, {0: 0})  # asked for before it came
        fed.consumer.turn()
        assert fed.feed.received == feed.NOTHING
        fed.feed.mark(AT, {0: 0, 1: 3})
        fed.consumer.bring(end_of(1, 3))
        assert fed.feed.received == AT
