"""A run as its journal tells it: steps, calls and their outcomes, folded without any input or output.

Both shells (`run.py` and `aio_run.py`) read rows and hand them here; what the model is to see, what is still open and
whether the run has ended is decided in this one place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deedbox.chat import Answer, Json
from deedbox.errors import Unsettled
from deedbox.keys import call_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deedbox.chat import Chat
    from deedbox.step import AnyCall, NewStep

OPEN = frozenset({"held", "pending", "running", "retry", "in_doubt"})


@dataclass(frozen=True)
class Step:
    """One entry of the journal. `calls` has one item per position of the reply: id, tool and, if invalid, error.

    `note` has, where there is something to it: `reason` of a cancel or abort; of a decision the keys of the calls that
    the model saw as still being settled (`unsettled`), and of those whose end it was told then (`told`).
    """

    n: int
    kind: str
    reply: Json | None
    messages: list[Json]
    shown: list[Json]
    calls: list[Json]
    note: Json
    created_at: str

    @classmethod
    def of(cls, row: Sequence[Any]) -> Step:
        """A row of the statement `steps`."""
        n, kind, reply, messages, shown, calls, note, created_at = row
        told, seen, asked = (_load(text) or [] for text in (messages, shown, calls))
        return cls(n, kind, _load(reply), told, seen, asked, _load(note) or {}, str(created_at))


@dataclass(frozen=True)
class Decided:
    """A call of the journal and where it stands. `args`, `result` and `error` are JSON values."""

    id: UUID
    key: str
    step: int
    position: int
    tool: str
    args: Any
    status: str = "pending"
    attempt: int = 0
    unsettled: bool = False
    result: Any = None
    error: Any = None

    @classmethod
    def of(cls, row: Sequence[Any]) -> Decided:
        """A row of the statement `calls`."""
        id_, key, step, call, tool, args, status, attempt, unsettled, result, error = row
        return cls(
            UUID(id_), key, step, call, tool, _load(args), status, attempt, unsettled, _load(result), _load(error)
        )

    @property
    def open(self) -> bool:
        """Whether the call has no final outcome yet."""
        return self.status in OPEN


@dataclass
class Journal:
    """The journal of the run `run_id`, as far as it was read."""

    run_id: str
    chat: Chat
    steps: list[Step] = field(default_factory=list)
    calls: dict[str, Decided] = field(default_factory=dict)
    stale: bool = True  # the database may hold steps that are not here

    @property
    def next(self) -> int:
        """The number of the step that comes next."""
        return len(self.steps)

    def add(self, steps: Iterable[Sequence[Any]], calls: Iterable[Sequence[Any]]) -> None:
        """Fold in rows of the statements `steps` and `calls`, read from step `next` on."""
        for step in map(Step.of, steps):
            if step.n == self.next:
                self.steps.append(step)
        for call in map(Decided.of, calls):
            if call.step < self.next:
                self.calls[call.key] = call
        self.stale = False

    def take(self, step: NewStep, calls: Sequence[AnyCall]) -> None:
        """Fold in the step `next`, which was committed just now by this process."""
        shown, messages, asked = list(step.shown), list(step.messages), list(step.asked)
        self.steps.append(Step(step.n, step.kind, step.reply, messages, shown, asked, step.note or {}, ""))
        for (position, asked_for), call in zip(step.calls.items(), calls, strict=True):
            if call.id is not None and call.key is not None:
                args = json.loads(asked_for.stored)
                self.calls[call.key] = Decided(call.id, call.key, step.n, position, call.tool.name, args)
        self.stale = False

    def settle(self, rows: Iterable[Sequence[Any]]) -> None:
        """Fold in rows of the statement `outcomes`."""
        by_id = {str(call.id): call for call in self.calls.values() if call.open}
        for id_, status, attempt, unsettled, result, error, last in rows:
            self.stale = self.stale or last >= self.next
            if known := by_id.get(id_):
                self.calls[known.key] = replace(
                    known,
                    status=status,
                    attempt=attempt,
                    unsettled=unsettled,
                    result=_load(result),
                    error=_load(error),
                )

    @property
    def open(self) -> list[Decided]:
        """The calls without a final outcome."""
        return [call for call in self.calls.values() if call.open]

    def refuse_doubt(self) -> None:
        """Raise Unsettled when a call is in doubt: waiting alone does not settle it."""
        for call in self.calls.values():
            if call.status == "in_doubt":
                raise Unsettled(run_id=self.run_id, key=call.key, status="in_doubt")

    def impatience(self) -> Unsettled:
        """The error for a wait that took too long."""
        call = self.open[0]
        return Unsettled(run_id=self.run_id, key=call.key, status=f"still {call.status}")

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted: it takes no more steps."""
        return bool(self.steps) and self.steps[-1].kind == "abort"

    @property
    def finished(self) -> bool:
        """Whether nothing is to be decided: it was aborted, or the last reply asks for nothing and all is told."""
        return self.aborted or (self.told and not self.open)

    @property
    def told(self) -> bool:
        """Whether the model has nothing to say: its last reply asks for nothing, and nothing has come since."""
        last = next((step for step in reversed(self.steps) if step.kind == "decision" or step.messages), None)
        return last is not None and last.kind == "decision" and not last.calls and not self.news

    @property
    def text(self) -> str:
        """The text of the last reply; empty when there is none."""
        for step in reversed(self.steps):
            if step.reply is not None:
                return self.chat.text(step.reply)
        return ""

    @property
    def note(self) -> Json | None:
        """What the next decision records of what the model is shown (Step.note)."""
        kept = {"unsettled": [call.key for call in self.open], "told": [call.key for call in self.news]}
        return {name: keys for name, keys in kept.items() if keys} or None

    @property
    def news(self) -> list[Decided]:
        """The calls that the model saw as still being settled, that have ended, and of whose end it was not told."""
        shown = {key: None for step in self.steps for key in step.note.get("unsettled", ())}
        told = {key for step in self.steps for key in step.note.get("told", ())}
        return [self.calls[key] for key in shown if key not in told and not self.calls[key].open]

    def answers(self) -> list[Json]:
        """What the model is told next of calls: answers to the last decision's, and how earlier ones have ended."""
        told: list[Json] = []
        last = next((step for step in reversed(self.steps) if step.kind == "decision"), None)
        if last is not None and last.reply is not None and last.calls:
            told = self.chat.answers(last.reply, [self._answer(last, at, asked) for at, asked in enumerate(last.calls)])
        return told + [self.chat.news(_truth(call)) for call in self.news]

    def messages(self) -> list[Json]:
        """What the model is to see now: what it saw at each step, verbatim, and the answers to its last calls.

        What came from outside while calls were open stands behind their answers: nothing may come between the two.
        """
        told: list[Json] = []
        waiting: list[Json] = []
        for step in self.steps:
            waiting += step.messages
            if step.kind == "decision":
                told += step.shown + waiting
                waiting = []
                if step.reply is not None:
                    told += self.chat.said(step.reply)
        return told + self.answers() + waiting

    def _answer(self, step: Step, position: int, asked: Json) -> Answer:
        if error := asked.get("error"):
            return Answer(str(error), error=True)
        return answer(self.calls[call_key(self.run_id, step.n, position)])


def _truth(call: Decided) -> str:
    """The end of a call that the model believes to be open."""
    args = json.dumps(call.args, ensure_ascii=False)
    return f"The call {call.tool}({args}) that was still being settled has ended. {answer(call).text}"


def answer(call: Decided) -> Answer:
    """What the model is told of a call. Only the provider's own "no" is a failure to it (I11)."""
    reason = (call.error or {}).get("reason") or (call.error or {}).get("message") or ""
    match call.status:
        case "done":
            return Answer(json.dumps(call.result, ensure_ascii=False))
        case "refused":
            code = (call.error or {}).get("code")
            return Answer(f"Refused: {f'{code}: ' if code else ''}{reason}", error=True)
        case "gave_up":
            return Answer(
                "This call could not be completed and was handed to an operator, who decides. Do not repeat it."
            )
        case "rejected" | "cancelled":
            return Answer(f"This call was {call.status} and not performed.{f' Reason: {reason}' if reason else ''}")
        case _:
            return Answer("This call is still being settled; its result is not known yet. Do not repeat it.")


def _load(text: str | None) -> Any:
    return None if text is None else json.loads(text)
