"""SQL lives in `.sql` files under a name: find the Python strings that hold some.

Usage: python -m tools.sql_only_in_sql FOLDER…

Two signs: a literal that reads as a statement, and any literal handed straight to a driver (`execute`, `SQL`, …).
Docstrings are prose. What must stay in Python is listed in `ALLOWED` with its reason; an entry that no longer
matches is reported too, so the list can only shrink.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Words: TypeAlias = ast.Constant | ast.JoinedStr

# (end of the file's path, start of the literal) → why it is no statement, or why it cannot be in a .sql file.
ALLOWED: dict[tuple[str, str], str] = {}

# Upper case only: "Select one from the list" is a sentence, `SELECT 1` is not.
STATEMENT = re.compile(
    r"""^\s*(?:
        WITH\s+(?:RECURSIVE\s+)?[\w"{}]+\s*(?:\([^)]*\)\s*)?AS\b
      | (?:SELECT|VALUES|EXPLAIN|CALL|EXECUTE|SHOW|LISTEN|UNLISTEN|NOTIFY|VACUUM|ANALYZE|TRUNCATE|COPY|REINDEX
            |SAVEPOINT|DECLARE|FETCH)\b\s*[\w"'(*{]
      | SELECT\s*$
      | INSERT\s+INTO\b | DELETE\s+FROM\b | MERGE\s+INTO\b | UPDATE\s+[\w".{}]+\s+(?:SET|AS)\b | LOCK\s+TABLE\b
      | (?:CREATE|ALTER|DROP|COMMENT\s+ON|GRANT|REVOKE)\s+[A-Za-z]
      | (?:BEGIN|COMMIT|ROLLBACK|ABORT|START\s+TRANSACTION)\s*(?:;|$|WORK|TO\b|ISOLATION)
      | (?:SET|RESET)\s+(?:LOCAL\s+|SESSION\s+)?[a-z_.]+\s*(?:=|TO\b|;|$)
    )
    | ^[^a-z]*\b(?:FROM|JOIN|WHERE|ORDER\s+BY|GROUP\s+BY|RETURNING|ON\s+CONFLICT)\s+[\w"({]+\s*(?:=|,|IS\b|IN\b|DO\b|$)
    """,
    re.VERBOSE,
)
DRIVER_CALLS = frozenset({"SQL", "copy", "execute", "executemany", "mogrify", "prepare", "stream"})
# `copy` and `prepare` are everyday words too: only a literal with a space in it can be a statement there.
EVERYDAY = frozenset({"copy", "execute", "prepare", "stream"})


@dataclass(frozen=True, order=True)
class Found:
    """One literal that holds SQL."""

    file: Path
    line: int
    text: str
    why: str

    def __str__(self) -> str:
        """Show where it is, as editors follow it."""
        return f"{self.file}:{self.line}: {self.why}: {self.text[:60]!r}"


def text_of(node: ast.AST) -> str | None:
    """Read a literal's text; a placeholder of an f-string reads as `{}`; None if the node is no string literal."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bytes):
            return node.value.decode(errors="replace")
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return text_of(node.left)
    return None


def docstrings(tree: ast.AST) -> set[int]:
    """Collect the ids of nodes that are docstrings or bare strings: prose, never run."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _handed_over(tree: ast.AST) -> Iterator[tuple[ast.expr, str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        text = text_of(node.args[0])
        if name in DRIVER_CALLS and text is not None and (name not in EVERYDAY or " " in text):
            yield node.args[0], name, text


def _literals(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    skip = parts | docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, Words) and id(node) not in skip and (text := text_of(node)) is not None:
            yield node, text


def find(source: str, file: Path) -> list[Found]:
    """List the SQL in one module's source; raises SyntaxError when it is no Python."""
    tree = ast.parse(source, str(file))
    found: dict[int, Found] = {}
    for node, name, text in _handed_over(tree):
        found[node.lineno] = Found(file, node.lineno, text, f"a statement handed to {name}()")
    for node, text in _literals(tree):
        if STATEMENT.search(text):
            found.setdefault(node.lineno, Found(file, node.lineno, text, "reads as a statement"))
    return sorted(found.values())


def unused(matched: set[tuple[str, str]]) -> list[str]:
    """List the entries of `ALLOWED` that nothing matched."""
    return [f"tools/sql_only_in_sql.py: allowed but gone: {file} {start!r}" for file, start in ALLOWED.keys() - matched]


def check(folders: list[Path]) -> list[str]:
    """Say what is wrong in the `.py` files under `folders`, one line each."""
    problems: list[str] = []
    matched: set[tuple[str, str]] = set()
    for file in sorted(path for folder in folders for path in folder.rglob("*.py")):
        for one in find(file.read_text(encoding="utf-8"), file):
            excuse = {key for key in ALLOWED if file.as_posix().endswith(key[0]) and one.text.startswith(key[1])}
            matched |= excuse
            if not excuse:
                problems.append(str(one))
    return problems + unused(matched)


def main() -> int:
    """Check the folders of the command line; exit code 1 when something is found."""
    folders = [Path(word) for word in sys.argv[1:]]
    if missing := [folder for folder in folders if not folder.is_dir()] or not folders:
        print(f"Give folders that exist: {missing}")
        return 2
    problems = check(folders)
    for problem in problems:
        print(problem)
    print("Move these to a .sql file under a name." if problems else "SQL is only in .sql files.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
