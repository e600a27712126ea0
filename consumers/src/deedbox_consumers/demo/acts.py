"""The acts: the naive agent, then the same agent on Deedbox while something is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox_consumers.demo.evidence import Evidence, Score, score
from deedbox_consumers.demo.witness import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deedbox_consumers.demo.player import Player
    from deedbox_consumers.demo.stage import Stage
    from deedbox_consumers.demo.timeline import Timeline
    from deedbox_consumers.demo.witness import Witness

KILL = "bold red"
CROWD = 8  # orders of the act in which Connect dies
BEFORE = 3  # of them committed when it does
PAUSE = 0.15  # seconds between two of them


class Story:
    """Plays the acts on a stage, one after the other; each gives its score."""

    def __init__(self, stage: Stage, witness: Witness, timeline: Timeline) -> None:
        self._stage = stage
        self._witness = witness
        self._timeline = timeline

    def tidy(self) -> None:
        """Let a worker finish what a demo that was stopped has left open: it is committed, so it is done."""
        if left := self._stage.open_calls():
            self._timeline.say(f"an earlier demo was stopped: its {left} open calls are finished first")
            with self._stage.worker(name="worker 0") as worker, self._timeline.waiting("worker 0 finishes them"):
                self._wait(lambda _: self._stage.open_calls() == 0, "the end of what was left open", worker)

    def naive(self) -> Score:
        """The agent that calls the tool, then saves, killed between the two."""
        title = "without Deedbox"
        self._timeline.head("1. Without Deedbox: the agent calls the tool, then saves; killed in between")
        seen, order = self._watch_one()
        agent = self._stage.naive(order, name="naive agent", crash_at="after_effect")
        agent.await_crash(PATIENCE)
        self._timeline.now("agent", "SIGKILL: it was charged, nothing was saved", KILL)
        agent = self._stage.naive(order, name="naive agent again")
        self._timeline.now("agent", "starts again from what was saved")
        agent.await_end(PATIENCE)
        self._wait(lambda seen: any(what == "closed" for what, _, _ in seen.said), "the end of the order", agent)
        return self._close("naive", title, seen, [order])

    def worker_killed(self) -> Score:
        """A worker killed after the provider answered and before the outcome was recorded."""
        title = "worker killed"
        self._timeline.head("2. On Deedbox: the worker is killed after the provider answered")
        seen, order = self._watch_one()
        worker = self._start_worker(1, crash_at="after_effect")
        agent = self._stage.agent(order, name="agent a")
        worker.await_crash(PATIENCE)
        self._timeline.now("worker 1", "SIGKILL: it was charged, nothing was recorded", KILL)
        self._worker(2)
        self._settle(agent)
        return self._close("worker_killed", title, seen)

    def agent_killed(self) -> Score:
        """An agent killed between the commit and its next step."""
        title = "agent killed"
        self._timeline.head("3. On Deedbox: the agent is killed between the commit and its next step")
        self._await_worker("worker 2")
        seen, order = self._watch_one()
        agent = self._stage.agent(order, name="agent b", crash_at="after_commit")
        agent.await_crash(PATIENCE)
        self._timeline.now("agent", "SIGKILL: it decided, it knows no outcome", KILL)
        agent = self._stage.agent(order, name="agent b again")
        self._timeline.now("agent", "starts again: the decision is in its journal")
        self._settle(agent)
        return self._close("agent_killed", title, seen)

    def connect_killed(self) -> Score:
        """Connect killed while calls are committed."""
        title = "Connect killed"
        self._timeline.head(f"4. On Deedbox: Kafka Connect is killed while {CROWD} orders are committed")
        orders = [self._stage.order() for _ in range(CROWD)]
        seen = self._witness.watch(orders, aloud=False)
        agent = self._stage.agent(*orders, f"--pause={PAUSE}", name="agent c")
        self._wait(lambda seen: seen.count("committed") >= BEFORE, "the first commits", agent)
        self._stage.stack.kill("connect")
        self._timeline.now("connect", f"SIGKILL, {self._progress(seen)}", KILL)
        self._wait(lambda seen: seen.count("committed") == CROWD, "the other commits", agent)
        self._timeline.now("agent", f"has gone on meanwhile: {self._progress(seen)}")
        with self._timeline.waiting("Connect starts again"):
            self._stage.stack.start("connect")
        with self._timeline.waiting("Debezium catches up"):
            self._wait(lambda seen: seen.count("in Kafka") == CROWD, "the calls in Kafka", agent)
        self._timeline.now("debezium", f"has caught up: {self._progress(seen)}")
        self._settle(agent)
        self._timeline.now("agent", f"has read every outcome: {self._progress(seen)}")
        return self._close("connect_killed", title, seen)

    # ---- pieces

    def _watch_one(self) -> tuple[Evidence, str]:
        order = self._stage.order()
        return self._witness.watch([order]), order

    def _start_worker(self, number: int, crash_at: str | None = None) -> Player:
        worker = self._worker(number, crash_at)
        self._await_worker(f"worker {number}")
        return worker

    def _worker(self, number: int, crash_at: str | None = None) -> Player:
        name = f"worker {number}"
        worker = self._stage.worker(name=name, crash_at=crash_at)
        self._witness.worker = name
        self._timeline.now(name, "starts")
        return worker

    def _await_worker(self, name: str) -> None:
        with self._timeline.waiting(f"Kafka gives {name} its partitions"):
            self._stage.await_worker(name, PATIENCE)

    def _settle(self, agent: Player) -> None:
        with self._timeline.waiting("the agent waits for the outcome"):
            agent.await_end(PATIENCE)
            self._wait(lambda seen: seen.settled, "the end of the orders", agent)

    def _wait(self, condition: Callable[[Evidence], bool], what: str, agent: Player) -> None:
        self._witness.wait(condition, what, agent.log)

    def _close(self, name: str, title: str, seen: Evidence, decisions: Sequence[str] | None = None) -> Score:
        with self._witness.still():
            figures = score(name, title, seen, decisions or [call.order for call in seen.calls.values()])
        self._timeline.verdict(_verdict(figures), good=figures.once)
        return figures

    def _progress(self, seen: Evidence) -> str:
        return ", ".join(f"{seen.count(hop)} {hop}" for hop in ("committed", "in Kafka", "performed"))


def _verdict(figures: Score) -> str:
    requests = "1 request" if figures.requests == 1 else f"{figures.requests} requests"
    if not figures.once:
        times = "twice" if figures.charges == 2 else f"{figures.charges} times"
        return f"{figures.decisions} decided, charged {times}; the provider saw {requests}"
    charged = "charged once" if figures.decisions == 1 else f"{figures.decisions} orders, each charged once"
    return f"{charged}; the provider saw {requests}"
