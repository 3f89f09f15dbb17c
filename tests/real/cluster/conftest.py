"""Three workers that the tests of this directory share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import EmbeddedBroker


@pytest.fixture(scope="package")
def started_group(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroup]:
    """Three workers that share the work."""
    with WorkerGroup(tmp_path_factory.mktemp("group"), broker.bootstrap_servers) as made:
        yield made
        made.stop()


@pytest.fixture
def group(started_group: WorkerGroup) -> Iterator[WorkerGroup]:
    """Three workers without connectors; what a test leaves behind is mended after it."""
    yield started_group
    started_group.clean()


@pytest.fixture
def probes(tmp_path: Path) -> Probes:
    """Sources that write down what is done to them, and do what they are told."""
    return Probes(tmp_path)
