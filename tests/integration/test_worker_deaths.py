"""Worker processes are killed and stopped at the worst moments, on a real Postgres."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from deedbox import Deedbox
from tests.support.fleet import PATIENCE, decide, outcomes, status, wait_until
from tests.support.shop import Shop, charge

ROOT = Path(__file__).resolve().parents[2]
LEASE = "2"  # seconds: short, so that tests need not wait for the usual 20

Start = Callable[..., "subprocess.Popen[bytes]"]


class Requests:
    """What worker processes asked of their provider: process, attempt and key of each."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def all(self) -> list[tuple[int, int, str]]:
        """All so far."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [(int(pid), int(number), key) for pid, number, key in (line.split() for line in lines)]


@pytest.fixture
def requests(tmp_path: Path) -> Requests:
    return Requests(tmp_path / "requests")


@pytest.fixture
def start(shop: Shop, requests: Requests) -> Iterator[Start]:
    """Starts worker processes; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def one(*more: str, crash_at: str = "", lease: str = LEASE) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.performer", shop.url, shop.schema, str(requests.file), lease]
        process = subprocess.Popen([*command, *more], cwd=ROOT, env=os.environ | {"DEEDBOX_CRASH_AT": crash_at})
        started.append(process)
        return process

    yield one
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


@pytest.mark.parametrize("place", ["before_claim", "after_claim", "before_effect"])
def test_killed_before_the_effect(box: Deedbox, start: Start, requests: Requests, place: str) -> None:  # I5 I7
    run = decide(box, charge(customer="c", cents=1))
    assert start(crash_at=place).wait(PATIENCE) == -signal.SIGKILL
    assert not requests.all
    start()
    assert outcomes(box, run) == ["done"]
    assert len(requests.all) == 1


@pytest.mark.parametrize("place", ["after_effect", "before_record"])
def test_killed_after_the_effect_before_the_record(  # I5 I6 I7
    box: Deedbox, start: Start, requests: Requests, place: str
) -> None:
    run = decide(box, charge(customer="c", cents=1))
    assert start(crash_at=place).wait(PATIENCE) == -signal.SIGKILL
    start()
    assert outcomes(box, run) == ["done"]
    (first, second) = requests.all
    assert [first[1], second[1]] == [1, 2]
    assert first[2] == second[2]


def test_killed_after_the_record_nothing_is_repeated(  # I5 I10
    box: Deedbox, start: Start, requests: Requests, conn: psycopg.Connection
) -> None:
    run = decide(box, charge(customer="c", cents=1))
    assert start(crash_at="after_record").wait(PATIENCE) == -signal.SIGKILL
    start()
    assert outcomes(box, run) == ["done"]
    assert len(requests.all) == 1
    assert status(conn, run) == ("done", 1, False)


def test_stopped_past_its_lease_before_the_effect_it_sends_nothing(  # I7 I8
    box: Deedbox, conn: psycopg.Connection, start: Start, requests: Requests
) -> None:
    run = decide(box, charge(customer="c", cents=1))
    stopped = start("stop_at=before_effect")
    wait_until(lambda: is_stopped(stopped))
    start()
    assert outcomes(box, run) == ["done"]
    stopped.send_signal(signal.SIGCONT)
    # Alive again, it must find out that it is dead to the ledger, and go on as another.
    wait_until(lambda: conn.execute("SELECT count(*) FROM worker WHERE lease_until > now()").fetchone() == (2,))
    stopped.terminate()
    assert stopped.wait(PATIENCE) == 0
    ((pid, number, _),) = requests.all
    assert pid != stopped.pid
    assert number == 2
    assert status(conn, run) == ("done", 2, False)


def test_stopped_past_its_lease_after_the_effect_what_it_knows_is_kept(  # I6 I8
    box: Deedbox, conn: psycopg.Connection, start: Start, requests: Requests
) -> None:
    """temporalio/sdk-python#1048: the attempt that timed out ran on, and its completion was rejected."""
    run = decide(box, charge(customer="c", cents=1))
    stopped = start("stop_at=after_effect")
    wait_until(lambda: is_stopped(stopped))
    start()
    assert outcomes(box, run) == ["done"]
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: conn.execute("SELECT attempt, status, settled FROM late").fetchall() == [(1, "done", False)])
    assert status(conn, run) == ("done", 2, False)
    assert len({key for _, _, key in requests.all}) == 1


def test_a_stopped_worker_holds_nothing_that_others_need(  # I5
    box: Deedbox, start: Start, requests: Requests
) -> None:
    stopped = start("stop_at=before_claim")
    run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 21)))
    wait_until(lambda: is_stopped(stopped))
    start()
    assert outcomes(box, run) == ["done"] * 20
    assert len(requests.all) == 20


def test_sigterm_drains_and_ends_with_0(
    box: Deedbox, start: Start, requests: Requests, conn: psycopg.Connection
) -> None:
    run = decide(box, charge(customer="c", cents=1))
    worker = start(lease="20")
    assert outcomes(box, run) == ["done"]
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert conn.execute("SELECT count(*) FROM worker").fetchone() == (0,)


def test_a_second_sigterm_ends_at_once_and_the_call_is_another_workers(  # I5 I7
    box: Deedbox, start: Start, requests: Requests
) -> None:
    run = decide(box, charge(customer="c", cents=1))
    worker = start("hang")
    wait_until(lambda: requests.all)

    def end() -> bool:
        worker.terminate()  # more than twice: signals of one kind may be merged into one
        return worker.poll() is not None

    wait_until(end)
    assert worker.returncode == 1
    start()
    assert outcomes(box, run) == ["done"]
    assert [number for _, number, _ in requests.all] == [1, 2]


def test_who_starts_again_is_another_owner_and_takes_up_what_was_left(  # I5 I7
    box: Deedbox, conn: psycopg.Connection, start: Start, requests: Requests
) -> None:
    """procrastinate-org/procrastinate#1518, janbjorge/pgqueuer#630, dbos-inc/dbos-transact-py#804: stuck for ever.

    A sweeper that found no worker's row, a pod that came back under its name, a recovery that ran only once.
    """
    run = decide(box, charge(customer="c", cents=1))
    first = start("hang")
    wait_until(lambda: requests.all)
    owners = "SELECT owner FROM worker ORDER BY renewed_at DESC LIMIT 1"
    before = conn.execute(owners).fetchone()
    first.kill()
    start()
    assert outcomes(box, run) == ["done"]
    assert conn.execute(owners).fetchone() != before
    assert [number for _, number, _ in requests.all] == [1, 2]


def test_the_command_finds_its_parts(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from deedbox_consumers import Handlers\nfrom tests.support.shop import lookup, Order\n"
        "handlers = Handlers()\n@handlers.handle(lookup)\ndef read(args, attempt):\n    return Order(status='paid')\n"
    )
    script = Path(sys.executable).with_name("deedbox")
    given = ["worker", "mine:handlers", "--source", "poll", "--database-url", shop.url, "--schema", shop.schema]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    worker = subprocess.Popen([script, *given], cwd=tmp_path, env=environment)
    try:
        with shop.connect() as conn:
            wait_until(lambda: conn.execute("SELECT tools FROM worker").fetchall() == [(["read_order"],)])
        worker.send_signal(signal.SIGINT)
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait()
