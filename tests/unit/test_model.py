"""The model of the protocol: its checker finds what is there to be found, and the protocol holds in a small scope."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from docs.model.__main__ import expected, main, run
from docs.model.cases import BOTH, GROUPS, KEY, LAWS, PROBE, REPEATABLE, UNREPEATABLE, WITHOUT, Case
from docs.model.checker import STUCK, check
from docs.model.ledger import Tool
from docs.model.protocol import Protocol, State, status


class Stairs:
    """A toy: up by one or by two to the top. Who is on the step `trap` stays there, or walks on the spot for ever."""

    def __init__(self, top: int, *, trap: int | None = None, forbidden: int | None = None) -> None:
        self.initial = 0
        self.top = top
        self.trap = trap
        self.laws: Mapping[str, Callable[[int, int], bool]] = {"never": lambda _, after: after != forbidden}

    def steps(self, state: int) -> Iterable[tuple[str, int]]:
        if state == self.trap:
            return [("on the spot", -state)]
        if state < 0:
            return [("and back", -state)]
        return [(f"{n} up", state + n) for n in (1, 2) if state + n <= self.top]

    def canonical(self, state: int) -> int:
        return state

    def ended(self, state: int) -> bool:
        return state == self.top


def test_every_state_is_met_once_and_every_step_counted() -> None:
    verdict = check(Stairs(6))
    assert (verdict.states, verdict.transitions, verdict.depth, verdict.finding) == (7, 11, 3, None)


def test_a_broken_law_is_shown_by_a_shortest_way() -> None:
    finding = check(Stairs(6, forbidden=5)).finding
    assert finding is not None
    assert finding.law == "never"
    assert sorted(label for label, _ in finding.trace) == ["1 up", "2 up", "2 up"]
    assert finding.trace[-1][1] == 5


def test_where_no_end_can_be_reached_any_more_is_found_though_steps_go_on() -> None:
    finding = check(Stairs(6, trap=3)).finding
    assert finding is not None
    assert finding.law == STUCK
    assert [state for _, state in finding.trace] == [1, 3]


def test_only_the_laws_that_are_asked_for_are_looked_at() -> None:
    assert check(Stairs(6, trap=3, forbidden=5), ["never"]).finding is not None
    assert check(Stairs(6, trap=3, forbidden=7), ["never"]).finding is None


@pytest.mark.parametrize(
    "tool",
    [UNREPEATABLE, REPEATABLE, KEY, replace(PROBE, attempts=1), replace(BOTH, attempts=1)],
    ids=lambda tool: str(tool.effect),
)
def test_the_protocol_holds_whatever_dies_or_pauses(tool: Tool) -> None:  # I1 I5 I8 I9 I10 I16
    assert check(Protocol(tool)).finding is None


@pytest.mark.parametrize("case", WITHOUT, ids=lambda case: str(case.name))
def test_what_the_protocol_stands_on_breaks_a_law_when_taken_away(case: Case) -> None:  # I5 I8 I9 I10 I16
    assert expected(case, run(case))


@pytest.mark.parametrize("end", ["done", "refused", "gave_up", "in_doubt"])
@pytest.mark.parametrize("tool", [UNREPEATABLE, REPEATABLE, KEY, PROBE, BOTH], ids=lambda tool: str(tool.effect))
def test_every_end_is_reached(tool: Tool, end: str) -> None:
    model = Protocol(tool)

    def never(_: State, after: State) -> bool:
        return status(after) != end or not model.ended(after)

    model.laws = {"never": never}
    assert check(model).finding is not None


def test_a_canonical_form_has_the_future_of_its_state() -> None:
    """The checker goes on from the form alone, so nothing that a rule looks at may be lost in it."""
    model = Protocol(BOTH)
    chance = random.Random(4)
    for _ in range(150):
        state = model.initial
        for _ in range(40):
            form = model.canonical(state)
            futures = {model.canonical(after) for _, after in model.steps(state)} - {form}
            assert futures == {model.canonical(after) for _, after in model.steps(form)} - {form}
            state = chance.choice([after for _, after in model.steps(state)])


def test_cases_have_names_of_their_own_and_break_laws_that_are_explained() -> None:
    cases = [case for group in GROUPS.values() for case in group]
    assert len({case.name for case in cases}) == len(cases)
    assert {case.breaks for case in cases if case.breaks} <= LAWS.keys()
    assert set(Protocol(KEY).laws) | {"I5"} == LAWS.keys()


def test_a_trace_tells_step_by_step_how_the_second_effect_came_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", "claims-judge"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].endswith(f"Breaks once: {LAWS['once']}.")
    assert told[-1].endswith("2")
    assert sum("the provider does it" in line for line in told) == 2


def test_a_call_that_is_lost_ends_its_trace_with_that(capsys: pytest.CaptureFixture[str]) -> None:  # I5
    main(["--trace", "no-absent-retry"])
    assert capsys.readouterr().out.endswith("Whatever happens from here on, the call does not end.\n")
