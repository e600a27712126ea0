"""How an agent waits: one LISTEN connection per process for any number of runs, and a slow poll under it.

A notice is a hint, never the news itself: who is woken reads the outcomes. A notice that got lost (a reconnect, a
pooler that does not pass NOTIFY on) costs one poll interval, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from psycopg import sql

POLL = 1.0  # seconds between two looks without a notice
_STEP = 0.5  # seconds in which a thread notices that it is to stop
_PAUSE = 0.5  # seconds between two tries to connect


class Waker:
    """Wakes threads that wait for a run; its own thread listens from the first wait on."""

    def __init__(self, url: str, listen: sql.Composed) -> None:
        self._url = url
        self._listen = listen
        self._waiting: defaultdict[str, set[threading.Event]] = defaultdict(set)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watch(self, run_id: str) -> Iterator[threading.Event]:
        """An event that is set whenever an outcome of the run may be new. Clear it, read, then wait."""
        event = threading.Event()
        with self._lock:
            self._waiting[run_id].add(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deedbox-waker", daemon=True)
                self._thread.start()
        try:
            yield event
        finally:
            with self._lock:
                self._waiting[run_id].discard(event)
                if not self._waiting[run_id]:
                    del self._waiting[run_id]

    def close(self) -> None:
        """Stop to listen; who still waits goes on by polling."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._stop.clear()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, application_name="deedbox-waker") as conn:
                    conn.execute(self._listen)
                    self._wake("")  # what was told before we listened
                    while not self._stop.is_set():
                        for notice in conn.notifies(timeout=_STEP):
                            self._wake(notice.payload)
            except psycopg.OperationalError:
                self._stop.wait(_PAUSE)

    def _wake(self, payload: str) -> None:
        with self._lock:
            for run_id in payload.split(",") if payload else list(self._waiting):
                for event in self._waiting.get(run_id, ()):
                    event.set()


class AsyncWaker:
    """The same for tasks of one event loop."""

    def __init__(self, url: str, listen: sql.Composed) -> None:
        self._url = url
        self._listen = listen
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def watch(self, run_id: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever an outcome of the run may be new. Clear it, read, then wait."""
        event = asyncio.Event()
        self._waiting[run_id].add(event)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="deedbox-waker")
        try:
            yield event
        finally:
            self._waiting[run_id].discard(event)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

    async def close(self) -> None:
        """Stop to listen."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                conn = await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, application_name="deedbox-waker"
                )
                async with conn:
                    await conn.execute(self._listen)
                    self._wake("")
                    async for notice in conn.notifies():
                        self._wake(notice.payload)
            except psycopg.OperationalError:
                await asyncio.sleep(_PAUSE)

    def _wake(self, payload: str) -> None:
        for run_id in payload.split(",") if payload else list(self._waiting):
            for event in self._waiting.get(run_id, ()):
                event.set()
