"""What can be wrong with a run, a step or a commit."""

from __future__ import annotations

from deedbox.errors.base import BadInput, CommitRefused, DeedboxError


class UnknownRun(BadInput):
    """There is no run {run_id}: open it with messages=[...], or check the id."""

    run_id: str


class UnknownCall(BadInput):
    """Run {run_id} has no call {key}, as far as it was read: take the call that commit returned, or read the run again."""

    run_id: str
    key: str | None


class NoSuchCall(BadInput):
    """There is no call {key}: `deedbox runs show RUN` lists the calls of a run."""

    key: str


class NoSuchRun(BadInput):
    """There is no run {run_id}: `deedbox runs list` lists them."""

    run_id: str


class NothingChosen(BadInput):
    """Which dead letters are meant? Give their keys, a filter ({filters}), or --all."""

    filters: str


class RunTaken(BadInput):
    """Run {run_id} was opened with other messages: leave messages away to resume it, or choose another run id."""

    run_id: str


class StepTaken(DeedboxError):
    """Step {step} of run {run_id} was committed by somebody else: nothing of this transaction was written, read on."""

    run_id: str
    step: int


class PlanDivergence(DeedboxError):
    """The key {key} was committed as {stored} and is now asked for {asked}: resume from the recorded step, or fork the run."""

    key: str
    stored: str
    asked: str


class StepGap(CommitRefused):
    """Step {step} of run {run_id} cannot be committed, since the step before it does not exist: read the run again."""

    run_id: str
    step: int


class RunClosed(CommitRefused):
    """Run {run_id} takes no more steps: it was ended or restored. Start another run."""

    run_id: str


class Unsettled(CommitRefused):
    """Call {key} of run {run_id} is {status}: nothing further is decided until it is settled. Look at it with `deedbox calls show {key}`."""

    run_id: str
    key: str
    status: str


class TurnLeft(CommitRefused):
    """Turn {step} of run {run_id} ended without a committed step: commit in it, and let your transaction end before the loop goes on."""

    run_id: str
    step: int


class TurnOver(BadInput):
    """Turn {step} of run {run_id} is committed, and one turn is one decision: what comes next is decided in the next turn of the loop."""

    run_id: str
    step: int


class NothingDecided(BadInput):
    """Turn {step} of run {run_id} was given no reply: give your model's reply or, for code without a model, calls=[…] (an empty list ends the run)."""

    run_id: str
    step: int


class NoTransaction(BadInput):
    """The connection given as on= is {state}: {remedy}."""

    state: str
    remedy: str


class NotAHandle(BadInput):
    """on= takes {wanted}, not {given}."""

    wanted: str
    given: str
