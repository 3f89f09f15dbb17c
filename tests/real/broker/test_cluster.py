"""Embedded brokers that make one cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.brokers.broker_cluster import EmbeddedCluster
from testkit.waiting import await_true

from penstock.broker.process import ask_cluster

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def ports_of(cluster: EmbeddedCluster) -> set[int]:
    """Of the brokers that the first one knows to be alive."""
    return {broker.port for broker in ask_cluster("127.0.0.1", cluster.brokers[0].port, 5).brokers}


def test_all_brokers_are_of_one_cluster_and_one_that_dies_comes_back(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path, 2) as cluster:
        first, second = (broker.port for broker in cluster.brokers)
        await_true(lambda: ports_of(cluster) == {first, second})
        assert cluster.broker_at(f"127.0.0.1:{second}") is cluster.brokers[1]

        cluster.brokers[1].kill()
        await_true(lambda: ports_of(cluster) == {first})

        cluster.brokers[1].start()
        await_true(lambda: ports_of(cluster) == {first, second})
    assert not any(broker.is_running for broker in cluster.brokers)
