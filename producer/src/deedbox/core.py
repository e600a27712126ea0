"""What both shells share: a box's tools, dialect, statements and listeners, without input or output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from deedbox.chat import Chat, openai_chat, plain
from deedbox.codec import AvroCodec, Codec
from deedbox.errors import (
    NotAChat,
    NotATool,
    NothingDecided,
    NotMessages,
    RunTaken,
    ToolTwice,
    TurnOver,
    UnknownCall,
    UnknownRun,
    UnknownTool,
    WorkerEnded,
)
from deedbox.journal import Journal
from deedbox.keys import check_run_id
from deedbox.outcomes import Outcome, outcome_of
from deedbox.settings import Settings
from deedbox.statements import Statements
from deedbox.step import NewStep, decide
from deedbox.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic import BaseModel

    from deedbox.chat import Json
    from deedbox.step import AnyCall, AnyTool
    from deedbox.tool import Call

    Listener = Callable[[Sequence[AnyCall]], None]

OpenCalls: TypeAlias = Literal["wait", "refuse", "cancel"]

R = TypeVar("R", bound="BaseModel")


class BoxCore:
    """The part of a box that does no input or output.

    url       of the ledger's Postgres; default: DEEDBOX_DATABASE_URL, or the local stack of this folder
    tools     what the agent may call
    chat      the dialect of your model's client (deedbox.chat)
    schema    of the ledger; default `deedbox`
    codec     how arguments become bytes; give the same to the workers

    Raises MissingSetting, WrongSetting, WrongDatabaseUrl, NotATool, ToolTwice, NotAChat.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tools: Iterable[AnyTool] = (),
        chat: Chat = openai_chat,
        schema: str | None = None,
        codec: Codec | None = None,
    ) -> None:
        settings = Settings.load(url, schema)
        self.database_url: str = settings.need("database_url")
        self.schema: str = settings.schema
        if not isinstance(chat, Chat):
            raise NotAChat(given=repr(chat))
        self.chat: Chat = chat
        self.codec: Codec = codec or AvroCodec()
        self.tools_by_name: Mapping[str, AnyTool] = by_name(tools)
        self.statements: Statements = Statements("deedbox", "agent.sql", self.schema)
        self.registry: Statements = Statements("deedbox", "registry.sql", self.schema)
        self.migrations: Statements = Statements("deedbox", "migrate.sql", self.schema)
        self.worker_problem: BaseException | None = None
        self._listeners: list[Listener] = []

    @property
    def tools(self) -> list[Json]:
        """The tools as your model's client takes them."""
        return self.chat.tools(self.tools_by_name.values())

    def on_commit(self, listener: Listener) -> None:
        """Tell `listener` the calls of each step that this box has committed, once they are visible to others."""
        self._listeners.append(listener)

    def off_commit(self, listener: Listener) -> None:
        """Tell `listener` no more."""
        self._listeners.remove(listener)

    def worker_ended(self, problem: BaseException | None) -> None:
        """The worker inside this process has ended with `problem`, or (None) begins: whoever waits is to know."""
        self.worker_problem = problem

    def check_worker(self) -> None:
        """Raise WorkerEnded when the worker inside this process has ended: nobody here would perform a call."""
        if self.worker_problem is not None:
            raise WorkerEnded(problem=repr(self.worker_problem)) from self.worker_problem

    def tell(self, calls: Sequence[AnyCall]) -> None:
        """Tell the listeners of calls that were committed just now."""
        if calls:
            for listener in self._listeners:
                listener(calls)


class RunCore:
    """The part of a run that does no input or output: its journal, and the steps that follow from it."""

    def __init__(self, core: BoxCore, run_id: str) -> None:
        self.id: str = run_id
        self.core: BoxCore = core
        self.journal: Journal = Journal(run_id, core.chat)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def finished(self) -> bool:
        """Whether the last reply asks for no tool and nothing is open, as far as it was read."""
        return self.journal.finished

    @property
    def text(self) -> str:
        """The text of the last reply."""
        return self.journal.text

    @property
    def messages(self) -> list[Json]:
        """The conversation so far, answers to the last calls included."""
        return self.journal.messages()

    def outcome(self, call: Call[Any, R]) -> Outcome[R]:
        """What became of a committed call, as far as it was read; raises UnknownCall for a call of another run."""
        known = self.journal.calls.get(call.key or "")
        if known is None:
            raise UnknownCall(run_id=self.id, key=call.key)
        return outcome_of(known.status, known.result, known.error, call.tool.result)

    def check_turn(self, number: int) -> None:
        """Raise TurnOver unless step `number` is still to be committed."""
        if self.journal.next != number:
            raise TurnOver(run_id=self.id, step=number)

    def decision(self, reply: object | None, calls: Iterable[AnyCall] | None, *, while_open: bool = False) -> NewStep:
        """The next step: what the reply, or code without a model, decides. Raises BadInput."""
        core, journal = self.core, self.journal
        if reply is not None and calls is not None:
            raise TypeError("give the model's reply, or the calls of code without a model, not both")
        if reply is None and calls is None:
            raise NothingDecided(run_id=self.id, step=journal.next)
        recorded = None if reply is None else plain(reply)
        asked, valid, payloads = decide(core.chat, core.codec, core.tools_by_name, recorded, calls)
        for call in valid.values():
            if core.tools_by_name.get(call.tool.name) is not call.tool:
                raise UnknownTool(tool=call.tool.name)
        return NewStep(
            self.id,
            journal.next,
            "decision",
            recorded,
            shown=journal.answers(),
            asked=asked,
            calls=valid,
            payloads=payloads,
            note=journal.note,
            while_open=while_open,
        )

    def input(self, messages: Iterable[Any], *, while_open: bool) -> NewStep:
        """The next step: what somebody outside says. Raises NotMessages."""
        told = plain_messages(messages)
        if not told:
            raise NotMessages(given="none at all")
        return NewStep(self.id, self.journal.next, "input", messages=told, while_open=while_open)

    def withdrawal(self, kind: Literal["cancel", "abort"], reason: str, messages: Iterable[Any] = ()) -> NewStep:
        """The next step: calls of which nothing was sent are withdrawn. Raises NotMessages."""
        note = {"reason": reason} if reason else None
        told = plain_messages(messages)
        return NewStep(self.id, self.journal.next, kind, messages=told, note=note, while_open=True)


def by_name(tools: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """The tools by their names; raises NotATool and, for two of one name or title, ToolTwice."""
    if not isinstance(tools, Iterable):
        raise NotATool(given=repr(tools))
    found: dict[str, AnyTool] = {}
    titles: set[str] = set()
    for tool in tools:
        if not isinstance(tool, Tool):
            raise NotATool(given=repr(tool))
        if tool.name in found or tool.title in titles:
            raise ToolTwice(name=tool.name if tool.name in found else tool.title)
        found[tool.name] = tool
        titles.add(tool.title)
    return found


def first_step(run_id: str, messages: Iterable[Any]) -> NewStep:
    """Step 0 of a run; raises InvalidRunId, NotMessages."""
    check_run_id(run_id)
    return NewStep(run_id, 0, "input", messages=plain_messages(messages))


def plain_messages(messages: Iterable[Any]) -> list[Json]:
    """Messages as JSON; raises NotMessages."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise NotMessages(given=repr(messages))
    told = []
    for message in messages:
        try:
            told.append(plain(message))
        except TypeError:
            raise NotMessages(given=f"one that holds {message!r}") from None
    return told


def must_open(step: NewStep, row: Sequence[Any] | None) -> bool:
    """Whether step 0 is still to be committed, judged by a row of the statement `run`; raises UnknownRun, RunTaken."""
    if row is None:
        if not step.messages:
            raise UnknownRun(run_id=step.run_id)
        return True
    _status, _created_at, stored = row
    if step.messages and not step.same_messages(stored):
        raise RunTaken(run_id=step.run_id)
    return False
