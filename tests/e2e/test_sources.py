"""The source kafka does what every source must do, on the whole pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from deedbox import Deedbox
from deedbox_debezium.stack import Stack
from tests.support.conformance import SourceConformance
from tests.support.pipeline import Pipeline, open_pipeline
from tests.support.shop import TOOLS, Shop, open_shop


@pytest.fixture(scope="module")
def pipeline(stack: Stack) -> Iterator[Pipeline]:
    """One pipeline for all tests of this file: each has runs of its own."""
    with open_shop(stack.database_url) as shop, open_pipeline(stack, shop) as pipeline:
        yield pipeline


@pytest.fixture
def shop(pipeline: Pipeline) -> Shop:
    """The pipeline's shop."""
    return pipeline.shop


@pytest.fixture
def box(shop: Shop) -> Iterator[Deedbox]:
    """An agent's box on it."""
    with Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:
        yield box


@pytest.fixture
def conn(shop: Shop) -> Iterator[psycopg.Connection]:
    """A connection on it."""
    with shop.connect() as conn:
        yield conn


@pytest.fixture
def options(pipeline: Pipeline) -> dict[str, Any]:
    """Where Kafka is."""
    return {"kafka": pipeline.stack.kafka}


class TestKafka(SourceConformance):
    """Postgres, Debezium, Kafka."""

    source = "kafka"
