"""The worker: it performs committed calls, in a process of its own or inside the agent's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from deedbox.codec import AvroCodec, Codec
from deedbox.errors import ExtraMissing, NoHandler, NoProbe
from deedbox.settings import Settings
from deedbox.step import AnyCall, AnyTool
from deedbox_consumers.desk import Desk, handling
from deedbox_consumers.gate import Gate
from deedbox_consumers.health import Progress, beat
from deedbox_consumers.jam import Jam
from deedbox_consumers.lane import Lanes
from deedbox_consumers.lease import Lease
from deedbox_consumers.ledger import Ledger
from deedbox_consumers.limits import Limits
from deedbox_consumers.source.poll import Poll
from deedbox_consumers.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from deedbox_consumers.handlers import Handler, Handlers
    from deedbox_consumers.source import Source, SourceName

log: logging.Logger = logging.getLogger("deedbox.worker")

LEASE = timedelta(seconds=20)
DRAIN = timedelta(seconds=25)  # below the 30 s that Kubernetes waits before it kills
EVERY = timedelta(milliseconds=100)
CONCURRENCY = 1000
THREADS = 32
ROOM = 3000  # records of one tool that wait for their claim, beside those that are performed
LOOP_WITHIN = timedelta(seconds=30)  # a loop that does not turn for so long is stuck
POLL_WITHIN = timedelta(minutes=2)  # a consumer commits and leaves inside a poll, while its broker may be slow
SWEEP_WITHIN = timedelta(
    minutes=5
)  # for a turn, whether it succeeds or not: that Postgres is away is no reason to kill a worker
LAST_WORDS = 5.0  # seconds for the last reports when the drain is over


class Box(Protocol):
    """What a worker inside the agent's process needs of its box: a Deedbox or an AsyncDeedbox."""

    database_url: str
    schema: str
    codec: Codec
    tools_by_name: Mapping[str, AnyTool]

    def on_commit(self, listener: Callable[[Sequence[AnyCall]], None]) -> None:
        """Tell the listener of commits."""
        ...

    def off_commit(self, listener: Callable[[Sequence[AnyCall]], None]) -> None:
        """Tell it no more."""
        ...

    def worker_ended(self, problem: BaseException | None) -> None:
        """The worker in this process has ended with this, or (None) begins anew."""
        ...


class Worker:
    """Performs calls with `handlers`.

        with Worker(box, handlers):          # in a thread of this process, beside the agent
        async with Worker(box, handlers):    # as a task of this event loop
        await Worker(None, handlers).run()   # as a process' main; stop() drains and ends it

    box            the agent's box, whose commits wake the worker at once; None: the worker stands alone
    tools          names of the tools to perform; default: every tool that has a handler
    source         poll (Postgres only) or kafka
    database_url, schema, kafka   where the parts are; default: the box's, else as in deedbox.settings
    codec          makes the codec, given a lookup of writer schemas by fingerprint; default: the box's, else Avro
    lease          how long a silent worker is believed to be alive (renewed four times as often)
    drain          how long stop() waits for calls under way
    poll           how often the source `poll` looks for calls that nothing told it of
    concurrency    async handlers of one tool at work at once, where its limits say nothing else
    threads        the same for sync handlers: each has a thread

    Raises NoHandler, NoProbe, MissingSetting, WrongSetting; when it starts: NotMigrated, ToolNotApplied,
    psycopg.OperationalError for an address where no database answers.
    """

    def __init__(
        self,
        box: Box | None,
        handlers: Handlers,
        *,
        tools: Iterable[str] | None = None,
        source: SourceName = "poll",
        database_url: str | None = None,
        schema: str | None = None,
        kafka: str | None = None,
        codec: Callable[[Callable[[bytes], str | None]], Codec] | None = None,
        lease: timedelta = LEASE,
        drain: timedelta = DRAIN,
        poll: timedelta = EVERY,
        concurrency: int = CONCURRENCY,
        threads: int = THREADS,
    ) -> None:
        if box is not None:
            database_url, schema = database_url or box.database_url, schema or box.schema
        settings = Settings.load(database_url, schema, kafka=kafka)
        self._url = settings.need("database_url")
        self._schema = settings.schema
        self._kafka = settings.need("kafka") if source == "kafka" else ""
        self._box = box
        self._handlers = handlers
        self._chosen = _choose(handlers, tools, box)
        self._source: SourceName = source
        self._writers: dict[bytes, str] = {}
        self._codec = _codec(box, codec, self._writers)
        self._lease_length = lease
        self._drain = drain.total_seconds()
        self._poll = poll
        self._concurrency = concurrency
        self._threads = threads
        self._ready: Callable[[], object] = lambda: None
        self._stop_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failed: asyncio.Future[None] | None = None
        self._problem: BaseException | None = None
        self.progress: Progress = Progress()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self.blocked: int = 0

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that this worker performs."""
        return tuple(self._chosen)

    async def run(self) -> None:
        """Work until `stop` is called, then drain; raises what it could not cope with."""
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        if self._box is not None:
            self._box.worker_ended(None)
        self._failed = self._loop.create_future()
        if self._stop_asked:
            self._stopping.set()
        try:
            async with contextlib.AsyncExitStack() as stack:
                ledger = Ledger(self._url, self._schema)
                stack.push_async_callback(ledger.close)
                await ledger.open()
                await ledger.check(handler.tool for handler in self._chosen.values())
                state = await stack.enter_async_context(self._handlers.alive())
                await self._work(ledger, state, *await ledger.box())
        finally:
            self._failed.cancel()  # what fails after the end is no news
            self._stop_asked = False  # it was for this time: a worker may be used again

    def stop(self) -> None:
        """Drain and end: claim no more, wait for the calls under way. May be called from any thread, and again."""
        self._stop_asked = True
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)

    # ---- inside another process

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._ready = ready.set
        self._problem = None
        self._thread = threading.Thread(target=self._main, name="deedbox-worker", daemon=True)
        self._thread.start()
        ready.wait()
        if self._problem is not None:
            raise self._problem
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._problem is not None and problem is None:
            raise self._problem

    async def __aenter__(self) -> Self:
        ready = asyncio.Event()
        self._ready = ready.set
        self._task = asyncio.create_task(self.run(), name="deedbox-worker")
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    def _main(self) -> None:
        try:
            asyncio.run(self.run())
        except BaseException as problem:  # noqa: BLE001 - raised to who started this thread, and to who waits
            self._problem = problem
            if self._box is not None:
                self._box.worker_ended(problem)
        finally:
            self._ready()

    # ---- at work

    async def _work(self, ledger: Ledger, state: Any, box_id: str, prefix: str) -> None:
        source = self._open_source(ledger, prefix)
        lease = Lease(ledger, self.tools, self._source, self._lease_length, source.received_through)
        desk = Desk(
            ledger,
            lease,
            source,
            self._chosen,
            self._codec,
            box=box_id,
            state=state,
            writers=self._writers,
            gates={name: Gate(name, self._limits(handler)) for name, handler in self._chosen.items()},
            threads={name: self._limits(handler).concurrency or 1 for name, handler in self._chosen.items()},
            progress=self.progress,
        )
        lanes = Lanes(desk.attend, self._fail, ROOM + self._concurrency)
        await lease.begin()
        self._expect_progress()
        tasks = [
            self._watch(lease.keep()),
            self._watch(sweep(ledger, lanes, self.tools, lambda _: self.progress.note("sweep"))),
            self._watch(desk.watch_pauses()),
            self._watch(Jam(ledger, lanes, source, self.tools, desk.stuck).relieve()),
            self._watch(beat(self.progress)),
        ]
        try:
            with self._nudged(source):
                await source.open(lanes)
                self._ready()
                where = f"kafka at {self._kafka}" if self._source == "kafka" else self._source
                log.info("Worker %s performs %s from %s", lease.owner, ", ".join(self.tools), where)
                await self._until_stopped()
            await self._end(source, desk, lanes, lease)
        finally:
            for task in tasks:
                task.cancel()
            desk.close()
            lanes.close()
            lanes.cancel()
            await lanes.settle(LAST_WORDS)
            await source.close()
            self.blocked = len(desk.blocked)
            desk.end()

    def _expect_progress(self) -> None:
        """What has to get on, and within what time, for this process to count as alive."""
        self.progress.expect("loop", LOOP_WITHIN)
        self.progress.expect("sweep", SWEEP_WITHIN)
        for name, handler in self._chosen.items():
            self.progress.expect(handling(name), handler.tool.deadline + LOOP_WITHIN)
            self.progress.idle(handling(name))

    async def _until_stopped(self) -> None:
        assert self._stopping is not None
        assert self._failed is not None
        stopped = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((stopped, self._failed), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._failed.done():
            self._failed.result()

    async def _end(self, source: Source, desk: Desk, lanes: Lanes, lease: Lease) -> None:
        """Drain. What is not over in time is cut off and recorded as unknown.

        The source is left at once: the ledger answers for what is claimed, and others can have the rest.
        """
        log.info("%d calls are under way: drained for up to %.0f s", len(desk.running), self._drain)
        source.hold()
        desk.close()
        lanes.close()
        left = asyncio.ensure_future(source.close())
        if not await lanes.settle(self._drain):
            log.warning("%d calls are still under way: they are cut off, their outcome is unknown", len(desk.running))
            lanes.cancel()
            await lanes.settle(LAST_WORDS)
        try:
            async with asyncio.timeout(LAST_WORDS):
                await desk.flush()
            await left
            async with asyncio.timeout(LAST_WORDS):
                await lease.end()
        except (TimeoutError, psycopg.OperationalError) as problem:
            log.warning(
                "The database does not answer (%s): the sweep will judge what is left when the lease is over", problem
            )

    def _limits(self, handler: Handler) -> Limits:
        """The tool's own limits. Each tool has its slots or threads to itself, so that one never starves another."""
        limits = handler.limits or Limits()
        return replace(
            limits, concurrency=limits.concurrency or (self._threads if handler.blocks else self._concurrency)
        )

    def _open_source(self, ledger: Ledger, prefix: str) -> Source:
        if self._source == "poll":
            self.progress.expect("poll", POLL_WITHIN)
            return Poll(ledger, self.tools, self._poll, self._fail, partial(self.progress.note, "poll"))
        try:
            from deedbox_consumers.source.kafka import Kafka  # noqa: PLC0415 - needs the extra kafka
        except ImportError as problem:
            raise ExtraMissing(what="The source kafka", extra="deedbox-consumers[kafka]") from problem
        for tool in self.tools:
            self.progress.expect(f"poll {tool}", POLL_WITHIN)
        return Kafka(
            ledger,
            self.tools,
            self._kafka,
            prefix,
            fail=self._fail,
            note=lambda tool: self.progress.note(f"poll {tool}"),
        )

    @contextlib.contextmanager
    def _nudged(self, source: Source) -> Iterator[None]:
        """Let the commits of the box's own process wake the source `poll`."""
        loop = asyncio.get_running_loop()
        if self._box is None or not isinstance(source, Poll):
            yield
            return

        def tell(calls: Sequence[AnyCall]) -> None:
            if ids := [call.id for call in calls if call.id is not None and call.tool.name in self._chosen]:
                loop.call_soon_threadsafe(source.nudge, ids)

        self._box.on_commit(tell)
        try:
            yield
        finally:
            self._box.off_commit(tell)

    def _watch(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)

        def ended(done: asyncio.Task[None]) -> None:
            if not done.cancelled() and (problem := done.exception()) is not None:
                self._fail(problem)

        task.add_done_callback(ended)
        return task

    def _fail(self, problem: BaseException) -> None:
        if self._failed is not None and not self._failed.done():
            log.critical("The worker cannot go on: %s: %s", type(problem).__name__, problem)
            self._failed.set_exception(problem)


def _choose(handlers: Handlers, tools: Iterable[str] | None, box: Box | None) -> dict[str, Handler]:
    """The handlers to work with; raises NoHandler for a tool that has none."""
    if tools is None:
        tools = handlers.by_tool if box is None else box.tools_by_name
    known = handlers.by_tool
    chosen: dict[str, Handler] = {}
    for name in tools:
        if (handler := known.get(name)) is None:
            raise NoHandler(tool=name)
        if handler.tool.effect.settle_after is not None and handler.probe is None:
            raise NoProbe(tool=name, effect=handler.tool.effect.kind)
        chosen[name] = handler
    return chosen


def _codec(
    box: Box | None, make: Callable[[Callable[[bytes], str | None]], Codec] | None, writers: dict[bytes, str]
) -> Codec:
    if make is None and box is not None and type(box.codec) is not AvroCodec:
        return box.codec
    return (make or AvroCodec)(writers.get)
