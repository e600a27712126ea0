"""A step on its way into the ledger: what is asked, how it is said in SQL, and what the ledger's verdict means."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from deedbox.errors import (
    BadInput,
    DeedboxError,
    PlanDivergence,
    RunClosed,
    StepGap,
    StepTaken,
    UnknownRun,
    Unsettled,
)
from deedbox.keys import call_key
from deedbox.tool import Call, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deedbox.chat import Chat, Json
    from deedbox.codec import Codec

AnyTool: TypeAlias = Tool[..., Any, Any]
AnyCall: TypeAlias = Call[Any, Any]


@dataclass(frozen=True)
class NewStep:
    """A journal entry to be committed.

    `asked` has one item per position of the reply; `calls` holds the valid ones by position, `payloads` the bytes of
    those that were encoded to see whether they can be. `shown` is what the model saw of the previous step's calls;
    `note` what else is recorded (deedbox.journal.Step). `while_open`: it may be committed while calls are open.
    """

    run_id: str
    n: int
    kind: str
    reply: Json | None = None
    messages: Sequence[Json] = ()
    shown: Sequence[Json] = ()
    asked: Sequence[Json] = ()
    calls: Mapping[int, AnyCall] = field(default_factory=dict)
    payloads: Mapping[int, bytes] = field(default_factory=dict)
    note: Json | None = None
    while_open: bool = False

    def parameters(self, codec: Codec) -> dict[str, Any]:
        """The parameters of the statement `commit_step`; raises BadInput for what cannot be stored."""
        calls = self.calls.values()
        return {
            "run": self.run_id,
            "n": self.n,
            "kind": self.kind,
            "reply": None if self.reply is None else _json(self.reply),
            "messages": _json(list(self.messages)) if self.messages else None,
            "shown": _json(list(self.shown)) if self.shown else None,
            "calls": _json(list(self.asked)) if self.asked else None,
            "note": _json(self.note) if self.note else None,
            "width": len(self.asked),
            "positions": list(self.calls),
            "tools": [call.tool.name for call in calls],
            "args": [call.stored for call in calls],
            "digests": [call.digest for call in calls],
            "payloads": [self.payloads.get(position) or call.payload(codec) for position, call in self.calls.items()],
            "order_keys": [call.order_key for call in calls],
            "while_open": self.while_open,
            "again": False,
            "traceparent": None,
        }

    def same_messages(self, stored: str | None) -> bool:
        """Whether the messages are those that were stored."""
        return bool(json.loads(_json(list(self.messages))) == json.loads(stored or "[]"))

    def judge(self, row: Sequence[Any]) -> list[AnyCall]:
        """The committed calls, each with its key and id; or the error that the ledger's verdict stands for."""
        verdict, detail, ids, stored = row
        match verdict:
            case "fresh":
                return [
                    replace(call, key=call_key(self.run_id, self.n, position), id=UUID(id_))
                    for (position, call), id_ in zip(self.calls.items(), ids, strict=True)
                ]
            case "taken":
                if detail != self.kind:
                    raise StepTaken(run_id=self.run_id, step=self.n)
                self._compare({position: (tool, args, digest) for position, tool, args, digest in json.loads(stored)})
                raise StepTaken(run_id=self.run_id, step=self.n)
            case "unknown":
                raise UnknownRun(run_id=self.run_id)
            case "gap":
                raise StepGap(run_id=self.run_id, step=self.n)
            case "closed":
                raise RunClosed(run_id=self.run_id)
            case _:
                raise Unsettled(run_id=self.run_id, key=detail, status="open")

    def _compare(self, stored: Mapping[int, tuple[str, Any, str]]) -> None:
        """Tell a race (the same was decided) from a divergence (I3), by tool and original digest."""
        for position in sorted(stored.keys() | self.calls.keys()):
            old, new = stored.get(position), self.calls.get(position)
            if old and new and old[0] == new.tool.name and (old[2] == new.digest.hex() or _reads_same(old[1], new)):
                continue
            raise PlanDivergence(
                key=call_key(self.run_id, self.n, position),
                stored=f"{old[0]}({json.dumps(old[1], ensure_ascii=False)})" if old else "no call",
                asked=f"{new.tool.name}({new.stored})" if new else "no call",
            )


def decide(
    chat: Chat, codec: Codec, tools: Mapping[str, AnyTool], reply: Json | None, calls: Iterable[AnyCall] | None
) -> tuple[list[Json], dict[int, AnyCall], dict[int, bytes]]:
    """What a reply (or code, with `calls`) asks for: an item per position, the valid calls, and the bytes of a reply's.

    A call that the model made wrongly is part of the decision: it says why, has no action, and its siblings keep their
    positions. A call that code made wrongly has already raised.
    """
    if calls is not None:
        made = dict(enumerate(calls))
        return [{"tool": call.tool.name} for call in made.values()], made, {}
    asked: list[Json] = []
    valid: dict[int, AnyCall] = {}
    payloads: dict[int, bytes] = {}
    titles = {tool.title: tool for tool in tools.values()}
    for position, wish in enumerate(chat.calls(reply) if reply is not None else ()):
        item: Json = {"id": wish.id, "tool": wish.name}
        if tool := titles.get(wish.name):
            try:
                call = tool.parse(wish.arguments)
                payloads[position] = call.payload(codec)
                valid[position] = call
            except BadInput as problem:
                item["error"] = str(problem)
        else:
            item["error"] = f"There is no tool {wish.name!r}; there are: {', '.join(sorted(titles)) or 'none'}."
        asked.append(item)
    return asked, valid, payloads


def _reads_same(stored: Any, call: AnyCall) -> bool:
    """Whether stored arguments, read with today's model, are the very call: a new default changes no decision."""
    try:
        return call.tool.recall(json.dumps(stored)).digest == call.digest
    except DeedboxError:
        return False


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: legal as an escape only
        return json.dumps(value)
    return text
