"""A way to a server that outlives who went it: the server never hears that its client is gone.

So it is when a machine loses its power, or when a pooler or a proxy between the two keeps the connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

LOOPBACK = "127.0.0.1"
CHUNK = 65536


class Relay:
    """Forwards its `port` on loopback to `target`, a port there. What it has opened stays open until it is left."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((LOOPBACK, 0))
        self._ends: list[socket.socket] = [self._listener]
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):  # its peer has gone
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it, which a close would not
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # left
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((LOOPBACK, self._target))
                self._ends += [client, server]
                for source, sink in ((client, server), (server, client)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=_carry, args=(source, sink), name="relay", daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    """Carry bytes until their source ends, and keep that to ourselves."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            sink.sendall(chunk)
