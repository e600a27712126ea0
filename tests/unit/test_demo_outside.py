"""The demo's world outside explains itself, and serves nothing by accident."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "deedbox_consumers.demo.outside"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--help"], 0, "BOOKS"),
        ([], 2, "BOOKS"),
        (["books.sqlite", "99999"], 2, "nothing can be served on port 99999"),
    ],
)
def test_it_explains_itself_and_leaves_no_books(tmp_path: Path, words: list[str], code: int, told: str) -> None:
    ended = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == code
    assert told in ended.stdout + ended.stderr
    assert list(tmp_path.iterdir()) == []
