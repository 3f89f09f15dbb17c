"""Fixtures of pytest for authors: a real broker, and a Spark session.

``pytest_plugins = ["penstock.testing.kit.fixtures"]`` in a ``conftest.py`` makes them known. Nothing is started before
a test asks for it, and all of it ends with the run.

Main functions: ``broker`` and ``spark``.

Owning thread: pytest's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running Kafka of one node, for the whole run: ``broker.bootstrap_servers``. Needs Java 17.

    Tests share it: use names of your own for topics and groups.
    """
    with EmbeddedBroker(tmp_path_factory.mktemp("kafka")) as node:
        yield node


@pytest.fixture(scope="session")
def spark() -> Iterator[Callable[[], SparkSession]]:
    """Gives a Spark session, for the whole run; for ``spark=`` of ``run_source`` and ``run_sink``. Needs Java 17."""
    from penstock.pipeline.spark.session import SparkRuntime

    runtime = SparkRuntime({"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"})
    runtime.start()

    def session() -> SparkSession:
        found = runtime.current(60.0)
        assert found is not None, "the Spark session did not start within 60 s"
        return found[0]

    yield session
    runtime.stop()
