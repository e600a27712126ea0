"""The payment provider's books: a SQLite file of its own, and the rules of the `Idempotency-Key` header."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deedbox.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY = 10.0  # seconds that one writer waits for another
LONGEST_KEY = 255  # characters, as at the large providers


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: status, JSON text, and whether it was stored under its key before."""

    status: int
    text: str
    stored: bool = False


@dataclass(frozen=True)
class Request:
    """A request that the provider saw. `at` in seconds since the epoch."""

    order: str | None
    key: str | None
    status: int
    stored: bool
    at: float


@dataclass(frozen=True)
class Charge:
    """Money that moved."""

    order: str
    id: str
    cents: int
    key: str | None
    at: float


@dataclass(frozen=True)
class Asked:
    """A completion that the model was asked for: the order it was about and its position in the conversation."""

    order: str
    step: int
    at: float


class Provider:
    """Charges cards and keeps books about it, in the SQLite file `path`; safe for many threads and processes.

    A request without a key charges. With a key, the first request charges and its answer is stored; the same body
    again gets the stored answer (201 stays 201, 402 stays 402), another body gets 422. A body that cannot be read is
    400 and stores nothing. The books also hold how often the model was asked, since they outlive every agent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        statements = Statements("deedbox_consumers.demo", "outside.sql", "main")
        names = (
            "begin",
            "answer",
            "put_answer",
            "put_charge",
            "put_request",
            "put_asked",
            "requests",
            "charges",
            "asked",
        )
        self._sql = {name: statements[name].as_string(None) for name in names}
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY)) as books:
            books.executescript(statements["create"].as_string(None))

    def charge(self, body: bytes, key: str | None) -> Answer:
        """Answer a request to charge, and note that it was seen."""
        wanted = _read(body)
        with self._writing() as books:
            answer = self._answer(books, wanted, key)
            order = wanted["order"] if isinstance(wanted, dict) else None
            seen = {"order": order, "key": key, "status": answer.status, "stored": answer.stored, "at": time.time()}
            books.execute(self._sql["put_request"], seen)
        return answer

    def note_asked(self, order: str, step: int) -> None:
        """Note that the model was asked for the completion `step` of an order's conversation."""
        with self._writing() as books:
            books.execute(self._sql["put_asked"], {"order": order, "step": step, "at": time.time()})

    def requests(self) -> list[Request]:
        """All requests, in the order seen."""
        return [Request(o, key, status, bool(stored), at) for o, key, status, stored, at in self._rows("requests")]

    def charges(self) -> list[Charge]:
        """All charges, oldest first."""
        return [Charge(*row) for row in self._rows("charges")]

    def asked(self) -> list[Asked]:
        """All completions that the model was asked for, in order."""
        return [Asked(*row) for row in self._rows("asked")]

    def _answer(self, books: sqlite3.Connection, wanted: dict[str, Any] | str, key: str | None) -> Answer:
        if key is not None and not 0 < len(key) <= LONGEST_KEY:
            return _error(400, "invalid_key", f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")
        if isinstance(wanted, str):
            return _error(400, "invalid_request", wanted)
        body = json.dumps(wanted, sort_keys=True)
        if key is not None and (known := books.execute(self._sql["answer"], {"key": key}).fetchone()):
            stored_body, status, text = known
            if stored_body != body:
                return _error(422, "key_reused", "this Idempotency-Key was used with another body")
            return Answer(status, text, stored=True)
        answer = self._take_money(books, wanted, key)
        if key is not None:
            facts = {"key": key, "body": body, "status": answer.status, "text": answer.text}
            books.execute(self._sql["put_answer"], facts)
        return answer

    def _take_money(self, books: sqlite3.Connection, wanted: dict[str, Any], key: str | None) -> Answer:
        if wanted["customer"] == "cus_declined":
            return _error(402, "card_declined", "the card was declined")
        charge = {"id": f"ch_{secrets.token_hex(4)}", **wanted}
        books.execute(self._sql["put_charge"], charge | {"key": key, "at": time.time()})
        return Answer(201, json.dumps(charge))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)) as books:
            books.execute(self._sql["begin"])
            with books:
                yield books

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=BUSY)) as books:
            return books.execute(self._sql[name]).fetchall()


def _read(body: bytes) -> dict[str, Any] | str:
    """The order, customer and cents that a body asks for, or what is wrong with it."""
    try:
        given = json.loads(body)
        wanted = {name: given[name] for name in ("order", "customer", "cents")}
    except (ValueError, KeyError, TypeError):
        return "give a JSON object with order, customer and cents"
    if not (isinstance(wanted["order"], str) and isinstance(wanted["customer"], str)):
        return "order and customer are texts"
    if type(wanted["cents"]) is not int or wanted["cents"] <= 0:
        return "cents is a whole number above zero"
    return wanted


def _error(status: int, code: str, message: str) -> Answer:
    return Answer(status, json.dumps({"error": {"code": code, "message": message}}))
