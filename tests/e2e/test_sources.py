"""The source kafka does what every source must do, on the whole pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conformance import SourceConformance
from tests.support.pipeline import Pipeline


@pytest.fixture
def options(pipeline: Pipeline) -> dict[str, Any]:
    """Where Kafka is."""
    return {"kafka": pipeline.stack.kafka}


class TestKafka(SourceConformance):
    """Postgres, Debezium, Kafka."""

    source = "kafka"
