"""What a person says of a call in doubt, and what becomes of it: written whole, or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from deedbox.cli import result as results
from deedbox.cli.verdicts import REDRIVE, REFUSED
from deedbox.errors import NoSuchCall
from deedbox.journal import OPEN
from deedbox.keys import idempotency_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from deedbox.statements import Statements


@dataclass(frozen=True)
class Said:
    """What became of it: the ledger's verdict, the call's status now, and words for a person."""

    key: str
    verdict: str
    status: str
    provider_key: str
    words: str
    refused: bool = False


def resolve(
    conn: psycopg.Connection[Any],
    statements: Statements,
    key: str,
    happened: dict[str, Any] | None,
    author: Mapping[str, str | None],
    *,
    again: bool = False,
    rekey: bool = False,
) -> Said:
    """Resolve the call: it happened, with this result, or it did not, and is (`again`) to be performed once more.

    Raises NoSuchCall, and ResultDoesNotFit before anything is written.
    """
    if happened is not None:
        _check(conn, statements, key, happened)
    facts = {"key": key, "happened": None if happened is None else json.dumps(happened), **author}
    with conn.transaction():
        (verdict,) = conn.execute(statements["resolve"], facts).fetchone() or ("unknown",)
        if verdict == "unknown":
            raise NoSuchCall(key=key)
        standing = _standing(conn, statements, key)
        if again and standing.status == "gave_up":
            redriving = {"ids": [standing.id], "rekey": rekey, **author}
            ((_, verdict),) = conn.execute(statements["redrive"], redriving).fetchall()
            if verdict in REFUSED:
                raise psycopg.Rollback  # it would be a dead letter that nobody has asked for
    standing = _standing(conn, statements, key)
    words, refused = _words(key, verdict, standing, happened, again)
    return Said(key, verdict, standing.status, standing.provider_key(key), words, refused)


@dataclass(frozen=True)
class _Standing:
    """Where the call stands; `known` says that its effect is known to be there, though its result is not."""

    status: str
    id: UUID
    result: Any
    rekeyed: int
    known: bool
    box: str

    def provider_key(self, key: str) -> str:
        return idempotency_key(self.box, key, self.rekeyed)


def _words(
    key: str, verdict: str, standing: _Standing, happened: dict[str, Any] | None, again: bool
) -> tuple[str, bool]:
    """The words, and whether it was refused."""
    status = standing.status
    match verdict:
        case "done":
            return f"{key} is done, with this result. Its run can go on.", False
        case "gave_up":
            return f"{key} did not happen, and is a dead letter now. To perform it: `deedbox dead redrive {key}`", False
        case "redriven":
            return f"{key} is to be performed again, under the key {standing.provider_key(key)}", False
        case "running":
            return f"An attempt of {key} is under way, and nothing was written: wait for its end.", True
        case "settled" | "not_dead":
            said = f"There is no doubt about {key}, and nothing was written: its status is {status}"
            if happened is not None:
                same = status == "done" and happened == standing.result
                return f"{said}{', with this result.' if same else '.'}", not same
            if standing.known or status == "done":
                return f"{said}, and happened.", True
            # Closed: it needs no word that it did not happen, but is not performed again. Open: the other way round.
            return f"{said}.", (status in OPEN) != again
        case _:
            return f"{key} is not performed again, and nothing was written: {REDRIVE[verdict]}", True


def _check(conn: psycopg.Connection[Any], statements: Statements, key: str, happened: dict[str, Any]) -> None:
    row = conn.execute(statements["result_schema"], {"key": key}).fetchone()
    if row is None:
        raise NoSuchCall(key=key)
    results.check(row[0], happened, row[1])


def _standing(conn: psycopg.Connection[Any], statements: Statements, key: str) -> _Standing:
    ((status, id_, result, rekeyed, known, box),) = conn.execute(statements["standing"], {"key": key}).fetchall()
    return _Standing(status, id_, result, rekeyed, known, box)
