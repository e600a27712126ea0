"""The protocol as a model: one call, its agent, the relay, two workers, the sweep, a provider, and the clock.

A step is one transaction of the ledger, or one thing done outside of it. Between two steps anything else may happen:
a pause is a part that takes no step while the others and the clock do; a crash is a step of its own. Neither is
counted, and neither are duplicates. Canonical forms move "now" to zero and forget what no rule can tell apart any
more, so the states are finitely many although time has no end.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from docs.model.ledger import FINAL, Ledger, Row, Rules, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Steps = Iterator[tuple[str, "State"]]


class Worker(NamedTuple):
    """What a worker is at."""

    at: str = "idle"  # idle · lane: it will claim again · claimed · sent · asking · knows
    attempt: int = 0
    claimed: int = 0
    word: str = ""  # what it knows


class Flight(NamedTuple):
    """A request on its way."""

    attempt: int
    key: int
    until: int  # it arrives before this moment, or never


class Provider(NamedTuple):
    """The other side: how often it did it, and what it remembers under the last key."""

    effects: int = 0
    key: int = 0
    answer: str = ""
    until: int = 0


class State(NamedTuple):
    """Everything at one moment."""

    now: int = 0
    agent: str = "thinks"  # thinks · decided · gone
    row: Row | None = None  # as a transaction that begins now sees it
    logged: Row | None = None  # committed to the log, where the relay reads it, but not visible yet: locked
    record: bool = False  # the topic holds a record of the call
    workers: tuple[Worker, ...] = (Worker(), Worker())
    flights: tuple[Flight, ...] = ()
    provider: Provider = Provider()


IDLE = Worker()
LANE = Worker("lane")
# What can be said of an attempt without an answer: before it is sent, after it, and of a probe.
BLIND = {"claimed": ("given back", "retry"), "sent": ("unknown",), "asking": ("given back", "cannot_tell")}


class Protocol:
    """The model for one tool under some rules."""

    def __init__(self, tool: Tool, rules: Rules | None = None) -> None:
        self.tool = tool
        self.rules = rules or Rules()
        self.ledger = Ledger(tool, self.rules)
        self.initial = State()
        # The same few parts come back in most states.
        self._row = cache(self._canonical_row)
        self._workers = cache(self._canonical_workers)
        self._flights = cache(self._canonical_flights)
        self.laws: Mapping[str, Callable[[State, State], bool]] = {
            "once": lambda _, after: after.provider.effects < 2 or tool.harmless,
            "I1": lambda _, after: not after.provider.effects or after.row is not None,
            "I8": _fenced,
            "I9": _stamped,
            "I10": lambda before, after: status(before) not in FINAL or status(after) == status(before),
            "I16": lambda _, after: status(after) not in ("refused", "gave_up") or not after.provider.effects,
            "done": lambda _, after: status(after) != "done" or after.provider.effects > 0,
            "unsettled": _doubted,
        }

    def steps(self, state: State) -> Steps:
        """Everything that can happen next."""
        yield from self._agent(state)
        yield from self._sweep(state)
        for place, worker in enumerate(state.workers):
            yield from self._work(state, place, worker)
        for place in range(len(state.flights)):
            yield from self._arrive(state, place)
        later = state.now + 1
        yield "time passes", state._replace(now=later, flights=tuple(f for f in state.flights if later < f.until))

    def _agent(self, state: State) -> Steps:
        if state.agent == "thinks":
            yield "the agent dies before its commit", state._replace(agent="gone")
            decided = state._replace(agent="decided", logged=Row(), record=True)
            yield "the agent commits; the relay has it before it is visible", decided
        if state.logged is not None:
            yield "what was committed is visible", state._replace(row=state.logged, logged=None)
            if state.row is None:
                yield "the commit is lost in a failover", state._replace(agent="gone", logged=None)

    def _sweep(self, state: State) -> Steps:
        row, now, ledger = state.row, state.now, self.ledger
        if row is None or state.logged is not None:
            return
        if row.status == "running":
            # Its lease may have passed, or its deadline: how long they are makes no difference.
            ended = ledger.end_attempt(row, "cannot_tell" if row.ask else "unknown", now)
            yield f"the sweep judges attempt {row.attempt}", _emitted(state, ended)
        elif row.status == "in_doubt" and row.ask and not ledger.young(row, now):
            yield "the sweep leaves it to a person", state._replace(row=row._replace(ask=False))
        elif row.status == "retry" or (row.status == "in_doubt" and row.ask):
            yield "the sweep emits it", _emitted(state, row._replace(status="pending"))
        elif row.status == "pending" and not ledger.free(row, now):
            yield "the sweep sees its window over", _emitted(state, ledger.expired(row))
        elif row.status == "pending" and not state.record and self._looks_again(row):
            yield "the sweep emits it again", state._replace(record=True)

    def _looks_again(self, row: Row) -> bool:
        return self.rules.parks if row.attempt else self.rules.parks_fresh

    def _work(self, state: State, place: int, worker: Worker) -> Steps:
        name = "AB"[place]
        if worker.at == "idle":
            if state.record:
                yield from self._receive(state, place, name)
            return
        yield f"{name} dies", _at(state, place, IDLE)
        if worker.at == "lane":
            if state.row is not None and not self.ledger.free(state.row, state.now):
                yield f"{name} lets go of it", _at(state, place, IDLE)
            elif state.logged is None:
                yield self._claimed(state, place, f"{name} goes on")
            return
        if worker.at == "claimed" and self._may_send(state, worker):
            until = max(state.now, worker.claimed + self.tool.deadline) + self.tool.late
            flight = Flight(worker.attempt, state.row.key if state.row else 0, until)
            sent = _at(state, place, worker._replace(at="sent"))._replace(flights=(*state.flights, flight))
            yield f"{name} sends attempt {worker.attempt}", sent
        elif worker.at == "asking":
            word = "happened" if state.provider.effects else "absent"
            yield f"{name} asks: {word}", _at(state, place, worker._replace(at="knows", word=word))
        if state.logged is None:
            for word in BLIND.get(worker.at, (worker.word,)):
                yield from self._finish(state, place, f"{name} reports {word}", word)

    def _may_send(self, state: State, worker: Worker) -> bool:
        leased = state.logged is None and _runs(state.row, worker.attempt)
        in_time = state.now < worker.claimed + self.tool.deadline
        return (leased or not self.rules.checks_lease) and (in_time or not self.rules.checks_deadline)

    def _receive(self, state: State, place: int, name: str) -> Steps:
        row, taken = state.row, state._replace(record=False)
        if row is None:  # absent: asked for again, so nothing has changed
            if not self.rules.asks_again:
                yield f"{name} drops the record of a call that it cannot see", taken
            if not self.rules.reads_the_row:
                flight = Flight(1, 0, state.now + self.tool.deadline + self.tool.late)
                yield f"{name} performs what it cannot see", taken._replace(flights=(flight,))
        elif self.ledger.free(row, state.now):
            if state.logged is None:  # else the row is locked: asked for again
                yield self._claimed(taken, place, f"{name} takes the record")
                yield self._claimed(state, place, f"{name} takes a copy of the record")
        elif row.status == "running" and not self.rules.sweep_judges:
            yield self._claimed(taken, place, f"{name} takes the record, the lease having passed,")
        else:
            yield f"{name} drops the record of a {row.status} call", taken

    def _claimed(self, state: State, place: int, label: str) -> tuple[str, State]:
        assert state.row is not None
        row = self.ledger.claim(state.row, state.now)
        worker = Worker("asking" if row.ask else "claimed", row.attempt, state.now)
        label = f"{label} and claims attempt {row.attempt}{', to ask' if row.ask else ''}"
        return label, _at(state, place, worker)._replace(row=row)

    def _finish(self, state: State, place: int, label: str, word: str) -> Steps:
        row, attempt, ledger = state.row, state.workers[place].attempt, self.ledger
        idle = _at(state, place, IDLE)
        if row is None:
            return
        if self.rules.fence and not _runs(row, attempt):
            yield f"{label}, late", idle._replace(row=ledger.late(row, attempt, word))
            return
        after = ledger.report(row, word, state.now, 0)
        if after.status != "pending":
            yield label, idle._replace(row=after)
        elif word == "given back":
            yield label, _emitted(idle, after)
        else:
            if not (after.ask and word == "absent"):
                yield f"{label}; it goes on in its lane", _at(state, place, LANE)._replace(row=after)
            after = ledger.report(row, word, state.now, 1)
            if after.status == "pending":
                after = after._replace(status="retry")
            yield f"{label}; it may go on later", idle._replace(row=after)

    def _arrive(self, state: State, place: int) -> Steps:
        flight, flights = state.flights[place], state.flights
        for did, word, provider in self._answers(state.provider, flight.key, state.now):
            arrived = state._replace(flights=flights[:place] + flights[place + 1 :], provider=provider)
            label = f"attempt {flight.attempt} arrives: the provider {did}"
            yield f"{label}; the answer is lost", arrived
            for at, worker in enumerate(state.workers):
                if word and worker.at == "sent" and worker.attempt == flight.attempt:
                    yield label, _at(arrived, at, worker._replace(at="knows", word=word))

    def _answers(self, provider: Provider, key: int, now: int) -> Iterator[tuple[str, str, Provider]]:
        """What the provider can do with a request: the deed, what the worker reports of it, the provider then."""
        effects, until = provider.effects, now + self.tool.window
        if provider.answer and key == provider.key and now < provider.until:
            yield (
                f"replays that it {provider.answer}",
                {"failed": "stored"}.get(provider.answer, provider.answer),
                provider,
            )
            return
        yield "does it", "done", Provider(effects + 1, key, "done", until)
        yield "refuses", "refused", Provider(effects, key, "refused", until) if self.rules.key_keeps_no else provider
        yield "puts it off", "retry", provider
        if self.tool.window:  # without a key these are a lost answer, and a lost request
            yield "does it, and answers with a failure", "", Provider(effects + 1, key, "failed", until)
            yield "fails before it does it", "", Provider(effects, key, "failed", until)

    def ended(self, state: State) -> bool:
        """The call has its end, waits for a person, or was never decided."""
        row = state.row
        if row is None:
            return state.agent == "gone"
        return row.status in FINAL or (row.status == "in_doubt" and not row.ask)

    def canonical(self, state: State) -> State:
        """Now is zero, attempts are numbered without gaps, workers have no names, and what is over is forgotten."""
        now, row, workers, provider = state.now, state.row, state.workers, state.provider
        if status(state) in FINAL and self.rules.fence and self.rules.checks_lease:
            workers = (IDLE, IDLE)  # whatever they still do is late, and changes nothing
        numbers = {0, *[w.attempt for w in workers], *[f.attempt for f in state.flights]}
        for known in (row, state.logged):
            if known is not None:
                numbers |= {known.attempt, known.performed}
        order = tuple(sorted(numbers))
        key = row.key if row is not None else 0
        remembered = self.tool.window and provider.until > now
        effects = min(provider.effects, 2)
        return State(
            agent=state.agent,
            row=row and self._row(row, now, order),
            logged=state.logged and self._row(state.logged, now, order),
            record=state.record,
            workers=self._workers(workers, now, order),
            flights=self._flights(state.flights, now, order, key) if state.flights else (),
            provider=Provider(effects, provider.key - key, provider.answer, provider.until - now)
            if remembered
            else Provider(effects),
        )

    def _canonical_row(self, row: Row, now: int, order: tuple[int, ...]) -> Row:
        tool = self.tool
        first = row.first_sent
        if first is not None:
            first = max(first - now, -max(tool.window, tool.give_up_after))
        if row.status in FINAL and self.rules.fence:
            return Row(row.status, first_sent=first)
        settle = tool.deadline + tool.settle_after
        needed = tool.probe and (row.unsettled or row.status == "running")
        sent = max(row.sent - now, -settle) if needed else 0
        # Of a probe, only how long after the last send it was claimed makes a difference.
        claimed = sent + min(row.claimed - row.sent, settle) if row.ask and row.status == "running" else 0
        return row._replace(
            attempt=order.index(row.attempt),
            performed=order.index(row.performed),
            key=0,
            first_sent=first,
            sent=sent,
            claimed=claimed,
        )

    def _canonical_workers(self, workers: tuple[Worker, ...], now: int, order: tuple[int, ...]) -> tuple[Worker, ...]:
        forms = []
        for at, attempt, claimed, word in workers:
            since = max(claimed - now, -self.tool.deadline) if at == "claimed" else 0
            forms.append(Worker(at, order.index(attempt), since, word))
        return tuple(sorted(forms))

    def _canonical_flights(
        self, flights: tuple[Flight, ...], now: int, order: tuple[int, ...], key: int
    ) -> tuple[Flight, ...]:
        return tuple(sorted(Flight(order.index(f.attempt), f.key - key, f.until - now) for f in flights))


def status(state: State) -> str:
    """What the ledger shows of the call."""
    return "absent" if state.row is None else state.row.status


def _runs(row: Row | None, attempt: int) -> bool:
    return row is not None and row.status == "running" and row.attempt == attempt


def _at(state: State, place: int, worker: Worker) -> State:
    first, second = state.workers
    return state._replace(workers=(first, worker) if place else (worker, second))


def _emitted(state: State, row: Row) -> State:
    """A transaction that emits the call if it goes on: the relay reads the log before others see the row."""
    return state._replace(logged=row, record=True) if row.status == "pending" else state._replace(row=row)


def _fenced(before: State, after: State) -> bool:
    """No worker's step ends an attempt that is another's."""
    if before.row is None or before.row.status != "running" or before.row == after.row:
        return True
    moved = (was for was, now in zip(before.workers, after.workers, strict=True) if was != now)
    return all(was.attempt in (0, before.row.attempt) for was in moved) or _runs(after.row, before.row.attempt)


def _stamped(before: State, after: State) -> bool:
    """first_sent_at is there before anything is sent under its key, and stays."""
    was, now = before.row, after.row
    if was is not None and was.first_sent is not None and now is not None and now.key == was.key:
        return now.first_sent == was.first_sent
    return now is None or now.first_sent is not None or not any(f.key == now.key for f in after.flights)


def _doubted(_: State, after: State) -> bool:
    """A call that waits and is not unsettled has no effect, and nothing that could have one is on its way."""
    row = after.row
    if row is None or row.status == "running":
        return True
    if row.status in FINAL:
        return not row.unsettled
    return row.unsettled or not (after.provider.effects or after.flights)
