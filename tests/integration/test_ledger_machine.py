"""The ledger under whatever can happen to it: a stateful test on a real Postgres."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Literal, LiteralString, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from deedbox import Deedbox, user
from deedbox.errors import PlanDivergence, StepTaken
from tests.support.clock import DAWN, Clock
from tests.support.laws import Laws, Row
from tests.support.machine import EFFECTS, MOODS, Attempt, Mood, Worker, World
from tests.support.shop import MONEY, TOOLS, Shop, charge, lookup, mail, open_shop, payout, refund, ship, wire

T = TypeVar("T")

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
ALTER SEQUENCE drawn_ids RESTART;
UPDATE box SET watermark = uuid_floor(told_time()), mark_xid = pg_current_xact_id(), mark_at = told_time(),
               swept_at = told_time(), scanned_at = told_time(), pruned = '00000000-0000-0000-0000-000000000000';
UPDATE tool SET paused = false;
"""


def pick(data: st.DataObject, what: str, among: Iterable[T]) -> T:
    """One of these; the report of a failure names it."""
    names = {str(one): one for one in among}
    return names[data.draw(st.sampled_from(list(names)), label=what)]


def some(data: st.DataObject, what: str, among: Iterable[T]) -> list[T]:
    """A few of these, perhaps one twice."""
    names = {str(one): one for one in among}
    return [
        names[name] for name in data.draw(st.lists(st.sampled_from(list(names)), min_size=1, max_size=4), label=what)
    ]


def _run_of(row: Row) -> str:
    return row.key.partition(":")[0]


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
    tool: Any = {
        "charge": charge,
        "lookup": lookup,
        "mail": mail,
        "wire": wire,
        "refund": refund,
        "payout": payout,
        "ship": ship,
    }[name]
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
        self.aborted: set[str] = set()

    @initialize(
        source=st.sampled_from(["poll", "kafka"]),
        attempts=st.sampled_from([1, 2, 3, 10]),
        give_up_after=st.sampled_from(["24 h", "30 days"]),
        expires=st.sampled_from([None, None, "30 min"]),
        workers=st.integers(1, 3),
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
    )
    def begin(
        self,
        source: Literal["poll", "kafka"],
        attempts: int,
        give_up_after: str,
        expires: str | None,
        workers: int,
        names: list[str],
    ) -> None:
        tools = "UPDATE tool SET attempts = %s, give_up_after = %s, expires = %s"
        self.conn.execute(tools, [attempts, give_up_after, expires])
        self.world = World(self.conn, self.ground.clock, source=source)
        self.laws = Laws(self.world)
        for _ in range(workers):
            self.world.hire()
        self._commit(names, 1)

    # ---- agents

    @precondition(lambda self: len(self.world.deeds) < 6)
    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), drivers=st.integers(1, 2))
    def commit(self, names: list[str], drivers: int) -> None:
        self._commit(names, drivers)

    def _commit(self, names: list[str], drivers: int) -> None:
        self.runs += 1
        run = f"run-{self.runs}"
        calls = [make(name, self.runs + place) for place, name in enumerate(names)]
        turns = [next(iter(self.ground.box.run(run, messages=[user("go")]))) for _ in range(drivers)]
        with self.conn.transaction():
            turns[0].commit(on=self.conn, calls=calls)
        self.world.committed(run)
        self.stale += [(run, turn, calls) for turn in turns[1:]]

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), other=st.booleans())
    def commit_again(self, data: st.DataObject, other: bool) -> None:  # I3
        """A driver that was late decides the same, or something else."""
        _, turn, calls = pick(data, "turn", self.stale)
        if other:
            calls = [*calls[:-1], make("wire", 999)]
        with pytest.raises(PlanDivergence if other else StepTaken), self.conn.transaction():
            turn.commit(on=self.conn, calls=calls)

    @precondition(lambda self: any(row.open for row in self.laws.rows.values()))
    @rule(data=st.data(), abort=st.booleans())
    def withdraw(self, data: st.DataObject, abort: bool) -> None:  # I16
        """A run is cancelled, or aborted: what was surely not sent is closed, and nothing else is touched."""
        before = self.laws.look()
        goes_on = {name for name in map(_run_of, before.values()) if name not in self.aborted}
        if not goes_on:
            return
        name = pick(data, "run", sorted(goes_on))
        run = self.ground.box.run(name)
        if abort:
            run.abort()
            self.aborted.add(name)
        else:
            run.cancel()
        for row in self.laws.look().values():
            was = before[row.id]
            if _run_of(row) == name and was.status in ("pending", "retry") and not was.unsettled:
                assert row.status == "cancelled"
            else:
                assert row.said == was.said

    # ---- workers

    def some(self, *states: str) -> list[Worker]:
        return [worker for worker in self.world.workers if worker.state in states]

    def attempts(self, fit: Callable[[Attempt], object]) -> list[Attempt]:
        return [attempt for attempt in self.world.attempts if fit(attempt)]

    def actors(self) -> list[Worker | Attempt]:
        """Who can go on: workers that can claim, and attempts that are not at their end."""
        pending = any(row.status == "pending" for row in self.laws.rows.values())
        return [*(self.some("working") if pending else []), *self.attempts(self._moves)]

    def _work(self, data: st.DataObject, moves: int) -> None:
        for _ in range(moves):
            if not (actors := self.actors()):
                return
            actor = pick(data, "who", actors)
            if isinstance(actor, Worker):
                self._claim(actor, self.world.known(actor))
            else:
                self._move(data, actor)
            self.laws.check()

    # Thrice, so that work goes on in nearly every example: some of the rules are left out in each.
    _worked = rule(data=st.data(), moves=st.integers(1, 5))
    _workable = precondition(lambda self: self.actors())
    work, work_on, work_further = _workable(_worked(_work)), _workable(_worked(_work)), _workable(_worked(_work))

    def _moves(self, attempt: Attempt) -> list[str]:
        worker = attempt.worker.state
        moves = ["ask" if attempt.probe else "send"] if self.world.may_send(attempt) else []
        moves += ["hear"] if worker != "dead" and self.world.flights_of(attempt) else []
        return moves + (["say"] if worker == "working" and self.world.words(attempt) else [])

    def _move(self, data: st.DataObject, attempt: Attempt) -> None:
        match pick(data, "does", self._moves(attempt)):
            case "send":
                self.world.send(attempt)
            case "ask":
                self.world.ask(attempt)
            case "hear":
                (flight,) = self.world.flights_of(attempt)
                note(self.world.arrive(flight, data.draw(st.sampled_from(MOODS), label="mood"), heard=True))
            case _:
                word = pick(data, "word", self.world.words(attempt))
                self._report(attempt, word, data.draw(st.sampled_from(DELAYS), label="delay"))

    @precondition(lambda self: self.some("working"))
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        """Records come twice, late, and of calls that nobody knows."""
        deeds = some(data, "calls", self.world.deeds.values())
        self._claim(pick(data, "worker", self.some("working")), [*(deed.id for deed in deeds), uuid4()])

    def _claim(self, worker: Worker, ids: list[UUID]) -> None:
        before = self.laws.look()
        said = self.world.claim(worker, ids)
        note(str(sorted((str(self.world.deeds.get(id_)), verdict) for id_, (verdict, _) in said.items())))
        for id_, (verdict, probe) in said.items():
            assert (verdict == "absent") == (id_ not in before)
            if verdict == "claimed":
                assert before[id_].status == "pending"  # I7
                assert before[id_].probe == probe

    @precondition(lambda self: self.world.flights)
    @rule(data=st.data(), mood=st.sampled_from(MOODS))
    def arrive(self, data: st.DataObject, mood: Mood) -> None:
        """A request arrives, and nobody hears the answer."""
        note(self.world.arrive(pick(data, "flight", self.world.flights), mood, heard=False))

    def _report(self, attempt: Attempt, word: str, delay: timedelta) -> None:
        before = self.laws.look()[attempt.deed.id]
        verdict, status = self.world.report(attempt, word, delay)
        note(f"{verdict}: {status}")
        self._fenced(attempt, verdict, before, self.laws.look()[attempt.deed.id])

    @precondition(lambda self: self.attempts(lambda a: a.said and a.worker.state == "working"))
    @rule(data=st.data())
    def report_twice(self, data: st.DataObject) -> None:
        """The answer to a report got lost."""
        attempt = pick(data, "attempt", self.attempts(lambda a: a.said and a.worker.state == "working"))
        before = self.laws.look()[attempt.deed.id]
        verdict, _ = self.world.repeat(attempt)
        assert verdict != "recorded"
        assert self.laws.look()[attempt.deed.id]._replace(late=before.late) == before

    def _fenced(self, attempt: Attempt, verdict: str, before: Row, after: Row) -> None:  # I8
        running = before.status == "running" and (before.owner, before.attempt) == (attempt.owner, attempt.number)
        assert (verdict == "recorded") == running
        if running:
            return
        word = attempt.said[-1]["status"]
        waits = before.status in ("in_doubt", "pending", "retry")
        own = before.unsettled and before.performed == attempt.number
        settles = waits and (own or (word in ("done", "gave_up") and before.performed <= attempt.number))
        if not settles or word not in ("done", "refused", "gave_up"):
            assert after._replace(late=before.late) == before, "it changed what is another's"
        kept = after.late > before.late or after.said != before.said
        assert kept or word == "pending", "what it knew is not kept"

    # ---- what happens to workers

    @precondition(lambda self: len(self.some("working", "stopped", "cut")) < 3)
    @rule()
    def hire(self) -> None:
        self.world.hire()

    @precondition(lambda self: self.some("working", "stopped", "cut"))
    @rule(data=st.data())
    def trouble(self, data: st.DataObject) -> None:
        worker = pick(data, "worker", self.some("working", "stopped", "cut"))
        does = [self.world.stop, self.world.cut] if worker.state == "working" else [self.world.wake]
        acts = {act.__name__: act for act in (*does, self.world.kill)}
        acts[pick(data, "act", acts)](worker)

    # ---- the clock and the sweep

    @rule(data=st.data(), off=st.sampled_from([0, -1, 1]), mood=st.sampled_from([None, *MOODS]))
    def time_passes(self, data: st.DataObject, off: int, mood: Mood | None) -> None:
        """A while, or until about a moment that means something."""
        now = self.world.now
        to = pick(data, "to", [*(now + jump for jump in JUMPS), *self._moments()]) + off * SECOND
        self.world.forward(max(to, now + SECOND), mood)

    def _moments(self) -> list[Any]:
        now, found = self.world.now, set()
        for row in self.laws.rows.values():
            if not row.open:
                continue
            effect, deadline = EFFECTS[row.tool], timedelta(minutes=1)
            found.add(row.next_at)
            if row.claimed_at:
                found |= {row.claimed_at + deadline, row.claimed_at + deadline + 10 * SECOND}
            if row.until:
                found.add(row.until + (effect.settle_after or timedelta(0)))
            if row.first_sent_at and effect.window:
                found |= {
                    row.first_sent_at + effect.window,
                    row.first_sent_at + effect.window - (effect.margin or timedelta(0)) - deadline,
                }
            if row.first_sent_at:
                found.add(row.first_sent_at + timedelta(hours=24))
        found |= {flight.until for flight in self.world.flights}
        return sorted(moment for moment in found if moment is not None and moment > now)

    @rule(bit_by_bit=st.booleans())
    def sweep(self, bit_by_bit: bool) -> None:
        note(str(self._sweep(bit_by_bit=bit_by_bit)))

    def _sweep(self, *, bit_by_bit: bool = False) -> list[Any]:
        """A turn; or as many as it takes with one call in each, since their order is nobody's affair."""
        turns, limit = (2 + 2 * len(self.world.deeds), 1) if bit_by_bit else (1, 1000)
        rows = []
        for _ in range(turns):
            rows += self.conn.execute("SELECT duty, id, status FROM sweep(%s)", [limit]).fetchall()
        assert not [row for row in rows if row[0] == "found"]
        return sorted(rows)

    # ---- operators

    def _quiet(self, id_: UUID) -> bool:
        """Nothing is under way that could still make it happen: what the books say is the last word."""
        world = self.world
        return not any(flight.deed.id == id_ for flight in world.flights) and not any(
            attempt.deed.id == id_ and world.might_send(attempt) for attempt in world.attempts
        )

    def acts(self) -> dict[str, Callable[[], object]]:
        """What an operator can do to calls: the truth, once nothing is under way, or another try at any time."""
        acts: dict[str, Callable[[], object]] = {}
        for row in self.laws.rows.values():
            if (row.unsettled or row.status == "gave_up") and self._quiet(row.id):
                acts[f"resolve {row.key}"] = partial(self._resolve, row.id)
            if row.status == "gave_up":
                acts[f"redrive {row.key}"] = partial(self._redrive, row.id, rekey=False)
                acts[f"redrive {row.key} under a new key"] = partial(self._redrive, row.id, rekey=True)
            if row.status in ("gave_up", "refused"):
                acts[f"drop {row.key}"] = partial(self._drop, row.id)
        return acts

    @precondition(lambda self: self.acts())
    @rule(data=st.data())
    def operate(self, data: st.DataObject) -> None:
        acts = self.acts()
        note(str(acts[pick(data, "act", acts)]()))

    def _resolve(self, id_: UUID) -> object:
        """A person looked into the provider's books."""
        key = self.world.deeds[id_].key
        happened = '{"id": "seen"}' if self.world.provider.effects[key] else None
        return self._ask("SELECT resolve(%s, %s::json, 'ann', NULL)", key, happened)

    def _redrive(self, id_: UUID, *, rekey: bool) -> object:
        return self._ask("SELECT verdict FROM redrive(%s, %s, 'ann', NULL)", [id_], rekey)

    def _drop(self, id_: UUID) -> object:
        return self._ask("SELECT verdict FROM drop_dead(%s, 'ann', NULL)", [id_])

    def _ask(self, query: LiteralString, *values: object) -> object:
        row = self.conn.execute(query, values).fetchone()
        assert row is not None
        return row[0]

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
                self._drop(row.id)
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
        for jump in [
            *[SECOND * 31] * 6,
            *[timedelta(minutes=11)] * 6,
            *[timedelta(hours=1)] * 6,
            *[timedelta(hours=25)] * 8,
        ]:
            while self._perform(worker):
                pass
            if not [row for row in self.laws.rows.values() if row.open and not self._person_s(row.id)]:
                return
            world.forward(world.now + jump, None)
            self._sweep()
            self.laws.check()
        raise AssertionError(
            f"nothing moves {[row for row in self.laws.rows.values() if row.open and not self._person_s(row.id)]}"
        )

    def _perform(self, worker: Worker) -> bool:
        claimed = [
            id_
            for id_, (verdict, _) in self.world.claim(worker, self.world.known(worker)).items()
            if verdict == "claimed"
        ]
        for attempt in self.attempts(lambda a: a.worker is worker and a.at == "claimed"):
            if attempt.probe:
                self.world.ask(attempt)
            else:
                self.world.send(attempt)
                for flight in self.world.flights_of(attempt):
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
        stops = row.tool == "ship" and not before.passed and before.status in ("gave_up", "refused")
        return stops or (before.open and self._person_s(before.id))


@pytest.fixture
def ground(database_url: str) -> Iterator[Ground]:
    """Without autovacuum: its transactions hold the watermark back, and what happens is to happen again."""
    with open_shop(database_url) as shop, shop.connect() as conn:
        conn.execute("ALTER SYSTEM SET autovacuum = off")
        conn.execute("SELECT pg_reload_conf()")
        ground = Ground(shop)
        try:
            with ground.conn, ground.box:
                yield ground
        finally:
            conn.execute("ALTER SYSTEM RESET autovacuum")
            conn.execute("SELECT pg_reload_conf()")


def test_the_ledger_holds_whatever_happens_to_it(ground: Ground) -> None:  # I3 I5 I7 I8 I9 I10 I16
    examples = int(os.environ.get("DEEDBOX_EXAMPLES", "0"))
    chosen = settings(
        max_examples=examples or 40,
        stateful_step_count=100 if examples else 40,
        derandomize=not examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        print_blob=True,
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(lambda: LedgerMachine(ground), settings=chosen)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # a maker will do
