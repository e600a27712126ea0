"""What is known too late: it settles the doubt of its own attempt, or is kept; what nobody counts with is an alarm."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from deedbox import Deedbox, Tool
from tests.integration.test_effects import SOON, age, judged_dead, one, row, swept
from tests.support.shop import Shop, charge, lookup, payout, refund, wire


def test_what_the_last_attempt_that_performed_knows_settles_a_probed_doubt(  # I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, refund)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        hands.claim([id_])
        hands.finish(id_, 2, "cannot_tell")
        assert stopped.finish(id_, 1, "done", result={"id": "re_1"}) == "late"
    assert row(conn, id_, "status, unsettled, probe, result ->> 'id'") == ("done", False, False, "re_1")
    assert conn.execute("SELECT attempt, settled, alarm FROM late").fetchall() == [(1, True, False)]


def test_what_came_while_a_probe_was_under_way_counts_more_than_its_no(  # I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, refund)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        hands.claim([id_])
        assert stopped.finish(id_, 1, "done", result={"id": "re_1"}) == "late"
        assert hands.finish(id_, 2, "absent") == "recorded"
    assert row(conn, id_, "status, unsettled, result ->> 'id'") == ("done", False, "re_1")


def test_an_effect_after_closing_is_an_alarm(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I8 I10
    id_ = one(bank, conn, refund)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        conn.execute("UPDATE tool SET attempts = 1")
        age(conn, "12 min")
        hands.claim([id_])
        hands.finish(id_, 2, "absent")
        assert row(conn, id_, "status, unsettled") == ("gave_up", False)
        assert stopped.finish(id_, 1, "done", result={"id": "re_1"}) == "alarm"
    assert row(conn, id_, "status") == ("gave_up",)
    assert conn.execute("SELECT attempt, settled, alarm FROM late").fetchall() == [(1, False, True)]


@pytest.mark.parametrize(
    ("tool", "rekey", "said"), [(wire, False, "alarm"), (charge, True, "alarm"), (charge, False, "late")]
)
def test_an_effect_beside_a_newer_one_is_an_alarm_unless_a_key_makes_them_one(  # I6 I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, tool: Tool[..., Any, Any], rekey: bool, said: str
) -> None:
    """It was closed as one that did nothing, and put back to work."""
    id_ = one(bank, conn, tool)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        (key,) = row(conn, id_, "(SELECT key FROM action WHERE id = action_id)")
        assert conn.execute("SELECT resolve(%s, NULL, 'ann', NULL)", [key]).fetchone() == ("gave_up",)
        conn.execute("SELECT redrive(%s, %s, 'ann', NULL)", [[id_], rekey])
        hands.claim([id_])
        assert stopped.finish(id_, 1, "done", result={"id": "x_1"}) == said
        assert row(conn, id_, "status") == ("running",)
        assert hands.finish(id_, 2, "done", result={"id": "x_2"}) == "recorded"
    assert row(conn, id_, "result ->> 'id'") == ("x_2",)
    assert conn.execute("SELECT attempt, settled, alarm FROM late").fetchall() == [(1, False, said == "alarm")]


def test_what_happened_settles_a_redriven_call_though_its_result_does_not_fit(  # I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, wire)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown")
        conn.execute("SELECT resolve((SELECT key FROM action), NULL, 'ann', NULL)")
        conn.execute("SELECT redrive(%s, false, 'ann', NULL)", [[id_]])
        unfit = {"reason": "the result does not fit", "happened": True}
        assert hands.finish(id_, 1, "gave_up", error=unfit, unsettled=False) == "late"
    assert row(conn, id_, "status, error ->> 'happened'") == ("gave_up", "true")
    assert conn.execute("SELECT verdict FROM redrive(%s, false, 'ann', NULL)", [[id_]]).fetchall() == [("happened",)]


def test_what_happened_outweighs_a_probes_no_though_its_result_does_not_fit(  # I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, refund)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        hands.claim([id_])
        unfit = {"reason": "the result does not fit", "happened": True}
        assert stopped.finish(id_, 1, "gave_up", error=unfit, unsettled=False) == "late"
        assert hands.finish(id_, 2, "absent") == "recorded"
    assert row(conn, id_, "status, unsettled, error ->> 'happened'") == ("gave_up", False, "true")
    assert conn.execute("SELECT happened FROM dead").fetchall() == [(True,)]


def test_an_attempt_that_was_given_back_hides_no_other(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I8
    id_ = one(bank, conn, charge)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        hands.claim([id_])
        assert hands.finish(id_, 2, "pending") == "recorded"
        age(conn, "25 h")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        assert swept(hands, id_) == [("expired", "in_doubt")]
        assert stopped.finish(id_, 1, "done", result={"id": "ch_1"}) == "late"
    assert row(conn, id_, "status, result ->> 'id'") == ("done", "ch_1")


def test_a_probe_that_was_given_back_leaves_a_stored_failure_known(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, payout)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "stored", error={"reason": "500", "stored": True}, delay="0 s")
        hands.claim([id_])
        hands.finish(id_, 2, "pending")
        assert row(conn, id_, "probe, error ->> 'stored'") == (True, "true")


def test_a_second_effect_past_the_window_is_an_alarm_though_there_is_a_key(  # I8 I9
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, payout)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay="1 h")
        age(conn, "25 h")
        conn.execute("UPDATE outcome SET since = clock_timestamp(), next_at = clock_timestamp()")
        hands.sweep()
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        hands.sweep()
        hands.claim([id_])
        hands.finish(id_, 2, "absent", delay="0 s")
        assert row(conn, id_, "status, probe, unsettled") == ("pending", False, False)
        assert hands.claim([id_])[id_] == ("claimed", 3)
        assert hands.finish(id_, 1, "done", result={"id": "a"}) == "alarm"


def test_an_alarm_is_raised_once(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    """Repeating a report is harmless, also of one that came too late."""
    id_ = one(bank, conn, wire)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown")
        conn.execute("SELECT resolve((SELECT key FROM action), NULL, 'ann', NULL)")
        assert hands.finish(id_, 1, "done", result={"id": "x"}) == "alarm"
        assert hands.finish(id_, 1, "done", result={"id": "x"}) in ("late", "already")
    assert conn.execute("SELECT count(*) FROM late").fetchone() == (1,)


def test_what_came_after_a_person_had_put_it_back_to_work_settles_it(  # I8 I10
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """A person said that it did not happen; the stopped attempt knows better, before the next one begins."""
    id_ = one(bank, conn, refund)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        hands.claim([id_])
        hands.finish(id_, 2, "cannot_tell")
        (key,) = conn.execute("SELECT key FROM action WHERE id = %s", [id_]).fetchone() or ("",)
        assert conn.execute("SELECT resolve(%s, NULL, 'ann', NULL)", [key]).fetchone() == ("gave_up",)
        conn.execute("SELECT redrive(%s, true, 'ann', NULL)", [[id_]])
        assert row(conn, id_, "status, unsettled") == ("pending", False)
        assert stopped.finish(id_, 1, "done", result={"id": "re_1"}) == "late"
        assert hands.claim([id_]) == {id_: ("final", None)}
    assert row(conn, id_, "status, result ->> 'id'") == ("done", "re_1")


HAPPENED = {"reason": "result unstorable", "happened": True}


def test_what_is_redriven_for_its_answer_is_not_forgotten_to_have_happened(  # I16
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """Else it would give up once more, as if it had not happened, and a new key would do it twice."""
    id_ = one(bank, conn, charge)
    conn.execute("UPDATE tool SET attempts = 1")
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "gave_up", error=HAPPENED, unsettled=False)
        assert hands.conn.execute("SELECT verdict FROM redrive(%s, false, 'ann', NULL)", [[id_]]).fetchall() == [
            ("redriven",)
        ]
        assert row(conn, id_) == ("pending", True, False)
        hands.claim([id_])
        hands.finish(id_, 2, "retry", error={"reason": "busy"})
    assert row(conn, id_) == ("in_doubt", True, False)


def test_what_a_thread_says_after_its_attempt_was_reported_is_kept(  # I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """It settles the doubt that the report left, also when its result cannot be kept; said twice, it is kept once."""
    id_ = one(bank, conn, wire)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", error={"reason": "deadline"})
        assert hands.finish(id_, 1, "gave_up", error=HAPPENED, unsettled=False) == "late"
        assert hands.finish(id_, 1, "gave_up", error=HAPPENED, unsettled=False) == "already"
    assert row(conn, id_, "status, unsettled, error ->> 'happened'") == ("gave_up", False, "true")
    assert conn.execute("SELECT happened FROM dead").fetchall() == [(True,)]
    assert conn.execute("SELECT status, settled, alarm FROM late").fetchall() == [("gave_up", True, False)]


def test_a_no_that_left_a_doubt_leaves_it_however_often_it_is_said(  # I16
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """What stands before the handler refused the second attempt: that says nothing of the first."""
    keyed, free = one(bank, conn, charge), one(bank, conn, lookup)
    with shop.hands() as hands:
        for id_ in (keyed, free):
            hands.claim([id_])
            hands.finish(id_, 1, "unknown", error={"reason": "no answer"}, delay=SOON)
            hands.claim([id_])
            assert hands.finish(id_, 2, "refused", error={"reason": "not today"}) == "recorded"
            assert hands.finish(id_, 2, "refused", error={"reason": "not today"}) == "already"
            assert row(conn, id_) == ("in_doubt", True, False)


def test_an_alarm_keeps_a_dead_letter_from_a_new_key(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I8
    id_ = one(bank, conn, wire)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        (key,) = row(conn, id_, "(SELECT key FROM action WHERE id = action_id)")
        assert conn.execute("SELECT resolve(%s, NULL, 'ann', NULL)", [key]).fetchone() == ("gave_up",)
        assert stopped.finish(id_, 1, "done", result={"id": "w_1"}) == "alarm"
    assert conn.execute("SELECT verdict FROM redrive(%s, true, 'ann', NULL)", [[id_]]).fetchall() == [("happened",)]


def test_that_it_happened_settles_a_call_whose_newer_attempts_sent_nothing(  # I6 I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    id_ = one(bank, conn, wire)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown")
        conn.execute("SELECT resolve((SELECT key FROM action), NULL, 'ann', NULL)")
        conn.execute("SELECT redrive(%s, false, 'ann', NULL)", [[id_]])
        hands.claim([id_])
        hands.finish(id_, 2, "retry")
        assert row(conn, id_, "status, performed") == ("retry", 1)
        assert hands.finish(id_, 1, "done", result={"id": "x"}) == "late"
    assert row(conn, id_, "status") == ("done",)


def test_only_an_answer_tells_that_it_happened(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I14
    """Words that no worker of ours says: they neither end a call nor keep it from being judged."""
    id_ = one(bank, conn, refund)
    never = one(bank, conn, wire)
    with shop.hands() as stopped, shop.hands() as hands:
        stopped.claim([id_])
        judged_dead(conn, stopped, hands)
        hands.claim([id_])
        assert stopped.finish(id_, 1, "unknown", error={"reason": "odd", "happened": True}) == "late"
        assert hands.finish(id_, 2, "absent") == "recorded"
        assert hands.finish(never, 0, "done", result={"id": "x"}) == "late"
    assert row(conn, id_, "status, unsettled") == ("retry", True)
    assert row(conn, never, "status, attempt") == ("pending", 0)
