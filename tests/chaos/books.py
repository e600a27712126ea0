"""The provider's books: what it was asked, and what it did. They outlive every process, the provider's own included."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BUSY: Final = 30.0  # seconds; another process may be writing

TABLES: Final = """
PRAGMA journal_mode = wal;
CREATE TABLE IF NOT EXISTS request (id INTEGER PRIMARY KEY, path TEXT, about TEXT, key TEXT, did TEXT, at REAL);
CREATE TABLE IF NOT EXISTS effect (id INTEGER PRIMARY KEY, path TEXT, about TEXT, key TEXT, at REAL);
CREATE TABLE IF NOT EXISTS answer
  (path TEXT, key TEXT, body TEXT, status INTEGER, text TEXT, at REAL, PRIMARY KEY (path, key));
CREATE INDEX IF NOT EXISTS effect_key ON effect (key);
CREATE INDEX IF NOT EXISTS request_about ON request (about);
"""


@dataclass(frozen=True)
class Request:
    """One request as it arrived. `did`: effect, replay, nothing or lookup."""

    path: str
    about: str
    key: str | None
    did: str
    at: float


@dataclass(frozen=True)
class Effect:
    """Something that happened and cannot be undone by asking again."""

    path: str
    about: str
    key: str | None
    at: float


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; `replayed` when it was stored under the key before."""

    status: int
    text: str
    replayed: bool = False


class Books:
    """The file `path`, safe for threads and processes.

    Nothing is flushed to the disk: what a process has written survives its SIGKILL, and the machine stays up.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._books = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        self._books.executescript(TABLES)
        self._books.execute("PRAGMA synchronous = off")

    def close(self) -> None:
        """Let go of the file."""
        self._books.close()

    def requests(self) -> list[Request]:
        """All requests in the order in which they arrived."""
        return [Request(*row) for row in self._rows("SELECT path, about, key, did, at FROM request ORDER BY id")]

    def effects(self) -> list[Effect]:
        """All effects, oldest first."""
        return [Effect(*row) for row in self._rows("SELECT path, about, key, at FROM effect ORDER BY id")]

    def by_key(self, path: str, key: str) -> list[str]:
        """The ids of the effects on this path that carried the key or reference."""
        rows = self._rows("SELECT id FROM effect WHERE path = ? AND key = ? ORDER BY id", path, key)
        return [f"ef_{number}" for (number,) in rows]

    def count(self, about: str) -> int:
        """How many requests there were about this call."""
        return int(self._rows("SELECT count(*) FROM request WHERE about = ?", about)[0][0])

    def note(self, path: str, about: str, key: str | None, did: str) -> None:
        """Note a request that changes nothing."""
        with self._writing() as books:
            self._note(books, path, about, key, did)

    def do(self, path: str, about: str, key: str | None) -> Answer:
        """Have the effect, whatever was asked before; `key` is a note beside it."""
        with self._writing() as books:
            self._note(books, path, about, key, "effect")
            return self._have(books, path, about, key)

    def do_once(self, path: str, about: str, key: str, body: str, window: float | None) -> Answer:
        """Have the effect unless the key did; the key is remembered for `window` seconds (None: for ever)."""
        with self._writing() as books:
            known = books.execute("SELECT * FROM answer WHERE path = ? AND key = ?", [path, key]).fetchone()
            if known is not None and (window is None or time.time() < known[5] + window):
                self._note(books, path, about, key, "replay")
                if known[2] != body:
                    return Answer(422, json.dumps({"error": "this key was used with another body"}))
                return Answer(known[3], known[4], replayed=True)
            self._note(books, path, about, key, "effect")
            answer = self._have(books, path, about, key)
            self._store(books, path, key, body, answer)
            return answer

    def fail_once(self, path: str, about: str, key: str, body: str) -> Answer:
        """Have no effect, and store that failure under the key: it is replayed from now on."""
        answer = Answer(500, json.dumps({"error": "stored failure"}))
        with self._writing() as books:
            self._note(books, path, about, key, "nothing")
            self._store(books, path, key, body, answer)
        return answer

    def knows(self, path: str, key: str) -> bool:
        """Whether an answer is stored under the key."""
        return bool(self._rows("SELECT 1 FROM answer WHERE path = ? AND key = ?", path, key))

    def _have(self, books: sqlite3.Connection, path: str, about: str, key: str | None) -> Answer:
        facts = [path, about, key, time.time()]
        done = books.execute("INSERT INTO effect (path, about, key, at) VALUES (?, ?, ?, ?)", facts)
        return Answer(201, json.dumps({"id": f"ef_{done.lastrowid}"}))

    def _store(self, books: sqlite3.Connection, path: str, key: str, body: str, answer: Answer) -> None:
        facts = [path, key, body, answer.status, answer.text, time.time()]
        books.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?, ?)", facts)

    def _note(self, books: sqlite3.Connection, path: str, about: str, key: str | None, did: str) -> None:
        facts = [path, about, key, did, time.time()]
        books.execute("INSERT INTO request (path, about, key, did, at) VALUES (?, ?, ?, ?, ?)", facts)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._books.execute("BEGIN IMMEDIATE")
            with self._books:
                yield self._books

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._books.execute(statement, values).fetchall()
