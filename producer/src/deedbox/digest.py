"""What was decided, as 32 bytes: the same key with another digest is another decision (I3)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import rfc8785
from pydantic import BaseModel

from deedbox.records import record_of
from deedbox.stored import check_storable, dump

__all__ = ["canonical", "check_storable", "digest_of"]

_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":"))
EXACT = 2**53  # from here on an integer is not exact in JSON's numbers


def digest_of(tool_name: str, args: BaseModel) -> bytes:
    """SHA-256 of the canonical JSON of tool and arguments.

    Defaults are left out, so a field that is added with one changes no recorded call. Raises UnstorableText and
    UnstorableNumber naming the path, UnsupportedType.
    """
    dumped = dump(args)
    check_storable(dumped, tool_name)
    bare = record_of(type(args)).shape.bare
    return hashlib.sha256(canonical({"args": bare(dumped) if bare else dumped, "tool": tool_name})).digest()


def canonical(value: Any) -> bytes:
    """JSON of RFC 8785; integers of 2^53 and more as strings."""
    if _plain(value):
        return _ENCODER.encode(value).encode()
    return rfc8785.dumps(_safe(value))


def _plain(value: Any) -> bool:
    """True if the standard encoder, several times faster, writes the same bytes.

    It does not for floats, for big integers, and for keys that sort otherwise in UTF-16.
    """
    if isinstance(value, dict):
        return all(map(str.isascii, value)) and all(map(_plain, value.values()))
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, int):
        return -EXACT < value < EXACT
    return not isinstance(value, float)


def _safe(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_safe(item) for item in value]
    if isinstance(value, int) and not -EXACT < value < EXACT:
        return str(value)
    return value
