"""One PostgreSQL server for the tests of this directory, and databases and tasks for tests of the sink."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testkit.processes.mariadb import MariaDb, is_installed
from tests.real.connectors.jdbc.writing import Database, Start, Writing

from penstock.broker.postgresql import PostgreSql

#: bin/test counts the tests that are skipped for this by themselves.
NO_MARIADB = "MariaDB's server is not installed: Debian's package is mariadb-server"


@pytest.fixture(scope="module", autouse=True)
def no_public_certificates() -> Iterator[None]:
    """MariaDB's client reads all certificates that the system trusts, 20 ms long, for each connection without TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        patch.setenv("SSL_CERT_DIR", os.devnull)
        yield


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgreSql]:
    """A running server; make tables with names of their own."""
    with PostgreSql(tmp_path_factory.mktemp("postgresql")) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A running server, where its programs are installed."""
    if not is_installed():
        pytest.skip(NO_MARIADB)
    with MariaDb(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(params=["postgresql", "mariadb", "sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database of each kind, without tables."""
    if request.param == "sqlite":
        return Database.of_sqlite(tmp_path / "a.db")
    if request.param == "duckdb":
        return Database.of_duckdb(tmp_path / "a.duckdb")
    if request.param == "mariadb":
        return Database.of_mariadb(request.getfixturevalue("mariadb"))
    return Database.of_postgresql(request.getfixturevalue("postgresql"))


@pytest.fixture
def name() -> str:
    """The name of a table of this test."""
    return f"t_{uuid.uuid4().hex[:10]}"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts sink tasks, which end with the test."""
    started: list[Writing] = []

    def make(*args: Any, **named: Any) -> Writing:
        started.append(Writing(*args, **named))
        return started[-1]

    yield make
    for one in started:
        one.task.stop()
