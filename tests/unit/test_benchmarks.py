"""The benchmark's own arithmetic: percentiles, limits, verdicts, the report."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from rich.console import Console

from benchmarks import report, shop
from benchmarks.fates import Fate
from benchmarks.figures import Figure, at_least, at_most, percentile
from benchmarks.hops import hops
from benchmarks.killed import Aftermath, aftermath, taken_up
from benchmarks.processes import PROC, cpu_seconds
from benchmarks.relay import LOOPBACK, Relay
from benchmarks.slow import Spent
from benchmarks.stuck import notice
from deedbox.chat import openai_chat
from deedbox_consumers.testing import attempt


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 5), (0.9, 9), (0.91, 10), (0.99, 10), (1, 10)])
def test_a_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == expected


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_a_figure_is_the_median_of_its_runs() -> None:
    assert Figure("rate", "/s", [1, 100, 3]).median == 3


def test_a_bar_that_is_broken_fails_the_run() -> None:
    assert Figure("commits", "", [0.51], at_most(0.5, bar=True)).breaks_bar
    assert Figure("HOT", "%", [94.9], at_least(95, bar=True)).breaks_bar


def test_a_bar_holds_at_its_very_value() -> None:
    assert not Figure("commits", "", [0.5], at_most(0.5, bar=True)).breaks_bar
    assert not Figure("HOT", "%", [95], at_least(95, bar=True)).breaks_bar


def test_one_bad_run_of_three_breaks_no_bar() -> None:
    assert not Figure("commits", "", [0.4, 0.9, 0.4], at_most(0.5, bar=True)).breaks_bar


def test_an_aim_that_is_missed_fails_nothing() -> None:
    figure = Figure("p50", "ms", [80], at_most(15))
    assert figure.holds is False
    assert not figure.breaks_bar
    assert report.verdict(figure) == "not met"


def test_the_verdict_says_what_happened() -> None:
    assert report.verdict(Figure("p50", "ms", [80])) == ""
    assert report.verdict(Figure("p50", "ms", [8], at_most(15))) == "met"
    assert report.verdict(Figure("commits", "", [1], at_most(0.5, bar=True))) == "BROKEN"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.384, "0.38"), (11.64, "11.6"), (100.4, "100"), (2361.2, "2,361"), (15.0, "15")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert report.number(value) == text


def test_the_table_shows_raw_values_and_limits() -> None:
    shown = Console(file=io.StringIO(), width=120)
    shown.print(report.table([Figure("p50", "ms", [11.9, 12.4, 11.5], at_most(15))]))
    assert isinstance(shown.file, io.StringIO)
    line = shown.file.getvalue().splitlines()[-1].split()
    assert line == ["p50", "11.9", "ms", "11.9", "12.4", "11.5", "aim", "≤", "15", "met"]


def test_the_report_is_one_json_object_with_raw_values() -> None:
    figures = [Figure("p50", "ms", [11, 12, 13], at_most(15)), Figure("commits", "", [0.6], at_most(0.5, bar=True))]
    made = json.loads(json.dumps(report.as_json(figures, [0.5], 10)))
    assert made["bars_hold"] is False
    assert made["figures"][0] == {
        "name": "p50",
        "unit": "ms",
        "median": 12,
        "raw": [11, 12, 13],
        "limit": {"sense": "<=", "value": 15, "bar": False},
        "holds": True,
    }


def test_hops_add_up_to_what_the_agent_saw() -> None:
    rows = [("b", 2.1, 2.3, 2.4, 2.5), ("a", 1.1, 1.3, 1.4, 1.5)]
    made = hops(rows, {"a": 1.2, "b": 2.2}, [(1.0, 1.05, 1.6), (2.0, 2.05, 2.6)])
    whole = made.pop("commit → handler")
    assert whole == pytest.approx([0.4, 0.4])
    assert [sum(parts) for parts in zip(*made.values(), strict=True)] == pytest.approx([0.6, 0.6])


def test_without_a_broker_a_claim_follows_the_row() -> None:
    made = hops([("a", 1.1, 1.3, 1.4, 1.5)], {}, [(1.0, 1.05, 1.6)])
    assert "row written → broker" not in made
    assert made["broker → claim"] == pytest.approx([0.2])


def test_arguments_have_the_size_that_is_stated() -> None:
    made = [shop.arguments(number) for number in range(3)]
    assert {len(shop.charge(**each).stored.encode()) for each in made} == {shop.ARGS_SIZE}
    assert made[0] != made[1]


def test_a_reply_asks_for_valid_calls() -> None:
    asked = openai_chat.calls(shop.reply(range(4)))
    assert [shop.charge.parse(each.arguments).tool for each in asked] == [shop.charge] * 4


def test_a_slow_call_is_as_large_as_the_others() -> None:
    made = shop.slow_call(shop.ship, 7, seconds=1.0, until="/a/file", books="/another", customer="cus_stuck")
    assert len(made.stored.encode()) == shop.ARGS_SIZE
    assert made.order_key == "cus_stuck"


def test_a_slow_call_is_noted_at_once_and_lasts_until_its_file_is_there(tmp_path: Path) -> None:
    books, until = tmp_path / "books", tmp_path / "until"
    args = shop.slow_call(shop.wire, 1, until=str(until), books=str(books)).args

    async def perform() -> None:
        performing = asyncio.create_task(shop.take_time(args, attempt(key="box:run:1:0")))
        await asyncio.sleep(0)
        assert books.exists()
        assert not performing.done()
        until.touch()
        await performing

    asyncio.run(perform())
    assert books.read_text() == "run:1:0\n"


def test_the_ideal_is_the_calls_own_time_and_that_of_the_commits() -> None:
    assert Spent(alone=0.6, done=2.3, connections=5).ideal == pytest.approx(1.6)


def fate(tool: str, status: str, attempts: int, at: float | None = None, key: str = "run:1:0") -> Fate:
    """A call that was claimed, or ended if it is in doubt, at this moment."""
    ended = status in {"done", "in_doubt"}
    return Fate(uuid4(), key, tool, status, attempts, None if ended and attempts == 1 else at, at if ended else None)


def test_a_call_is_taken_up_when_it_is_begun_again_or_named() -> None:
    assert taken_up(fate("settle_invoice", "running", 1, 10.0)) is None
    assert taken_up(fate("settle_invoice", "pending", 1, 10.0)) is None
    assert taken_up(fate("settle_invoice", "running", 2, 18.0)) == 18.0
    assert taken_up(fate("wire_money", "in_doubt", 1, 17.0)) == 17.0
    assert taken_up(fate("wire_money", "done", 1, 9.0)) is None


def test_the_aftermath_counts_the_lost_and_the_repeats() -> None:
    found = [
        fate("settle_invoice", "done", 2, 18.0, "a"),
        fate("settle_invoice", "running", 1, 9.0, "b"),
        fate("wire_money", "in_doubt", 1, 17.0, "c"),
    ]
    made = aftermath(10.0, found, {"a": 2, "b": 1, "c": 1})
    assert made == Aftermath(seconds=8.0, lost=1, keyed=2, unrepeatable=1)


def test_what_was_not_begun_again_took_no_time() -> None:
    found = [fate("settle_invoice", "running", 1, 9.0), fate("wire_money", "running", 1, 9.0)]
    assert aftermath(10.0, found, {}) == Aftermath(seconds=0.0, lost=2, keyed=0, unrepeatable=0)


def test_a_call_that_is_not_done_was_held_up() -> None:
    done, waiting = fate("ship_parcel", "done", 1, 3.5), fate("ship_parcel", "pending", 0)
    began: dict[UUID | None, float] = {done.id: 3.0, waiting.id: 3.0, uuid4(): 3.0}  # one is not even there
    noticed = notice(began, [done, waiting])
    assert (noticed.took, noticed.undone, noticed.p99) == ([0.5], 2, 500.0)


def test_a_relay_does_not_tell_the_server_that_its_client_has_gone() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        with Relay(listener.getsockname()[1]) as relay:
            gone, its_server = through(relay, listener)
            gone.close()
            for _ in range(3):  # long enough for the relay to see it
                client, server = through(relay, listener)
                client.close()
                server.close()
            its_server.setblocking(False)
            with pytest.raises(BlockingIOError):
                its_server.recv(100)
            its_server.settimeout(10)
        assert its_server.recv(100) == b""
        its_server.close()


def through(relay: Relay, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection through the relay that has carried something each way."""
    client = socket.create_connection((LOOPBACK, relay.port), timeout=10)
    listener.settimeout(10)
    server, _ = listener.accept()
    server.settimeout(10)
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    return client, server


@pytest.mark.skipif(not PROC.is_dir(), reason="CPU of other processes is read from Linux' /proc")
def test_the_cpu_of_children_counts() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    before = cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive = cpu_seconds(os.getpid())
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
    assert alive - before >= 0.25
    assert cpu_seconds(os.getpid()) >= alive
