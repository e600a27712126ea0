"""`deedbox worker` and `deedbox sweep` as a person and an orchestrator meet them: signals, /livez, /metrics."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest

from deedbox import Deedbox
from tests.support.fleet import PATIENCE, decide, outcomes, status, wait_until
from tests.support.shop import MONEY, TOOLS, Shop, charge, lookup, mail, payout, wire

ROOT = Path(__file__).resolve().parents[2]
DEEDBOX = str(Path(sys.executable).with_name("deedbox"))


class Process:
    """A process of the command, and what it logs."""

    def __init__(self, words: list[str], folder: Path) -> None:
        environment = os.environ | {"BUSY": str(folder), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [DEEDBOX, *words], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._folder = folder
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    @property
    def requests(self) -> Counter[str]:
        """How often each call was performed."""
        file = self._folder / "requests"
        return Counter(file.read_text().splitlines() if file.exists() else ())

    def said(self, pattern: str) -> str:
        """What a line of the log says, once it does."""
        wait_until(lambda: re.search(pattern, self.log) or self.process.poll() is not None)
        found = re.search(pattern, self.log)
        assert found is not None, self.log
        return found[1]

    def ask(self, path: str) -> tuple[int, str]:
        """GET, from the address that it logged."""
        port = self.said(r"/livez and /metrics are answered on port (\d+)")
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as reply:
                return reply.status, reply.read().decode()
        except HTTPError as reply:
            with reply:
                return reply.code, reply.read().decode()

    def end(self) -> int:
        """SIGTERM, once."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def close(self) -> None:
        """Whatever it does."""
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)


Start = Callable[..., Process]


@pytest.fixture
def box(shop: Shop) -> Iterator[Deedbox]:
    with Deedbox(shop.url, tools=[*TOOLS, *MONEY], schema=shop.schema) as box:
        yield box


@pytest.fixture
def start(shop: Shop, tmp_path: Path) -> Iterator[Start]:
    """Starts processes of the command; none outlives the test."""
    started: list[Process] = []

    def one(*words: str) -> Process:
        process = Process([*words, "--database-url", shop.url, "--schema", shop.schema], tmp_path)
        started.append(process)
        return process

    yield one
    for process in started:
        process.close()


def worker(start: Start, *more: str) -> Process:
    return start("worker", "tests.support.busy:handlers", "--source", "poll", *more)


def test_sigterm_with_calls_in_every_state_ends_in_order_and_loses_nothing(  # I5 I7
    box: Deedbox, conn: psycopg.Connection, start: Start, tmp_path: Path
) -> None:
    conn.execute("SELECT pause('pay_out', true, 'ann', NULL)")
    first = worker(start)
    running = decide(box, mail(to="a@x", text="mailed"), mail(to="a@x", text=""))  # the second is blocked
    waiting = decide(box, *(wire(customer="c", cents=cents) for cents in (1, 2, 3)))  # one has the slot
    limited = decide(box, *(charge(customer="c", cents=cents) for cents in (1, 2, 3)))  # one is over
    paused = decide(box, payout(customer="c", cents=1))
    wait_until(
        lambda: sorted(name.split()[0] for name in first.requests) == ["charge_customer", "send_mail", "wire_money"]
    )
    # One more is claimed at the very moment of the signal.
    assert outcomes(box, decide(box, lookup(order="end with the next claim"))) == ["done"]
    given_back = decide(box, lookup(order="o"))
    wait_until(lambda: status(conn, given_back) == ("pending", 1, False))
    (tmp_path / "mailed").touch()
    (tmp_path / "wired").touch()
    assert first.wait() == 0, first.log
    assert conn.execute("SELECT count(*) FROM worker").fetchone() == (0,)
    ended = {run.id: [status(conn, run, at)[:2] for at in range(len(run.journal.calls))] for run in (running, waiting)}
    assert sorted(ended[running.id]) == [("done", 1), ("pending", 0)]
    assert sorted(ended[waiting.id]) == [("done", 1), ("pending", 0), ("pending", 0)]
    emitted = (
        "SELECT a.run_id, count(*) FROM outbox b JOIN action a ON a.id = b.action_id WHERE b.type = 'call' GROUP BY 1"
    )
    again: dict[str, int] = dict(conn.execute(emitted).fetchall())
    assert again[given_back.id] == 2
    assert (again[running.id], again[waiting.id], again[limited.id], again[paused.id]) == (2, 3, 3, 1)

    conn.execute("SELECT pause('pay_out', false, 'ann', NULL)")
    second = worker(start)
    for run in (running, waiting, paused, given_back):
        assert set(outcomes(box, run)) == {"done"}
    wait_until(lambda: sum(status(conn, limited, at)[0] == "done" for at in range(3)) == 2)  # its one of this hour
    assert second.end() == 0, second.log
    assert set(second.requests.values()) == {1}
    assert len(second.requests) == 2 + 3 + 2 + 1 + 2


def test_a_second_sigterm_ends_at_once_whatever_blocks_the_loop(  # I5
    box: Deedbox, conn: psycopg.Connection, start: Start
) -> None:
    one = worker(start)
    run = decide(box, mail(to="a@x", text="blocked for ever"))
    wait_until(lambda: one.requests)

    def end() -> bool:
        one.process.terminate()  # more than twice: signals of one kind may be merged into one
        return one.process.poll() is not None

    wait_until(end)
    assert one.process.returncode == 1
    assert status(conn, run)[0] == "running"  # until the sweep has judged it


def test_one_that_cannot_go_on_says_why_and_ends_whatever_blocks_a_thread(
    box: Deedbox, conn: psycopg.Connection, start: Start
) -> None:
    one = worker(start)
    decide(box, payout(customer="c", cents=1, memo="never"))
    wait_until(lambda: one.requests)
    conn.execute("DROP FUNCTION pending")
    assert one.wait() == 1
    assert "1 handlers still block a thread" in one.log
    assert "Traceback" in one.log
    assert "UndefinedFunction" in one.log


def test_livez_and_metrics_of_a_worker_and_a_loop_that_is_blocked(box: Deedbox, start: Start, tmp_path: Path) -> None:
    one = worker(start, "--health-port", "0")
    assert outcomes(box, decide(box, mail(to="a@x", text=""))) == ["done"]
    code, told = one.ask("/livez")
    assert (code, json.loads(told)["status"]) == (200, "alive")
    performed = {f"handle {tool.name}" for tool in (*TOOLS, wire, payout)}
    assert set(json.loads(told)["parts"]) == {"loop", "sweep", "poll"} | performed
    code, counted = one.ask("/metrics")
    assert code == 200
    assert 'deedbox_outcomes_total{status="done",tool="send_mail"} 1.0' in counted
    assert 'deedbox_running{tool="send_mail"} 0.0' in counted
    run = decide(box, mail(to="a@x", text="block until"))
    wait_until(lambda: one.ask("/livez")[0] == 503)
    assert "loop" in json.loads(one.ask("/livez")[1])["stuck"]
    (tmp_path / "block until").touch()
    wait_until(lambda: one.ask("/livez")[0] == 200)
    assert outcomes(box, run) == ["done"]
    assert one.end() == 0


def test_livez_and_metrics_of_the_sweep(box: Deedbox, shop: Shop, conn: psycopg.Connection, start: Start) -> None:
    with shop.hands() as hands:
        run = decide(box, charge(customer="c", cents=1))
        ((id_, attempt),) = hands.take().items()
        hands.finish(id_, attempt, "retry", error={"reason": "later"})
    conn.execute("UPDATE outcome SET next_at = now()")
    sweep = start("sweep", "--health-port", "0")
    wait_until(lambda: status(conn, run)[0] == "pending")
    code, told = sweep.ask("/livez")
    assert (code, set(json.loads(told)["parts"])) == (200, {"sweep"})
    assert 'deedbox_sweep_total{duty="retried"} 1.0' in sweep.ask("/metrics")[1]
    assert sweep.ask("/healthz")[0] == 404
    assert sweep.end() == 0, sweep.log
