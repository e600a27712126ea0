"""Break it for as long as you like: `make chaos ARGS="--minutes 5 --seed 7 --json"`.

Random schedules on the real stack, one after the other: the seed, then the one after it. Exit code 1 when a call was
lost, an effect was double, or anything else was not as the ledger says.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from typing import Final

from deedbox_debezium.stack import PartName, Stack
from tests.chaos.forkserver import ROOT
from tests.chaos.play import SERVICES, Result, play

BROKEN: Final = 1
INTERRUPTED: Final = 130  # what a shell says of a program that Ctrl-C ended
LONGEST: Final = 60.0  # seconds of one schedule; then its doubts are settled and another begins


def main() -> int:
    """Play, print, judge."""
    asked = _arguments()
    home = ROOT / ".deedbox"
    os.environ.setdefault("DEEDBOX_CACHE", str(home / "cache"))
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    left, results = asked.minutes * 60, []
    _say(f"seed {seed}, {asked.minutes:g} minutes, calls by {asked.source}")
    kafka = asked.source == "kafka"
    services: tuple[PartName, ...] = SERVICES if kafka else ("postgres",)
    try:
        with Stack(home / "chaos", supervised=True) as stack:
            stack.up(*services)
            while left > 0:
                folder = home / "chaos" / "worlds" / str(seed)
                shutil.rmtree(folder, ignore_errors=True)
                seconds = min(left, LONGEST)
                results.append(play(stack, folder, seed, seconds, kafka=kafka, services=services, say=_say))
                left, seed = left - seconds, seed + 1
                _tell(results[-1])
    except KeyboardInterrupt:
        _say("Stopped, with everything that was started.")
        return INTERRUPTED
    _report(results, as_json=asked.json)
    return 0 if all(result.holds for result in results) else BROKEN


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to break things (default 5)")
    parser.add_argument("--seed", type=int, help="which schedule (default: any; it is printed)")
    parser.add_argument("--source", choices=("kafka", "poll"), default="kafka", help="poll: on Postgres alone")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


def _tell(result: Result) -> None:
    for line in (*result.details, *result.failures):
        _say(f"seed {result.seed}: {line}")


def _report(results: list[Result], *, as_json: bool) -> None:
    """Kills, calls, repeats, in doubt, lost, double: of all schedules together."""
    names = ("kills", "calls", "repeats", "in_doubt", "lost", "double", "wrong")
    total = {name: sum(getattr(result, name) for result in results) for name in names}
    if as_json:
        whole = total | {"schedules": [result.as_json() for result in results]}
        sys.stdout.write(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(" · ".join(f"{count} {name.replace('_', ' ')}" for name, count in total.items()) + "\n")


def _say(words: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
