"""The witness: a thread that looks at the provider's books, the ledger and Kafka, and tells what is new."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psycopg

from deedbox_consumers.demo.evidence import OPEN, Call, Evidence
from deedbox_consumers.demo.failure import DemoFailed, tail
from deedbox_consumers.demo.shop import charge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from confluent_kafka import Consumer

    from deedbox_consumers.demo.provider import Provider
    from deedbox_consumers.demo.stage import Stage

LOOK_EVERY = 0.03  # seconds; short against what a person can follow
PATIENCE = 60.0  # seconds for each thing that is waited for: a lease is 20, a cold JVM on a busy machine takes 20


class Row(NamedTuple):
    """A row of the statement `calls`; moments in seconds since the epoch."""

    id: str
    key: str
    order: str
    status: str
    attempt: int
    committed: float
    claimed: float | None
    finished: float | None
    freed: float | None


class Witness:
    """Watches the orders it is told to; `tell(at, who, text)` gets each thing that is new about them."""

    def __init__(self, stage: Stage, tell: Callable[[float, str, str], None]) -> None:
        self._stage = stage
        self._tell = tell
        self.worker = "worker"  # the one at work, as the timeline names it
        self._aloud = True
        self._seen = Evidence(())
        self._told: set[tuple[object, ...]] = set()
        self._captured: dict[str, float] = {}  # by action: a record can be here before its row can be read
        self._lock = threading.Condition()
        self._looks = 0
        self._stop = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="witness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def watch(self, orders: Sequence[str], *, aloud: bool = True) -> Evidence:
        """Look after these orders from now on, and no others; `aloud` tells what happens to them."""
        with self._lock:
            self._seen, self._aloud = Evidence(tuple(orders)), aloud
            return self._seen

    def hear(self, said: dict[str, Any]) -> None:
        """Take down what an agent says."""
        what, order, at = said["what"], said["order"], said["at"]
        with self._lock:
            if order in self._seen.orders:
                self._seen.said.append((what, order, at))
                if what == "read":
                    self._once(("read", order), at, "agent", "reads the outcome")
            self._lock.notify_all()

    def wait(self, condition: Callable[[Evidence], bool], what: str, log: Path, within: float = PATIENCE) -> None:
        """Wait until what was seen meets the condition. Raises DemoFailed, which says `what` did not come."""
        until = time.monotonic() + within
        with self._lock:
            while not condition(self._seen):
                if self._problem is not None:
                    raise self._problem
                if (left := until - time.monotonic()) <= 0:
                    raise DemoFailed(what=f"Within {within:.0f} s {what} did not come", log=log, tail=tail(log))
                self._lock.wait(left)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Look once more at everything, then let nothing change inside the block."""
        with self._lock:
            enough = self._looks + 2  # the look under way may have begun before now
            while self._looks < enough and self._problem is None:
                self._lock.wait(PATIENCE)
            yield

    # ---- its thread

    def _main(self) -> None:
        try:
            address = self._stage.settings.need("database_url")
            with (
                psycopg.connect(address, autocommit=True, application_name="deedbox-demo") as conn,
                contextlib.closing(self._consumer()) as consumer,
            ):
                while not self._stop.is_set():
                    record = consumer.poll(LOOK_EVERY)
                    records = [record, *consumer.consume(500, 0)] if record is not None else []
                    for record in records:
                        self._take(record)
                    with self._lock:
                        self._look(conn, self._stage.provider)
                        self._looks += 1
                        self._lock.notify_all()
        except BaseException as problem:  # noqa: BLE001  # raised to who waits
            with self._lock:
                self._problem = problem
                self._lock.notify_all()

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415  # of the extra [kafka]

        settings = self._stage.settings
        consumer = Consumer({"bootstrap.servers": settings.need("kafka"), "group.id": "witness", "log_level": 0})
        topic = f"{settings.prefix}.{charge.name}"
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=PATIENCE)[1] for n in partitions}
        consumer.assign([TopicPartition(topic, n, end) for n, end in ends.items()])
        return consumer

    def _take(self, record: Any) -> None:
        headers = dict(record.headers() or ())
        self._captured.setdefault((headers.get("action_id") or b"").decode(), record.timestamp()[1] / 1000)

    def _look(self, conn: psycopg.Connection, provider: Provider) -> None:
        seen = self._seen
        if not seen.orders:
            return
        runs = {"runs": list(seen.orders)}
        sql = self._stage.sql
        # The ledger first: what it says of an order is then never ahead of the provider's books.
        rows = conn.execute(sql["calls"], runs).fetchall()
        closed = conn.execute(sql["finished"], runs).fetchone()
        seen.asked[:] = [ask for ask in provider.asked() if ask.order in seen.orders]
        seen.requests[:] = [request for request in provider.requests() if request.order in seen.orders]
        seen.charges[:] = [money for money in provider.charges() if money.order in seen.orders]
        for row in rows:
            self._update(Row(*row))
        seen.closed = closed[0] if closed else 0
        self._report()

    def _update(self, row: Row) -> None:
        seen = self._seen
        call = seen.calls.setdefault(row.id, Call(row.id, row.key, row.order))
        call.status, call.attempt, call.freed = row.status, row.attempt, row.freed
        call.moments["committed"] = row.committed
        if row.claimed is not None:
            call.claims.setdefault(row.attempt, row.claimed)
            call.moments.setdefault("claimed", row.claimed)
        if row.finished is not None:
            call.moments["recorded"] = row.finished
        if row.id in self._captured:
            call.moments["in Kafka"] = self._captured[row.id]
        if served := [request.at for request in seen.requests if request.order == row.order]:
            call.moments["performed"] = served[0]
        for what, of, at in seen.said:
            if of == row.order and what in {"decided", "read"}:
                call.moments.setdefault(what, at)

    # ---- in words

    def _report(self) -> None:
        seen = self._seen
        for ask in seen.asked:
            self._once(("asked", ask.order, ask.step, ask.at), ask.at, "model", f"is asked for completion {ask.step}")
        for n, request in enumerate(seen.requests):
            self._once(("request", request.order, n), request.at, "provider", _words(request.status, request.stored))
        for call in seen.calls.values():
            self._once(
                ("committed", call.id),
                call.moments["committed"],
                "agent",
                f"commits at once: reply, call {call.key}, order row",
            )
            if "in Kafka" in call.moments:
                self._once(
                    ("kafka", call.id), call.moments["in Kafka"], "debezium", "brings the call from the WAL to Kafka"
                )
            for attempt, at in call.claims.items():
                self._once(("claimed", call.id, attempt), at, self.worker, f"claims the call, attempt {attempt}")
            if call.freed is not None:
                self._once(("freed", call.id), call.freed, "sweep", "finds the worker dead and sets the call free")
            if call.status not in OPEN:
                self._once(
                    ("final", call.id), call.moments["recorded"], self.worker, f"records the outcome: {call.status}"
                )

    def _once(self, what: tuple[object, ...], at: float, who: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            if self._aloud:
                self._tell(at, who, text)


def _words(status: int, stored: bool) -> str:
    if stored:
        return f"knows the key: answers {status} as before, charges nothing"
    return f"charges 49.00 and answers {status}" if status == 201 else f"answers {status}"
