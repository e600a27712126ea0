"""How commands print: nothing that a person needs is cut, and nothing obeys what others wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import typer

from deedbox.cli import show
from deedbox.cli.moments import moment

AT = datetime(2026, 11, 30, 21, 4, 11, 123456, UTC)


@pytest.fixture(params=[40, 80, 120, None], ids=lambda columns: f"{columns} columns")
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Screens of several widths, and a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if request.param:
        monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def test_times_are_short_and_in_utc() -> None:
    assert show.moment(AT) == show.moment("2026-11-30 21:04:11.123456+00") == "2026-11-30 21:04:11Z"
    assert show.moment(AT.astimezone(timezone(timedelta(hours=5, minutes=30)))) == "2026-11-30 21:04:11Z"
    assert show.moment(None) is None


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (timedelta(hours=24), "24h"),
        (timedelta(days=7), "7d"),
        (timedelta(minutes=1), "1m"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=1, minutes=5), "1h5m"),
        (timedelta(milliseconds=250), "0.25s"),
        (timedelta(0), "0s"),
        (None, None),
    ],
)
def test_lengths_of_time(length: timedelta | None, told: str | None) -> None:
    assert show.span(length) == told


@pytest.mark.parametrize("text", ["90s", "30m", "2h", "7d", "4w", " 2h "])
def test_an_age_is_so_long_ago(text: str) -> None:
    found = moment(text)
    assert found is not None
    assert found < datetime.now(UTC)


def test_a_moment_without_an_offset_is_in_utc() -> None:
    assert moment("2026-11-30") == datetime(2026, 11, 30, tzinfo=UTC)
    assert moment("2026-11-30T21:04:11") == datetime(2026, 11, 30, 21, 4, 11, tzinfo=UTC)
    assert moment("2026-11-30T22:04:11+01:00") == datetime(2026, 11, 30, 21, 4, 11, tzinfo=UTC)
    assert moment(None) is None


@pytest.mark.parametrize("text", ["", "yesterday", "2x", "2h ago", "-2h", "999999w", "٢h"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no moment"):
        moment(text)


def test_a_table_is_a_line_a_row_where_it_fits(columns: Any, capsys: pytest.CaptureFixture[str]) -> None:
    show.table(["run", "status", "calls"], [("a", "running", 1), ("bcd", None, 20)])
    assert capsys.readouterr().out == "run  status   calls\na    running  1\nbcd  -        20\n"


def test_no_value_of_a_table_is_cut_or_broken(columns: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["x", "y" * 36, "z"]
    rows = [(name, "charge_customer", show.moment(AT), "it is a long story " * 8) for name in names]
    show.table(["call", "tool", "decided", "why"], rows)
    out = capsys.readouterr().out
    for name, tool, at, _ in rows:
        assert name in out
        assert tool in out
        assert str(at) in out
    assert out.count("story") == 24
    assert max(map(len, out.splitlines())) <= (columns or 1000)
    if columns is None:
        assert len(out.splitlines()) == 4


def test_one_long_name_does_not_break_the_table_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    show.table(["run", "status", "calls"], [("a", "running", 1), ("b" * 45, "running", 2), ("c", "running", 3)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["run", "status", "calls"],
        ["a", "running", "1"],
        ["b" * 45],
        ["running", "2"],
        ["c", "running", "3"],
    ]
    assert {line.index("running") for line in lines if "running" in line} == {lines[0].index("status")}


def test_facts_are_wrapped_beside_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show.facts([("call", "r:1:0"), ("reason", "words " * 12), ("nothing", None), ("empty", "")])
    assert capsys.readouterr().out.splitlines() == [
        "call    r:1:0",
        "reason  words words words words words",
        "        words words words words words",
        "        words words",
        "empty",
    ]


def test_what_others_wrote_is_not_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    told = "red \x1b[31m bell \a back \r next \n turn \u202e half \udcff"
    show.line(told.replace("\n", ""))
    show.table(["a"], [(told,)])
    show.facts([("a", told)])
    out = capsys.readouterr().out
    assert not {"\x1b", "\a", "\r", "\u202e", "\udcff"} & set(out)
    assert "red \\x1b[31m bell \\x07 back \\r next" in out
    assert "\\u202e half \\udcff" in out
    assert len(out.splitlines()) == 4


def test_json_is_json_whatever_the_screen_can_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"text": "größer \udcff", "at": AT}
    show.as_json(value)
    assert json.loads(capsys.readouterr().out) == {"text": "größer \udcff", "at": "2026-11-30T21:04:11.123456Z"}
