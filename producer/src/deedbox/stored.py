"""The JSON form of a model that Postgres keeps, and what Postgres cannot keep.

Fields go under their names, not their aliases: an alias is what a model or a provider sees and may change.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from deedbox.errors import UnreadableStored, UnstorableNumber, UnstorableText

M = TypeVar("M", bound=BaseModel)

LONG = 2**63  # Avro's and Postgres' widest integer


def dump(value: BaseModel) -> dict[str, Any]:
    """The model as a JSON value, defaults included: they may change tomorrow, what was decided may not."""
    return value.model_dump(mode="json", by_alias=False)


def to_stored(value: BaseModel) -> str:
    """The model as JSON text for a jsonb column; raises UnstorableText and UnstorableNumber."""
    check_storable(dump(value), type(value).__name__)
    return value.model_dump_json(by_alias=False)


def from_stored(text: str, model: type[M]) -> M:
    """Read what `to_stored` wrote with today's model; raises UnreadableStored."""
    try:
        return model.model_validate_json(text, extra="ignore", by_alias=False, by_name=True)
    except ValidationError as problem:
        raise UnreadableStored(model=model.__name__, problems=problems(problem)) from problem


def problems(error: ValidationError) -> str:
    """Pydantic's findings as one line a person or a model can act on."""
    return "; ".join(
        f"{'.'.join(map(str, found['loc'])) or 'arguments'}: {found['msg']}"
        for found in error.errors(include_url=False, include_context=False, include_input=False)
    )


def check_storable(value: Any, where: str) -> None:
    """Refuse what jsonb or Avro cannot hold: NUL, lone surrogates, NaN, infinity, integers beyond 64 bits (I14).

    Raises UnstorableText and UnstorableNumber naming the path, before any SQL: inside the caller's transaction it
    would be too late.
    """
    if not _storable(value):
        _refuse(value, where)


def _storable(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" not in value and (value.isascii() or _has_bytes(value))
    if isinstance(value, dict):
        return all(map(_storable, value)) and all(map(_storable, value.values()))
    if isinstance(value, list):
        return all(map(_storable, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -LONG <= value < LONG


def _has_bytes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(value: Any, where: str) -> None:
    """Walk again to the first value that is not storable: paths are not built for those that are."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_storable(key, f"{where}, a key")
            check_storable(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_storable(item, f"{where}[{index}]")
    elif isinstance(value, str):
        raise UnstorableText(where=where, what="a NUL character" if "\0" in value else "half of a surrogate pair")
    else:
        what = f"{value}" if isinstance(value, float) else "an integer beyond 64 bits"
        raise UnstorableNumber(where=where, what=what)
