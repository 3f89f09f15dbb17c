"""A broker that the tests of this directory share and treat badly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker import EmbeddedBroker


@pytest.fixture(scope="package")
def fragile_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker to kill, freeze and start again; it runs when a test begins, and when it ends."""
    with EmbeddedBroker(tmp_path_factory.mktemp("fragile")) as node:
        yield node
