"""What a person does to calls, in the ledger's own verbs on a real Postgres."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from deedbox import Deedbox
from deedbox.outcomes import Done, GaveUp, InDoubt, Outcome, Pending
from tests.support.fleet import decide, ids
from tests.support.hands import Hands
from tests.support.shop import Receipt, Shop, charge, lookup, payout, refund, ship, wire

RESULT = '{"id": "ch_1"}'


def one(bank: Deedbox, conn: psycopg.Connection, tool: Any = charge) -> UUID:
    """A committed call of the tool."""
    call = tool(order="o") if tool is lookup else tool(customer="c", cents=1)
    return ids(conn, decide(bank, call))[0]


def doubtful(bank: Deedbox, conn: psycopg.Connection, hands: Hands) -> UUID:
    """A call that is in doubt."""
    id_ = one(bank, conn, wire)
    hands.claim([id_])
    hands.finish(id_, 1, "unknown", error={"reason": "the answer was lost"})
    return id_


def dead(bank: Deedbox, conn: psycopg.Connection, hands: Hands, tool: Any = charge, **error: Any) -> UUID:
    """A call that gave up."""
    id_ = one(bank, conn, tool)
    hands.claim([id_])
    if error:
        hands.finish(id_, 1, "gave_up", error=error, unsettled=False)
    else:
        conn.execute("UPDATE tool SET attempts = 1 WHERE name = %s", [tool.name])
        hands.finish(id_, 1, "retry", error={"reason": "no connection"})
        conn.execute("UPDATE tool SET attempts = 10")
    assert row(conn, id_, "status") == ("gave_up",)
    return id_


def row(conn: psycopg.Connection, id_: UUID, columns: LiteralString) -> tuple[Any, ...]:
    """Columns of an outcome."""
    query = sql.SQL("SELECT {} FROM outcome WHERE action_id = %s").format(sql.SQL(columns))
    found = conn.execute(query, [id_]).fetchone()
    assert found is not None
    return found


def key(conn: psycopg.Connection, id_: UUID) -> str:
    """The call's key."""
    ((found,),) = conn.execute("SELECT key FROM action WHERE id = %s", [id_]).fetchall()
    return str(found)


def resolve(conn: psycopg.Connection, id_: UUID, happened: str | None, note: str | None = None) -> str:
    """What the ledger says to it."""
    ((verdict,),) = conn.execute("SELECT resolve(%s, %s::json, 'ann', %s)", [key(conn, id_), happened, note]).fetchall()
    return str(verdict)


def test_the_audit_tells_the_ledger_from_people_and_knows_their_role(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I10
    with shop.hands() as hands:
        id_ = doubtful(bank, conn, hands)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="name of your own"):
        conn.execute("SELECT resolve(%s, NULL, 'deedbox', NULL)", [key(conn, id_)])
    assert row(conn, id_, "status") == ("in_doubt",)
    resolve(conn, id_, None)
    assert conn.execute("SELECT who, role = session_user FROM audit").fetchall() == [("ann", True)]


def test_an_error_that_nobody_could_look_into_is_refused(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I14
    """A NUL as a JSON escape is text to json, and none to jsonb: the next one to look at the call would fail."""
    id_ = one(bank, conn, wire)
    with shop.hands() as hands:
        hands.claim([id_])
        with pytest.raises(psycopg.errors.UntranslatableCharacter):
            hands.finish(id_, 1, "unknown", error={"reason": "a NUL: \0"})
    assert row(conn, id_, "status") == ("running",)


def redrive(conn: psycopg.Connection, *meant: UUID, rekey: bool = False) -> dict[UUID, str]:
    """The verdicts, which asking first has told already."""
    asked: dict[UUID, str] = dict(
        conn.execute("SELECT id, verdict FROM redrivable(%s, %s)", [list(meant), rekey]).fetchall()
    )
    told: dict[UUID, str] = dict(
        conn.execute("SELECT id, verdict FROM redrive(%s, %s, 'ann', NULL)", [list(meant), rekey]).fetchall()
    )
    assert asked == told
    return told


def audited(conn: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Who did what to what, and what came of it."""
    return conn.execute(
        "SELECT who, verb, was ->> 'status', became ->> 'status', note FROM audit ORDER BY id"
    ).fetchall()


def test_it_happened(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I10 I16
    run = decide(bank, wire(customer="c", cents=1))
    (id_,) = ids(conn, run)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", error={"reason": "the answer was lost"})
        assert resolve(conn, id_, RESULT, "seen in its dashboard") == "done"
        assert row(conn, id_, "status, unsettled, error, next_at") == ("done", False, None, None)
        assert hands.claim([id_]) == {id_: ("final", None)}
    run.settle()
    (made,) = run.journal.calls.values()
    assert (made.status, made.result) == ("done", {"id": "ch_1"})
    assert audited(conn) == [("ann", "resolve", "in_doubt", "done", "seen in its dashboard")]
    assert conn.execute("SELECT count(*) FROM dead").fetchone() == (0,)
    told = conn.execute("SELECT count(*) FROM outbox WHERE type = 'result' AND action_id = %s", [id_]).fetchone()
    assert told == (2,)  # in doubt, then done


def test_it_did_not_happen_and_is_performed_again_under_the_same_key(  # I6 I10
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    with shop.hands() as hands:
        id_ = doubtful(bank, conn, hands)
        assert resolve(conn, id_, None) == "gave_up"
        assert row(conn, id_, "status, unsettled, error ->> 'reason'") == (
            "gave_up",
            False,
            "it did not happen, says ann",
        )
        assert redrive(conn, id_) == {id_: "redriven"}
        assert row(conn, id_, "status, rekeyed, error") == ("pending", 0, None)
        assert conn.execute("SELECT closed_as, closed_by FROM dead").fetchall() == [("redriven", "ann")]
        kinds = [kind for (kind,) in conn.execute("SELECT type FROM outbox WHERE action_id = %s ORDER BY id", [id_])]
        assert kinds == ["call", "result", "result", "dead", "call"]
        assert hands.take() == {id_: 2}
        assert hands.finish(id_, 2, result={"id": "ch_1"}) == "recorded"
        assert redrive(conn, id_) == {id_: "not_dead"}
    assert [act[:4] for act in audited(conn)] == [
        ("ann", "resolve", "in_doubt", "gave_up"),
        ("ann", "redrive", "gave_up", "pending"),
    ]


def test_what_is_not_in_doubt_is_not_resolved(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I10
    with shop.hands() as hands:
        id_ = one(bank, conn, lookup)
        assert resolve(conn, id_, None) == "settled"
        hands.claim([id_])
        assert resolve(conn, id_, RESULT) == "running"
        hands.finish(id_, 1, "unknown", delay="1 h")
        hands.claim([id_])
        assert row(conn, id_, "status, unsettled") == ("retry", True)  # waits for its time
        assert resolve(conn, id_, RESULT) == "done"
        assert resolve(conn, id_, RESULT) == "settled"
        assert resolve(conn, id_, None) == "settled"
    assert conn.execute("SELECT resolve('nothing:1:0', NULL, 'ann', NULL)").fetchone() == ("unknown",)
    assert len(audited(conn)) == 1


def test_a_result_is_an_object(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    with shop.hands() as hands:
        id_ = doubtful(bank, conn, hands)
        for happened in ("null", "[]", '"x"', "5"):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="object"):
                resolve(conn, id_, happened)
    assert row(conn, id_, "status") == ("in_doubt",)


def test_a_repeat_that_waits_to_be_claimed_is_resolved_too(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    id_ = one(bank, conn)
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", delay="1 s")
        assert row(conn, id_, "status, unsettled") == ("pending", True)
        assert resolve(conn, id_, RESULT) == "done"
        assert hands.claim([id_]) == {id_: ("final", None)}


def test_a_dead_letter_whose_effect_is_there_is_closed_by_its_result(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    with shop.hands() as hands:
        id_ = dead(bank, conn, hands, wire, reason="it does not fit", happened=True)
        assert redrive(conn, id_) == redrive(conn, id_, rekey=True) == {id_: "happened"}
        assert resolve(conn, id_, None) == "settled"
        assert resolve(conn, id_, RESULT) == "done"
    assert conn.execute("SELECT closed_as, closed_by FROM dead").fetchall() == [("resolved", "ann")]


def test_its_answer_can_be_had_again_while_the_provider_knows_the_key(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    with shop.hands() as hands:
        soon, late = (dead(bank, conn, hands, reason="it does not fit", happened=True) for _ in range(2))
        conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '25 h' WHERE action_id = %s", [late])
        assert redrive(conn, late) == {late: "happened"}  # a new key would do it twice
        assert redrive(conn, soon, rekey=True) == {soon: "happened"}
        assert redrive(conn, soon) == {soon: "redriven"}


def test_the_window_of_the_key_is_the_limit_and_a_new_key_has_a_window_of_its_own(  # I6 I9 I10
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    with shop.hands() as hands:
        id_ = dead(bank, conn, hands)
        conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '25 h'")
        assert redrive(conn, id_) == {id_: "window_over"}
        assert row(conn, id_, "status") == ("gave_up",)
        assert redrive(conn, id_, rekey=True) == {id_: "redriven"}
        assert row(conn, id_, "rekeyed, first_sent_at") == (1, None)
        claimed = hands.conn.execute("SELECT verdict, rekeyed FROM claim(%s, %s)", [[id_], hands.owner]).fetchall()
        assert claimed == [("claimed", 1)]
        assert row(conn, id_, "first_sent_at > clock_timestamp() - interval '1 h'") == (True,)
    assert [act[:2] for act in audited(conn)] == [("ann", "rekey")]


def test_nobody_wants_a_call_after_its_deadline(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    """It would only be cancelled, or give up, at the next turn of the sweep."""
    with shop.hands() as hands:
        id_ = dead(bank, conn, hands)
        conn.execute("UPDATE tool SET expires = '1 ms'")
        assert redrive(conn, id_) == redrive(conn, id_, rekey=True) == {id_: "expired"}
        assert row(conn, id_, "status") == ("gave_up",)


def test_what_has_no_bytes_cannot_be_performed(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I13
    with shop.hands() as hands:
        id_ = dead(bank, conn, hands)
        conn.execute("DELETE FROM outbox")
        assert redrive(conn, id_) == {id_: "pruned"}


def test_what_is_no_dead_letter(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    with shop.hands() as hands:
        pending, doubt, nothing = one(bank, conn), doubtful(bank, conn, hands), uuid4()
        assert set(redrive(conn, pending, doubt, nothing).values()) == {"not_dead"}
        assert redrive(conn) == {}
        assert conn.execute("SELECT verdict FROM drop_dead(%s, 'ann', NULL)", [[pending, nothing]]).fetchall() == [
            ("not_dead",),
            ("not_dead",),
        ]
    assert audited(conn) == []


def test_attempts_and_age_are_counted_anew(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    with shop.hands() as hands:
        id_ = dead(bank, conn, hands, wire)
        conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '3 days'")
        conn.execute("UPDATE tool SET attempts = 2")
        redrive(conn, id_)
        hands.claim([id_])
        hands.finish(id_, 2, "retry", delay="1 s")
        assert row(conn, id_, "status") == ("pending",)
        hands.claim([id_])
        hands.finish(id_, 3, "retry", error={"reason": "no connection"}, delay="1 s")
        assert row(conn, id_, "status, error ->> 'reason'") == ("gave_up", "after 2 attempts: no connection")
    assert conn.execute("SELECT closed_at IS NULL FROM dead ORDER BY id").fetchall() == [(False,), (True,)]


def test_two_who_redrive_one_letter(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I10
    second: list[str] = []
    with shop.hands() as hands:
        id_ = dead(bank, conn, hands)
    with shop.connect() as ann, shop.connect() as bob:

        def follow() -> None:
            second.extend(v for (v,) in bob.execute("SELECT verdict FROM redrive(%s, true, 'bob', NULL)", [[id_]]))

        with ann.transaction():
            assert ann.execute("SELECT verdict FROM redrive(%s, true, 'ann', NULL)", [[id_]]).fetchall() == [
                ("redriven",)
            ]
            other = threading.Thread(target=follow)
            other.start()
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            while conn.execute(blocked, [bob.info.backend_pid]).fetchone() != (1,):
                pass
        other.join()
    assert second == ["not_dead"]
    assert row(conn, id_, "rekeyed") == (1,)


@pytest.mark.parametrize("said", [None, RESULT], ids=["did not happen", "happened"])
def test_those_behind_it_go_on(bank: Deedbox, shop: Shop, conn: psycopg.Connection, said: str | None) -> None:
    first, second = ids(conn, decide(bank, ship(to="a", text="1"), ship(to="a", text="2")))
    with shop.hands() as hands:
        hands.claim([first])
        hands.finish(first, 1, "unknown")
        assert hands.claim([second]) == {second: ("blocked", None)}
        assert resolve(conn, first, said) == ("done" if said else "gave_up")
        if not said:  # this order stops for what gave up
            assert hands.claim([second]) == {second: ("blocked", None)}
            asked = conn.execute("SELECT verdict FROM droppable(%s)", [[first]]).fetchall()
            assert asked == [("dropped",)]
            assert conn.execute("SELECT verdict FROM drop_dead(%s, 'ann', NULL)", [[first]]).fetchall() == asked
            assert redrive(conn, first) == {first: "closed"}
        assert hands.claim([second]) == {second: ("claimed", 1)}


def test_an_agent_sees_what_became_of_it(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I11
    run = decide(bank, call := wire(customer="c", cents=1))
    (id_,) = ids(conn, run)

    def seen() -> Outcome[Receipt]:
        again = bank.run(run.id)
        return again.outcome(replace(call, key=f"{run.id}:1:0"))

    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", error={"reason": "no answer"})
        assert seen() == InDoubt("no answer")
        resolve(conn, id_, None, "not in its list")
        assert seen() == GaveUp("it did not happen, says ann: not in its list")
        redrive(conn, id_)
        assert seen() == Pending("pending")
        hands.take()
        hands.finish(id_, 2, result={"id": "ch_1"})
        assert seen() == Done(Receipt(id="ch_1"))


def test_a_tool_is_paused_while_agents_are_in_the_middle_of_their_transactions(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:
    """In an emergency nobody waits for them: they only refer to the tool."""
    turn = next(iter(bank.run("r", messages=[{"role": "user", "content": "go"}])))
    with shop.connect() as agent, agent.transaction():
        turn.commit(calls=[charge(customer="c", cents=1)], on=agent)
        conn.execute("SET lock_timeout = '5 s'")
        assert conn.execute("SELECT pause('charge_customer', true, 'ann', NULL)").fetchone() == (True,)
    assert conn.execute("SELECT pause('nothing', true, 'ann', NULL)").fetchone() == (False,)
    conn.execute("SELECT pause('charge_customer', true, 'bob', NULL)")
    assert audited(conn) == [("ann", "pause", None, None, None)]  # the second had nothing to do


def test_a_probed_tool_past_its_window(bank: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I9
    with shop.hands() as hands:
        keyed, asked = dead(bank, conn, hands, payout), dead(bank, conn, hands, refund)
        conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '25 h'")
        assert redrive(conn, keyed, asked) == {keyed: "window_over", asked: "redriven"}
