"""What a worker does with records that are early, odd, or not for it; and how it ends. The test is the source."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from pydantic import BaseModel, Field

from deedbox import Deedbox, Tool, provider_key, signals, user
from deedbox.avro import schema_of
from deedbox.codec import AvroCodec
from deedbox_consumers import Attempt, RetryLater, Worker, desk, jam, session, worker
from deedbox_consumers.record import Record
from tests.support.fleet import PATIENCE, Provider, Spoken, decide, ids, outcomes, status, wait_until
from tests.support.shop import Charge, Receipt, Shop, charge, lookup, mail


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spoken]:
    """The source of every worker of the test."""
    source = Spoken()
    monkeypatch.setattr(Worker, "_open_source", lambda *_: source)
    yield source
    signals.disarm()


def record_of(conn: psycopg.Connection, id_: UUID) -> Record:
    """What Kafka would bring."""
    row = conn.execute("SELECT action_id, tool, key, order_key, payload FROM records(ARRAY[%s])", [id_]).fetchone()
    assert row is not None
    return Record(*row)


def test_a_row_heard_of_before_it_can_be_read_is_asked_for_again(  # I1
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """Zehelein/pg-transactional-outbox#4: the row was "not found" right after its event, and the event was dropped."""
    provider, asked = Provider(), threading.Event()
    signals.arm("after_claim", asked.set, nth=3)
    with Worker(box, provider.handlers()):
        run = box.run("early", messages=[user("go")])
        turn = next(iter(run))
        with box.connection() as ours:
            # Inside the transaction that decides it: change data capture may be this early.
            (call,) = turn.commit(calls=[charge(customer="c", cents=1)], on=ours)
            assert call.id is not None
            spoken.bring(Record(call.id, charge.name, "early:1:0", "k", call.payload(AvroCodec())))
            assert asked.wait(PATIENCE)
            assert not provider.requests
            assert not spoken.answered
        wait_until(lambda: spoken.answered == [call.id])
        assert outcomes(box, run) == ["done"]
    assert len(provider.requests) == 1


def test_a_repeat_heard_of_before_it_can_be_read_is_asked_for_again(  # I1 I5
    box: Deedbox, shop: Shop, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """Every emission can be here before its transaction is visible: the row still shows the attempt before."""
    provider, asked = Provider(), threading.Event()
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with shop.hands() as hands:
        hands.claim([id_])
        signals.arm("after_claim", asked.set, nth=3)
        with Worker(box, provider.handlers()):
            spoken.bring(replace(record_of(conn, id_), attempt=1))  # the one that is running: nothing to do
            wait_until(lambda: spoken.answered == [id_])
            spoken.bring(replace(record_of(conn, id_), attempt=2))
            assert asked.wait(PATIENCE)
            hands.finish(id_, 1, "retry", delay="1 s")
            assert outcomes(box, run) == ["done"]
    assert len(provider.requests) == 1


def test_a_redrive_heard_of_before_it_can_be_read_is_asked_for_again(  # I1 I5
    box: Deedbox, shop: Shop, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider, asked = Provider(), threading.Event()
    conn.execute("UPDATE tool SET attempts = 1")
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "retry", error={"reason": "no"})
    signals.arm("after_claim", asked.set, nth=3)
    with Worker(box, provider.handlers()):
        with shop.connect() as person, person.transaction():
            assert person.execute("SELECT verdict FROM redrive(%s, false, 'ann', NULL)", [[id_]]).fetchone() == (
                "redriven",
            )
            spoken.bring(replace(record_of(conn, id_), attempt=2))
            assert asked.wait(PATIENCE)
            assert not spoken.answered
        assert outcomes(box, run) == ["done"]
    assert len(provider.requests) == 1


def test_what_is_final_before_an_attempt_that_was_emitted_is_over(
    box: Deedbox, shop: Shop, conn: psycopg.Connection, spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late answer may settle a call while its repeat is on its way: no stranger's record."""
    monkeypatch.setattr(desk, "ABSENT_FOR", 0.05)
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, result={"id": "ch_1"})
    with Worker(box, Provider().handlers()):
        spoken.bring(replace(record_of(conn, id_), attempt=2))
        wait_until(lambda: spoken.answered == [id_])
    assert not spoken.aside


def test_a_row_that_never_appears_is_set_aside(
    box: Deedbox, spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:  # I5 I14
    monkeypatch.setattr(desk, "ABSENT_FOR", 0.05)
    provider = Provider()
    with Worker(box, provider.handlers()):
        ghost = Record(uuid4(), charge.name, "ghost:1:0", "k", charge(customer="c", cents=1).payload(AvroCodec()))
        spoken.bring(ghost)
        wait_until(lambda: spoken.aside)
    ((id_, reason),) = spoken.aside
    assert id_ == ghost.id
    assert "no such call" in reason
    assert not provider.requests


def test_other_bytes_than_were_decided_are_never_performed(  # I3 I14
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider = Provider()
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    own = record_of(conn, id_)
    with Worker(box, provider.handlers()):
        spoken.bring(replace(own, payload=charge(customer="c", cents=2).payload(AvroCodec())))
        wait_until(lambda: spoken.aside)
        wait_until(lambda: status(conn, run)[0] == "pending")
        assert not provider.requests
        emitted = conn.execute("SELECT count(*), min(payload) = max(payload) FROM outbox WHERE action_id = %s", [id_])
        assert emitted.fetchone() == (2, True)  # given back: the ledger emits its own bytes
        spoken.bring(own)
        assert outcomes(box, run) == ["done"]
    assert len(provider.requests) == 1


def test_a_worker_that_is_a_release_behind_performs_nothing_and_waits(  # I3
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """The ledger's own bytes read otherwise here: not a stranger's record, and no reason to try at once."""
    provider = Provider()
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    own = record_of(conn, id_)
    conn.execute("UPDATE action SET digest = sha256('with a field that this worker does not know')")
    with Worker(box, provider.handlers()):
        spoken.bring(own)
        wait_until(lambda: status(conn, run)[0] == "retry")
        assert not provider.requests
        assert not spoken.aside
    (told,) = conn.execute("SELECT error ->> 'reason' FROM outcome WHERE action_id = %s", [id_]).fetchone() or ("",)
    assert "deploy the release of charge_customer" in told


def test_the_idempotency_key_is_the_ledgers_whatever_the_record_says(  # I6
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider = Provider()
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with Worker(box, provider.handlers()):
        spoken.bring(replace(record_of(conn, id_), key="another:1:0"))
        assert outcomes(box, run) == ["done"]
    ((box_id,),) = conn.execute("SELECT id FROM box")
    assert provider.requests == [f"{box_id}:{run.id}:1:0"]


def test_bytes_that_read_as_what_no_digest_takes_end_no_worker(  # I14
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """Right id, right fingerprint, text with a NUL: set aside before it is claimed."""
    provider = Provider()
    run = decide(box, charge(customer="c-", cents=1))
    (id_,) = ids(conn, run)
    own = record_of(conn, id_)
    with Worker(box, provider.handlers()):
        spoken.bring(replace(own, payload=own.payload.replace(b"c-", b"c\0")))
        wait_until(lambda: spoken.aside)
        assert status(conn, run)[0] == "pending"
        spoken.bring(own)
        assert outcomes(box, run) == ["done"]
    assert len(provider.requests) == 1


def test_bytes_that_cannot_be_read_do_not_stop_their_lane(  # I14
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider = Provider()
    run = decide(box, mail(to="a@x", text="1"), lookup(order="o"))
    good = record_of(conn, ids(conn, run)[0])
    with Worker(box, provider.handlers()):
        for payload in (b"", b"nonsense", b"\xc3\x01" + bytes(8) + b"x", good.payload[:-1]):
            spoken.bring(replace(good, id=uuid4(), payload=payload))
        spoken.bring(good)
        wait_until(lambda: status(conn, run)[0] == "done")
    assert len(spoken.aside) == 4
    assert len(provider.requests) == 1


def test_an_unknown_schema_is_looked_up_again(box: Deedbox, conn: psycopg.Connection, spoken: Spoken) -> None:
    class Newer(BaseModel):
        """Charge the customer's default card."""

        customer: str
        cents: int = Field(gt=0)
        memo: str | None = None
        reason: str | None = None

    Newer.__qualname__ = Newer.__name__ = Charge.__name__
    newer = Tool(charge.name, args=Newer, result=Receipt, effect=provider_key(timedelta(hours=24)))
    provider = Provider()
    run = decide(box, charge(customer="c", cents=1))
    own = record_of(conn, ids(conn, run)[0])
    written = replace(own, payload=newer(customer="c", cents=1).payload(AvroCodec()))
    with Worker(box, provider.handlers()):
        spoken.bring(written)
        wait_until(lambda: spoken.aside)
        assert "schema" in spoken.aside[0][1]
        schema = schema_of(Newer)
        conn.execute("INSERT INTO avro (fingerprint, schema) VALUES (%s, %s)", [schema.fingerprint, schema.json])
        spoken.bring(written)
        assert outcomes(box, run) == ["done"]


def test_what_is_over_or_at_work_elsewhere_is_only_answered_for(  # I7 I8
    shop: Shop, box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider = Provider()
    run = decide(box, *(charge(customer="c", cents=cents) for cents in (1, 2)))
    over, elsewhere = ids(conn, run)
    with shop.hands() as hands, Worker(box, provider.handlers()):
        hands.claim([over, elsewhere])
        hands.finish(over, 1, result={"id": "x"})
        for id_ in (over, elsewhere):
            spoken.bring(record_of(conn, id_))
        wait_until(lambda: sorted(spoken.answered) == sorted((over, elsewhere)))
        assert not provider.requests
        hands.finish(elsewhere, 1, result={"id": "x"})


def test_a_call_at_work_when_the_worker_stops_ends_first(  # I5
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider, at_work = Provider(), threading.Event()

    async def work(*_: object) -> None:
        at_work.set()
        await asyncio.sleep(0.2)

    provider.on[charge.name] = work
    run = decide(box, charge(customer="c", cents=1))
    with Worker(box, provider.handlers()):
        spoken.bring(record_of(conn, ids(conn, run)[0]))
        assert at_work.wait(PATIENCE)
    assert status(conn, run) == ("done", 1, False)


def test_a_call_that_outlives_the_drain_is_cut_off_and_unknown(  # I5 I7 I16
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider, at_work = Provider(), threading.Event()

    async def work(*_: object) -> None:
        at_work.set()
        await asyncio.sleep(3600)

    provider.on[charge.name] = work
    run = decide(box, charge(customer="c", cents=1))
    with Worker(box, provider.handlers(), drain=timedelta(milliseconds=50)):
        spoken.bring(record_of(conn, ids(conn, run)[0]))
        assert at_work.wait(PATIENCE)
    assert status(conn, run) == ("retry", 1, True)


def test_a_call_that_is_claimed_while_the_worker_stops_is_given_back(  # I5 I7
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    provider = Provider()
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with Worker(box, provider.handlers()) as worker:
        signals.arm("before_claim", worker.stop)
        spoken.bring(record_of(conn, id_))
        wait_until(lambda: status(conn, run) == ("pending", 1, False))
    assert not provider.requests
    assert conn.execute("SELECT count(*) FROM outbox WHERE action_id = %s", [id_]).fetchone() == (2,)


def test_what_only_its_lane_has_is_let_go_when_the_worker_stops(  # I5
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """A short retry waits in its lane, and one that is blocked: Kafka has heard that both are done with."""
    provider, sent = Provider(), threading.Event()

    async def later(_args: Any, _attempt: Attempt) -> Any:
        sent.set()
        raise RetryLater(4)

    provider.on[mail.name] = later
    first, second = decide(box, mail(to="a@x", text="1")), decide(box, mail(to="a@x", text="2"))
    (one,), (two,) = ids(conn, first), ids(conn, second)
    with Worker(box, provider.handlers()):
        spoken.bring(record_of(conn, one))
        assert sent.wait(PATIENCE)
        wait_until(lambda: status(conn, first)[0] == "pending")
        spoken.bring(replace(record_of(conn, two), order_key="b@x"))
        wait_until(lambda: spoken.answered == [one, two])
    held = "SELECT action_id, status, let_go, next_at < clock_timestamp() + interval '11 s' FROM outcome ORDER BY 1"
    assert conn.execute(held).fetchall() == [(one, "pending", True, True), (two, "pending", True, True)]


def test_an_attempt_has_the_deadline_that_the_ledger_judges_by(  # I7
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """A worker of the release before, while a newer one has registered a shorter deadline."""
    provider = Provider()
    conn.execute("UPDATE tool SET deadline = '5 s'")
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with Worker(box, provider.handlers()):
        spoken.bring(record_of(conn, id_))
        assert outcomes(box, run) == ["done"]
    assert charge.deadline > timedelta(seconds=5) >= timedelta(seconds=provider.attempts[0].time_left)


def test_an_attempt_counts_from_when_its_claim_was_sent(  # I16
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """The ledger's deadline was set before the answer was read, however late that was."""
    provider = Provider()
    conn.execute("UPDATE tool SET deadline = '30 s'")
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    left: list[float] = []
    provider.on[charge.name] = lambda _, attempt: left.append(attempt.time_left)
    signals.arm("after_claim", lambda: time.sleep(1))
    with Worker(box, provider.handlers()):
        spoken.bring(record_of(conn, id_))
        assert outcomes(box, run) == ["done"]
    assert left[0] <= 29


def test_what_was_let_go_behind_a_doubt_is_fetched_when_the_doubt_is_over(
    shop: Shop, box: Deedbox, conn: psycopg.Connection, spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep alone would bring one a turn, and a key with more calls than that would never catch up."""
    monkeypatch.setattr(worker, "ROOM", 5)
    monkeypatch.setattr(jam, "SHORT_OF_ROOM", 0.0)
    monkeypatch.setattr(jam, "EVERY", 0.01)
    provider = Provider()
    with shop.hands() as hands:
        doubt = decide(box, mail(to="a@x", text="in doubt"))
        hands.do_all()
    conn.execute("UPDATE outcome SET status = 'in_doubt', unsettled = true, next_at = 'infinity'")
    conn.execute("DELETE FROM worker")
    run = decide(box, *(mail(to="a@x", text=str(n)) for n in range(40)))
    with Worker(None, provider.handlers(), database_url=shop.url, schema=shop.schema, concurrency=5):
        conn.execute("UPDATE worker SET source = 'kafka'")  # the sweep emits for who does not look
        for start, end in ((0, 30), (30, 40)):  # some come when the key is stuck already
            for id_ in ids(conn, run)[start:end]:
                spoken.bring(record_of(conn, id_))
            wait_until(partial(are_let_go, conn, end))
        conn.execute("SELECT resolve(%s, %s, 'ann', NULL)", [f"{doubt.id}:1:0", '{"id": "x"}'])
        assert outcomes(box, run) == ["done"] * 40
    emitted = conn.execute("SELECT count(*) FROM outbox WHERE type = 'call' AND id <> action_id").fetchone()
    assert emitted is not None
    assert emitted[0] < 10  # the sweep brought the first


def are_let_go(conn: psycopg.Connection, number: int) -> bool:
    """Whether nobody has so many calls."""
    return conn.execute("SELECT count(*) FROM outcome WHERE let_go").fetchone() == (number,)


def test_a_worker_judged_dead_goes_on_as_another_and_loses_nothing(  # I7 I8
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """temporalio/sdk-python#1048: the attempt that timed out ran on, and its completion was rejected."""
    provider, at_work, let = Provider(), threading.Event(), threading.Event()

    def work(_: object, attempt: Attempt) -> None:
        if attempt.number == 1:
            at_work.set()
            let.wait(PATIENCE)

    provider.on[lookup.name] = work
    run = decide(box, lookup(order="o"))
    with Worker(box, provider.handlers(), lease=timedelta(seconds=2)):
        spoken.bring(record_of(conn, ids(conn, run)[0]))
        assert at_work.wait(PATIENCE)
        (before,) = conn.execute("SELECT owner FROM worker").fetchone() or (None,)
        conn.execute("DELETE FROM worker")  # as the sweep does with who is dead
        conn.execute("SELECT * FROM judge(ARRAY[%s]::uuid[], 'its worker died')", [ids(conn, run)[0]])
        wait_until(lambda: conn.execute("SELECT count(*) FROM worker WHERE owner <> %s", [before]).fetchone() == (1,))
        assert provider.attempts[0].lost
        spoken.bring(record_of(conn, ids(conn, run)[0]))
        let.set()
        wait_until(lambda: conn.execute("SELECT attempt, status FROM late").fetchall() == [(1, "done")])
        # The late answer settles the call if the next attempt has not begun, else that one's own does.
        wait_until(lambda: status(conn, run) in {("done", 1, False), ("done", 2, False)})
    assert len(provider.effects) == 1


def test_a_dead_workers_calls_are_taken_up_without_a_source(  # I5 I6 I7
    shop: Shop, box: Deedbox, conn: psycopg.Connection, spoken: Spoken
) -> None:
    """dbos-inc/dbos-transact-py#804: recovery ran once, at a start."""
    provider = Provider()
    run = decide(box, charge(customer="c", cents=1))
    with shop.hands(lease="1 s") as hands:
        assert hands.claim(ids(conn, run)) == {ids(conn, run)[0]: ("claimed", 1)}
    with Worker(box, provider.handlers()):
        assert outcomes(box, run) == ["done"]
    assert [attempt.number for attempt in provider.attempts] == [2]


def test_a_claim_whose_answer_was_lost_is_given_back(  # I5 I7
    box: Deedbox, conn: psycopg.Connection, spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, carried_out = Provider(), session._rows
    lost = iter([True])

    async def lose_one_answer(on: Any, statement: sql.Composed, parameters: Any) -> Any:
        rows = await carried_out(on, statement, parameters)
        if rows and "claimed" in rows[0] and next(lost, False):
            await on.close()
            raise psycopg.OperationalError("the connection was lost")
        return rows

    monkeypatch.setattr(session, "_rows", lose_one_answer)
    run = decide(box, charge(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with Worker(box, provider.handlers()):
        spoken.bring(record_of(conn, id_))
        wait_until(lambda: spoken.answered)
        wait_until(lambda: status(conn, run) == ("pending", 1, False))
        assert not provider.requests
        spoken.bring(record_of(conn, id_))
        assert outcomes(box, run) == ["done"]
    assert status(conn, run) == ("done", 2, False)
    assert len(provider.requests) == 1
