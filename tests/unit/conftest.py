"""The end of what unit tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def shared_server_ends() -> Iterator[None]:
    """Stops the REST server of the tests, if one of them has started it."""
    yield
    if (client := sys.modules.get("tests.unit.rest.api_client")) is not None:
        client.SHARED.stop()
