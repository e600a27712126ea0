"""A worker with 500 running calls gets SIGKILL, another one is there: until each is resumed, or named as in doubt."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks.fates import await_fates
from benchmarks.figures import Figure, at_most
from benchmarks.fleet import Fleet
from benchmarks.plan import CALLS_A_STEP
from benchmarks.relay import Relay
from benchmarks.shop import settle, slow_call, wire
from deedbox_consumers.worker import LEASE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.fates import Fate
    from benchmarks.plan import Plan
    from benchmarks.stage import Stage
    from deedbox import Deedbox

TOOLS = (settle, wire)  # one that can be sent again under its key, and one that cannot be sent again
STEPS = 125
CALLS = STEPS * CALLS_A_STEP
WITHIN = 90.0  # seconds until all of them run, or are taken up
AT_ONCE = 10.0  # seconds, if the server sees the connection's end
NOT_SEEN = LEASE.total_seconds() + 5.0  # …and if it does not: the lease has to pass


@dataclass(frozen=True)
class Aftermath:
    """Seconds until the last call that was taken up, how many were not, and how often one was performed at most."""

    seconds: float
    lost: int
    keyed: int
    unrepeatable: int


def aftermath(killed_at: float, found: Sequence[Fate], books: Mapping[str, int]) -> Aftermath:
    """What followed. `books` tells how often the call of each key was performed."""
    moments = [moment for fate in found if (moment := taken_up(fate)) is not None]
    performed = {tool: [books.get(fate.key, 0) for fate in found if fate.tool == tool.name] for tool in TOOLS}
    return Aftermath(
        max(moments, default=killed_at) - killed_at,
        len(found) - len(moments),
        max(performed[settle]),
        max(performed[wire]),
    )


def taken_up(fate: Fate) -> float | None:
    """When it was resumed (its second attempt began) or named (it is in doubt), if it was."""
    if fate.attempt > 1:
        return fate.claimed
    return fate.finished if fate.status == "in_doubt" else None


def killed(stage: Stage, _: Fleet, plan: Plan) -> list[Figure]:
    """Seconds, with the victim's connections closed and kept open; and that nothing is lost or done too often."""
    with stage.alone_with(TOOLS) as box:
        seen = [_kill(stage, box, f"killed-{number}", kept=False) for number in range(plan.runs)]
        kept = [_kill(stage, box, f"kept-{number}", kept=True) for number in range(plan.runs)]
    every = [*seen, *kept]
    return [
        Figure(
            f"SIGKILL with {CALLS} running calls: until the last is taken up",
            "s",
            [one.seconds for one in seen],
            at_most(AT_ONCE),
        ),
        Figure("… while its connections stay open", "s", [one.seconds for one in kept], at_most(NOT_SEEN)),
        Figure("… calls neither resumed nor in doubt", "", [max(one.lost for one in every)], at_most(0, bar=True)),
        Figure("… times a keyed call was sent, at most", "", [max(one.keyed for one in every)], at_most(2, bar=True)),
        Figure(
            "… times an unrepeatable call was sent, at most",
            "",
            [max(one.unrepeatable for one in every)],
            at_most(1, bar=True),
        ),
    ]


def _kill(stage: Stage, box: Deedbox, name: str, *, kept: bool) -> Aftermath:
    watch = stage.watch
    with TemporaryDirectory() as folder, ExitStack() as crew:
        books, until = Path(folder, "books"), Path(folder, "until")
        url = _through(crew, stage.stack.database_url) if kept else None
        victim = crew.enter_context(stage.hire(TOOLS, name="victim", database_url=url))
        turns = Fleet(box, name).turns(STEPS)
        mark = watch.mark()
        for at, turn in enumerate(turns):
            numbers = range(at * CALLS_A_STEP, (at + 1) * CALLS_A_STEP)
            turn.commit(
                calls=[slow_call(TOOLS[number % 2], number, until=str(until), books=str(books)) for number in numbers]
            )
        found = await_fates(watch, mark, lambda all_: all(fate.status == "running" for fate in all_), WITHIN)
        if any(fate.status != "running" for fate in found):
            raise RuntimeError(f"not all calls run after {WITHIN:.0f} s: nothing was measured")
        crew.enter_context(stage.hire(TOOLS, name="heir"))
        _await_workers(stage, 2)
        killed_at = time.time()
        victim.kill()
        until.touch()  # those that are sent again end at once
        await_fates(watch, mark, lambda all_: all(taken_up(fate) is not None for fate in all_), WITHIN)
        found = await_fates(watch, mark, lambda all_: all(_is_over(fate) for fate in all_), WITHIN)
        return aftermath(killed_at, found, Counter(books.read_text(encoding="utf-8").splitlines()))


def _through(crew: ExitStack, url: str) -> str:
    """The way to the same database through a relay."""
    relay = crew.enter_context(Relay(int(conninfo_to_dict(url)["port"] or 0)))
    return make_conninfo(url, port=relay.port)


def _await_workers(stage: Stage, count: int) -> None:
    """Wait until so many workers have enlisted: an heir that begins to import Python modules now is none."""
    until = time.monotonic() + WITHIN
    while stage.watch.rows("workers")[0][0] != count:
        if time.monotonic() > until:
            raise RuntimeError(f"there are not {count} workers after {WITHIN:.0f} s: nothing was measured")
        time.sleep(0.1)


def _is_over(fate: Fate) -> bool:
    return fate.status in {"done", "in_doubt"}
