"""Two sessions at one call: what somebody knew too late, and what a person does, one in the midst of the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from deedbox import Deedbox, Tool
from tests.integration.test_operate import dead, doubtful, key, row
from tests.support.fleet import decide, ids, wait_until
from tests.support.shop import Shop, charge, mail, wire

FINISH = "SELECT id, verdict FROM finish(%s, %s, %s, %s, %s::json[], %s::json[], %s::boolean[], %s::interval[])"


def finish(conn: psycopg.Connection, owner: UUID, *ids: UUID) -> dict[UUID, str]:
    """Each call's first attempt is done: the verdicts."""
    count, nothing = len(ids), [None] * len(ids)
    results = ['{"id": "x"}'] * count
    values = [owner, list(ids), [1] * count, ["done"] * count, results, nothing, [False] * count, nothing]
    return dict(conn.execute(FINISH, values).fetchall())


def redrive(conn: psycopg.Connection, id_: UUID, rekey: bool) -> str:
    """The verdict."""
    ((verdict,),) = conn.execute("SELECT verdict FROM redrive(%s, %s, 'ann', NULL)", [[id_], rekey]).fetchall()
    return str(verdict)


class Meanwhile:
    """Something in a thread, on a session of its own; it has come to a lock that somebody else holds."""

    def __init__(self, conn: psycopg.Connection, session: psycopg.Connection, act: Callable[[], Any]) -> None:
        self.said: Any = None
        self._thread = threading.Thread(target=self._run, args=[act])
        self._thread.start()
        pid = session.info.backend_pid
        waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        wait_until(lambda: conn.execute(waits, [pid]).fetchone() == (1,))

    def _run(self, act: Callable[[], Any]) -> None:
        self.said = act()

    def end(self) -> Any:
        """What it said."""
        self._thread.join()
        return self.said


@pytest.mark.parametrize(("tool", "rekey"), [(charge, True), (wire, False)])
def test_a_redrive_waits_for_an_effect_that_is_being_told_and_then_refuses(  # I6 I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, tool: Tool[..., Any, Any], rekey: bool
) -> None:
    with shop.hands() as hands, shop.connect() as a, shop.connect() as b:
        id_ = dead(bank, conn, hands, tool)
        with a.transaction():
            assert finish(a, hands.owner, id_) == {id_: "alarm"}
            driven = Meanwhile(conn, b, lambda: redrive(b, id_, rekey))
        assert driven.end() == "happened"
    assert row(conn, id_, "status") == ("gave_up",)
    assert conn.execute("SELECT closed_as, happened FROM dead").fetchall() == [(None, True)]


def test_an_effect_is_told_of_all_its_calls_before_one_is_put_back_to_work(  # I8
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    with shop.hands() as hands, shop.connect() as a, shop.connect() as b, shop.connect() as c:
        id_ = dead(bank, conn, hands, wire)
        other = doubtful(bank, conn, hands)
        with b.transaction():
            b.execute("SELECT FROM outcome WHERE action_id = %s FOR UPDATE", [other])
            told = Meanwhile(conn, a, lambda: finish(a, hands.owner, id_, other))
            driven = Meanwhile(conn, c, lambda: redrive(c, id_, rekey=False))
        assert told.end() == {id_: "alarm", other: "late"}
        assert driven.end() == "happened"
    assert row(conn, other, "status") == ("done",)


def test_what_was_told_while_a_person_said_that_it_did_not_happen_is_an_alarm(  # I8 I10
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    with shop.hands() as hands, shop.connect() as a, shop.connect() as b:
        id_ = doubtful(bank, conn, hands)
        with a.transaction():
            a.execute("SELECT resolve(%s, NULL, 'ann', NULL)", [key(conn, id_)])
            told = Meanwhile(conn, b, lambda: finish(b, hands.owner, id_))
        assert told.end() == {id_: "alarm"}
        assert redrive(conn, id_, rekey=False) == "happened"


def test_one_call_after_the_other_of_an_order_though_the_first_is_put_back_to_work(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """Those behind it have gone on: it takes its place anew, at the end."""
    one, two, three = ids(conn, decide(bank, *(mail(to="a", text=str(n)) for n in range(3))))
    with shop.hands() as hands:
        hands.claim([one])
        conn.execute("UPDATE tool SET attempts = 1")
        hands.finish(one, 1, "retry")
        conn.execute("UPDATE tool SET attempts = 10")
        assert hands.claim([two])[two][0] == "claimed"
        assert redrive(conn, one, rekey=False) == "redriven"
        (four,) = ids(conn, decide(bank, mail(to="a", text="4")))
        order = []
        for _ in range(4):
            order += [id_ for id_, (verdict, _) in hands.claim([one, three, four]).items() if verdict == "claimed"]
            running = conn.execute("SELECT action_id, attempt FROM outcome WHERE status = 'running'").fetchall()
            assert len(running) == 1
            hands.finish(*running[0], result={"id": "x"})
    assert order == [three, one, four]


def test_one_that_nobody_has_passed_keeps_its_place(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    one, two = ids(conn, decide(bank, mail(to="a", text="1"), mail(to="a", text="2")))
    with shop.hands() as hands:
        hands.claim([one])
        conn.execute("UPDATE tool SET attempts = 1")
        hands.finish(one, 1, "retry")
        conn.execute("UPDATE tool SET attempts = 10")
        assert redrive(conn, one, rekey=False) == "redriven"
        assert [hands.claim([id_])[id_][0] for id_ in (two, one)] == ["blocked", "claimed"]


def given_up(conn: psycopg.Connection, hands: Any, *ids_: UUID) -> None:
    """These calls, one after the other, give up."""
    conn.execute("UPDATE tool SET attempts = 1")
    for id_ in ids_:
        hands.claim([id_])
        hands.finish(id_, 1, "retry")
        assert row(conn, id_, "status") == ("gave_up",)
    conn.execute("UPDATE tool SET attempts = 10")


def claimed(hands: Any, *ids_: UUID) -> list[UUID]:
    """Which of these could be claimed."""
    return [id_ for id_ in ids_ if hands.claim([id_])[id_][0] == "claimed"]


def test_the_later_of_two_is_put_back_to_work_before_the_earlier(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    one, two, three = ids(conn, decide(bank, *(mail(to="a", text=str(n)) for n in range(3))))
    with shop.hands() as hands:
        given_up(conn, hands, one, two)
        assert claimed(hands, three) == [three]
        redrive(conn, two, rekey=False)
        redrive(conn, one, rekey=False)
        assert claimed(hands, one, two) == []
        hands.finish(three, 1, result={"id": "x"})
        assert claimed(hands, one, two) == [two]


def test_one_that_was_moved_is_found_by_the_one_before_it(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    one, two = ids(conn, decide(bank, mail(to="a", text="1"), mail(to="a", text="2")))
    with shop.hands() as hands:
        given_up(conn, hands, one)
        hands.claim([two])
        redrive(conn, one, rekey=False)
        conn.execute("UPDATE tool SET attempts = 1")
        hands.finish(two, 1, "retry")
        conn.execute("UPDATE tool SET attempts = 10")
        assert claimed(hands, one) == [one]
        redrive(conn, two, rekey=False)
        assert claimed(hands, two) == []
        hands.finish(one, 2, result={"id": "x"})
        assert claimed(hands, two) == [two]


def test_the_next_one_does_not_begin_while_one_is_put_back_to_work(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    one, two = ids(conn, decide(bank, mail(to="a", text="1"), mail(to="a", text="2")))
    with shop.hands() as hands, shop.connect() as other:
        given_up(conn, hands, one)
        with other.transaction():
            redrive(other, one, rekey=False)
            assert claimed(hands, two) == []
        assert claimed(hands, two, one) == [one]


def test_a_redrive_that_waits_for_an_agent_holds_up_no_worker(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """The end of its order is an open transaction's: it is waited for first."""
    one, two = ids(conn, decide(bank, mail(to="a", text="1"), mail(to="a", text="2")))
    with shop.hands() as hands, shop.connect() as agent, shop.connect() as person:
        given_up(conn, hands, one)
        hands.claim([two])
        with agent.transaction():
            agent.execute("UPDATE tail SET prev = prev")
            driven = Meanwhile(conn, person, lambda: redrive(person, one, rekey=False))
            assert finish(hands.conn, hands.owner, one) == {one: "alarm"}
        assert driven.end() == "redriven"  # its key makes the two one
