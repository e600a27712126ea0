"""The gate's own tools see what they are there to see, and this checkout is as they want it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools import invariants, locks, public, sql_only_in_sql

ROOT = Path(__file__).parents[2]
DISTS = ("producer", "debezium", "consumers")
HASH = "--hash=sha256:" + "0" * 64


def project(dist: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / dist / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def seen(source: str) -> list[str]:
    return [one.text for one in sql_only_in_sql.find(source, Path("sample.py"))]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "  SELECT\\n  id FROM outbox",
        "INSERT INTO outbox VALUES (1)",
        "UPDATE outcome SET status = 'done'",
        "DELETE FROM outbox",
        "WITH due AS (SELECT 1) SELECT 2",
        "CREATE TABLE box (id text)",
        "LISTEN deedbox",
        "SET LOCAL search_path TO deedbox",
        "COMMIT",
        " WHERE id = %s",
        " RETURNING id",
    ],
)
def test_a_planted_statement_is_found(statement: str) -> None:
    assert len(seen(f'QUERY = """{statement}"""')) == 1


@pytest.mark.parametrize(
    "source",
    [
        'cursor.execute("select 1")',
        'await connection.execute(f"notify {channel}")',
        'sql.SQL("select {}")',
        'cursor.execute("select " + columns)',
        'cursor.executemany("insert into a values (%s)", rows)',
        'cursor.execute(b"select 1")',
    ],
)
def test_a_literal_handed_to_a_driver_is_found_whatever_its_case(source: str) -> None:
    assert len(seen(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        '"""SELECT is explained in this docstring."""',
        'print("Select one from the list, or create it")',
        'raise ValueError("Update the tool where its result changed")',
        "STATUS = 'COMMIT_REFUSED'",
        'HEADERS = "id, type, action_id"',
        'shutil.copy("a.txt", target)',
        "cursor.execute(statements.claim, values)",
        'WORD = "SET"',
        'HELP = "WITH care"',
    ],
)
def test_prose_and_named_statements_pass(source: str) -> None:
    assert seen(source) == []


def test_an_f_string_counts_once_and_names_its_line() -> None:
    (found,) = sql_only_in_sql.find('a = 1\nb = f"SELECT {a} FROM {b}"\n', Path("sample.py"))
    assert str(found) == "sample.py:2: reads as a statement: 'SELECT {} FROM {}'"


def test_an_allowed_literal_passes_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_only_in_sql, "ALLOWED", {("shop/odd.py", "SELECT 1"): "a sample"})
    file = tmp_path / "shop" / "odd.py"
    file.parent.mkdir()
    file.write_text('PING = "SELECT 1"')
    assert sql_only_in_sql.check([tmp_path]) == []
    file.write_text('PING = "SELECT 2"')
    assert len(sql_only_in_sql.check([tmp_path])) == 2


def test_the_sql_check_fails_on_a_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["nowhere"], []):
        monkeypatch.setattr(sys, "argv", ["sql_only_in_sql", *arguments])
        assert sql_only_in_sql.main() == 2


SAMPLE = '''
import pytest

def test_plain(stack):  # I3 I5
    assert True  # I9 is only mentioned here

@pytest.mark.parametrize("n", [1])  # I6
async def test_decorated(
    n,  # I7
) -> None:
    """I8 in prose does not count."""

class TestGroup:
    def test_inside(self): ...  # I11

def test_nothing():
    pass

def helper():  # I12
    pass
'''


def test_citations_are_read_from_def_lines_and_decorators() -> None:
    found = {(one.test, one.invariant) for one in invariants.cited(SAMPLE, Path("test_sample.py"))}
    assert found == {
        ("test_plain", "I3"),
        ("test_plain", "I5"),
        ("test_decorated", "I6"),
        ("test_decorated", "I7"),
        ("TestGroup::test_inside", "I11"),
    }


def test_the_report_names_the_tests_and_what_has_none() -> None:
    lines = list(invariants.report({"I3": "one", "I4": "two"}, invariants.cited(SAMPLE, Path("tests/test_sample.py"))))
    assert "      tests/test_sample.py::test_plain" in lines
    assert lines[-1] == "\nWithout a test: I4"


def test_the_page_numbers_sixteen_invariants_in_order() -> None:
    page = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
    assert list(invariants.invariants(page)) == [f"I{number}" for number in range(1, 17)]


def test_no_test_cites_an_invariant_that_does_not_exist() -> None:
    known = invariants.invariants((ROOT / "docs" / "invariants.md").read_text(encoding="utf-8"))
    assert {one.invariant for one in invariants.cited_under(ROOT / "tests")} <= known.keys()


@pytest.mark.parametrize(
    ("lock", "problem"),
    [
        ("a==1 \\\n    " + HASH, ""),
        ("a[x]==1 ; python_version > '3.11' \\\n    " + HASH + "\n    # via b", ""),
        ("a==1", "has no hash: a==1"),
        ("a>=1 " + HASH, "pins nothing: a>=1 " + HASH[: 60 - len("a>=1 ")]),
        ("a==1 " + HASH + "\n# from https://example.org", "line 2 holds an address"),
        ("--index-url x\na==1 " + HASH, "line 1 holds an address"),
    ],
)
def test_a_lock_that_names_an_address_or_lacks_a_hash_is_found(lock: str, problem: str) -> None:
    assert (problem in locks.problems_of(lock)) if problem else (locks.problems_of(lock) == [])


def test_locks_that_disagree_are_found() -> None:
    assert locks.disagreements("a==1 " + HASH, "a==2 " + HASH) == ["a==1 against 2"]
    assert locks.disagreements("a==1 " + HASH, "a==1 " + HASH + "\nb==1 " + HASH) == []


def test_this_checkouts_locks_hold_hashes_and_no_addresses() -> None:
    assert locks.check(ROOT) == []


def test_the_locks_cover_what_the_distributions_ask_for() -> None:
    pinned = locks.versions((ROOT / "requirements" / "demo.txt").read_text(encoding="utf-8"))
    for dist in DISTS:
        for wanted in project(dist)["dependencies"]:
            name = wanted.split("[")[0].split(">")[0].split("=")[0]
            assert name.startswith("deedbox") or name in pinned, f"{dist} wants {wanted}: make lock"


def test_the_distributions_move_in_lockstep() -> None:
    versions = {str(project(dist)["version"]) for dist in DISTS}
    assert len(versions) == 1
    (version,) = versions
    for dist in DISTS:
        text = (ROOT / dist / "pyproject.toml").read_text(encoding="utf-8")
        siblings = [line for line in text.splitlines() if "deedbox" in line and "==" in line]
        assert all(part.startswith(version) for line in siblings for part in line.split("==")[1:])
        assert siblings or dist == "producer"


def test_a_package_that_is_not_completely_typed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public, "COMMAND", [sys.executable, "-c", "print('completeness score: 50%'); exit(1)"])
    monkeypatch.setattr(sys, "argv", ["public", "shop"])
    assert public.main() == 1
