"""Where the time of one call goes: the moments that agent, ledger, broker and handler noted, on one machine's clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.shop import charge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

TOPIC = f"deedbox.{charge.name}"
PARTITIONS = 6
QUIET = 1.0  # seconds without a record: the end of the topic


def hops(
    rows: Sequence[tuple[Any, ...]], appended: Mapping[str, float], asked: Sequence[tuple[float, float, float]]
) -> dict[str, list[float]]:
    """Seconds of each hop, for each call. `rows` as the statement `hops` gives them, in the order of `asked`."""
    ways: dict[str, list[float]] = {}
    for (began, _, seen), (id_, written, claimed, effect, finished) in zip(asked, sorted(rows), strict=True):
        moments = {
            "agent → row written": (began, written),
            "row written → broker": (written, appended.get(id_)),
            "broker → claim": (appended.get(id_, written), claimed),
            "claim → handler": (claimed, effect),
            "handler → outcome written": (effect, finished),
            "outcome written → agent": (finished, seen),
            "commit → handler": (began, effect),
        }
        for name, (start, end) in moments.items():
            if end is not None:
                ways.setdefault(name, []).append(end - start)
    return ways


def append_times(kafka: str, mark: UUID) -> dict[str, float]:
    """When the broker appended each call since `mark`: by action id, seconds since 1970, in whole milliseconds."""
    since = mark.int >> 80  # a time-ordered id begins with its milliseconds
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench-hops", "enable.auto.commit": False})
    try:
        starts = [TopicPartition(TOPIC, number, since) for number in range(PARTITIONS)]
        consumer.assign(consumer.offsets_for_times(starts, timeout=10))
        found: dict[str, float] = {}
        until = time.monotonic() + QUIET
        while time.monotonic() < until:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    id_ = dict(message.headers() or ())["action_id"]
                    assert isinstance(id_, bytes)
                    # a millisecond is cut off: half of it is added, which is right on the average
                    found[id_.decode()] = (message.timestamp()[1] + 0.5) / 1e3
                    until = time.monotonic() + QUIET
        return found
    finally:
        consumer.close()
