"""Catalogs of Iceberg in SQLite that are opened quickly, since tests open hundreds of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import sqlalchemy
from pyiceberg.catalog import sql
from sqlalchemy import event


@pytest.fixture(scope="session", autouse=True)
def catalogs_open_quickly() -> Iterator[None]:
    """All catalogs share the statements that SQLAlchemy has compiled, and no file waits for the disk.

    Each catalog would compile its dozen statements anew, which takes longer than most of what a test does with it.
    """
    first = sqlalchemy.create_engine("sqlite://")
    first.connect().close()

    def create_engine(uri: str, **more: Any) -> sqlalchemy.Engine:
        engine = sqlalchemy.create_engine(uri, **more)
        engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        return engine

    with mock.patch.object(sql, "create_engine", create_engine):
        yield
    first.dispose()
