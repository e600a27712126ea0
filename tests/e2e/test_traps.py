"""Traps that others fell into, on the real Postgres, Debezium and Kafka. docs/traps.md tells which is which."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from deedbox import Deedbox, Run, signals, user
from deedbox_consumers import Attempt, RetryLater, Worker, desk, jam, worker
from deedbox_consumers.health import Progress
from deedbox_consumers.source import feed
from deedbox_consumers.source import kafka as source
from tests.support.fleet import PATIENCE, Provider, decide, outcomes, wait_until
from tests.support.pipeline import Pipeline
from tests.support.shop import MONEY, TOOLS, Shop, charge, lookup, mail, payout, refund, ship, wire
from tests.support.topic import Topic, Watched

ROOT = Path(__file__).resolve().parents[2]
SOON = 6_000  # milliseconds: the least that a broker lets a member be silent


@pytest.fixture
def box(bank: Deedbox) -> Deedbox:
    return bank


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """The consumers of the tools, in the order in which the test's workers were started."""
    consumers: list[Watched] = []
    monkeypatch.setattr(Watched, "all", consumers, raising=False)
    monkeypatch.setattr(source, "Feed", partial(feed.Feed, client=Watched))
    return consumers


def perform(pipeline: Pipeline, provider: Provider, *tools: Any, **more: Any) -> Worker:
    """A worker of these tools."""
    money = all(tool in MONEY for tool in tools)
    handlers = provider.money() if money else provider.handlers()
    names = [tool.name for tool in tools]
    options: dict[str, Any] = {"database_url": pipeline.shop.url, "schema": pipeline.shop.schema, **more}
    return Worker(None, handlers, tools=names, source="kafka", kafka=pipeline.stack.kafka, **options)


def settings(pipeline: Pipeline, topic: Topic) -> dict[str, Any]:
    """Those of a member of the topic's group."""
    kafka = pipeline.stack.kafka
    return feed.config(kafka, topic.name, feed.Complaints(kafka))


def payments(count: int, tool: Any = wire) -> list[Any]:
    return [tool(customer="c", cents=cents) for cents in range(1, count + 1)]


@pytest.fixture
def standby(conn: psycopg.Connection, shop: Shop) -> Iterator[None]:
    """A synchronous standby that does not answer: a transaction that wants it waits for it in its COMMIT."""
    conn.execute("SET synchronous_commit = local")
    conn.execute("ALTER DATABASE deedbox SET synchronous_commit = local")  # who connects from now on does not want it
    conn.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    conn.execute("SELECT pg_reload_conf()")
    try:
        probe = threading.Thread(target=_commit_until_one_waits, args=[shop])
        probe.start()
        waits = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_until(lambda: conn.execute(waits).fetchall())
        probe.join(PATIENCE)
        yield
    finally:
        _release(conn)
        conn.execute("ALTER DATABASE deedbox RESET synchronous_commit")


def _commit_until_one_waits(shop: Shop) -> None:
    """The server hears of its standby some time after it was told."""
    told: list[Any] = []
    with psycopg.connect(shop.url, autocommit=True, options="-c synchronous_commit=on") as conn:
        conn.add_notice_handler(told.append)  # the wait was ended, though the transaction is committed
        while not told:
            conn.execute(f"COMMENT ON SCHEMA {shop.schema} IS 'waits'".encode())


def _release(conn: psycopg.Connection) -> None:
    conn.execute("ALTER SYSTEM RESET synchronous_standby_names")
    conn.execute("SELECT pg_reload_conf()")


def test_nothing_is_performed_before_its_commit_can_be_read(  # I1 I5
    pipeline: Pipeline, standby: None, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zehelein/pg-transactional-outbox#4: the row was "not found" right after its event, and the event was dropped.

    Trendyol/go-pq-cdc#167: with a synchronous standby, the event comes a round trip before the row. Here the standby
    does not answer at all, longer than the worker has patience.
    """
    provider, asked = Provider(), threading.Event()
    signals.arm("after_claim", asked.set, nth=3)
    calls = [lookup(order="o")]

    def commit() -> None:
        with Deedbox(pipeline.shop.url, tools=TOOLS, schema=pipeline.shop.schema) as box:
            turn = next(iter(box.run("waits", messages=[user("go")])))
            with turn.transaction(calls=calls) as ours:
                ours.execute("SET LOCAL synchronous_commit = on")

    agent = threading.Thread(target=commit)
    with perform(pipeline, provider, lookup, lease=timedelta(seconds=2)):
        agent.start()
        assert asked.wait(PATIENCE)
        assert not provider.requests
        monkeypatch.setattr(desk, "ABSENT_FOR", 0.1)
        wait_until(lambda: conn.execute("SELECT reason FROM stray").fetchall())
        assert conn.execute("SELECT count(*) FROM action").fetchone() == (0,)
        _release(conn)
        agent.join(PATIENCE)
        assert conn.execute("SELECT status FROM outcome").fetchall() == [("pending",)]
        # The sweep has it, as soon as the workers have received what came after it.
        wait_until(lambda: _is_taken_up(conn))
        wait_until(lambda: conn.execute("SELECT status FROM outcome").fetchall() == [("done",)])
    assert len(provider.requests) == 1
    signals.disarm()


def _is_taken_up(conn: psycopg.Connection) -> bool:
    """Whether nothing is pending any more; until then it is due, and so is the next heartbeat."""
    conn.execute("UPDATE box SET swept_at = '2026-01-01'")
    conn.execute("UPDATE outcome SET next_at = now() WHERE coalesce(next_at, 'infinity') > now() + interval '10 s'")
    return conn.execute("SELECT FROM outcome WHERE status = 'pending'").rowcount == 0


def test_offsets_that_are_no_records_hold_back_nothing(pipeline: Pipeline, box: Deedbox) -> None:
    """spring-projects/spring-kafka#4258: the holes of a transactional producer stopped the consumer for good."""
    topic, provider = Topic(pipeline, ship.name), Provider()
    with perform(pipeline, provider, ship):
        topic.produce_in_transactions({}, b"is set aside", commits=[True, False, True])
        assert outcomes(box, decide(box, *(ship(to=f"{n}@x", text="x") for n in range(12)))) == ["done"] * 12
        topic.produce_in_transactions({}, b"is set aside", commits=[True, False])
        wait_until(lambda: topic.lag() == 0)
    assert len(provider.requests) == 12


def test_a_batch_is_what_is_there_in_order_whatever_consume_waits_for(pipeline: Pipeline) -> None:
    """confluentinc/confluent-kafka-python#2205: whether consume(n, t) waits for n messages changed twice."""
    topic = Topic(pipeline, ship.name)
    consumer = Consumer({"bootstrap.servers": pipeline.stack.kafka, "group.id": str(uuid4())})
    with contextlib.closing(consumer):
        place = TopicPartition(topic.name, 0)
        _, place.offset = consumer.get_watermark_offsets(place, timeout=PATIENCE)
        consumer.assign([place])
        topic.produce_many(b"x", 50)
        offsets: list[int] = []

        def take() -> bool:
            if (message := consumer.poll(feed.POLL)) is not None:
                offsets.extend(one.offset() or 0 for one in (message, *consumer.consume(feed.MOST, 0)))
            return len(offsets) >= 50

        wait_until(take)
    assert offsets == list(range(place.offset, place.offset + 50))


def test_members_come_and_go_while_calls_run_and_a_tool_is_full(  # I5 I6 I8
    pipeline: Pipeline, box: Deedbox, conn: psycopg.Connection, watched: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluentinc/parallel-consumer#777 and #365: what was in flight at the revocation was done twice.

    PostHog/posthog#56097: the rebalance waited for handlers. confluentinc/librdkafka#4059: a commit during it lost the
    assignment. spring-projects/spring-kafka#2410 and reactor/reactor-kafka#304: paused for ever.
    confluentinc/confluent-kafka-python#2322: calls of other threads stall.
    """
    monkeypatch.setattr(worker, "ROOM", 10)
    topic, stays, visits = Topic(pipeline, wire.name), Provider(), Provider()
    permits, leave = threading.Semaphore(0), threading.Event()

    async def when_permitted(*_: object) -> None:
        while not permits.acquire(blocking=False):  # noqa: ASYNC110 - the test lets it go on, in another thread
            await asyncio.sleep(0.01)

    async def until_it_may_leave(*_: object) -> None:
        while not leave.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    stays.on[wire.name], visits.on[wire.name] = when_permitted, until_it_may_leave
    done = "SELECT count(*) FROM outcome WHERE tool = %s AND status = 'done'"
    with perform(pipeline, stays, wire, concurrency=10):
        wait_until(lambda: list(topic.members().values()) == [6])
        first = decide(box, *payments(60))
        (mine,) = [consumer for consumer in watched if consumer.group == topic.name]
        wait_until(lambda: "pause" in mine.calls and len(stays.requests) == 10)
        # Neither full nor half free: it rests on, and the members that come and go must not make it forget that.
        over = mine.brought - 15
        permits.release(over)
        wait_until(lambda: conn.execute(done, [wire.name]).fetchone() == (over,) and len(stays.requests) == over + 10)
        with perform(pipeline, visits, wire) as visitor:
            wait_until(lambda: list(topic.members().values()) == [3, 3])
            assert len(stays.requests) == over + 10  # its handlers hang, and nobody has waited for them
            second = decide(box, *payments(12))
            wait_until(lambda: visits.requests)
            visitor.stop()  # it drains, and what it does not perform itself is the other's at once
            wait_until(lambda: list(topic.members().values()) == [6])
            leave.set()
        permits.release(100)
        for run, count in ((first, 60), (second, 12)):
            assert outcomes(box, run) == ["done"] * count
        assert outcomes(box, decide(box, *payments(12))) == ["done"] * 12
        wait_until(lambda: topic.lag() == 0)
    assert set((stays.effects + visits.effects).values()) == {1}
    assert all(len(consumer.threads) == 1 for consumer in watched)
    assert len({number for consumer in watched for number in consumer.threads}) == len(watched)


def test_calls_that_fail_beside_each_other_are_kept_in_order_and_outside_of_the_offsets(  # I5
    pipeline: Pipeline, box: Deedbox, conn: psycopg.Connection
) -> None:
    """spring-projects/spring-kafka#4505: of two records that failed one was lost, and so was the order."""
    topic, provider = Topic(pipeline, mail.name), Provider()

    def fail_first(_: Any, attempt: Attempt) -> None:
        if attempt.number == 1:
            raise RetryLater(timedelta(minutes=10))

    provider.on[mail.name] = fail_first
    with perform(pipeline, provider, mail):
        run = decide(box, *(mail(to=to, text="x") for _ in range(2) for to in ("a@x", "b@x")))
        wait_until(lambda: len(provider.requests) == 2)
        wait_until(lambda: topic.lag() == 0)
        wait_until(lambda: _are_done(conn, run))
        assert outcomes(box, run) == ["done"] * 4
    order = [int(key.rsplit(":", 1)[1]) for key in provider.requests]
    assert [at for at in order if at % 2 == 0] == [0, 0, 2, 2]
    assert [at for at in order if at % 2 == 1] == [1, 1, 3, 3]


def _are_done(conn: psycopg.Connection, run: Run) -> bool:
    """Whether the calls of a run are done; until then, what is to be tried again is due."""
    conn.execute("UPDATE outcome SET next_at = now() WHERE status = 'retry' AND next_at > now() + interval '1 min'")
    ended = "SELECT FROM outcome o JOIN action a ON a.id = o.action_id WHERE a.run_id = %s AND o.status = 'done'"
    return conn.execute(ended, [run.id]).rowcount == len(run.journal.calls)


def test_a_key_that_is_stuck_slows_no_other_and_holds_back_no_offset(  # I5
    pipeline: Pipeline, box: Deedbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """faust-streaming/faust#596: what waited for the stuck one held back all commits of its partition."""
    monkeypatch.setattr(worker, "ROOM", 5)
    monkeypatch.setattr(jam, "SHORT_OF_ROOM", 0.0)
    monkeypatch.setattr(jam, "EVERY", 0.01)
    topic, provider, go = Topic(pipeline, mail.name), Provider(), threading.Event()

    async def hang(args: Any, _: Attempt) -> None:
        while args.text == "hangs" and not go.is_set():  # noqa: ASYNC110 - the test lets it go on, in another thread
            await asyncio.sleep(0.01)

    provider.on[mail.name] = hang
    with perform(pipeline, provider, mail, concurrency=5):
        stuck = decide(box, *(mail(to="stuck@x", text=text) for text in ("hangs", *"abcdefghijklmnopqrst")))
        for number in range(3):
            other = decide(box, *(mail(to=f"{number}.{n}@x", text="other") for n in range(20)))
            assert outcomes(box, other) == ["done"] * 20
        wait_until(lambda: topic.lag() == 0)
        go.set()
        assert outcomes(box, stuck) == ["done"] * 21
    mine = [key for key in provider.requests if stuck.id in key]
    assert mine == sorted(mine, key=lambda key: int(key.rsplit(":", 1)[1]))
    assert set(provider.effects.values()) == {1}


@dataclass
class Struck:
    """A worker process that was killed with one call in its handler and another one received; and one that lives."""

    at_work: Run
    received: Run
    requests: Path


@pytest.fixture(scope="module")
def struck(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Struck]:
    shop, file = pipeline.shop, tmp_path_factory.mktemp("struck") / "requests"
    given = ["tests.support.performer", shop.url, shop.schema, str(file), "2", f"kafka={pipeline.stack.kafka}"]
    command = [sys.executable, "-m", *given]
    with contextlib.ExitStack() as processes, Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:

        def start(*more: str) -> subprocess.Popen[bytes]:
            process = processes.enter_context(subprocess.Popen([*command, *more], cwd=ROOT))
            processes.callback(process.kill)
            return process

        victim = start("hang", "die_then_at=before_claim")
        at_work = decide(box, charge(customer="c", cents=1))
        wait_until(file.exists)
        received = decide(box, charge(customer="c", cents=2))
        assert victim.wait(PATIENCE) == -signal.SIGKILL
        start()
        yield Struck(at_work, received, file)


class Stalls(Progress):
    """The progress of a worker whose thread that owns the consumer of mails hangs, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.told, self.hangs, self.go_on = threading.Event(), threading.Event(), threading.Event()

    def note(self, part: str) -> None:
        if part == f"poll {mail.name}" and self.told.is_set():
            self.hangs.set()
            assert self.go_on.wait(PATIENCE)
        super().note(part)


def test_who_is_busy_or_full_stays_in_its_group_and_who_was_thrown_out_commits_nothing(  # I5 I8
    pipeline: Pipeline, box: Deedbox, monkeypatch: pytest.MonkeyPatch, struck: Struck
) -> None:
    """aio-libs/aiokafka#848: a call longer than max.poll.interval.ms threw its member out, for ever.

    confluentinc/confluent-kafka-dotnet#785: so did a pause. confluentinc/librdkafka#5604: "lost" is not always told.
    A plain consumer that polls no more, with the same settings, tells when that time is over. (In which the group of
    who was struck finds out, too.)
    """
    times = {"max.poll.interval.ms": SOON, "session.timeout.ms": SOON}
    monkeypatch.setattr(feed, "CONFIG", feed.CONFIG | times)
    monkeypatch.setattr(worker, "ROOM", 3)
    busy, thrown_out, heir, let = Provider(), Provider(), Provider(), threading.Event()
    busy.on[lookup.name] = lambda *_: let.wait(PATIENCE) and None
    lookups, mails, control = Topic(pipeline, lookup.name), Topic(pipeline, mail.name), Topic(pipeline, payout.name)
    stalls = Stalls()
    thrown_out.on[mail.name] = lambda *_: stalls.told.set()
    silent = Consumer(settings(pipeline, control))
    stalled = perform(pipeline, thrown_out, mail)
    stalled.progress = stalls
    with contextlib.closing(silent), perform(pipeline, busy, lookup, threads=2, concurrency=2), stalled:
        silent.subscribe([control.name])
        wait_until(lambda: silent.poll(0.01) is None and len(silent.assignment()) == 6)
        wait_until(lambda: [*lookups.members().values(), *mails.members().values()] == [6, 6])
        member = set(lookups.members())
        reads = decide(box, *(lookup(order=str(n)) for n in range(10)))
        before = decide(box, mail(to="a@x", text="1"))
        assert outcomes(box, before) == ["done"]
        assert stalls.hangs.wait(PATIENCE)
        with perform(pipeline, heir, mail):
            wait_until(lambda: list(mails.members().values()) == [6])
            wait_until(lambda: not control.members())
            assert outcomes(box, decide(box, mail(to="a@x", text="2"))) == ["done"]
            stalls.go_on.set()
            wait_until(lambda: list(mails.members().values()) == [3, 3])
            assert outcomes(box, decide(box, *(mail(to=f"{n}@x", text="3") for n in range(12)))) == ["done"] * 12
            wait_until(lambda: mails.lag() == 0)
        assert set(lookups.members()) == member
        let.set()
        assert outcomes(box, reads) == ["done"] * 10
        wait_until(lambda: lookups.lag() == 0)
        assert set(lookups.members()) == member
    assert set((busy.effects + thrown_out.effects + heir.effects).values()) == {1}


def test_killed_in_the_handler_or_before_the_claim_its_calls_come_back(  # I5 I6 I7
    struck: Struck, box: Deedbox
) -> None:
    """ag2ai/faststream#2610 and #2618: what was not acknowledged was committed all the same, and lost in a crash."""
    assert outcomes(box, struck.at_work) == ["done"]
    assert outcomes(box, struck.received) == ["done"]
    keys = [line.split()[2] for line in struck.requests.read_text().splitlines()]
    counted = {key.split(":", 1)[1]: count for key, count in Counter(keys).items()}
    assert counted == {f"{struck.at_work.id}:1:0": 2, f"{struck.received.id}:1:0": 1}


def test_a_member_that_was_fenced_ends_its_worker(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluentinc/librdkafka#5541: a member that can never come back must be started anew."""
    monkeypatch.setattr(feed, "CONFIG", feed.CONFIG | {"group.instance.id": "one of a kind"})
    topic = Topic(pipeline, refund.name)
    another = Consumer(settings(pipeline, topic))
    with (
        contextlib.closing(another),
        pytest.raises(KafkaException, match="consumer fenced"),
        perform(pipeline, Provider(), refund),
    ):
        wait_until(lambda: list(topic.members().values()) == [6])
        another.subscribe([topic.name])
        wait_until(lambda: another.poll(0.01) is None and "The worker cannot go on" in caplog.text)


class Waiting:
    """Calls of a tool that is paused at first."""

    def __init__(self, conn: psycopg.Connection, tool: str) -> None:
        self._conn = conn
        self._tool = tool
        self.pause(True)

    def pause(self, on: bool) -> None:
        self._conn.execute("SELECT pause(%s, %s, 'ann', NULL)", [self._tool, on])

    def look(self, *, ahead: bool = False) -> int:
        """A minute of the ledger's time passes, and the sweep looks at what waits: at how many?

        ahead   as if the workers had told that they are past all of it
        """
        with self._conn.transaction():
            if ahead:
                told = "UPDATE worker SET received_through = jsonb_build_object(%s::text, now() + interval '1 h')"
                self._conn.execute(told, [self._tool])
            due = "UPDATE outcome SET next_at = now() WHERE tool = %s AND status = 'pending'"
            waiting = self._conn.execute(due, [self._tool]).rowcount
            self._conn.execute("SELECT sweep(%s)", [waiting])
        return waiting

    def emissions(self) -> int:
        return self._conn.execute("SELECT FROM outbox WHERE aggregatetype = %s", [self._tool]).rowcount


@pytest.mark.timeout(300)  # so many commits take a minute on a busy machine
def test_20_000_calls_behind_a_pause_are_emitted_once(  # I5
    pipeline: Pipeline, box: Deedbox, conn: psycopg.Connection, watched: list[Watched]
) -> None:
    """The worker takes what it has room for; neither that nor what waits in the topic is unanswered."""
    provider, waiting = Provider(), Waiting(conn, refund.name)
    with perform(pipeline, provider, refund):
        for _ in range(40):
            decide(box, *payments(500, refund))
        wait_until(lambda: any("pause" in consumer.calls for consumer in watched))
        assert [waiting.look(ahead=minute > 2) for minute in range(5)] == [20_000] * 5
    assert waiting.emissions() == 20_000
    assert not provider.requests


def test_what_waited_behind_a_pause_is_performed_once_and_never_emitted_again(  # I5
    pipeline: Pipeline, box: Deedbox, conn: psycopg.Connection, watched: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "ROOM", 300)
    provider, waiting = Provider(), Waiting(conn, payout.name)
    with perform(pipeline, provider, payout, concurrency=100):
        runs = [decide(box, *payments(500, payout)) for _ in range(2)]
        wait_until(lambda: any("pause" in consumer.calls for consumer in watched))
        assert waiting.look() == 1_000
        waiting.pause(False)
        for performed in (1, 500):
            wait_until(partial(_has_requests, provider, performed))
            waiting.look()  # what is still in the topic is not due for that
        for run in runs:
            assert outcomes(box, run) == ["done"] * 500
    assert waiting.emissions() == 1_000
    assert len(provider.requests) == len(set(provider.requests)) == 1_000


def _has_requests(provider: Provider, count: int) -> bool:
    return len(provider.requests) >= count
