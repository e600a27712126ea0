"""A tool: the named contract between the agent that decides a call and the worker that performs it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from inspect import cleandoc
from typing import Any, Generic, ParamSpec, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError

from deedbox.avro import schema_of, settled, travelled
from deedbox.codec import Codec
from deedbox.digest import digest_of
from deedbox.effects import Effect, within_reason
from deedbox.errors import (
    InvalidArguments,
    InvalidTool,
    PayloadTooLarge,
    UnencodableValue,
    UnstorableNumber,
    UnstorableText,
)
from deedbox.keys import check_tool_name
from deedbox.records import record_of
from deedbox.schemas import check_strict, json_schema_of
from deedbox.stored import from_stored, problems

P = ParamSpec("P")
A = TypeVar("A", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)

PAYLOAD_LIMIT = 900_000  # bytes; Kafka's default for a message is 1 MiB, headers and framing included
ORDER_KEY_LIMIT = 1_000  # bytes; it is part of an index entry, which ends at 2,704
TITLE = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what the dialects have in common
_UNSTABLE = (
    "the validators of {args} change a value that they have accepted. A worker reads the arguments through them once "
    "more, so let them give an accepted value back as it is."
)


class Tool(Generic[P, A, R]):
    """A tool with typed arguments and a typed result.

    name         names its topic and worker group; `[a-z][a-z0-9_]{0,62}`
    args         the model of its arguments; its docstring is the description, unless one is given
    result       the model of what a performed call answers
    effect       how a repeat can be told from a new deed (deedbox.effects)
    title        the name a chat model sees; default: name
    strict       promise the provider's strict mode; checked here
    order_by     the field of args whose value orders calls: equal values are performed one after the other
    order_stops  whether one that gave up or was refused stops those behind it, until a person lets them go on
    deadline     how long one attempt may take
    attempts     how often it may be performed before it is given up: a refused connection counts, probes and what no
                 handler saw do not
    give_up_after   how long after its first send it may be tried again
    expires      how long after its decision it may be begun or tried again; default: always

    Raises InvalidToolName, InvalidTool, TooLong, UnsupportedType, StrictSchema.
    """

    def __init__(
        self,
        name: str,
        *,
        args: Callable[P, A],
        result: type[R],
        effect: Effect,
        title: str | None = None,
        description: str | None = None,
        strict: bool = False,
        order_by: str | None = None,
        order_stops: bool = False,
        deadline: timedelta = timedelta(seconds=60),
        attempts: int = 10,
        give_up_after: timedelta = timedelta(hours=24),
        expires: timedelta | None = None,
    ) -> None:
        self.name: str = check_tool_name(name)
        self.args: type[A] = _model(name, "args", args)
        self.result: type[R] = _model(name, "result", result)
        self.effect: Effect = effect
        self.title: str = title or name
        self.description: str = description or _docstring(name, self.args)
        self.strict: bool = strict
        self.order_by: str | None = order_by
        self.order_stops: bool = order_stops
        self.deadline: timedelta = deadline
        self.attempts: int = attempts
        self.give_up_after: timedelta = give_up_after
        self.expires: timedelta | None = expires
        self._check()
        self._vetted = record_of(self.args).vetted

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[A, R]:
        """A call of this tool, not yet part of any step; raises InvalidArguments."""
        try:
            made = self.args(*args, **kwargs)
        except ValidationError as problem:
            raise InvalidArguments(tool=self.title, problems=problems(problem)) from problem
        return self.call(made)

    def call(self, args: A) -> Call[A, R]:
        """A call with arguments that are a model already; raises InvalidArguments."""
        try:
            args = settled(args)
            call = Call(self, args, digest_of(self.name, args))
        except (UnencodableValue, UnstorableText, UnstorableNumber) as problem:
            raise InvalidArguments(tool=self.title, problems=str(problem)) from problem
        if call.order_key is not None and len(call.order_key.encode()) > ORDER_KEY_LIMIT:
            what = f"{self.order_by}: as an order key it may take {ORDER_KEY_LIMIT} bytes"
            raise InvalidArguments(tool=self.title, problems=what)
        if self._vetted and travelled(args) != args:
            raise InvalidTool(tool=self.name, why=_UNSTABLE.format(args=self.args.__name__))
        return call

    def parse(self, arguments: str | Mapping[str, Any]) -> Call[A, R]:
        """A call of what a chat model wrote; raises InvalidArguments with words that the model can act on."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        try:
            made = self.args.model_validate_json(text.strip() or "{}")  # some providers write "" for no arguments
        except ValidationError as problem:
            raise InvalidArguments(tool=self.title, problems=problems(problem)) from problem
        return self.call(made)

    def recall(self, stored: str) -> Call[A, R]:
        """The call in stored arguments, read with today's model; raises UnreadableStored."""
        return self.call(from_stored(stored, self.args))

    @cached_property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as a chat model gets it."""
        return json_schema_of(self.args)

    def _check(self) -> None:
        if not TITLE.fullmatch(self.title):
            why = f"chat models take titles of 1 to 64 characters of A-Z a-z 0-9 _ -, and {self.title!r} is not one."
            raise InvalidTool(tool=self.name, why=why)
        if self.deadline <= timedelta(0) or self.attempts < 1:
            raise InvalidTool(tool=self.name, why="give a deadline above zero and at least one attempt.")
        if self.give_up_after <= timedelta(0) or (self.expires is not None and self.expires <= timedelta(0)):
            raise InvalidTool(tool=self.name, why="give_up_after and expires are times above zero.")
        within_reason(deadline=self.deadline, give_up_after=self.give_up_after, expires=self.expires)
        if self.order_stops and self.order_by is None:
            raise InvalidTool(tool=self.name, why="order_stops=True says what holds up an order: give order_by, too.")
        if (
            self.effect.window is not None
            and self.deadline + (self.effect.margin or timedelta(0)) >= self.effect.window
        ):
            why = f"one attempt may take {self.deadline}, and its key is trusted for less: shorten deadline."
            raise InvalidTool(tool=self.name, why=why)
        schema_of(self.args)
        schema_of(self.result)
        if self.order_by is not None:
            fields = record_of(self.args).fields
            flat = [field.name for field in fields if field.shape.flat and "bytes" not in field.shape.branches]
            if self.order_by not in flat:
                why = f"order_by={self.order_by!r} is not one of its fields with a single value: {', '.join(flat)}."
                raise InvalidTool(tool=self.name, why=why)
        if self.strict:
            check_strict(self.name, self.json_schema)


@dataclass(frozen=True)
class Call(Generic[A, R]):
    """One use of a tool. `key` and `id` are set once it is committed."""

    tool: Tool[..., A, R]
    args: A
    digest: bytes
    key: str | None = None
    id: UUID | None = None

    @property
    def order_key(self) -> str | None:
        """The value of the tool's `order_by` field as text; None or empty: no order."""
        if self.tool.order_by is None:
            return None
        value = getattr(self.args, self.tool.order_by)
        return None if value is None else str(getattr(value, "value", value)) or None

    @cached_property
    def stored(self) -> str:
        """The arguments as JSON text for the ledger, defaults included."""
        return self.args.model_dump_json(by_alias=False)

    def payload(self, codec: Codec) -> bytes:
        """The bytes that travel (I13); raises PayloadTooLarge."""
        payload = codec.encode(self.args)
        if not 0 < len(payload) <= PAYLOAD_LIMIT:
            raise PayloadTooLarge(tool=self.tool.name, size=len(payload), limit=PAYLOAD_LIMIT)
        return payload


def _model(tool: str, role: str, kind: object) -> Any:
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)) or kind is BaseModel:
        raise InvalidTool(tool=tool, why=f"{role} must be a pydantic model class; {kind!r} is not one.")
    return kind


def _docstring(tool: str, args: type[BaseModel]) -> str:
    text = args.__doc__
    if not text or not text.strip():
        why = f"the model needs to know what it does; give {args.__name__} a docstring, or description=."
        raise InvalidTool(tool=tool, why=why)
    return cleandoc(text)
