"""A TCP proxy that breaks a link on purpose: cut, reset, stall, refuse; and mends it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, Self, get_args

Direction = Literal["requests", "answers"]  # what the client says; what the server says
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)

LOOPBACK: Final = "127.0.0.1"
CHUNK: Final = 65536
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds, so that closing sends RST


class Proxy:
    """Forwards `port` on loopback to `target`, a port there, until it is told to break something.

    Each order is carried out when its method returns: after `stall` not one more byte passes. It works in a thread of
    its own; the orders may come from any thread.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.accepted = 0  # connections ever
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._pairs: dict[asyncio.Task[None], list[socket.socket]] = {}  # by the task that serves it: both ends
        self._going: dict[Direction, asyncio.Event] = {each: asyncio.Event() for each in DIRECTIONS}
        self._held: dict[Direction, int] = dict.fromkeys(DIRECTIONS, 0)
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self.reset()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._pairs)

    def holds(self, direction: Direction) -> bool:
        """Whether a stall keeps bytes back that somebody sent."""
        return self._held[direction] > 0

    def cut(self) -> None:
        """End every connection with FIN, both ways; what a stall keeps back is lost."""
        self._order(lambda: self._end_all(_fin))

    def reset(self) -> None:
        """End every connection with RST, both ways."""
        self._order(lambda: self._end_all(_rst))

    def stall(self, *directions: Direction) -> None:
        """Forward nothing more in these directions (both, if none is named) and keep the connections open."""
        self._order(lambda: self._let(directions or DIRECTIONS, pass_=False))

    def resume(self) -> None:
        """Go on; what was kept back is delivered."""
        self._order(lambda: self._let(DIRECTIONS, pass_=True))

    def refuse(self) -> None:
        """Take no new connections: whoever tries is refused. Those that are open stay."""
        self._order(self._close)

    def accept(self) -> None:
        """Take new connections (again), on the same port."""
        self._order(self._listen)

    def mend(self) -> None:
        """Resume and accept."""
        self.resume()
        self.accept()

    # ---- in the thread

    def _order(self, act: Callable[[], object]) -> None:
        """Carry it out in the loop, and return when what it ended is over."""

        async def carry_out() -> None:
            act()
            ending = [task for task in self._pairs if task.cancelling()]
            if ending:
                await asyncio.wait(ending)

        asyncio.run_coroutine_threadsafe(carry_out(), self._loop).result()

    def _let(self, directions: tuple[Direction, ...], *, pass_: bool) -> None:
        for direction in directions:
            if pass_:
                self._going[direction].set()
            else:
                self._going[direction].clear()

    def _end_all(self, end: Callable[[socket.socket], None]) -> None:
        for task, ends in self._pairs.items():
            for one in ends:
                with contextlib.suppress(OSError):  # it has gone by itself
                    end(one)
            task.cancel()

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((LOOPBACK, self.port))
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _close(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # it has gone again
            return
        client.setblocking(False)
        self.accepted += 1
        ends = [client]
        task = self._loop.create_task(self._serve(client, ends))
        self._pairs[task] = ends
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        for end in self._pairs.pop(task):
            end.close()

    async def _serve(self, client: socket.socket, ends: list[socket.socket]) -> None:
        server = socket.socket()
        ends.append(server)
        for end in ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
        try:
            await self._loop.sock_connect(server, (LOOPBACK, self.target))
        except OSError:  # the server is away: whoever connects finds that out at once
            _rst(client)
            return
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(self._pump("requests", client, server))
            pumps.create_task(self._pump("answers", server, client))

    async def _pump(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        """Carry bytes until their source ends, then tell the sink so."""
        going = self._going[direction]
        with contextlib.suppress(OSError):  # one of them is gone; the other pump finds that out, too
            while chunk := await self._loop.sock_recv(source, CHUNK):
                self._held[direction] += len(chunk)
                try:
                    await going.wait()
                finally:
                    self._held[direction] -= len(chunk)
                await self._loop.sock_sendall(sink, chunk)
            await going.wait()
            sink.shutdown(socket.SHUT_WR)
            return
        with contextlib.suppress(OSError):
            _rst(sink)
            sink.shutdown(socket.SHUT_RDWR)


def _fin(end: socket.socket) -> None:
    end.shutdown(socket.SHUT_WR)


def _rst(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
