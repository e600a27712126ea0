"""The demo judges itself by what the provider and the model counted, and its processes do not outlive it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deedbox_consumers.demo.evidence import Call, Evidence, Score, score
from deedbox_consumers.demo.provider import Asked, Charge
from deedbox_consumers.demo.report import as_json, holds
from deedbox_debezium.patience import wait_for
from deedbox_debezium.stack.process import look


def judged(charged: list[str], *, asked: list[tuple[str, int]] | None = None, name: str = "act") -> Score:
    """Two decisions, about orders a and b."""
    seen = Evidence(("a", "b"))
    seen.charges += [Charge(order, "ch", 1, None, 0.0) for order in charged]
    seen.asked += [Asked(order, step, 0.0) for order, step in asked or [("a", 1), ("b", 1)]]
    return score(name, name, seen, ["a", "b"])


def test_a_charge_for_each_decision_is_once() -> None:
    figures = judged(["b", "a"])
    assert figures.once
    assert (figures.decisions, figures.charges, figures.lost, figures.extra) == (2, 2, 0, 0)


def test_a_second_charge_does_not_make_up_for_a_lost_one() -> None:
    figures = judged(["a", "a"])
    assert (figures.lost, figures.extra) == (1, 1)
    assert not figures.once


@pytest.mark.parametrize("charged", [["a"], ["a", "b", "b"], []])
def test_a_lost_or_repeated_charge_fails_the_demo(charged: list[str]) -> None:
    assert not holds([judged(["a", "b"]), judged(charged)])


def test_a_completion_asked_for_twice_fails_the_demo() -> None:
    figures = judged(["a", "b"], asked=[("a", 1), ("b", 1), ("b", 1), ("b", 2)])
    assert figures.asked_twice == 1
    assert not holds([figures])


def test_the_act_without_deedbox_is_not_judged() -> None:
    assert holds([judged(["a", "a", "b"], name="naive"), judged(["a", "b"])])


def test_an_act_in_which_nothing_was_decided_proves_nothing() -> None:
    assert not holds([score("act", "act", Evidence(()), [])])


def test_hops_are_medians_over_what_was_seen() -> None:
    seen = Evidence(("a",))
    for n, recorded in enumerate((11.0, 12.0, 14.0)):
        moments = {"decided": 9.0, "committed": 10.0, "in Kafka": 9.9995, "performed": 10.5, "recorded": recorded}
        seen.calls[str(n)] = Call(str(n), "a:1:0", "a", moments=moments)
    figures = score("act", "act", seen, ["a"])
    assert figures.hops == {"committed": 1.0, "in Kafka": 0.0, "recorded": 1.5}
    assert as_json([figures], 1.0)["acts"]["act"]["hops"] == {"committed": 1.0, "in_kafka": 0.0, "recorded": 1.5}


def test_a_process_of_the_demo_dies_with_who_started_it(tmp_path: Path) -> None:
    starter = (
        "import sys, time; from pathlib import Path; from deedbox_consumers.demo.player import outside;"
        "player, url = outside(Path(sys.argv[1]), log=Path(sys.argv[2]), environment={});"
        "print(player.pid, flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", starter, str(tmp_path / "books"), str(tmp_path / "log")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert look(pid)
        process.send_signal(signal.SIGKILL)
        assert wait_for(lambda: look(pid) is None, 30)
