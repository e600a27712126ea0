"""How a repeat of a call can be told from a new deed.

provider_key(window)    the provider drops a repeat that carries the same key, for as long as it remembers keys
repeatable              doing it again changes nothing more (a read, a PUT of the same value)
probe()                 somebody can be asked whether it happened
unrepeatable            none of these: what is unknown stays unknown until a person says
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from deedbox.errors import InvalidEffect


@dataclass(frozen=True)
class Effect:
    """What is known about repeating a call; made by the names of this module."""

    kind: Literal["provider_key", "repeatable", "probe", "unrepeatable"]
    window: timedelta | None = None
    margin: timedelta | None = None


def provider_key(window: timedelta, margin: timedelta = timedelta(minutes=5)) -> Effect:
    """The provider honours an idempotency key for `window` after it first saw it.

    The key is trusted for `window` less `margin`: our clock starts before the first send, and the provider may forget
    early. Raises InvalidEffect when nothing is left of the window.
    """
    if margin < timedelta(0) or window <= margin:
        raise InvalidEffect(window=window, margin=margin)
    return Effect("provider_key", window, margin)


def probe() -> Effect:
    """The tool can be asked whether a key took effect."""
    return Effect("probe")


repeatable: Effect = Effect("repeatable")
unrepeatable: Effect = Effect("unrepeatable")
