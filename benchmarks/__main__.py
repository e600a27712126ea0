"""The benchmark on the real stack: `make bench`, or `python -m benchmarks`.

Exit code 1 only when a counted bar is broken: commits, WAL, HOT, idle statements, connections, calls that were lost or
held up. Times stand beside their aims, since they say as much about the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, get_args

from rich.console import Console

from benchmarks import report
from benchmarks.burst import burst
from benchmarks.fleet import Fleet
from benchmarks.idle import idle
from benchmarks.killed import killed
from benchmarks.latency import latency
from benchmarks.long import long
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.saturation import saturation
from benchmarks.slow import slow
from benchmarks.stage import Stage
from benchmarks.stuck import stuck
from benchmarks.warm import warm
from deedbox_consumers.source import SourceName

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from benchmarks.figures import Figure

MEASURES: dict[str, Callable[[Stage, Fleet, Plan], list[Figure]]] = {
    "saturation": saturation,
    "burst": burst,
    "latency": latency,
    "idle": idle,
    # From here on they bring workers of their own, and end the one of those above.
    "slow": slow,
    "stuck": stuck,
    "killed": killed,
    "long": long,
}
BROKEN = 1
INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended


def main() -> int:
    """Measure, print, judge."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=True, highlight=False)
    figures: list[Figure] = []
    loads = [os.getloadavg()[0]]
    began = time.monotonic()
    try:
        with Stage(asked.source) as stage:
            fleet = Fleet(stage.box)
            console.print("warming up …")
            warm(stage, fleet)
            for name in (name for name in MEASURES if name in (asked.only or MEASURES)):
                console.print(f"{name} …")
                figures += MEASURES[name](stage, fleet, QUICK if asked.quick else FULL)
                loads.append(os.getloadavg()[0])
    except KeyboardInterrupt:
        console.print("Stopped, with everything that was started.")
        return INTERRUPTED
    seconds = time.monotonic() - began
    if asked.json:
        sys.stdout.write(json.dumps(report.as_json(figures, loads, seconds), indent=1, ensure_ascii=False) + "\n")
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(report.table(figures))
        console.print(f"{seconds:.0f} s; load average meanwhile: {' '.join(f'{load:.1f}' for load in loads)}")
    return BROKEN if any(figure.breaks_bar for figure in figures) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--quick", action="store_true", help="one run of each measure, smaller and shorter")
    parser.add_argument("--only", action="append", choices=list(MEASURES), help="this measure alone (repeatable)")
    parser.add_argument(
        "--source", choices=get_args(SourceName), default="kafka", help="where the worker hears of calls"
    )
    return parser.parse_args()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
