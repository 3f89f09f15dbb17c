"""One PostgreSQL server for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker.postgresql import PostgreSql


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgreSql]:
    """A running server; make tables with names of their own."""
    with PostgreSql(tmp_path_factory.mktemp("postgresql")) as server:
        yield server
