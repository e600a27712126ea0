"""The connector: one per box, rendered from `connector.json`, validated by Connect before it is put there."""

from __future__ import annotations

import json
import string
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from deedbox.errors import ConnectorFailed, ConnectorInvalid, NoConnector
from deedbox_debezium.ledger import Box, Ledger, Slot
from deedbox_debezium.patience import wait_for
from deedbox_debezium.rest import ConnectorState, Rest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deedbox.settings import Settings

RUN_WITHIN: Final = 60.0  # seconds from PUT to reading; a first snapshot of a large outbox goes on behind it


class _Template(string.Template):
    delimiter = "@"  # `${…}` belongs to Connect and to the router


@dataclass(frozen=True)
class Change:
    """A setting that Connect holds otherwise than wanted; None = not there."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Plan:
    """What `apply` would do: the connector's name, whether it exists, and what would change."""

    connector: str
    exists: bool
    changes: tuple[Change, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """How the connector is: None = there is none. Its slot likewise."""

    connector: str
    state: ConnectorState | None
    slot: Slot | None

    @property
    def reading(self) -> bool:
        """Whether it runs and holds its slot."""
        return self.state is not None and self.state.running and self.slot is not None and self.slot.active


def render(box: Box, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """The connector's whole configuration for this box; `overrides` replaces or adds settings."""
    text = (files("deedbox_debezium") / "connector.json").read_text(encoding="utf-8")
    # prefix and schema hold only a-z 0-9 _ (deedbox.settings), so neither JSON nor SQL nor a pattern can break
    template: dict[str, str] = json.loads(text)
    names = {"prefix": box.prefix, "schema": box.schema, "database": box.database}
    filled = {_fill(name, names): _fill(value, names) for name, value in template.items()}
    return filled | {"name": box.connector} | dict(overrides or {})


def plan(settings: Settings, overrides: Mapping[str, str] | None = None) -> Plan:
    """Compare with what Connect holds, and let Connect validate it. Changes nothing."""
    box = Ledger(settings).check()
    rest = Rest(settings.need("connect_url"))
    wanted, held = render(box, overrides), rest.config(box.connector)
    before = held or {}
    changes = tuple(
        Change(name, before.get(name), wanted.get(name))
        for name in sorted(wanted.keys() | before.keys())
        if before.get(name) != wanted.get(name)
    )
    return Plan(box.connector, held is not None, changes, tuple(rest.problems(wanted)))


def apply(settings: Settings, overrides: Mapping[str, str] | None = None) -> Status:
    """Put the connector there, or change it, and wait until it reads its slot. Again and again without harm.

    Raises ConnectorInvalid with Connect's reasons before anything is changed, and ConnectorFailed if it does not come
    to run; what a database lacks for it, see `Ledger.check`.
    """
    ledger = Ledger(settings)
    box = ledger.check()
    rest = Rest(settings.need("connect_url"))
    wanted = render(box, overrides)
    if rest.config(box.connector) != wanted:
        if problems := rest.problems(wanted):
            raise ConnectorInvalid(connector=box.connector, problems="\n".join(f"  {each}" for each in problems))
        rest.put(box.connector, wanted)
    elif (state := rest.state(box.connector)) and state.failure:
        rest.restart(box.connector, only_failed=True)
    return _await_reading(rest, ledger, box)


def status(settings: Settings) -> Status:
    """How the connector and its slot are now."""
    ledger = Ledger(settings)
    box = ledger.box()
    return Status(box.connector, Rest(settings.need("connect_url")).state(box.connector), ledger.slot(box))


def restart(settings: Settings) -> Status:
    """Restart the connector and its task, and wait until it reads. Raises NoConnector if there is none."""
    ledger = Ledger(settings)
    box = ledger.box()
    rest = Rest(settings.need("connect_url"))
    if rest.state(box.connector) is None:
        raise NoConnector(connector=box.connector)
    rest.restart(box.connector, only_failed=False)
    return _await_reading(rest, ledger, box)


def remove(settings: Settings, *, keep_slot: bool = False) -> bool:
    """Remove the connector, how far it had read, and its slot (which would hold back WAL). False if nothing was there.

    Nothing is lost: rows stay in the outbox, and a connector that is put there later emits what is unanswered.
    """
    ledger = Ledger(settings)
    box = ledger.box()
    rest = Rest(settings.need("connect_url"))
    existed = rest.state(box.connector) is not None
    if existed:
        rest.stop(box.connector)
        wait_for(lambda: not (state := rest.state(box.connector)) or not state.tasks, RUN_WITHIN)
        rest.forget_offsets(box.connector)
        rest.delete(box.connector)
    dropped = not keep_slot and ledger.drop_slot(box, within=RUN_WITHIN)
    return existed or dropped


def _await_reading(rest: Rest, ledger: Ledger, box: Box) -> Status:
    found: Status = Status(box.connector, None, None)

    def settled() -> bool:
        nonlocal found
        found = Status(box.connector, rest.state(box.connector), ledger.slot(box))
        return found.reading or bool(found.state and found.state.failure)

    wait_for(settled, RUN_WITHIN)
    if not found.reading:
        reason = found.state.failure if found.state else None
        reason = reason or f"it does not read its slot after {RUN_WITHIN:.0f} s"
        raise ConnectorFailed(connector=box.connector, reason=reason)
    return found


def _fill(text: str, names: Mapping[str, str]) -> str:
    return _Template(text).substitute(names)
