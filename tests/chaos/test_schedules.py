"""A few random schedules, short and always the same; `make chaos` plays others, for as long as you like."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from deedbox_debezium.stack import Stack
from tests.chaos.play import SERVICES, Result, play

pytestmark = pytest.mark.timeout(300)  # seconds: a busy machine takes its time to start what was killed

SECONDS = 12.0  # of each; bringing all to its end takes about as long
SEEDS = (7, 11)  # on Postgres alone
KAFKA_SEED = 38  # on the whole pipeline, whose broker is killed

Played = dict[int, Future[Result]]


def _check(result: Result) -> None:
    assert result.holds, result
    assert result.kills
    assert result.calls
    assert result.repeats
    assert all("OperationalError" in failure for failure in result.failures), "of a start while Postgres was away"


@pytest.fixture(scope="module")
def played(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All of them, beside each other: each is idle most of the time. One strikes the services, from all of them."""

    def one(seed: int) -> Result:
        folder: Path = tmp_path_factory.mktemp(f"seed-{seed}")
        kafka = seed == KAFKA_SEED
        return play(stack, folder, seed, SECONDS, kafka=kafka, services=SERVICES if kafka else (), say=print)

    seeds = (*SEEDS, KAFKA_SEED)
    with ThreadPoolExecutor(len(seeds)) as beside:
        yield {seed: beside.submit(one, seed) for seed in seeds}


@pytest.mark.parametrize("seed", [*SEEDS, KAFKA_SEED])
def test_a_schedule_of_this_seed_holds(played: Played, seed: int) -> None:  # I2 I5 I6 I8 I16
    _check(played[seed].result())
