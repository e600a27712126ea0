"""The oracle: the ledger beside the provider's books, call by call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.chaos.books import Effect, Request
from tests.chaos.tools import family_of

OPEN = ("held", "pending", "running", "retry")


@dataclass(frozen=True)
class Decided:
    """A committed call as the ledger has it; `key` as the provider sees it, but for the `~1` of one that was rekeyed.

    `result` is the id that it says was given.
    """

    key: str
    tool: str
    about: str
    status: str
    unsettled: bool = False
    result: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What the comparison says. The lists name what is wrong, each item with its reason.

    calls     committed calls
    repeats   requests to the provider beyond the first of each call
    in_doubt  calls of which the ledger says that it does not know
    lost      done without an effect, or open when everything was quiet
    double    more than one effect
    wrong     what else must not be: an effect that nobody decided or that the ledger denies, a second key for a call,
              a caller's row that is not what its decisions make it, doubt about a call whose key is good or that can be
              asked about
    """

    calls: int = 0
    repeats: int = 0
    in_doubt: int = 0
    lost: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return not (self.lost or self.double or self.wrong)

    def __str__(self) -> str:
        words = [f"{self.calls} calls, {self.repeats} repeats, {self.in_doubt} in doubt"]
        for name in ("lost", "double", "wrong"):
            items: list[str] = getattr(self, name)
            words += [f"{len(items)} {name}", *(f"  {item}" for item in items)]
        return "\n".join(words)


def judge(
    decided: Iterable[Decided],
    requests: Iterable[Request],
    effects: Iterable[Effect],
    balances: Iterable[tuple[str, int, int]] = (),
) -> Verdict:
    """Compare. `balances` are per run: how often its row was written, and how many decisions it has."""
    calls = {call.about: call for call in decided}
    done: Counter[str] = Counter(effect.about for effect in effects)
    asked: Counter[str] = Counter()
    keys: defaultdict[str, set[str | None]] = defaultdict(set)
    for request in requests:
        if request.did != "lookup":
            asked[request.about] += 1
            keys[request.about].add(request.key)
    found = Verdict(len(calls), asked.total() - len(asked), sum(call.status == "in_doubt" for call in calls.values()))
    found.double.extend(f"{about}: {count} effects" for about, count in done.items() if count > 1)
    found.wrong.extend(f"{about}: an effect that nobody decided" for about in done.keys() - calls.keys())
    for about, call in calls.items():
        _judge_one(found, call, done[about])
        if {key.partition("~")[0] if key else key for key in keys[about]} - {call.key}:
            found.wrong.append(f"{about}: asked under another key than {call.key}")
    for run, written, decisions in balances:
        if written != decisions:
            found.wrong.append(f"{run}: {decisions} decisions, and its row was written {written} times")
    return found


def _judge_one(found: Verdict, call: Decided, effects: int) -> None:
    place = f"{call.about} ({call.tool})"
    if call.status in OPEN:
        found.lost.append(f"{place}: {call.status} when everything was quiet")
    elif call.status == "done" and not effects:
        found.lost.append(f"{place}: done, and nothing happened")
    elif call.status not in {"done", "in_doubt"} and effects:
        found.wrong.append(f"{place}: {call.status}, and it happened")
    elif call.status == "in_doubt" and family_of(call.tool).sure:
        found.wrong.append(f"{place}: in doubt, though its key is good or it can be asked about")
