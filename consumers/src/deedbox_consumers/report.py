"""What is reported of an attempt's end, checked before it joins a batch: a bad result spoils only itself (I14)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from deedbox.errors import UnstorableNumber, UnstorableText
from deedbox.stored import problems, to_stored

if TYPE_CHECKING:
    from datetime import timedelta

    from deedbox.step import AnyTool

RESULT_LIMIT = 800_000  # bytes of JSON; the result event, 900,000 at most, holds more than the result
RAW_LIMIT = 10_000  # characters that are kept of a result that cannot be stored
REASON_LIMIT = 2_000  # characters; a reason is read by people


@dataclass(frozen=True, slots=True)
class Report:
    """How an attempt ended, in the ledger's words.

    status      done, refused, gave_up (it happened, its result cannot be kept), pending (given back, was never sent);
                or how it ended without an answer: retry, unknown, stored, absent, cannot_tell
    unsettled   of an answer; False: it settles every attempt; None: those before it stay as they were
    delay       before it is tried again
    broken      the provider came to no answer: what a circuit breaker counts
    result and error are JSON text
    """

    status: str
    unsettled: bool | None = None
    result: str | None = None
    error: str | None = None
    delay: timedelta | None = None
    broken: bool = False


GIVEN_BACK = Report("pending")


def done(tool: AnyTool, value: object) -> Report:
    """The report of a handler's result; one that cannot be kept is a dead letter whose effect is known."""
    try:
        result: Any = value if isinstance(value, tool.result) else tool.result.model_validate(value)
    except ValidationError as problem:
        reason = f"the result does not fit {tool.result.__name__}: {problems(problem)}"
        return unstorable(reason, value)
    try:
        text = to_stored(result)
    except (UnstorableText, UnstorableNumber, PydanticSerializationError) as problem:
        return unstorable(f"result unstorable: {problem}", value)
    if len(text) * 4 > RESULT_LIMIT and (size := len(text.encode())) > RESULT_LIMIT:
        return unstorable(f"result unstorable: it takes {size} bytes of the {RESULT_LIMIT} that a result may", value)
    return Report("done", unsettled=False, result=text)


def unstorable(reason: str, value: object) -> Report:
    """It was performed, and its result cannot be kept as it is."""
    return Report("gave_up", unsettled=False, error=error(reason, raw=_raw(value), happened=True))


def error(reason: object, **more: object) -> str:
    """The JSON text of an error: never longer than is useful, always storable."""
    told: dict[str, object] = {"reason": clean(reason, REASON_LIMIT)}
    told |= {name: value if isinstance(value, bool) else clean(value, RAW_LIMIT) for name, value in more.items()}
    return json.dumps(told)


def clean(value: object, limit: int) -> str:
    """Its text as Postgres can hold it, cut to `limit` characters; whatever a handler gave, it has one."""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - a __str__ of somebody's
        text = f"a {type(value).__name__} that cannot be shown"
    return text[:limit].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _raw(value: object) -> str:
    try:
        return repr(value.model_dump() if isinstance(value, BaseModel) else value)
    except Exception:  # noqa: BLE001 - a __repr__ of somebody's
        return f"a {type(value).__name__} that cannot be shown"
