"""Fixtures of the chaos: worlds to break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deedbox_debezium.stack import Stack
from tests.chaos.world import World


@pytest.fixture
def world(database_url: str, local_stack: Stack, tmp_path: Path) -> Iterator[World]:
    """A world on Postgres alone."""
    with World(local_stack, tmp_path) as world:
        yield world


@pytest.fixture(scope="module")
def kafka_world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world on the whole pipeline, for all tests of a file; each test has runs of its own."""
    with World(stack, tmp_path_factory.mktemp("world"), kafka=True) as world:
        yield world
