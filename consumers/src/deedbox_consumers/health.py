"""Health by progress: a worker is alive while its parts get on, not while its process exists."""

from __future__ import annotations

import asyncio
import json
import socket
import socketserver
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from deedbox.errors import PortTaken
from deedbox_consumers.clock import now

if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

PATIENCE = 5.0  # seconds for somebody who connects and asks nothing
BEAT = 1.0  # seconds between two notes of a loop that turns


@dataclass(frozen=True, slots=True)
class Part:
    """How far one part is. `age` and `bound` in seconds; `idle`: it has nothing to get on with."""

    age: float
    bound: float
    idle: bool

    @property
    def stuck(self) -> bool:
        """Whether it has work and has not got on with it for longer than it may."""
        return not self.idle and self.age > self.bound


class Progress:
    """What each part of a worker last got done, and when; to be told and asked from any thread.

    progress.expect("poll", timedelta(seconds=30))   # from now on
    progress.note("poll")                            # it got on
    progress.idle("handle")                          # it has nothing to do, until its next note
    """

    def __init__(self) -> None:
        self._bounds: dict[str, float] = {}
        self._noted: dict[str, tuple[float, bool]] = {}

    def expect(self, part: str, bound: timedelta) -> None:
        """Let a part count as stuck when `bound` has passed since its last note."""
        self._noted[part] = now(), False
        self._bounds[part] = bound.total_seconds()

    def note(self, part: str) -> None:
        """A part got on."""
        self._noted[part] = now(), False

    def idle(self, part: str) -> None:
        """A part has nothing to do; it is not stuck however long that takes."""
        self._noted[part] = now(), True

    def parts(self) -> dict[str, Part]:
        """Every expected part, as it is at this moment."""
        moment, bounds = now(), dict(self._bounds)
        noted = {name: self._noted[name] for name in bounds}
        return {name: Part(max(0.0, moment - at), bounds[name], idle) for name, (at, idle) in noted.items()}


async def beat(progress: Progress, part: str = "loop") -> None:
    """Note once a second that this event loop turns, for ever: one that is blocked is stuck."""
    while True:
        progress.note(part)
        await asyncio.sleep(BEAT)


class Health:
    """The answers to GET /livez: 200 while every part gets on, else 503; with the age of each part as JSON.

    And to GET /metrics (deedbox_consumers.metrics).

    They come from a thread of its own, on every address of the machine, so that a blocked event loop is seen. It is
    the standard library's server: one small answer every few seconds needs no other, and so no extra.
    """

    def __init__(self, progress: Progress, port: int) -> None:
        try:
            self._server = _Server(port, progress)
        except (OSError, OverflowError) as problem:
            raise PortTaken(port=port, problem=problem) from problem
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="deedbox-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve_health(progress: Progress, port: int) -> Health:
    """Answer GET /livez and GET /metrics on `port` until closed; 0 takes a free one. Raises PortTaken."""
    return Health(progress, port)


class _Server(ThreadingHTTPServer):
    """Its address family takes both IPv4 and IPv6, where there are both: a kubelet asks at the pod's address."""

    daemon_threads = True
    allow_reuse_port = False  # newer Pythons would let two workers share a port, and one answer for the other

    def __init__(self, port: int, progress: Progress) -> None:
        self.progress = progress
        self._both = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._both else socket.AF_INET
        super().__init__(("", port), _Answers)

    def server_bind(self) -> None:
        """Bind without asking the name service who we are, as the base class does: that may take its time."""
        if self._both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who hung up is no news."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Answers(BaseHTTPRequestHandler):
    timeout = PATIENCE

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/livez":
                self._alive()
            case "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
            case _:
                self.send_error(404)

    def _alive(self) -> None:
        assert isinstance(self.server, _Server)
        parts = self.server.progress.parts()
        stuck = sorted(name for name, part in parts.items() if part.stuck)
        told = {
            name: {"age": round(part.age, 3), "bound": part.bound, "idle": part.idle} for name, part in parts.items()
        }
        body = json.dumps({"status": "stuck" if stuck else "alive", "stuck": stuck, "parts": told}).encode()
        self._answer(503 if stuck else 200, "application/json", body)

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A probe every few seconds is no news either."""
