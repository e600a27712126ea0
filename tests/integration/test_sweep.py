"""The sweep: what it does to whatever waits for a moment, and how far it has to look for it."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from deedbox import Deedbox
from tests.integration.test_ledger import HELLO, age, bury, commit, let_time_pass, pay, row
from tests.support.shop import Shop, asks, charge, lookup


def test_what_nobody_answers_is_emitted_again_only_when_its_workers_are_past_it(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5
    commit(box, "r", pay())
    age(conn)
    emissions = "SELECT count(*) FROM outbox WHERE type = 'call'"

    def due() -> list[str]:
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() - interval '1 s'")
        return [duty for duty, *_ in hands.sweep()]

    with shop.hands() as hands:
        conn.execute("UPDATE worker SET source = 'kafka', lease_until = 'infinity'")
        assert due() == []  # on its way, for all we know
        conn.execute("UPDATE worker SET received_through = jsonb_build_object('charge_customer', clock_timestamp())")
        assert due() == ["emitted again"]
        assert conn.execute(emissions).fetchone() == (2,)
        conn.execute("UPDATE worker SET source = 'poll'")
        assert due() == []  # a worker that looks into the ledger itself misses nothing
        next_look = conn.execute("SELECT next_at > clock_timestamp() + interval '9 min' FROM outcome").fetchone()
        assert next_look == (True,)  # one age away


@pytest.mark.parametrize("workers", [True, False])
def test_what_was_let_go_is_emitted_once_when_it_is_due_however_far_the_workers_are(  # I5
    box: Deedbox, shop: Shop, conn: psycopg.Connection, workers: bool
) -> None:
    (id_,) = commit(box, "r", pay())

    def due() -> list[str]:
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() - interval '1 s'")
        return [duty for duty, *_ in hands.sweep()]

    with shop.hands() as hands:
        conn.execute("UPDATE worker SET source = 'kafka', lease_until = 'infinity'")
        conn.execute("SELECT let_go(ARRAY[%s])", [id_])
        assert row(conn, id_, "let_go AND next_at < clock_timestamp() + interval '11 s'") is True
        conn.execute("UPDATE worker SET source = 'poll'")
        assert due() == []  # who looks into the ledger finds it there
        conn.execute("UPDATE worker SET source = 'kafka'")
        assert due() == []
        conn.execute("SELECT let_go(ARRAY[%s])", [id_])
        if not workers:
            conn.execute("DELETE FROM worker")
        assert due() == ["emitted again"]
        assert due() == []
        assert row(conn, id_, "status, let_go") == ("pending", None)


def test_what_waits_in_the_lane_of_a_dead_worker_is_emitted_again(  # I5
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    (id_,) = commit(box, "r", pay())
    with shop.hands() as hands, shop.hands() as other:
        hands.claim([id_])
        hands.finish(id_, 1, "retry", delay="0 s")
        assert row(conn, id_, "status") == "pending"
        bury(conn, hands)
        conn.execute("DELETE FROM worker WHERE owner <> %s", [hands.owner])
        assert [duty for duty, *_ in other.sweep()] == ["emitted again"]


def test_one_call_that_cannot_be_judged_keeps_no_other_from_it(  # I5 I14
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """Here because its bytes are gone: a defect, but of one call."""
    bad, good = commit(box, "r", pay(1), pay(2))
    waits, later = commit(box, "s", pay(1), pay(2))
    with shop.hands() as hands, shop.hands() as other:
        hands.claim([bad, good])
        other.claim([waits, later])
        other.finish(waits, 1, "retry")
        other.finish(later, 1, "retry")
        conn.execute("DELETE FROM outbox WHERE id = ANY (%s)", [[bad, waits]])
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() WHERE action_id = ANY (%s)", [[waits, later]])
        bury(conn, hands)
        swept = {id_: (duty, said) for duty, _, id_, said in other.sweep() if id_}
        assert swept[good] == ("condemned", "pending")
        assert swept[later] == ("retried", "pending")
        assert [swept[id_][0] for id_ in (bad, waits)] == ["failed", "failed"]
        assert "payload" in (swept[bad][1] or "")
        assert other.sweep() == []  # it is looked at again in a minute
    soon = "next_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 min'"
    assert [row(conn, id_, soon) for id_ in (bad, waits)] == [True, True]


def test_a_tool_with_many_calls_that_are_due_holds_up_no_other(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    many = commit(box, "r", *(pay(cents + 1) for cents in range(3)))
    (one,) = commit(box, "s", lookup(order="o"))
    with shop.hands() as hands:
        hands.claim([*many, one])
        for id_ in (*many, one):
            hands.finish(id_, 1, "retry")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() - interval '1 h'")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() WHERE action_id = %s", [one])
        assert [row[0] for row in hands.conn.execute("SELECT tool FROM sweep(1) ORDER BY 1")] == [
            charge.name,
            lookup.name,
        ]


def test_a_paused_call_is_looked_at_every_ten_minutes(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    (id_,) = commit(box, "r", pay())
    with shop.hands() as hands:
        conn.execute("UPDATE tool SET paused = true")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        assert hands.sweep() == []
    assert row(conn, id_, "next_at > clock_timestamp() + interval '9 min'") is True


def test_the_full_scan_goes_page_by_page(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I5
    ids = commit(box, "r", *(pay(cents + 1) for cents in range(5)))
    conn.execute("UPDATE box SET watermark = uuid_floor(clock_timestamp() + interval '1 min')")
    found: list[UUID] = []
    start, pages = UUID(int=0), 0
    while start is not None:
        ((some, start),) = conn.execute("SELECT found, through FROM full_scan(%s, 2)", [start]).fetchall()
        found += some or []
        pages += 1
    assert (sorted(found), pages) == (ids, 3)


def test_a_sweep_scans_a_page_a_turn(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I5
    commit(box, "r", *(pay(cents + 1) for cents in range(11)))
    with shop.hands() as hands:
        hands.do_all()
        conn.execute(
            "UPDATE box SET watermark = uuid_floor(clock_timestamp() + interval '1 min'), scanned_at = 'epoch'"
        )
        for over in (False, True):
            conn.execute("UPDATE box SET swept_at = 'epoch'")
            hands.conn.execute("SELECT sweep(1)")
            where = conn.execute("SELECT scanned IS NULL, scanned_at > 'epoch' FROM box").fetchone()
            assert where == (over, True)


def test_the_watermark_goes_on_after_a_restore_into_another_cluster(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """There transaction ids are small again: the mark would be ahead of all of them for years."""
    at = "uuid_time(watermark)"
    with shop.hands() as hands:
        conn.execute(
            "UPDATE box SET mark_xid = '99999999999', mark_at = clock_timestamp() - interval '1 h', "
            "watermark = uuid_floor(clock_timestamp() - interval '2 h'), swept_at = 'epoch'"
        )
        hands.sweep()
        assert conn.execute(f"SELECT {at} < clock_timestamp() - interval '1 h' FROM box").fetchone() == (True,)
        conn.execute("UPDATE box SET swept_at = 'epoch'")
        hands.sweep()
        assert conn.execute(f"SELECT {at} > clock_timestamp() - interval '1 min' FROM box").fetchone() == (True,)


def test_how_far_a_worker_has_received_is_a_moment(box: Deedbox, shop: Shop) -> None:
    """What cannot be read as one would stop the sweep of all."""
    with shop.hands() as hands, pytest.raises(psycopg.errors.InvalidDatetimeFormat):
        hands.conn.execute("SELECT renew(%s, %s, false)", [hands.owner, '{"charge_customer": "soon"}'])


def test_who_claims_what_was_let_go_has_it(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    (id_,) = commit(box, "r", pay())
    with shop.hands() as hands:
        conn.execute("SELECT let_go(ARRAY[%s])", [id_])
        hands.claim([id_])
        assert row(conn, id_, "let_go") is None


def test_open_calls_stay_within_the_watermark_or_parked(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5
    ids = commit(box, "r", *(pay(n + 1) for n in range(4)))
    with shop.hands() as hands:
        hands.claim(ids[:1])
        age(conn)
        ids = [r[0] for r in conn.execute("SELECT action_id FROM outcome ORDER BY action_id")]
        hands.conn.execute("SELECT renew(%s, '{}', false)", [hands.owner])
        hands.sweep()
        let_time_pass(conn)
        hands.sweep()
        assert conn.execute(
            "SELECT count(*) FROM outcome, box WHERE action_id < watermark AND next_at IS NULL"
        ).fetchone() == (0,)
        assert conn.execute("SELECT watermark > ALL (SELECT action_id FROM outcome) FROM box").fetchone() == (True,)
        assert sorted(hands.pending()) == ids[1:]
        assert conn.execute("SELECT unnest(found) FROM full_scan()").fetchall() == []
        conn.execute("UPDATE outcome SET next_at = NULL WHERE action_id = %s", [ids[3]])
        assert conn.execute("SELECT unnest(found) FROM full_scan()").fetchall() == [(ids[3],)]  # forgotten, found


def test_the_watermark_waits_for_a_transaction_that_is_still_open(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5
    """Nothing else may end meanwhile: pg_snapshot_xmax, the latest *completed* id, would be the open one's own."""
    turn = next(iter(box.run("r", messages=HELLO)))
    with shop.hands() as hands, shop.connect() as own:

        def marked() -> tuple[int, bool]:
            with hands.conn.transaction():
                let_time_pass(hands.conn)
                hands.sweep()
            found = hands.conn.execute("SELECT mark_xid::text::bigint, watermark <= %s FROM box", [call.id]).fetchone()
            assert found is not None
            return found

        with own.transaction():
            (call,) = turn.commit(asks(pay()), on=own)
            mine = own.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            assert mine is not None
            first, held = marked()
            assert first > mine[0]  # it may still bring ids from before the mark
            assert held
            assert marked() == (first, True)
        assert marked()[0] > first
        assert hands.pending() == [call.id]


def test_a_lock_ends_the_turn_and_condemns_no_call(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    (id_,) = commit(box, "r", pay())
    with shop.hands() as hands, shop.connect() as other:
        hands.claim([id_])
        hands.finish(id_, 1, "retry")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        hands.conn.execute("SET lock_timeout = '100 ms'")
        with other.transaction():
            other.execute("LOCK TABLE outbox IN SHARE MODE")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                hands.sweep()
        assert [duty for duty, *_ in hands.sweep()] == ["retried"]


def test_calls_of_one_tool_hide_no_others(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    many = commit(box, "r", *(pay(cents + 1) for cents in range(3)))
    (one,) = commit(box, "s", lookup(order="o"))
    conn.execute("UPDATE outcome SET next_at = clock_timestamp() + interval '1 min'")
    conn.execute("UPDATE outcome SET next_at = clock_timestamp() + interval '2 min' WHERE action_id = %s", [one])
    with shop.hands() as hands:
        found = hands.conn.execute("SELECT * FROM pending(%s, NULL, 1)", [hands.tools]).fetchall()
    assert len(found) == 2
    assert (one,) in found
    assert set(found) <= {(id_,) for id_ in (*many, one)}


def test_a_lock_that_the_old_session_still_has_keeps_nobody_from_its_lease(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """Such as behind a pooler, which keeps the connection of a worker that has made itself a new one."""
    with shop.hands() as hands, shop.connect() as new:
        conn.execute("UPDATE worker SET renewed_at = 'epoch'")
        renew = "SELECT renew(%s, '{}', true)"
        assert new.execute(renew, [hands.owner]).fetchone() == (None,)
        assert conn.execute("SELECT renewed_at > 'epoch' FROM worker").fetchone() == (True,)
        hands.conn.execute("SELECT pg_advisory_unlock_all()")
        assert new.execute(renew, [hands.owner]).fetchone() == (True,)
