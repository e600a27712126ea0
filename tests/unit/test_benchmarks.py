"""The benchmark's own arithmetic: percentiles, limits, verdicts, the report."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console

from benchmarks import report, shop
from benchmarks.figures import Figure, at_least, at_most, percentile
from benchmarks.hops import hops
from benchmarks.processes import PROC, cpu_seconds
from deedbox.chat import openai_chat


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
