"""One PostgreSQL server for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.postgresql import PostgreSql


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    """A running server; make tables with names of their own."""
    with PostgreSql() as server:
        yield server
