"""What tests of source tasks share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from testkit.doubles.source_doubles import WAIT_S


@pytest.fixture
def rigs() -> Iterator[list[Any]]:
    """The tasks of a test, each with what it runs with; what the test leaves running is ended."""
    made: list[Any] = []
    yield made
    for rig in made:
        rig.pipeline.hold.set()
        rig.runner.cancel()
        rig.runner.join(WAIT_S)
