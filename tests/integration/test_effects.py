"""What becomes of an attempt that ended without an answer, for every effect, in plain SQL on a real Postgres."""

from __future__ import annotations

from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from deedbox import Deedbox
from tests.support.fleet import decide, ids
from tests.support.hands import Hands
from tests.support.shop import Shop, charge, lookup, payout, refund, ship, wire

SOON, LATER = "1 s", "10 s"


def one(bank: Deedbox, conn: psycopg.Connection, tool: Any) -> UUID:
    """A committed call of the tool."""
    call = tool(order="o") if tool is lookup else tool(customer="c", cents=1)
    return ids(conn, decide(bank, call))[0]


def row(conn: psycopg.Connection, id_: UUID, columns: LiteralString = "status, unsettled, probe") -> tuple[Any, ...]:
    """Columns of an outcome."""
    found = conn.execute(
        sql.SQL("SELECT {} FROM outcome WHERE action_id = %s").format(sql.SQL(columns)), [id_]
    ).fetchone()
    assert found is not None
    return found


def age(conn: psycopg.Connection, by: str) -> None:
    """Make everything that happened so much older: the clock of the ledger is the server's."""
    conn.execute(
        "UPDATE outcome SET claimed_at = claimed_at - i, first_sent_at = first_sent_at - i, until = until - i, "
        "next_at = CASE WHEN next_at = 'infinity' THEN next_at ELSE next_at - i END, since = since - i "
        "FROM (SELECT %s::interval AS i) x",
        [by],
    )


def judged_dead(conn: psycopg.Connection, stopped: Hands, hands: Hands) -> None:
    """The lease of a stopped worker has passed, and the sweep has judged what it had."""
    conn.execute("UPDATE worker SET lease_until = 'epoch', lease = '0.001 s' WHERE owner = %s", [stopped.owner])
    hands.sweep()


def swept(hands: Hands, id_: UUID) -> list[tuple[str, str | None]]:
    """What a turn of the sweep did to a call."""
    return [(duty, status) for duty, _, id__, status in hands.sweep() if id__ == id_]


# tool, how the attempt ended, and then: status, unsettled, probe
ENDS = [
    (charge, "retry", ("retry", False, False)),
    (charge, "unknown", ("retry", True, False)),
    (charge, "stored", ("in_doubt", True, False)),
    (lookup, "retry", ("retry", False, False)),
    (lookup, "unknown", ("retry", True, False)),
    (wire, "retry", ("retry", False, False)),
    (wire, "unknown", ("in_doubt", True, False)),
    (refund, "retry", ("retry", False, False)),
    (refund, "unknown", ("retry", True, True)),
    (payout, "retry", ("retry", False, False)),
    (payout, "unknown", ("retry", True, False)),
    (payout, "stored", ("retry", True, True)),
]


@pytest.mark.parametrize(("tool", "end", "then"), ENDS, ids=lambda value: getattr(value, "name", None))
def test_an_attempt_without_an_answer(  # I7 I16
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, tool: Any, end: str, then: tuple[str, bool, bool]
) -> None:
    id_ = one(bank, conn, tool)
    with shop.hands() as hands:
        hands.claim([id_])
        assert hands.finish(id_, 1, end, error={"reason": "why"}, delay=LATER) == "recorded"
        assert row(conn, id_) == then
        assert hands.finish(id_, 1, end, error={"reason": "why"}, delay=LATER) == "already"
        assert row(conn, id_) == then


@pytest.mark.parametrize(
    ("tool", "then"),
    [
        (charge, ("pending", True, False)),
        (lookup, ("pending", True, False)),
        (wire, ("in_doubt", True, False)),
        (refund, ("pending", True, True)),
        (payout, ("pending", True, False)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_an_expired_lease_means_unknown(  # I5 I7
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, tool: Any, then: tuple[str, bool, bool]
) -> None:
    id_ = one(bank, conn, tool)
    with shop.hands() as dead, shop.hands() as hands:
        dead.claim([id_])
        conn.execute(
            "UPDATE worker SET lease_until = 'epoch', lease = '0.001 s' WHERE owner = %s", [dead.owner]
        )  # the server has been up for longer than that
        assert swept(hands, id_) == [("condemned", then[0])]
        assert row(conn, id_) == then
        kinds = [kind for (kind,) in conn.execute("SELECT type FROM outbox WHERE action_id = %s ORDER BY id", [id_])]
        assert kinds[1:] == {"in_doubt": ["result"]}.get(then[0], ["probe" if then[2] else "call"])


def test_what_is_due_soon_stays_with_the_lane_and_what_is_due_later_goes_through_the_sweep(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, charge)
    emissions = "SELECT count(*) FROM outbox WHERE action_id = %s"
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "retry", delay=SOON)
        assert row(conn, id_) == ("pending", False, False)
        assert conn.execute(emissions, [id_]).fetchone() == (1,)
        hands.claim([id_])
        hands.finish(id_, 2, "retry", delay=LATER)
        assert not swept(hands, id_)
        age(conn, "11 s")
        assert swept(hands, id_) == [("retried", "pending")]
        assert conn.execute(emissions, [id_]).fetchone() == (2,)


def test_attempts_are_bounded_and_what_never_happened_is_a_dead_letter(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, wire)
    conn.execute("UPDATE tool SET attempts = 3")
    with shop.hands() as hands:
        for attempt in (1, 2, 3):
            hands.claim([id_])
            hands.finish(id_, attempt, "retry", error={"reason": "no connection"}, delay=SOON)
        assert row(conn, id_, "status, error ->> 'reason'") == ("gave_up", "after 3 attempts: no connection")
    assert conn.execute("SELECT reason, happened, closed_at FROM dead").fetchall() == [
        ("after 3 attempts: no connection", False, None)
    ]
    assert conn.execute("SELECT count(*) FROM outbox WHERE type = 'dead'").fetchone() == (1,)


def test_an_attempt_that_was_given_back_unsent_is_not_counted(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, wire)
    conn.execute("UPDATE tool SET attempts = 1")
    with shop.hands() as hands:
        for attempt in (1, 2, 3):
            hands.claim([id_])
            hands.finish(id_, attempt, "pending")
        hands.claim([id_])
        assert hands.finish(id_, 4, result={"id": "x"}) == "recorded"


def test_age_is_bounded(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I16
    never, maybe = one(bank, conn, wire), one(bank, conn, lookup)
    with shop.hands() as hands:
        hands.claim([never, maybe])
        age(conn, "23 h 59 min 55 s")
        hands.finish(never, 1, "retry", error={"reason": "busy"}, delay=LATER)
        hands.finish(maybe, 1, "unknown", error={"reason": "no answer"}, delay=LATER)
    assert row(conn, never, "status, error ->> 'reason'") == ("gave_up", "it is too old to be tried again: busy")
    assert row(conn, maybe) == ("in_doubt", True, False)


def test_a_probe_that_says_it_happened_ends_the_call(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    id_ = one(bank, conn, refund)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay=SOON)
        assert hands.conn.execute("SELECT verdict, probe FROM claim(%s, %s)", [[id_], hands.owner]).fetchall() == [
            ("claimed", True)
        ]
        assert hands.finish(id_, 2, "done", result={"id": "re_1"}) == "recorded"
    assert row(conn, id_, "status, unsettled, probe, attempt, result ->> 'id'") == ("done", False, False, 2, "re_1")


def test_no_is_the_last_word_only_when_nothing_can_arrive_any_more(  # I16
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """Attempt 1 may be stopped before its send: an unkeyed repeat now would be a second effect when it wakes."""
    id_ = one(bank, conn, refund)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay=SOON)
        hands.claim([id_])
        hands.finish(id_, 2, "absent")
        assert row(conn, id_) == ("retry", True, True)
        assert row(conn, id_, "next_at - until = interval '10 min'") == (True,)  # settle_after
        age(conn, "11 min 1 s")
        assert swept(hands, id_) == [("asked again", "pending")]
        hands.claim([id_])
        hands.finish(id_, 3, "absent", delay="0 s")
        assert row(conn, id_) == ("pending", False, False)  # it may be sent again
        hands.claim([id_])
        assert hands.finish(id_, 4, "done", result={"id": "re_1"}) == "recorded"


def test_no_permits_a_repeat_under_the_key_at_once(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    id_ = one(bank, conn, payout)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay=SOON)
        conn.execute("UPDATE outcome SET probe = true")
        hands.claim([id_])
        hands.finish(id_, 2, "absent", delay="0 s")
        assert row(conn, id_) == ("pending", True, False)


def test_a_no_about_a_key_that_holds_a_stored_failure_waits(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """Under the key only the stored failure would come again."""
    id_ = one(bank, conn, payout)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "stored", error={"reason": "500", "stored": True}, delay=SOON)
        hands.claim([id_])
        hands.finish(id_, 2, "absent", delay="0 s")
        assert row(conn, id_) == ("retry", True, True)


def test_a_no_counts_from_when_it_was_asked_for(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I16
    """The first request arrives between the probe's answer and its record."""
    id_ = one(bank, conn, refund)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay=SOON)
        hands.claim([id_])
        conn.execute(
            "UPDATE outcome SET claimed_at = claimed_at - interval '12 min', until = until - interval '12 min'"
        )
        hands.finish(id_, 2, "absent")
        assert row(conn, id_) == ("retry", True, True)


def test_a_late_no_to_what_may_be_repeated_says_nothing_of_the_times_before(  # I8 I16
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, lookup)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        stopped.finish(id_, 1, "unknown", delay=SOON)
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        assert stopped.finish(id_, 2, "refused", error={"code": "404", "message": "no"}) == "late"
    assert row(conn, id_, "status, unsettled") == ("pending", True)


def test_past_the_window_a_probe_decides(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I9
    id_ = one(bank, conn, payout)
    conn.execute("UPDATE tool SET give_up_after = '30 days'")
    with shop.hands() as hands:
        hands.claim([id_])
        age(conn, "25 h")
        hands.finish(id_, 1, "unknown", delay=SOON)
        assert row(conn, id_) == ("pending", True, True)
        hands.claim([id_])
        hands.finish(id_, 2, "absent", delay="0 s")
        assert row(conn, id_) == ("pending", False, False)
        ((verdict, left),) = hands.conn.execute(
            "SELECT verdict, window_left FROM claim(%s, %s)", [[id_], hands.owner]
        ).fetchall()
        assert (verdict, left) == ("claimed", None)  # sent again, and its key is not relied on
        hands.finish(id_, 3, "unknown", delay=SOON)
        assert row(conn, id_) == ("pending", True, True)


def test_a_probe_gives_a_call_whose_key_holds_a_stored_failure_a_new_one(  # I6
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, payout)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "stored", error={"reason": "500", "stored": True}, delay=SOON)
        hands.claim([id_])
        hands.finish(id_, 2, "cannot_tell", delay="0 s")
        age(conn, "12 min")
        hands.sweep()
        hands.claim([id_])
        hands.finish(id_, 3, "absent", delay="0 s")
        assert row(conn, id_, "status, unsettled, rekeyed, first_sent_at") == ("pending", False, 1, None)
        assert hands.conn.execute("SELECT rekeyed FROM claim(%s, %s)", [[id_], hands.owner]).fetchone() == (1,)
    assert conn.execute("SELECT who, verb FROM audit").fetchall() == [("deedbox", "rekey")]


def test_a_probe_that_cannot_tell_asks_again_ever_less_often_and_then_leaves_it_to_a_person(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, refund)
    waits = []
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay=SOON)
        for attempt in range(2, 16):
            hands.claim([id_])
            hands.finish(id_, attempt, "cannot_tell", error={"reason": "503"}, delay="0 s")
            assert row(conn, id_) == ("in_doubt", True, True)
            (wait,) = row(conn, id_, "round(extract(epoch FROM next_at - finished_at))::int")
            waits.append(wait)
            conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
            assert swept(hands, id_) == [("asked again", "pending")]
        assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]
        hands.claim([id_])
        age(conn, "25 h")
        hands.finish(id_, 16, "cannot_tell")
        assert row(conn, id_, "status, next_at::text") == ("in_doubt", "infinity")


@pytest.mark.parametrize("ending", ["absent", "cannot_tell"])
def test_a_tool_may_gain_a_probe_while_its_calls_run(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, ending: str
) -> None:
    id_ = one(bank, conn, wire)
    with shop.hands() as hands:
        hands.claim([id_])
        conn.execute("UPDATE tool SET effect = 'probe', settle_after = '10 min' WHERE name = 'wire_money'")
        hands.finish(id_, 1, "unknown", delay="0 s")
        hands.claim([id_])
        assert hands.finish(id_, 2, ending, delay="0 s") == "recorded"
    assert row(conn, id_, "probe, unsettled, next_at IS NOT NULL") == (True, True, True)


@pytest.mark.parametrize("ending", ["absent", "cannot_tell"])
def test_a_tool_may_lose_its_probe_while_one_is_asked(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, ending: str
) -> None:
    id_ = one(bank, conn, refund)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay="0 s")
        hands.claim([id_])
        conn.execute("UPDATE tool SET effect = 'unrepeatable', settle_after = NULL WHERE name = 'refund'")
        assert hands.finish(id_, 2, ending, delay="0 s") == "recorded"
    assert row(conn, id_, "unsettled, next_at IS NOT NULL") == (True, True)


@pytest.mark.parametrize(
    ("effect", "then"),
    [
        ("effect = 'unrepeatable', key_window = NULL, key_margin = NULL", ("in_doubt", True, False)),
        ("effect = 'probe', key_window = NULL, key_margin = NULL, settle_after = '10 min'", ("retry", True, True)),
    ],
)
def test_what_waits_to_be_repeated_under_a_key_is_not_when_its_tool_loses_the_key(  # I7
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, effect: LiteralString, then: Any
) -> None:
    id_ = one(bank, conn, charge)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay="0 s")
        assert row(conn, id_) == ("pending", True, False)
        conn.execute(sql.SQL("UPDATE tool SET {} WHERE name = 'charge_customer'").format(sql.SQL(effect)))
        assert hands.claim([id_])[id_][0] == "expired"
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        assert [duty for duty, _ in swept(hands, id_)] == ["expired"]
    assert row(conn, id_) == then


def test_an_attempt_is_settled_by_the_deadline_that_it_had(  # I16
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """A release that shortens the deadline says nothing of the attempts that run under the longer one."""
    id_ = one(bank, conn, refund)
    with shop.hands() as hands:
        conn.execute("UPDATE tool SET deadline = '1 h', settle_after = '0 s' WHERE name = 'refund'")
        hands.claim([id_])
        conn.execute("UPDATE tool SET deadline = '1 s' WHERE name = 'refund'")
        age(conn, "30 min")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        assert swept(hands, id_) == []
        assert row(conn, id_, "status") == ("running",)
        hands.finish(id_, 1, "unknown", delay="0 s")
        hands.claim([id_])
        hands.finish(id_, 2, "absent", delay="0 s")
    assert row(conn, id_, "status, unsettled, next_at = until") == ("retry", True, True)


def test_a_call_is_not_begun_after_its_deadline(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I16
    conn.execute("UPDATE tool SET expires = '1 ms'")
    never = one(bank, conn, charge)
    conn.execute("UPDATE tool SET expires = NULL")
    sent, maybe, asked = one(bank, conn, wire), one(bank, conn, lookup), one(bank, conn, refund)
    with shop.hands() as hands:
        hands.claim([sent, maybe, asked])
        hands.finish(sent, 1, "retry", delay=LATER)
        hands.finish(maybe, 1, "unknown", delay=LATER)
        hands.finish(asked, 1, "unknown", delay=LATER)
        conn.execute("UPDATE tool SET expires = '1 ms'")
        assert hands.claim([never]) == {never: ("expired", None)}
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        duties = {id_: (duty, status) for duty, _, id_, status in hands.sweep()}
    assert duties == {
        never: ("expired", "cancelled"),
        sent: ("expired", "gave_up"),
        maybe: ("expired", "in_doubt"),
        asked: ("asked again", "pending"),
    }


def test_a_paused_tool_s_calls_are_not_unanswered(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    id_ = one(bank, conn, charge)
    with shop.hands() as hands:
        conn.execute("UPDATE worker SET source = 'kafka', received_through = '{\"charge_customer\": \"2999-01-01\"}'")
        assert conn.execute("SELECT pause('charge_customer', true, 'ann', 'the provider is down')").fetchone() == (
            True,
        )
        assert hands.claim([id_]) == {id_: ("paused", None)}
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        assert swept(hands, id_) == []
        conn.execute("SELECT pause('charge_customer', false, 'ann', NULL)")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        assert swept(hands, id_) == [("emitted again", "pending")]
        assert hands.claim([id_]) == {id_: ("claimed", 1)}
    assert conn.execute("SELECT who, verb, tool, note FROM audit ORDER BY id").fetchall() == [
        ("ann", "pause", "charge_customer", "the provider is down"),
        ("ann", "resume", "charge_customer", None),
    ]


@pytest.mark.parametrize("final", ["refused", "gave_up"])
def test_an_order_that_stops_waits_for_a_person(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, final: str
) -> None:
    first, second = ids(conn, decide(bank, ship(to="a", text="1"), ship(to="a", text="2")))
    with shop.hands() as hands:
        hands.claim([first])
        conn.execute("UPDATE tool SET attempts = 1")
        hands.finish(first, 1, "refused" if final == "refused" else "retry", error={"reason": "no"})
        assert row(conn, first, "status") == (final,)
        assert hands.claim([second]) == {second: ("blocked", None)}
        ((verdict,),) = conn.execute("SELECT verdict FROM drop_dead(%s, 'ann', NULL)", [[first]]).fetchall()
        assert verdict == ("passed" if final == "refused" else "dropped")
        assert hands.claim([second]) == {second: ("claimed", 1)}
        assert conn.execute("SELECT verdict FROM drop_dead(%s, 'ann', NULL)", [[first]]).fetchall() == [("not_dead",)]
