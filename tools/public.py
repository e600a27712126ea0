"""Every public name of a package is typed, as pyright measures it for a package's users.

Usage: python -m tools.public PACKAGE…
"""

from __future__ import annotations

import subprocess
import sys

# External symbols without types are their owners' business; 100 % of ours is the bar (pyright exits 1 below it).
COMMAND = [sys.executable, "-m", "pyright", "--ignoreexternal", "--pythonpath", sys.executable, "--verifytypes"]


def main() -> int:
    """Ask pyright about each package; exit code 1 when one is not completely typed, with pyright's own list."""
    failed = []
    for package in sys.argv[1:]:
        answer = subprocess.run([*COMMAND, package], capture_output=True, text=True, check=False)
        score = next((line.strip() for line in answer.stdout.splitlines() if "completeness score" in line), "no answer")
        print(f"{package}: {score}")
        if answer.returncode:
            failed.append(package)
            print(answer.stdout + answer.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
