"""The provider: an independent process with books of its own. It knows nothing of Deedbox, and forgets nothing.

`python -m tests.chaos.provider BOOKS [PORT]`; the first line of its output is its port.

    POST /v1/charges     honours Idempotency-Key for ever: one effect per key, the stored answer is replayed
    POST /v1/refunds     honours Idempotency-Key for REMEMBERED seconds, then it is a new deed
    POST /v1/transfers   ignores keys: every request is an effect
    GET  /v1/…?reference=KEY   the effects on this path that carried this key, so that it can be asked
    POST /v1/mood        how ill it behaves from now on: a Mood as JSON

It commits its books before it answers. A request is a JSON object whose `about` names the call it is about.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import threading
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

from tests.chaos.books import Answer, Books

LOOPBACK: Final = "127.0.0.1"
REMEMBERED: Final = 24.0  # seconds: so short that a call which was interrupted twice may outlive its key
CHARGES, REFUNDS, TRANSFERS = "/v1/charges", "/v1/refunds", "/v1/transfers"


@dataclass(frozen=True)
class Mood:
    """How often, between 0 and 1, a request meets each ill; at most one of them.

    busy           429, before it did anything
    error_before   500, nothing happened       error_after   500, and it happened
    drop_before    no answer, nothing happened drop_after    no answer, and it happened
    late           it happens, and the answer comes up to `longest` seconds later
    slow           it happens up to `longest` seconds later, and is answered then
    stored         500 that is stored under the key and replayed; nothing happened (only refunds; else no ill at all)
    seed           the same seed, call and number of the request is the same ill
    pace           seconds that every request takes
    """

    busy: float = 0.0
    error_before: float = 0.0
    error_after: float = 0.0
    drop_before: float = 0.0
    drop_after: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    stored: float = 0.0
    longest: float = 1.0
    seed: int = 0
    pace: float = 0.0

    def ill(self, about: str, number: int) -> tuple[str, float]:
        """What the `number`-th request about a call meets (empty: nothing), and seconds for what takes time."""
        chance = random.Random(f"{self.seed}:{about}:{number}")
        left, length = chance.random(), chance.random() * self.longest
        for name in ("busy", "error_before", "error_after", "drop_before", "drop_after", "late", "slow", "stored"):
            left -= getattr(self, name)
            if left < 0:
                return name, length
        return "", 0.0


class Provider:
    """What is done about a request; `None` is no answer at all."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.mood = Mood()

    def post(self, path: str, body: str, key: str | None) -> Answer | None:
        """A request that is to have an effect."""
        about = str(json.loads(body)["about"])
        mood = self.mood
        ill, length = mood.ill(about, self.books.count(about))
        time.sleep(mood.pace)
        if ill == "slow":
            time.sleep(length)
        if ill in {"busy", "error_before", "drop_before"}:
            self.books.note(path, about, key, "nothing")
            if ill == "drop_before":
                return None
            return Answer(429 if ill == "busy" else 500, json.dumps({"error": ill}))
        answer = self._do(path, about, body, key, fail=ill == "stored")
        if ill == "late":
            time.sleep(length)
        if ill == "drop_after":
            return None
        return Answer(500, json.dumps({"error": ill})) if ill == "error_after" else answer

    def get(self, path: str, reference: str) -> Answer:
        """A question: it has no effect."""
        self.books.note(path, "", reference, "lookup")
        return Answer(200, json.dumps({"found": self.books.by_key(path, reference)}))

    def _do(self, path: str, about: str, body: str, key: str | None, *, fail: bool) -> Answer:
        if path not in {CHARGES, REFUNDS} or key is None:
            return self.books.do(path, about, key)
        if fail and path == REFUNDS and not self.books.knows(path, key):
            return self.books.fail_once(path, about, key, body)
        return self.books.do_once(path, about, key, body, None if path == CHARGES else REMEMBERED)


class Handler(BaseHTTPRequestHandler):
    """HTTP around the provider."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer leaves in one piece
    provider: ClassVar[Provider]

    def do_POST(self) -> None:
        """An order to do something."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/v1/mood":
            self.provider.mood = Mood(**json.loads(body))
            return self._say(Answer(200, json.dumps(asdict(self.provider.mood))))
        return self._say(self.provider.post(self.path, body, self.headers["Idempotency-Key"]))

    def do_GET(self) -> None:
        """A question."""
        asked = urlsplit(self.path)
        self._say(self.provider.get(asked.path, parse_qs(asked.query)["reference"][0]))

    def log_message(self, format: str, *args: Any) -> None:
        """The books are the log."""

    def _say(self, answer: Answer | None) -> None:
        if answer is None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        text = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if answer.replayed:
            self.send_header("Idempotent-Replayed", "true")
        self.end_headers()
        self.wfile.write(text)


class Server(ThreadingHTTPServer):
    """A thread per connection; a client that is gone is no news."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of broken pipes."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def main(path: str, port: str = "0") -> None:
    """Serve until killed, or until standard input ends: it does not outlive who started it."""
    Handler.provider = Provider(Books(Path(path)))
    server = Server((LOOPBACK, int(port)), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
