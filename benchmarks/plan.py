"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Sizes of the measures.

    runs     of each measure; the report shows their median
    samples  calls of one run of the latency measure; steps of one beside a stuck call
    steps    of one run at saturation, CALLS_A_STEP calls each
    burst    calls of one burst, CALLS_A_BURST_STEP calls a step
    idle     seconds of idleness that are watched
    lasting  seconds of a call that lasts
    """

    runs: int = 3
    samples: int = 300
    steps: int = 1250
    burst: int = 20_000
    idle: float = 20.0
    lasting: float = 60.0


FULL = Plan()
QUICK = Plan(runs=1, samples=120, steps=400, burst=5000, idle=10.0, lasting=10.0)
CALLS_A_STEP = 4
CALLS_A_BURST_STEP = 100
