"""The ledger's verbs, played by hand: who may claim, who may record, and what the sweep makes of the dead."""

from __future__ import annotations

import io
import json
import threading
import time
from typing import Any
from uuid import UUID, uuid4

import fastavro
import psycopg
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbox import Deedbox, user
from deedbox.migrate import migrations
from tests.support.hands import Hands
from tests.support.shop import Shop, asks, charge, lookup, mail

HELLO = [user("go")]


def commit(box: Deedbox, run_id: str, *calls: Any) -> list[UUID]:
    """A run with one decision; the ids of its calls."""
    turn = next(iter(box.run(run_id, messages=HELLO)))
    with turn.transaction(asks(*calls)):
        pass
    return [call.id for call in turn.run.journal.calls.values()]


def pay(cents: int = 100) -> Any:
    """A charge."""
    return charge(customer="c", cents=cents)


def row(conn: psycopg.Connection, id_: UUID, columns: str = "status") -> Any:
    """Columns of an outcome."""
    found = conn.execute(f"SELECT {columns} FROM outcome WHERE action_id = %s".encode(), [id_]).fetchone()
    assert found is not None
    return found if "," in columns else found[0]


def test_a_claim_reads_the_row_and_says_why_not(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I1 I7
    first, second, other, ghost = [*commit(box, "r", pay(), pay(2), lookup(order="1")), uuid4()]
    with shop.hands() as a, shop.hands(tools=["charge_customer"]) as b:
        assert a.claim([first, ghost]) == {first: ("claimed", 1), ghost: ("absent", None)}
        assert b.claim([first, second, other])[first] == ("running", None)
        assert row(conn, second, "status, attempt") == ("running", 1)
        assert b.claim([other]) == {other: ("forbidden", None)}
        a.finish(first, 1, result={"id": "x"})
        assert b.claim([first]) == {first: ("final", None)}
        conn.execute("UPDATE tool SET paused = true")
        assert a.claim([other]) == {other: ("paused", None)}


def test_a_call_is_not_claimable_before_its_transaction_is_visible(box: Deedbox, shop: Shop) -> None:  # I1
    """Trendyol/go-pq-cdc#167: change data capture hears of a commit before it can be read; absent is asked again."""
    turn = next(iter(box.run("r", messages=HELLO)))
    with shop.hands() as hands, shop.connect() as own:
        with own.transaction():
            (call,) = turn.commit(asks(pay()), on=own)
            assert call.id is not None
            assert hands.claim([call.id]) == {call.id: ("absent", None)}
        assert hands.claim([call.id]) == {call.id: ("claimed", 1)}


def test_updates_stay_within_their_page_in_steady_state(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    """Facts B3: no index mentions status or owner, so that claim and finish are heap-only updates."""
    with shop.hands() as hands:
        for at in range(40):
            commit(box, f"r{at}", *(pay(cents + 1) for cents in range(4)))
            hands.do_all()
    conn.execute("SELECT pg_stat_clear_snapshot()")
    hot = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'outcome' AND schemaname = %s"

    def counted() -> bool:
        found = conn.execute(hot, [shop.schema]).fetchone()
        return found is not None and found[0] >= 320

    _until(counted)
    updates, in_place = conn.execute(hot, [shop.schema]).fetchone() or (0, 0)
    assert in_place >= 0.95 * updates


def test_a_renewal_under_way_is_alive(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I5 I8
    with shop.hands() as a, shop.hands() as b:
        bury(conn, a)
        with a.conn.transaction():
            assert a.conn.execute("SELECT renew(%s, '{}', false)", [a.owner]).fetchone() == (True,)
            b.sweep()
        assert a.conn.execute("SELECT renew(%s, '{}', false)", [a.owner]).fetchone() == (True,)


def test_a_blocked_call_that_was_let_go_is_due_when_its_predecessor_ends(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5
    one, two = commit(box, "r", mail(to="a", text="1"), mail(to="a", text="2"))
    with shop.hands() as hands:
        hands.claim([one])
        hands.conn.execute("SELECT let_go(ARRAY[%s])", [two])
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() WHERE action_id = %s", [two])
        assert hands.sweep() == []  # blocked: not emitted again, looked at later
        assert row(conn, two, "next_at > clock_timestamp() + interval '9 min'") is True
        hands.finish(one, 1, result={"id": "x"})
        assert row(conn, two, "next_at <= clock_timestamp()") is True


def test_a_sweep_on_the_owners_own_session_finds_it_alive(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I7
    """An advisory lock is re-entrant: to try it says nothing about oneself."""
    (id_,) = commit(box, "r", pay())
    with shop.hands() as alone:
        alone.claim([id_])
        stalled = "clock_timestamp() - interval '1 min', lease_until = clock_timestamp() + interval '1 min'"
        conn.execute(f"UPDATE worker SET renewed_at = {stalled}")
        assert alone.sweep() == []
        assert row(conn, id_) == "running"


def test_a_late_answer_settles_a_call_that_waits_to_be_repeated(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I8
    (id_,) = commit(box, "r", pay())
    with shop.hands() as a, shop.hands() as b:
        a.claim([id_])
        bury(conn, a)
        b.sweep()
        assert row(conn, id_, "status, unsettled") == ("pending", True)
        assert a.finish(id_, 1, result={"id": "x"}) == "late"
        assert row(conn, id_, "status, unsettled") == ("done", False)
        assert b.claim([id_]) == {id_: ("final", None)}


def test_a_call_stands_once_in_a_report(box: Deedbox, shop: Shop) -> None:  # I8
    (id_,) = commit(box, "r", pay())
    twice = "SELECT * FROM finish(%s, %s, '{1,1}', '{done,done}', '{null,null}', '{null,null}', '{f,f}', '{null,null}')"
    with shop.hands() as hands:
        hands.claim([id_])
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="twice"):
            hands.conn.execute(twice, [hands.owner, [id_, id_]])


def test_a_worker_cannot_report_what_is_not_its_to_say(box: Deedbox, shop: Shop) -> None:  # I10
    (id_,) = commit(box, "r", pay())
    with shop.hands() as hands:
        hands.claim([id_])
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="cancelled"):
            hands.finish(id_, 1, "cancelled")


def test_two_workers_claim_each_call_once(box: Deedbox, shop: Shop) -> None:  # I4 I7
    for at in range(10):
        commit(box, f"r{at}", *(pay(cents + 1) for cents in range(20)))
    with shop.hands() as a, shop.hands() as b:
        ids = a.pending()
        got: list[dict[UUID, tuple[str, int | None]]] = []
        threads = [
            threading.Thread(target=lambda h=h, w=w: got.append(h.claim(w))) for h, w in ((a, ids), (b, ids[::-1]))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    claimed = [id_ for answer in got for id_, (verdict, _) in answer.items() if verdict == "claimed"]
    assert sorted(claimed) == sorted(ids)


def test_a_blocked_call_waits_for_its_predecessor(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    one, two = commit(box, "r", mail(to="a", text="1"), mail(to="a", text="2"))
    with shop.hands() as hands:
        assert hands.claim([two]) == {two: ("blocked", None)}
        assert row(conn, two) == "pending"
        assert hands.claim([one]) == {one: ("claimed", 1)}
        hands.finish(one, 1, result={"id": "x"})
        assert hands.claim([two]) == {two: ("claimed", 1)}


def test_only_the_current_owner_and_attempt_record(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I8
    (id_,) = commit(box, "r", pay())
    with shop.hands() as a, shop.hands() as b:
        a.claim([id_])
        assert b.finish(id_, 1, result={"id": "forged"}) == "late"
        assert a.finish(id_, 2, result={"id": "other attempt"}) == "late"
        assert row(conn, id_) == "running"
        assert a.finish(id_, 1, result={"id": "x"}) == "recorded"
        assert a.finish(id_, 1, result={"id": "x"}) == "already"
        assert row(conn, id_, "status, result::text") == ("done", '{"id": "x"}')
    late = conn.execute("SELECT attempt, result::text, settled FROM late ORDER BY id").fetchall()
    assert late == [(1, '{"id": "forged"}', False), (2, '{"id": "other attempt"}', False)]


def test_what_a_late_finisher_knows_is_kept_and_settles_its_own_doubt(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I8 I16
    (id_,) = commit(box, "r", pay())
    conn.execute("UPDATE tool SET attempts = 1")
    with shop.hands() as a, shop.hands() as b:
        a.claim([id_])
        bury(conn, a)
        assert [(duty, status) for duty, _, _, status in b.sweep() if duty == "condemned"] == [
            ("condemned", "in_doubt")
        ]
        assert row(conn, id_, "status, unsettled") == ("in_doubt", True)
        assert a.finish(id_, 1, result={"id": "x"}) == "late"
        assert row(conn, id_, "status, unsettled, result::text") == ("done", False, '{"id": "x"}')
        assert a.finish(id_, 1, result={"id": "x"}) == "already"
    assert conn.execute("SELECT settled FROM late").fetchall() == [(True,)]


def age(conn: psycopg.Connection) -> None:
    """As if everything had happened ten minutes ago, and the slower duties were due."""
    conn.execute("SET session_replication_role = replica")
    for table, column in (("outcome", "action_id"), ("action", "id"), ("outbox", "id")):
        conn.execute(AGE.format(table=table, column=column).encode())
    conn.execute("UPDATE outbox SET action_id = id WHERE type = 'call'")
    conn.execute("SET session_replication_role = origin")
    conn.execute("UPDATE box SET watermark = uuid_floor(clock_timestamp() - interval '1 h')")
    let_time_pass(conn)


def let_time_pass(conn: psycopg.Connection) -> None:
    """The slower duties of the sweep are due."""
    conn.execute("UPDATE box SET swept_at = clock_timestamp() - interval '1 min'")


def bury(conn: psycopg.Connection, *hands: Hands) -> None:
    """As if the lease of these owners had passed."""
    for owner in hands:
        conn.execute(
            "UPDATE worker SET lease_until = clock_timestamp() - interval '1 s' WHERE owner = %s", [owner.owner]
        )


@pytest.fixture(autouse=True)
def _an_old_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of 0.2 s: a server that was just started condemns nobody before a lease's time."""
    init = Hands.__init__
    monkeypatch.setattr(Hands, "__init__", lambda self, conn, tools, lease: init(self, conn, tools, "1 s"))
    monkeypatch.setattr(Hands, "claim", _renewing(Hands.claim))


def _renewing(claim: Any) -> Any:
    def renewed(self: Hands, ids: Any) -> Any:
        self.conn.execute("SELECT renew(%s, '{}', false)", [self.owner])
        return claim(self, ids)

    return renewed


def test_the_sweep_repeats_under_the_same_key_inside_the_window(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5 I6 I7
    keyed, free = commit(box, "r", pay(), lookup(order="1"))
    with shop.hands() as a, shop.hands() as b:
        a.claim([keyed, free])
        sent = row(conn, keyed, "first_sent_at")
        assert b.claim([keyed]) == {keyed: ("running", None)}  # an expired lease is not the claim's business
        bury(conn, a)
        assert b.claim([keyed]) == {keyed: ("running", None)}
        swept = {id_: status for duty, _, id_, status in b.sweep() if duty == "condemned"}
        assert swept == {keyed: "pending", free: "pending"}
        assert row(conn, keyed, "status, unsettled, owner, first_sent_at") == ("pending", True, None, sent)
        assert b.claim([keyed]) == {keyed: ("claimed", 2)}
        assert row(conn, keyed, "first_sent_at") == sent
        assert b.finish(keyed, 2, result={"id": "x"}) == "recorded"
        assert row(conn, keyed, "status, unsettled") == ("done", False)
    bytes_ = conn.execute("SELECT DISTINCT payload, key FROM outbox WHERE action_id = %s AND type = 'call'", [keyed])
    assert len(bytes_.fetchall()) == 1  # I13: what is emitted again are the first bytes


def test_past_the_window_a_key_is_not_trusted(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I7 I9
    (id_,) = commit(box, "r", pay())
    with shop.hands() as a, shop.hands() as b:
        a.claim([id_])
        conn.execute("UPDATE outcome SET first_sent_at = clock_timestamp() - interval '23 h 55 min'")
        bury(conn, a)
        assert [s for duty, _, _, s in b.sweep() if duty == "condemned"] == ["in_doubt"]
        assert row(conn, id_, "status, unsettled, next_at::text") == ("in_doubt", True, "infinity")


def test_a_pending_call_past_its_window_is_not_claimed_and_is_closed_by_the_sweep(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I9 I16
    never_sent, unsettled = commit(box, "r", pay(1), pay(2))
    conn.execute("UPDATE outcome SET first_sent_at = clock_timestamp() - interval '2 days'")
    conn.execute("UPDATE outcome SET unsettled = true, attempt = 1 WHERE action_id = %s", [unsettled])
    with shop.hands() as hands:
        assert {verdict for verdict, _ in hands.claim([never_sent, unsettled]).values()} == {"expired"}
        conn.execute("UPDATE outcome SET next_at = clock_timestamp()")
        assert {(id_, s) for duty, _, id_, s in hands.sweep() if duty == "expired"} == {
            (never_sent, "gave_up"),
            (unsettled, "in_doubt"),
        }
    assert conn.execute(
        "SELECT type, count(*) FROM outbox WHERE type IN ('result', 'dead') GROUP BY 1 ORDER BY 1"
    ).fetchall() == [
        ("dead", 1),
        ("result", 2),
    ]


@pytest.mark.parametrize("final", ["gave_up", "done", "refused"])
def test_an_unsettled_call_never_becomes_final_without_knowledge(
    box: Deedbox, shop: Shop, conn: psycopg.Connection, final: str
) -> None:  # I16
    (id_,) = commit(box, "r", pay())
    with shop.hands() as hands:
        hands.claim([id_])
        hands.finish(id_, 1, "unknown", error={"reason": "read timeout"}, delay="10 s")
        conn.execute("UPDATE outcome SET next_at = clock_timestamp() - interval '1 s'")
        assert ("retried", id_, "pending") in [(d, i, s) for d, _, i, s in hands.sweep()]
        hands.claim([id_])
        if final == "gave_up":
            hands.finish(id_, 2, "gave_up", error={"reason": "attempts"})
            assert row(conn, id_, "status, unsettled") == ("in_doubt", True)
        else:
            hands.finish(id_, 2, final, result={"id": "x"}, unsettled=False)
            assert row(conn, id_, "status, unsettled") == (final, False)
    for status in ("cancelled", "gave_up", "rejected", "refused", "done"):
        with pytest.raises(psycopg.errors.CheckViolation, match="unsettled_stays_open"):
            conn.execute("UPDATE outcome SET status = %s, unsettled = true", [status])


def test_one_that_holds_its_lock_and_lease_is_not_condemned(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5
    (id_,) = commit(box, "r", pay())
    with shop.hands() as alive, shop.hands() as other:
        alive.claim([id_])
        stalled = "clock_timestamp() - interval '1 min', lease_until = clock_timestamp() + interval '1 min'"
        conn.execute(f"UPDATE worker SET renewed_at = {stalled}")
        assert other.sweep() == []
        alive.conn.close()  # a killed process frees its lock at once
        _until(lambda: [s for d, _, _, s in other.sweep() if d == "condemned"] == ["pending"])
        assert row(conn, id_) == "pending"


def _until(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true within 30 s")


def test_a_running_call_whose_owner_is_nowhere_is_judged(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5
    """procrastinate-org/procrastinate#1518: the sweeper joined to a worker's row that was deleted."""
    (id_,) = commit(box, "r", pay())
    with shop.hands() as a, shop.hands() as b:
        a.claim([id_])
        conn.execute("DELETE FROM worker WHERE owner = %s", [a.owner])
        age(conn)
        assert [s for d, _, _, s in b.sweep() if d == "condemned"] == ["pending"]
        assert conn.execute("SELECT status FROM outcome").fetchall() == [("pending",)]


AGE = """
UPDATE {table} SET {column} = (
  lpad(to_hex(('x0000' || left(replace({column}::text, '-', ''), 12))::bit(64)::bigint - 600000), 12, '0')
  || substr(replace({column}::text, '-', ''), 13))::uuid
"""


def test_given_back_is_pending_again_with_a_new_emission(
    box: Deedbox, shop: Shop, conn: psycopg.Connection
) -> None:  # I5
    (id_,) = commit(box, "r", pay())
    with shop.hands() as hands:
        hands.claim([id_])
        assert hands.finish(id_, 1, "pending") == "recorded"
        assert row(conn, id_, "status, unsettled, owner") == ("pending", False, None)
        assert hands.claim([id_]) == {id_: ("claimed", 2)}
    assert conn.execute("SELECT attempt FROM outbox WHERE type = 'call' ORDER BY id").fetchall() == [(1,), (2,)]


def test_an_owner_that_was_judged_dead_cannot_go_on(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I8
    (id_,) = commit(box, "r", pay())
    with shop.hands() as a, shop.hands() as b:
        a.claim([id_])
        bury(conn, a)
        b.sweep()
        assert a.conn.execute("SELECT renew(%s, '{}', false)", [a.owner]).fetchone() == (False,)
        assert a.claim([id_]) == {id_: ("no_lease", None)}


def test_sweeps_do_not_stand_in_each_others_way(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:
    """Facts A4: there is no leader that could stop for ever; a sweep holds its lock for one transaction."""
    commit(box, "r", pay())
    conn.execute("UPDATE outcome SET status = 'retry', next_at = clock_timestamp()")
    with shop.hands() as a, shop.hands() as b:
        with a.conn.transaction():
            assert [duty for duty, *_ in a.sweep()] == ["retried"]
            assert b.sweep() == []


def test_events_are_avro_and_tell_what_the_rows_tell(box: Deedbox, shop: Shop, conn: psycopg.Connection) -> None:  # I13
    ids = commit(box, "r", pay(), pay(2))
    with shop.hands() as hands:
        hands.claim(ids)
        hands.finish(ids[0], 1, result={"id": "é" * 300})
        hands.finish(ids[1], 1, "refused", error={"code": "card_declined", "message": "no"})
    schemas = {
        bytes(mark): json.loads(text) for mark, text in conn.execute("SELECT fingerprint, schema::text FROM avro")
    }
    for mark, schema in schemas.items():
        assert fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO") == mark.hex()
    read: list[tuple[str, Any]] = []
    events = conn.execute("SELECT type, payload FROM outbox WHERE type IN ('step', 'result') ORDER BY id")
    for type_, payload in events:
        assert payload[:2] == b"\xc3\x01"
        rest = io.BytesIO(payload[10:])
        read.append((type_, fastavro.schemaless_reader(rest, schemas[payload[2:10]], None)))
        assert rest.read() == b""
    steps = [datum for type_, datum in read if type_ == "step"]
    results = [datum for type_, datum in read if type_ == "result"]
    assert [step["kind"] for step in steps] == ["input", "decision"]
    assert json.loads(steps[0]["messages"]) == HELLO
    assert json.loads(results[0]["result"]) == {"id": "é" * 300}
    assert (results[1]["status"], json.loads(results[1]["error"])["code"]) == ("refused", "card_declined")
    when = conn.execute("SELECT first_sent_at, finished_at FROM outcome ORDER BY action_id").fetchall()
    assert [(r["first_sent_at"], r["finished_at"]) for r in results] == when


@settings(max_examples=200, deadline=None)
@given(n=st.integers(0, 2**20 - 1))
def test_the_ledgers_varints_are_avros(database_url: str, n: int) -> None:  # I13
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, {"type": "int"}, n)
    assert _encoders(database_url).execute("SELECT pg_temp.avro_int(%s)", [n]).fetchone() == (sink.getvalue(),)


_open: list[psycopg.Connection] = []


def _encoders(url: str) -> psycopg.Connection:
    if not _open:
        conn = psycopg.connect(url, autocommit=True)
        text = next(m.text for m in migrations() if m.name == "0002_events")
        start = text.index("CREATE FUNCTION avro_int")
        conn.execute(
            text[start : text.index("-- A moment")].replace("FUNCTION avro_int", "FUNCTION pg_temp.avro_int").encode()
        )
        _open.append(conn)
    return _open[0]


@pytest.fixture(scope="module", autouse=True)
def _close() -> Any:
    yield
    while _open:
        _open.pop().close()
