"""The locks name versions and hashes, never an address, and agree with one another.

Usage: python -m tools.locks

Checks requirements/*.txt (what pip installs) and every `*.lock*` inside a distribution (jars).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*])?==(?P<version>\S+)")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|@\s*file:|^\s*-e\b|--(?:extra-)?index-url|--find-links|--trusted-host")


def entries(lock: str) -> list[str]:
    """Split a requirements lock into one text per requirement, without comments."""
    lines = [line for line in lock.splitlines() if not line.lstrip().startswith("#")]
    return [entry.strip() for entry in "\n".join(lines).replace("\\\n", " ").splitlines() if entry.strip()]


def versions(lock: str) -> dict[str, str]:
    """Read name → version of a requirements lock."""
    matches = [REQUIREMENT.match(entry) for entry in entries(lock)]
    return {match["name"].lower(): match["version"] for match in matches if match}


def addresses(text: str) -> list[int]:
    """Number the lines that name an address or where to look for packages."""
    return [number for number, line in enumerate(text.splitlines(), 1) if ADDRESS.search(line)]


def problems_of(lock: str) -> list[str]:
    """Say what is wrong with one requirements lock, without its name."""
    found = [f"line {number} holds an address" for number in addresses(lock)]
    for entry in entries(lock):
        if not REQUIREMENT.match(entry):
            found.append(f"pins nothing: {entry[:60]}")
        elif not HASH.search(entry):
            found.append(f"has no hash: {entry.split()[0]}")
    return found


def disagreements(small: str, large: str) -> list[str]:
    """Say where the large lock leaves the small one: every pin of the small one must be in it, at one version."""
    theirs = versions(large)
    return [f"{name}=={version} against {theirs.get(name)}" for name, version in versions(small).items()
            if theirs.get(name) != version]  # fmt: skip


def check(root: Path) -> list[str]:
    """Say what is wrong with the locks under `root`, one line each."""
    folder = root / "requirements"
    problems = [
        f"requirements/{file.name} {problem}"
        for file in sorted(folder.glob("*.txt"))
        for problem in problems_of(file.read_text(encoding="utf-8"))
    ]
    demo, dev = (folder / name for name in ("demo.txt", "dev.txt"))
    problems += [
        f"requirements/dev.txt does not agree with demo.txt: {problem}"
        for problem in disagreements(demo.read_text(encoding="utf-8"), dev.read_text(encoding="utf-8"))
    ]
    jars = [file for dist in ("producer", "debezium", "consumers") for file in (root / dist / "src").rglob("*.lock*")]
    problems += [
        f"{file.relative_to(root)} line {number} holds an address"
        for file in sorted(jars)
        for number in addresses(file.read_text(encoding="utf-8"))
    ]
    return problems


def main() -> int:
    """Check this checkout's locks; exit code 1 when something is wrong."""
    problems = check(Path())
    for problem in problems:
        print(problem)
    print("Write them again: make lock" if problems else "The locks hold hashes and no addresses.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
