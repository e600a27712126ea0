"""Every public name of a package is typed, as pyright measures it for a package's users.

Usage: python -m tools.public PACKAGE…
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# External symbols without types are their owners' business; 100 % of ours is the bar (pyright exits 1 below it).
COMMAND = [sys.executable, "-m", "pyright", "--ignoreexternal", "--verifytypes"]


def main() -> int:
    """Ask pyright about each package; exit code 1 when one is not completely typed, with pyright's own list."""
    # --verifytypes asks the first `python` of PATH where packages are; --pythonpath does not reach it.
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    failed = []
    for package in sys.argv[1:]:
        answer = subprocess.run([*COMMAND, package], capture_output=True, text=True, env=environment, check=False)
        score = next((line.strip() for line in answer.stdout.splitlines() if "completeness score" in line), "no answer")
        print(f"{package}: {score}")
        if answer.returncode:
            failed.append(package)
            print(answer.stdout.partition("Symbols exported by")[0] + answer.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
