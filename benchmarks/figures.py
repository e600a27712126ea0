"""What was measured: a median of raw values, beside the aim it should meet or the bar it must."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Limit:
    """At most or at least so much. A bar must hold (exit code 1); an aim is printed beside the figure."""

    sense: Literal["<=", ">="]
    value: float
    is_bar: bool = False

    def holds(self, figure: float) -> bool:
        """Whether a figure is inside."""
        return figure <= self.value if self.sense == "<=" else figure >= self.value

    def __str__(self) -> str:
        return f"{'bar' if self.is_bar else 'aim'} {'≤' if self.sense == '<=' else '≥'} {self.value:,g}"


@dataclass(frozen=True)
class Figure:
    """One line of the report: the raw values of the runs, and their median."""

    name: str
    unit: str
    raw: Sequence[float]
    limit: Limit | None = None

    @property
    def median(self) -> float:
        """The middle of the raw values."""
        return statistics.median(self.raw)

    @property
    def holds(self) -> bool | None:
        """Whether it is inside its limit; None without one."""
        return None if self.limit is None else self.limit.holds(self.median)

    @property
    def breaks_bar(self) -> bool:
        """Whether it makes the benchmark fail."""
        return self.limit is not None and self.limit.is_bar and not self.limit.holds(self.median)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0…1) of the values do not exceed; raises ValueError for none."""
    if not values:
        raise ValueError("a percentile of no values")
    ordered = sorted(values)
    rank = -(-len(ordered) * share // 1)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def at_most(value: float, *, bar: bool = False) -> Limit:
    """A limit from above."""
    return Limit("<=", value, bar)


def at_least(value: float, *, bar: bool = False) -> Limit:
    """A limit from below."""
    return Limit(">=", value, bar)
