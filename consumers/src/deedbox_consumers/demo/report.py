"""What the demo says at its end: the closing tables for people, one JSON object for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from deedbox_consumers.demo.evidence import HOPS, Score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

NAIVE = "naive"
MINUTE = 60.0


def holds(scores: Sequence[Score]) -> bool:
    """Whether every act on Deedbox charged once for each decision and asked for no completion twice."""
    return all(figures.once for figures in scores if figures.name != NAIVE)


def as_json(scores: Sequence[Score], took: float) -> dict[str, Any]:
    """All figures; times in seconds."""
    acts = {figures.name: _facts(figures) for figures in scores}
    return {"ok": holds(scores), "acts": acts, "seconds": round(took, 1)}


def _facts(figures: Score) -> dict[str, Any]:
    facts = asdict(figures) | {"once": figures.once}
    del facts["name"], facts["title"]
    return facts | {"hops": {hop.lower().replace(" ", "_"): round(span, 4) for hop, span in figures.hops.items()}}


def show(scores: Sequence[Score], console: Console) -> None:
    """Print the closing tables."""
    console.print()
    console.print(_counts(scores))
    console.print()
    console.print(_hops(scores))


def _counts(scores: Sequence[Score]) -> Table:
    table = _table("", "decided", "charged", "requests", "model\nasked", "asked\ntwice", "lost", "verdict")
    table.columns[-1].justify = "left"
    for figures in scores:
        style = "green" if figures.once else "bold red"
        table.add_row(
            figures.title,
            str(figures.decisions),
            Text(str(figures.charges), style),
            str(figures.requests),
            str(figures.asked),
            Text(str(figures.asked_twice), style if figures.asked_twice else ""),
            Text(str(figures.lost), style if figures.lost else ""),
            Text(_word(figures), style),
        )
    return table


def _hops(scores: Sequence[Score]) -> Table:
    table = _table("hops (median)", *HOPS)
    for figures in scores:
        if figures.hops:
            table.add_row(figures.title, *(_span(figures.hops.get(hop)) for hop in HOPS))
    return table


def _word(figures: Score) -> str:
    if figures.once:
        return "once"
    return "twice" if figures.extra else "not once"


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def _span(seconds: float | None) -> Text:
    if seconds is None:
        return Text("-")
    if seconds >= 1:
        return Text(f"{seconds:.1f} s", "bold")
    return Text(f"{seconds * 1000:.0f} ms")
