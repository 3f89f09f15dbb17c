"""The short form of ``bin/chaos --connectors``: kills while rows go from a table of PostgreSQL into two others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.chaos.connectors import TableChaos
from tools.chaos.kills import Kill

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

#: The worker comes back with another owner of the offsets; the database is away while tasks start.
KILLS = [Kill(0.0, "PostgreSQL's connections", 0, 0.0), Kill(1.0, "worker", 0, 0.2), Kill(8.0, "PostgreSQL", 0, 1.0)]


def test_rows_arrive_once_whatever_happens_to_worker_and_database(tmp_path: Path) -> None:
    # A broker of its own: the topic has the name of the table.
    with EmbeddedBroker(tmp_path / "kafka") as broker:
        TableChaos(tmp_path, broker, exactly_once=True, workers=1).run(KILLS)
