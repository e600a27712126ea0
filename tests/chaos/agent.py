"""An agent process of the chaos: many runs beside each other, each commits a row of its own with every decision."""

from __future__ import annotations

import itertools
import queue
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg import sql

from deedbox import Deedbox, user
from deedbox.errors import Unsettled
from tests.chaos.plan import Plan
from tests.chaos.worker import arm
from tests.support.shop import asks, says

PLACES: Final = ("before_commit", "after_commit")
PAUSE: Final = 0.2  # seconds before Postgres is asked again
PATIENCE: Final = timedelta(seconds=1)  # of one wait for open calls, then the agent looks whether it is to end

# Not idempotent on purpose: a decision that is committed twice is seen.
TABLE: Final = "CREATE TABLE balance (run text PRIMARY KEY, spent int NOT NULL DEFAULT 0)"
SPEND: Final = """
INSERT INTO {schema}.balance VALUES (%(run)s, 1) ON CONFLICT (run) DO UPDATE SET spent = balance.spent + 1
"""
UNFINISHED: Final = """
SELECT r.id FROM {schema}.run r WHERE starts_with(r.id, %(prefix)s)
AND NOT EXISTS (SELECT FROM {schema}.step s WHERE s.run_id = r.id AND s.kind = 'decision' AND s.width = 0)
ORDER BY r.created_at, r.id
"""
HOW_MANY: Final = "SELECT count(*) FROM {schema}.run r WHERE starts_with(r.id, %(prefix)s)"


def spend(conn: psycopg.Connection, schema: str, run: str) -> None:
    """The caller's own row of a decision."""
    conn.execute(sql.SQL(SPEND).format(schema=sql.Identifier(schema)), {"run": run})


class Agent:
    """Drives the runs `{prefix}0`, `{prefix}1` … ; those that its predecessor left come first.

    A run in doubt waits for a person: it is left where it is.
    """

    def __init__(self, url: str, schema: str, prefix: str, plan: Plan, pause: float) -> None:
        self.url = url
        self.schema = schema
        self.prefix = prefix
        self.plan = plan
        self.pause = pause
        self.stopping = threading.Event()
        self._tools = plan.tools

    def work(self, beside: int, runs: int | None) -> None:
        """Drive `runs` runs in all (None: new ones until it is stopped), so many beside each other."""
        todo: queue.Queue[Iterator[str]] = queue.Queue()
        with Deedbox(self.url, tools=self._tools, schema=self.schema) as box:
            left, begun = self._find()
            fresh = (f"{self.prefix}{n}" for n in (itertools.count(begun) if runs is None else range(begun, runs)))
            todo.put(itertools.chain(left, fresh))
            drivers = [threading.Thread(target=self._take, args=[box, todo]) for _ in range(beside)]
            for driver in drivers:
                driver.start()
            for driver in drivers:
                while driver.is_alive():
                    driver.join(0.5)  # a signal may come to another thread: it is handled when this one wakes

    def _take(self, box: Deedbox, todo: queue.Queue[Iterator[str]]) -> None:
        while not self.stopping.is_set():
            runs = todo.get()  # one at a time goes on with the iterator
            run = next(runs, None)
            todo.put(runs)
            if run is None:
                return
            self._drive(box, run)
            self.stopping.wait(self.pause)

    def _drive(self, box: Deedbox, run_id: str) -> None:
        """Until it is finished, or in doubt, or we are to stop."""
        while not self.stopping.is_set():
            try:
                self._go_on(box, run_id)
            except Unsettled as problem:
                if problem.status == "in_doubt":
                    return
            except psycopg.OperationalError:  # the commit may have come through: the journal knows
                time.sleep(PAUSE)
            else:
                return

    def _go_on(self, box: Deedbox, run_id: str) -> None:
        run = box.run(run_id, messages=[user(f"go on with {run_id}")], patience=PATIENCE)
        for turn in run:
            calls = self.plan.decide(run_id, turn.number, self._tools)
            with turn.transaction(asks(*calls) if calls else says("done")) as conn:
                spend(conn, self.schema, run_id)

    def _find(self) -> tuple[list[str], int]:
        """The runs that are not finished, and how many there are in all. Asked until Postgres answers."""
        names: dict[str, Any] = {"schema": sql.Identifier(self.schema)}
        while True:
            try:
                with psycopg.connect(self.url, autocommit=True) as conn:
                    given = {"prefix": self.prefix}
                    left = conn.execute(sql.SQL(UNFINISHED).format(**names), given).fetchall()
                    row = conn.execute(sql.SQL(HOW_MANY).format(**names), given).fetchone()
            except psycopg.OperationalError:
                time.sleep(PAUSE)
            else:
                return [run for (run,) in left], row[0] if row else 0


def main(
    url: str,
    schema: str,
    prefix: str,
    seed: int,
    names: list[str],
    runs: int | None = None,
    beside: int = 4,
    pause: float = 0.0,
    turns: int = 2,
    width: int = 3,
    place: str = "",
    how: str = "SIGKILL",
) -> None:
    """Drive runs; SIGTERM lets the turns under way end."""
    arm(place, how)
    agent = Agent(url, schema, prefix, Plan(seed, tuple(names), turns, width), pause)
    signal.signal(signal.SIGTERM, lambda *_: agent.stopping.set())
    agent.work(beside, runs)
