"""Check the protocol, and that each of its rules is needed: `make model`, or `python -m docs.model`.

Exit code 1 when the protocol breaks a law, or when taking away what it stands on breaks none.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from docs.model.cases import GROUPS, LAWS, WIDE, Case
from docs.model.checker import STUCK, Verdict, check
from docs.model.protocol import Protocol, State, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEAD = ("case", "states", "transitions", "depth", "result")


def run(case: Case) -> Verdict[State]:
    """Walk through one case: the protocol under all laws, what breaks it under the law that it is said to break."""
    return check(Protocol(case.tool, case.rules), None if case.law is None else [case.law])


def expected(case: Case, verdict: Verdict[State]) -> bool:
    """Whether the walk ended as the case says."""
    return (verdict.finding and verdict.finding.law) == case.law


def row(case: Case, verdict: Verdict[State]) -> tuple[str, ...]:
    """One line of the table."""
    finding = verdict.finding
    result = "holds" if finding is None else f"breaks {_name(finding.law)} in {len(finding.trace)} steps"
    if not expected(case, verdict):
        result = f"{result}, expected: {f'breaks {case.breaks}' if case.breaks else 'holds'}"
    return case.name, f"{verdict.states:,}", f"{verdict.transitions:,}", str(verdict.depth), result, case.says


def trace(case: Case, verdict: Verdict[State]) -> Iterable[str]:
    """The shortest way to the broken law, a step per line: what happened, and how things stand after it."""
    finding = verdict.finding
    if finding is None:
        yield f"{case.name}: no law is broken"
        return
    law = _name(finding.law)
    yield f"{case.name}: {case.says}. Breaks {law}: {LAWS[law]}.\n"
    lines = [("step", "tick", "what happens", "the call", "on its way", "effects")]
    for number, (label, state) in enumerate(finding.trace, 1):
        flights = " ".join(str(flight.attempt) for flight in state.flights)
        lines.append((str(number), str(state.now), label, _call(state), flights, str(state.provider.effects)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        yield "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
    if finding.law == STUCK:
        yield "\nWhatever happens from here on, the call does not end."


def _name(law: str) -> str:
    return "I5" if law == STUCK else law


def _call(state: State) -> str:
    row = state.row
    words = [status(state)]
    if row is not None:
        if row.status == "running":
            words.append(f"attempt {row.attempt}")
        if row.unsettled:
            words.append("unsettled")
        if row.ask:
            words.append("asks" if row.status == "running" else "to ask")
    if state.logged is not None:
        words.append(f"(soon {state.logged.status})")
    return " ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or the trace of one case."""
    parser = argparse.ArgumentParser(prog="make model", description=__doc__)
    parser.add_argument("--trace", metavar="CASE", help="print the shortest way to what this case breaks")
    parser.add_argument("--wide", action="store_true", help="a larger scope for the protocol: minutes")
    asked = parser.parse_args(arguments)
    groups = {**GROUPS, "The protocol, wider": WIDE} if asked.wide else GROUPS
    cases = {case.name: case for group in (*GROUPS.values(), WIDE) for case in group}
    if asked.trace is not None:
        if asked.trace not in cases:
            parser.error(f"there is no case {asked.trace!r}; there are: {', '.join(cases)}")
        _say(*trace(cases[asked.trace], run(cases[asked.trace])))
        return 0
    began = time.process_time()
    failed = [case.name for title, group in groups.items() for case in _table(title, group)]
    result = f"Not as expected: {', '.join(failed)}." if failed else "All as expected."
    _say("", f"{result} {time.process_time() - began:.0f} s of one processor.")
    return 1 if failed else 0


def _table(title: str, group: Iterable[Case]) -> Iterable[Case]:
    """Print one group while it is walked through; yields the cases that did not end as they should."""
    _say("", _line((title, *HEAD[1:], "")))
    for case in group:
        verdict = run(case)
        _say(_line(row(case, verdict)))
        if not expected(case, verdict):
            yield case
            if verdict.finding is not None:
                _say("", *trace(case, verdict), "")


def _line(words: Sequence[str]) -> str:
    name, states, transitions, depth, result, says = words
    return f"{name:<40}{states:>9}{transitions:>13}{depth:>7}  {result:<26}{says}".rstrip()


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
