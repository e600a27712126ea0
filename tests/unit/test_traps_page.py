"""docs/traps.md is complete: every trap has tests, and every test exists and names its trap's thread."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAPS = 22
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
LINK = re.compile(r"\[([\w.-]+/[\w.-]+)#(\d+)\]\(https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)\)")
TEST = re.compile(r"`(\w+/\w+\.py)::(\w+)`")

ROWS = ROW.findall((ROOT / "docs/traps.md").read_text())


def docstrings(file: Path) -> dict[str, str]:
    """The tests of a file, and what they say of themselves."""
    tree = ast.parse(file.read_text())
    tests = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return {test.name: ast.get_docstring(test) or "" for test in tests if test.name.startswith("test_")}


def test_no_trap_is_left_out() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, TRAPS + 1))


@pytest.mark.parametrize(("number", "threads", "trap", "right", "tests"), ROWS, ids=lambda value: value[:40])
def test_its_tests_exist_and_name_its_thread(number: str, threads: str, trap: str, right: str, tests: str) -> None:
    links = LINK.findall(threads)
    assert links
    assert all(link[:2] == link[2:] for link in links)
    named = TEST.findall(tests)
    assert named
    assert TEST.sub("", tests).strip() == ""
    told = {f"{file}::{name}": docstrings(ROOT / "tests" / file)[name] for file, name in named}
    sources = [f"{repository}#{thread}" for repository, thread, *_ in links]
    untold = [test for test, text in told.items() if not any(_is_named(source, text) for source in sources)]
    assert not untold
    unproven = [source for source in sources if not any(_is_named(source, text) for text in told.values())]
    assert not unproven


def _is_named(source: str, text: str) -> bool:
    """As owner/name#1, or after such a one of the same repository as "and #2"."""
    repository, thread = source.split("#")
    pattern = rf"{re.escape(repository)}(?:#\d+ and )?\s?#{thread}\b"
    return re.search(pattern, text) is not None
