"""Which tests prove which invariant.

Usage: python -m tools.invariants [I3 I5 …]

The invariants are the numbered lines of docs/invariants.md. A test cites the ones it proves in a comment on its
`def` line or on a decorator: `def test_a_key_is_one_decision():  # I3 I5`. Exit code 1 when a test cites an
invariant that does not exist, or when one that was asked for by name has no test.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INVARIANT = re.compile(r"^- \*\*(I\d+)\*\* (.+)$", re.MULTILINE)
CITED = re.compile(r"\bI\d+\b")


@dataclass(frozen=True, order=True)
class Citation:
    """One test that says it proves one invariant."""

    invariant: str
    file: Path
    line: int
    test: str

    def __str__(self) -> str:
        """Show the test as pytest names it."""
        return f"{self.file.as_posix()}::{self.test}"


def invariants(page: str) -> dict[str, str]:
    """Read the numbered invariants of the page, number → text, in its order."""
    return dict(INVARIANT.findall(page))


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _tests(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield prefix + node.name, node


def cited(source: str, file: Path) -> list[Citation]:
    """List what one test module's tests cite; raises SyntaxError when it is no Python."""
    comments = _comments(source)
    found: list[Citation] = []
    for name, test in _tests(ast.parse(source, str(file)).body):
        first = min([test.lineno, *(decorator.lineno for decorator in test.decorator_list)])
        # A body on the def line itself leaves that line to the signature.
        heading = range(first, max(test.body[0].lineno, test.lineno + 1))
        numbers = {number for line in heading for number in CITED.findall(comments.get(line, ""))}
        found += [Citation(number, file, test.lineno, name) for number in sorted(numbers)]
    return found


def cited_under(folder: Path) -> list[Citation]:
    """List what the tests under `folder` cite."""
    files = sorted(folder.rglob("test_*.py"))
    return [citation for file in files for citation in cited(file.read_text(encoding="utf-8"), file)]


def report(known: dict[str, str], citations: list[Citation]) -> Iterator[str]:
    """Write each invariant with its tests, then the ones that have none."""
    for number, text in known.items():
        tests = [citation for citation in citations if citation.invariant == number]
        yield f"{number:<4}{text}"
        yield from (f"      {test}" for test in tests) if tests else ["      -"]
    bare = known.keys() - {citation.invariant for citation in citations}
    yield f"\nWithout a test: {' '.join(number for number in known if number in bare) or 'none'}"


def main() -> int:
    """Print the report; exit code 1 on a citation of nothing or an asked-for invariant without a test."""
    known = invariants(Path("docs/invariants.md").read_text(encoding="utf-8"))
    citations = cited_under(Path("tests"))
    asked = sys.argv[1:]
    print("\n".join(report({n: known[n] for n in asked if n in known} if asked else known, citations)))
    problems = [f"{c} cites {c.invariant}, which does not exist" for c in citations if c.invariant not in known]
    problems += [f"{number} does not exist" for number in asked if number not in known]
    proven = {citation.invariant for citation in citations}
    problems += [f"{number} has no test" for number in asked if number in known and number not in proven]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
