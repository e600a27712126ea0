"""Where the parts are found: given, in the environment, or in what a local stack left here or above."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deedbox.errors import BrokenSettings, MissingSetting, WrongSetting
from deedbox.settings import Settings


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working directory two folders below an empty one, and an environment that says nothing."""
    for name in ("DATABASE_URL", "SCHEMA", "PREFIX", "KAFKA", "CONNECT_URL"):
        monkeypatch.delenv(f"DEEDBOX_{name}", raising=False)
    below = tmp_path / "shop" / "agent"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return tmp_path


def _leave(folder: Path, text: str) -> None:
    (folder / ".deedbox").mkdir()
    (folder / ".deedbox" / "settings.json").write_text(text)


def test_the_nearest_local_stack_is_found_from_a_folder_below_it(empty: Path) -> None:
    _leave(empty, json.dumps({"database_url": "postgresql://far"}))
    assert Settings.load().database_url == "postgresql://far"
    _leave(empty / "shop", json.dumps({"database_url": "postgresql://near"}))
    assert Settings.load().database_url == "postgresql://near"
    assert Settings.load("postgresql://given").database_url == "postgresql://given"


def test_the_environment_stands_before_the_local_stack(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _leave(empty, json.dumps({"database_url": "postgresql://local"}))
    monkeypatch.setenv("DEEDBOX_DATABASE_URL", "postgresql://told")
    assert Settings.load().database_url == "postgresql://told"


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_settings_cut_short_are_named_with_what_to_do(empty: Path, text: str) -> None:
    _leave(empty, text)
    with pytest.raises(BrokenSettings, match=r"settings\.json cannot be read .*stack up"):
        Settings.load()


def test_what_is_nowhere_and_what_cannot_be_used_are_named() -> None:
    with pytest.raises(MissingSetting, match="DEEDBOX_DATABASE_URL"):
        Settings.load().need("database_url")
    with pytest.raises(WrongSetting):
        Settings.load(schema="Not a name")
