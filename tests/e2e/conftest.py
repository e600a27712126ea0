"""Fixtures of the tests on the whole pipeline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deedbox_debezium.stack import Stack
from tests.support.pipeline import Pipeline, open_pipeline
from tests.support.shop import Shop, open_shop


@pytest.fixture(scope="module")
def pipeline(stack: Stack) -> Iterator[Pipeline]:
    """One pipeline for all tests of a file: each has runs of its own."""
    with open_shop(stack.database_url) as shop, open_pipeline(stack, shop) as pipeline:
        yield pipeline


@pytest.fixture
def shop(pipeline: Pipeline) -> Shop:
    """The pipeline's shop."""
    return pipeline.shop
