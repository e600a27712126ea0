"""The source poll does what every source must do, on a real Postgres."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conformance import SourceConformance


@pytest.fixture
def options() -> dict[str, Any]:
    """Nothing more is needed."""
    return {}


class TestPoll(SourceConformance):
    """Postgres only."""

    source = "poll"
