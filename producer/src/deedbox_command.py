"""The script `deedbox`. It stands outside the package, whose import takes a moment: Ctrl-C may come meanwhile."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from deedbox.command import main as run  # noqa: PLC0415  # see above
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n" if sys.stderr.isatty() else "stopped\n")
        sys.exit(130)
    run()
