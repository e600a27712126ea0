"""The ledger under whatever can happen to it: a stateful test on a real Postgres."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from deedbox import Deedbox, user
from deedbox.errors import PlanDivergence, StepTaken
from tests.support.clock import DAWN, Clock
from tests.support.laws import Laws
from tests.support.machine import MOODS, Attempt, Mood, Worker, World
from tests.support.shop import MONEY, TOOLS, Shop, charge, lookup, mail, open_shop, payout, refund, ship, wire

SECOND = timedelta(seconds=1)
DELAYS = [timedelta(0), SECOND, timedelta(seconds=10), timedelta(minutes=10), timedelta(hours=2)]
JUMPS = [SECOND, timedelta(seconds=30), timedelta(minutes=5), timedelta(hours=1), timedelta(days=1)]
NAMES = ["charge", "lookup", "mail", "wire", "refund", "payout", "ship"]

_RESET = """
SET session_replication_role = replica;
DELETE FROM run; DELETE FROM step; DELETE FROM action; DELETE FROM outcome; DELETE FROM outbox; DELETE FROM worker;
DELETE FROM tail; DELETE FROM late; DELETE FROM dead; DELETE FROM audit;
SET session_replication_role = origin;
SELECT pg_advisory_unlock_all();
UPDATE box SET watermark = uuid_floor(told_time()), mark_xid = pg_current_xact_id(), mark_at = told_time(), swept_at = told_time(),
               scanned_at = told_time(), pruned = '00000000-0000-0000-0000-000000000000';
UPDATE tool SET paused = false;
"""


class Ground:
    """The ledger on which the machines run, one after the other."""

    def __init__(self, shop: Shop) -> None:
        self.conn = shop.connect()
        self.conn.execute("SET synchronous_commit = off")
        self.clock = Clock(self.conn)
        self.box = Deedbox(shop.url, tools=[*TOOLS, *MONEY], schema=shop.schema)

    def clear(self) -> None:
        """Forget what the last machine did."""
        self.clock.set(DAWN)
        self.conn.execute(_RESET)


def make(name: str, number: int) -> Any:
    """A call; those of a tool with an order have one of two order keys."""
    tool = {"charge": charge, "lookup": lookup, "mail": mail, "wire": wire, "refund": refund, "payout": payout, "ship": ship}[name]
    if tool is lookup:
        return lookup(order=str(number))
    if tool in (mail, ship):
        return tool(to="ab"[number % 2], text=str(number))
    return tool(customer="c", cents=number + 1)


class LedgerMachine(RuleBasedStateMachine):
    """Agents, workers, operators, a provider and the clock, in any order."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        ground.clear()
        self.conn = ground.conn
        self.runs = 0
        self.stale: list[tuple[str, Any, list[Any]]] = []  # turns of drivers that are late

    @initialize(
        source=st.sampled_from(["poll", "kafka"]),
        attempts=st.sampled_from([1, 2, 3, 10]),
        give_up_after=st.sampled_from(["24 h", "30 days"]),
        expires=st.sampled_from([None, None, "30 min"]),
        workers=st.integers(1, 3),
    )
    def begin(self, source: Literal["poll", "kafka"], attempts: int, give_up_after: str, expires: str | None, workers: int) -> None:
        self.conn.execute("UPDATE tool SET attempts = %s, give_up_after = %s, expires = %s", [attempts, give_up_after, expires])
        self.world = World(self.conn, self.ground.clock, source=source)
        self.laws = Laws(self.world)
        for _ in range(workers):
            self.world.hire()

    # ---- agents

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
    def commit(self, names: list[str]) -> None:
        self.runs += 1
        run = f"run-{self.runs}"
        calls = [make(name, self.runs + place) for place, name in enumerate(names)]
        turns = [next(iter(self.ground.box.run(run, messages=[user("go")]))) for _ in range(2)]
        with self.conn.transaction():
            turns[0].commit(on=self.conn, calls=calls)
        self.world.committed(run)
        self.stale.append((run, turns[1], calls))

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), other=st.booleans())
    def commit_again(self, data: st.DataObject, other: bool) -> None:  # I3
        """A driver that was late decides the same, or something else."""
        run, turn, calls = data.draw(st.sampled_from(self.stale), label="turn")
        if other:
            calls = [*calls[:-1], make("wire", 999)]
        with pytest.raises(PlanDivergence if other else StepTaken), self.conn.transaction():
            turn.commit(on=self.conn, calls=calls)

    # ---- workers

    def worker(self, data: st.DataObject, *states: str) -> Worker:
        return data.draw(st.sampled_from([w for w in self.world.workers if w.state in states]), label="worker")

    def some(self, *states: str) -> bool:
        return any(worker.state in states for worker in self.world.workers)

    @precondition(lambda self: sum(w.state != "dead" for w in self.world.workers) < 4)
    @rule()
    def hire(self) -> None:
        self.world.hire()

    @precondition(lambda self: self.some("working") and self.world.deeds)
    @rule(data=st.data())
    def claim_known(self, data: st.DataObject) -> None:
        worker = self.worker(data, "working")
        self._claim(worker, self.world.known(worker))

    @precondition(lambda self: self.some("working") and self.world.deeds)
    @rule(data=st.data())
    def claim_any(self, data: st.DataObject) -> None:
        """Records come twice, late, and of calls that nobody knows."""
        worker = self.worker(data, "working")
        ids = data.draw(st.lists(st.sampled_from(list(self.world.deeds)), min_size=1, max_size=4), label="ids")
        self._claim(worker, [*ids, uuid4()])

    def _claim(self, worker: Worker, ids: list[UUID]) -> None:
        before = self.laws.look()
        for id_, (verdict, probe) in self.world.claim(worker, ids).items():
            assert (verdict == "absent") == (id_ not in before)
            if verdict == "claimed":
                assert before[id_].status == "pending"  # I7
                assert before[id_].probe == probe

    def attempts(self, fit: Any) -> list[Attempt]:
        return [attempt for attempt in self.world.attempts if fit(attempt)]

    @precondition(lambda self: self.attempts(self.world.may_send))
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(self.attempts(self.world.may_send)), label="attempt")
        if attempt.probe:
            self.world.ask(attempt)
        else:
            self.world.send(attempt)

    @precondition(lambda self: self.world.flights)
    @rule(data=st.data(), mood=st.sampled_from(MOODS), heard=st.booleans())
    def arrive(self, data: st.DataObject, mood: Mood, heard: bool) -> None:
        flight = data.draw(st.sampled_from(self.world.flights), label="flight")
        note(f"{flight.attempt}: {self.world.arrive(flight, mood, heard=heard)}")

    @precondition(lambda self: self.attempts(self.world.reports))
    @rule(data=st.data(), delay=st.sampled_from(DELAYS))
    def report(self, data: st.DataObject, delay: timedelta) -> None:
        attempt = data.draw(st.sampled_from(self.attempts(self.world.reports)), label="attempt")
        word = data.draw(st.sampled_from(self.world.words(attempt)), label="word")
        before = self.laws.look()[attempt.deed.id]
        verdict, status = self.world.report(attempt, word, delay)
        note(f"{verdict}: {status}")
        self._fenced(attempt, verdict, before)

    @precondition(lambda self: self.attempts(lambda a: a.said and a.worker.state == "working"))
    @rule(data=st.data())
    def report_twice(self, data: st.DataObject) -> None:
        said = self.attempts(lambda a: a.said and a.worker.state == "working")
        attempt = data.draw(st.sampled_from(said), label="attempt")
        before = self.laws.look()[attempt.deed.id]
        verdict, _ = self.world.repeat(attempt)
        assert verdict != "recorded"
        assert self.laws.look()[attempt.deed.id]._replace(late=before.late) == before

    def _fenced(self, attempt: Attempt, verdict: str, before: Any) -> None:  # I8
        after = self.laws.look()[attempt.deed.id]
        running = before.status == "running" and (before.owner, before.attempt) == (attempt.owner, attempt.number)
        assert (verdict == "recorded") == running
        if running:
            return
        settles = before.unsettled and before.status != "running" and before.attempt - before.probes == attempt.number
        if not settles or attempt.said[-1]["status"] not in ("done", "refused"):
            assert after._replace(late=before.late) == before
        kept = after.late > before.late or after.said != before.said
        assert kept or attempt.said[-1]["status"] == "pending" or verdict == "already"

    # ---- what happens to workers

    @precondition(lambda self: self.some("working", "stopped", "cut"))
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.world.kill(self.worker(data, "working", "stopped", "cut"))

    @precondition(lambda self: self.some("working"))
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        self.world.stop(self.worker(data, "working"))

    @precondition(lambda self: self.some("working"))
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        self.world.cut(self.worker(data, "working"))

    @precondition(lambda self: self.some("stopped", "cut"))
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        self.world.wake(self.worker(data, "stopped", "cut"))

    # ---- the clock and the sweep

    @rule(data=st.data(), off=st.sampled_from([0, -1, 1]), mood=st.sampled_from([None, *MOODS]))
    def time_passes(self, data: st.DataObject, off: int, mood: Mood | None) -> None:
        """A while, or until about a moment that means something."""
        now = self.world.now
        to = data.draw(st.sampled_from([*(now + jump for jump in JUMPS), *self._moments()]), label="to") + off * SECOND
        self.world.forward(max(to, now + SECOND), mood)

    def _moments(self) -> list[Any]:
        now, found = self.world.now, set()
        for row in self.laws.rows.values():
            if not row.open:
                continue
            effect, deadline = self._effect(row.tool), timedelta(minutes=1)
            found.add(row.next_at)
            if row.claimed_at:
                found |= {row.claimed_at + deadline, row.claimed_at + deadline + 10 * SECOND}
            if row.sent_at:
                found.add(row.sent_at + deadline + effect.settle_after)
            if row.first_sent_at and effect.window:
                found |= {row.first_sent_at + effect.window, row.first_sent_at + effect.window - effect.margin - deadline}
            if row.first_sent_at:
                found.add(row.first_sent_at + timedelta(hours=24))
        found |= {flight.until for flight in self.world.flights}
        return sorted(moment for moment in found if moment is not None and moment > now)

    def _effect(self, tool: str) -> Any:
        from tests.support.machine import EFFECTS

        return EFFECTS[tool]

    @rule(limit=st.sampled_from([1000, 1000, 1]))
    def sweep(self, limit: int) -> None:
        note(str(self._sweep(limit)))

    def _sweep(self, limit: int = 1000) -> list[Any]:
        rows = self.conn.execute("SELECT duty, id, status FROM sweep(%s)", [limit]).fetchall()
        assert not [row for row in rows if row[0] == "found"]
        return rows

    # ---- operators

    def _quiet(self, id_: UUID) -> bool:
        """Nothing is under way that could still make it happen: what the books say is the last word."""
        world = self.world
        return not any(flight.deed.id == id_ for flight in world.flights) and not any(
            attempt.deed.id == id_ and world.might_send(attempt) for attempt in world.attempts
        )

    def resolvable(self) -> list[UUID]:
        return [row.id for row in self.laws.rows.values() if (row.unsettled or row.status == "gave_up") and self._quiet(row.id)]

    @precondition(lambda self: self.resolvable())
    @rule(data=st.data())
    def resolve(self, data: st.DataObject) -> None:
        """A person looked into the provider's books."""
        id_ = data.draw(st.sampled_from(self.resolvable()), label="id")
        note(self._resolve(id_))

    def _resolve(self, id_: UUID) -> str:
        key = self.world.deeds[id_].key
        happened = '{"id": "seen"}' if self.world.provider.effects[key] else None
        row = self.conn.execute("SELECT resolve(%s, %s::json, 'ann', NULL)", [key, happened]).fetchone()
        assert row is not None
        return str(row[0])

    @precondition(lambda self: any(row.status == "gave_up" for row in self.laws.rows.values()))
    @rule(data=st.data(), rekey=st.booleans())
    def redrive(self, data: st.DataObject, rekey: bool) -> None:
        dead = [row.id for row in self.laws.rows.values() if row.status == "gave_up"]
        ids = data.draw(st.lists(st.sampled_from(dead), min_size=1, max_size=2), label="ids")
        note(str(self.conn.execute("SELECT * FROM redrive(%s, %s, 'ann', NULL)", [ids, rekey]).fetchall()))

    @precondition(lambda self: any(row.status in ("gave_up", "refused") for row in self.laws.rows.values()))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        ended = [row.id for row in self.laws.rows.values() if row.status in ("gave_up", "refused")]
        self.conn.execute("SELECT * FROM drop_dead(%s, 'ann', NULL)", [[data.draw(st.sampled_from(ended), label="id")]])

    @rule(name=st.sampled_from(["charge_customer", "refund"]), paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        self.conn.execute("SELECT pause(%s, %s, 'ann', NULL)", [name, paused])

    # ---- laws

    @invariant()
    def laws_hold(self) -> None:
        self.laws.check()

    def teardown(self) -> None:
        if not hasattr(self, "laws"):
            return
        if getattr(self, "failed", False):
            return
        self._drain()
        for row in self.laws.rows.values():
            if row.unsettled:
                assert self._resolve(row.id) in ("done", "gave_up")
        self.laws.check()
        for row in self.laws.rows.values():
            if row.status in ("gave_up", "refused"):
                self.conn.execute("SELECT * FROM drop_dead(%s, 'ann', NULL)", [[row.id]])
        self._drain()
        assert not [row for row in self.laws.rows.values() if row.open]

    def _drain(self) -> None:
        """All dies, what is under way gets lost, and a new worker does what there is to do, until nothing moves."""
        world = self.world
        self.conn.execute("SELECT pause(name, false, 'ann', NULL) FROM tool")
        for worker in world.workers:
            if worker.state != "dead":
                world.kill(worker)
        world.flights.clear()
        worker = world.hire()
        self.laws.check()
        for jump in [*[SECOND * 31] * 6, *[timedelta(minutes=11)] * 6, *[timedelta(hours=1)] * 6, *[timedelta(hours=25)] * 8]:
            while self._work(worker):
                pass
            if not [row for row in self.laws.rows.values() if row.open and not self._person_s(row.id)]:
                return
            world.forward(world.now + jump, None)
            self._sweep()
            self.laws.check()
        raise AssertionError(f"nothing moves {[row for row in self.laws.rows.values() if row.open and not self._person_s(row.id)]}")

    def _work(self, worker: Worker) -> bool:
        claimed = [id_ for id_, (verdict, _) in self.world.claim(worker, self.world.known(worker)).items() if verdict == "claimed"]
        for attempt in self.attempts(lambda a: a.worker is worker and a.at == "claimed"):
            if attempt.probe:
                self.world.ask(attempt)
            else:
                self.world.send(attempt)
                (flight,) = [f for f in self.world.flights if f.attempt is attempt]
                self.world.arrive(flight, "does it", heard=True)
            self.world.report(attempt, self.world.words(attempt)[0], timedelta(0))
        self.laws.check()
        return bool(claimed)

    def _person_s(self, id_: UUID) -> bool:
        """It waits for a person, or for one that does."""
        row = self.laws.rows[id_]
        if row.waits:
            return True
        before = self.laws.rows.get(row.after) if row.after else None
        if row.status != "pending" or before is None:
            return False
        stops = row.tool == "ship" and before.status in ("gave_up", "refused")
        return stops or (before.open and self._person_s(before.id))


@pytest.fixture
def ground(database_url: str) -> Iterator[Ground]:
    with open_shop(database_url) as shop:
        ground = Ground(shop)
        with ground.conn, ground.box:
            yield ground


def test_the_ledger_holds_whatever_happens_to_it(ground: Ground) -> None:  # I3 I5 I7 I8 I9 I10 I16
    examples = int(os.environ.get("DEEDBOX_EXAMPLES", "0"))
    chosen = settings(
        max_examples=examples or 40,
        stateful_step_count=60 if examples else 40,
        derandomize=not examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(lambda: LedgerMachine(ground), settings=chosen)
