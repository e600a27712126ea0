"""How a repeat of a call can be told from a new deed.

provider_key(window)    the provider drops a repeat that carries the same key, for as long as it remembers keys
probe()                 somebody can be asked whether it happened; `provider_key(window) | probe()` is both
repeatable              doing it again changes nothing more (a read, a PUT of the same value)
unrepeatable            none of these: what is unknown stays unknown until a person says
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeAlias

from deedbox.errors import EffectsDoNotJoin, InvalidEffect, InvalidSettling, TooLong

LONGEST = timedelta(days=3650)  # of any time of a tool: sums with more would leave the ledger's calendar

Kind: TypeAlias = Literal["provider_key", "probe", "provider_key+probe", "repeatable", "unrepeatable"]


@dataclass(frozen=True)
class Effect:
    """What is known about repeating a call; made by the names of this module.

    window, margin   of a provider key: how long it is remembered, and what of that is not relied on
    replayed         the response header by which the provider says that it repeats a stored answer
    settle_after     of a probe: how long after an attempt's deadline its request may still arrive
    harmless         doing it again changes nothing
    """

    window: timedelta | None = None
    margin: timedelta | None = None
    replayed: str | None = None
    settle_after: timedelta | None = None
    harmless: bool = False

    @property
    def kind(self) -> Kind:
        """The effect in the ledger's words."""
        if self.harmless:
            return "repeatable"
        if self.window is not None:
            return "provider_key" if self.settle_after is None else "provider_key+probe"
        return "unrepeatable" if self.settle_after is None else "probe"

    def __or__(self, other: Effect) -> Effect:
        """A key and a probe: inside the window the key is trusted, past it the probe is asked.

        The margin becomes at least `settle_after`: what was sent under the key must have arrived before the provider
        may forget it. Raises EffectsDoNotJoin, and InvalidEffect when nothing is left of the window.
        """
        kinds = {self.kind, other.kind}
        if kinds != {"provider_key", "probe"}:
            raise EffectsDoNotJoin(one=self.kind, other=other.kind)
        keyed, asked = (self, other) if self.window is not None else (other, self)
        assert keyed.window is not None
        assert keyed.margin is not None
        assert asked.settle_after is not None
        margin = max(keyed.margin, asked.settle_after)
        return replace(provider_key(keyed.window, margin, replayed=keyed.replayed), settle_after=asked.settle_after)


def provider_key(window: timedelta, margin: timedelta = timedelta(minutes=5), *, replayed: str | None = None) -> Effect:
    """The provider honours an idempotency key for `window` after it first saw it.

    The key is trusted for `window` less `margin`: our clock starts before the first send, and the provider may forget
    early, or get a request late (one may arrive up to the margin after its attempt's deadline). It must keep its
    refusals under the key, too, or what it refused may still happen by an earlier request.

    `replayed` names the header with which it marks a stored answer, such as `Idempotent-Replayed`: a stored server
    error under a key will never become another answer. Raises TooLong, and InvalidEffect when nothing is left of
    the window.
    """
    if margin < timedelta(0) or window <= margin:
        raise InvalidEffect(window=window, margin=margin)
    within_reason(window=window)
    return Effect(window, margin, replayed)


def probe(*, settle_after: timedelta = timedelta(minutes=10)) -> Effect:
    """The tool has a probe: a function that is asked whether a key took effect (`@handlers.probe(tool)`).

    A request may still be on its way when its attempt is over: in a proxy, or in a process that was stopped. So "it did
    not happen" is the last word only `settle_after` after the attempt's deadline; before that it is asked again, unless
    a provider key makes a repeat harmless. Raises InvalidSettling for a negative time, TooLong.
    """
    if settle_after < timedelta(0):
        raise InvalidSettling(settle_after=settle_after)
    within_reason(settle_after=settle_after)
    return Effect(settle_after=settle_after)


def within_reason(**times: timedelta | None) -> None:
    """Raise TooLong for a time that the ledger cannot reckon with."""
    for what, given in times.items():
        if given is not None and given > LONGEST:
            raise TooLong(what=what, given=given)


repeatable: Effect = Effect(harmless=True)
unrepeatable: Effect = Effect()
