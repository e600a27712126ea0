"""What holds at every moment, whatever happened: the ledger's rows against the provider's books."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tests.support.machine import EFFECTS, World

OPEN = ("held", "pending", "running", "retry", "in_doubt")
WITHOUT_EFFECT = ("refused", "gave_up", "rejected", "cancelled")

_LOOK = """
SELECT o.action_id, a.key, a.tool, encode(a.digest, 'hex'), o.status, o.attempt, o.performed, o.rekeyed,
  o.unsettled, o.probe, coalesce(o.passed, false),
  o.owner, o.claimed_at, o.first_sent_at, o.until,
  nullif(o.next_at, 'infinity'), coalesce(o.next_at = 'infinity', false),
  o.next_at IS NULL AND o.action_id < (SELECT watermark FROM box), o.after, o.result::text, o.error::text,
  coalesce((o.error ->> 'happened')::boolean, false),
  (SELECT count(*) FROM audit u WHERE u.action_id = o.action_id),
  (SELECT count(*) FROM audit u WHERE u.action_id = o.action_id AND u.verb = 'rekey'),
  (SELECT count(*) FROM late l WHERE l.action_id = o.action_id),
  (SELECT count(*) FROM dead d WHERE d.action_id = o.action_id AND d.closed_at IS NULL),
  (SELECT count(*) FROM dead d WHERE d.action_id = o.action_id AND d.closed_as = 'dropped'),
  (SELECT count(*) FROM outbox b WHERE b.action_id = o.action_id AND b.type = 'result')
FROM action a LEFT JOIN outcome o ON o.action_id = a.id ORDER BY a.id
"""


class Row(NamedTuple):
    """An outcome, and what has been written about it."""

    id: UUID
    key: str
    tool: str
    digest: str
    status: str
    attempt: int
    performed: int
    rekeyed: int
    unsettled: bool
    probe: bool
    passed: bool
    owner: UUID | None
    claimed_at: datetime | None
    first_sent_at: datetime | None
    until: datetime | None
    next_at: datetime | None
    waits: bool  # for a person
    forgotten: bool
    after: UUID | None
    result: str | None
    error: str | None
    happened: bool
    audits: int
    rekeys: int
    late: int
    letters: int
    dropped: int
    told: int

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def said(self) -> tuple[str, str | None, str | None]:
        """Its outcome."""
        return self.status, self.result, self.error


class Laws:
    """Looks at the ledger after each thing that happened, and compares with the look before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rows: dict[UUID, Row] = {}

    def look(self) -> dict[UUID, Row]:
        """The rows as they are."""
        return {row[0]: Row(*row) for row in self._world.conn.execute(_LOOK.encode())}

    def check(self) -> None:
        """Every law."""
        before, self.rows = self.rows, self.look()
        assert self.rows.keys() == self._world.deeds.keys()
        self._nothing_is_forgotten()
        self._order_holds()
        for row in self.rows.values():
            was = before.get(row.id)
            self._once(row)
            self._a_decision_stays(row)
            self._somebody_s(row)
            self._settled_is_known(row)
            self._letters(row)
            if was is not None:
                self._final_stays(was, row)
                self._first_send_stays(was, row)
                self._told(was, row)

    def _nothing_is_forgotten(self) -> None:  # I5
        assert not self._world.conn.execute("SELECT unnest(found) FROM full_scan()").fetchall()

    def _order_holds(self) -> None:
        running = [self._world.deeds[row.id] for row in self.rows.values() if row.status == "running"]
        keys = [(deed.tool, deed.order_key) for deed in running if deed.order_key is not None]
        assert len(keys) == len(set(keys)), f"two calls of one order key are running: {keys}"

    def _once(self, row: Row) -> None:
        effects = self._world.provider.effects[row.key]
        assert effects < 2 or EFFECTS[row.tool].harmless, f"{row.key} happened {effects} times"

    def _a_decision_stays(self, row: Row) -> None:  # I3
        assert row.digest == self._world.deeds[row.id].digest

    def _somebody_s(self, row: Row) -> None:  # I5
        """The full scan counts only what lies below the watermark; a moment that never comes is a person's."""
        assert not (row.open and row.forgotten)
        if row.status == "in_doubt":
            assert row.waits or (row.probe and row.next_at)
        elif row.status == "retry":
            assert row.next_at, "it waits for no moment"
        else:
            assert not (row.open and row.waits), f"{row.status} for ever"

    def _settled_is_known(self, row: Row) -> None:  # I16
        """A call that is not unsettled did not happen, unless it is done or under way; and cannot happen any more."""
        happened = self._world.provider.effects[row.key] > 0
        assert not (row.unsettled and not row.open), "final and unsettled"
        if row.status == "done" or row.happened:
            assert happened, f"{row.status}, and it did not happen"
        elif not row.unsettled and row.status != "running":
            assert not happened, f"{row.status}, and it happened"
            assert not self._threats(row), f"{row.status}, and it may yet happen"

    def _threats(self, row: Row) -> list[object]:
        """What could still make it happen, besides a new attempt."""
        world = self._world
        flights = [f for f in world.flights if f.deed.id == row.id and world.provider.replays(f, world.now) is None]
        attempts = [one for one in world.attempts if one.deed.id == row.id and world.might_send(one)]
        return [*flights, *attempts]

    def _letters(self, row: Row) -> None:
        """A call that gave up is a dead letter until somebody has dealt with it, and nothing else is."""
        assert row.letters == 0 or row.status == "gave_up", f"{row.status}, with a letter"
        assert row.letters == 1 or row.dropped or row.status != "gave_up", "gave up without a letter"

    def _final_stays(self, was: Row, row: Row) -> None:  # I10
        assert was.open or was.said == row.said or row.audits > was.audits, f"{was.said} became {row.said}"

    def _first_send_stays(self, was: Row, row: Row) -> None:  # I9
        if was.first_sent_at is not None and row.first_sent_at != was.first_sent_at:
            assert row.rekeyed > was.rekeyed
        assert row.rekeyed == row.rekeys, "a new key, and nobody wrote it down"
        if row.rekeyed == was.rekeyed and row.attempt > was.attempt:
            assert row.first_sent_at is not None

    def _told(self, was: Row, row: Row) -> None:
        """Whoever waits hears of an end, or of a doubt."""
        if row.status != was.status and (not row.open or row.status == "in_doubt"):
            assert row.told > was.told, f"{was.status} became {row.status}, and nobody was told"
