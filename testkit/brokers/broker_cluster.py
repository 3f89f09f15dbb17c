"""A cluster of embedded brokers, for what one broker cannot show: leaders and coordinators that move.

Main type: `EmbeddedCluster`. Its first node is the controller, too; the others are brokers alone, and may be stopped,
killed and started again.

Thread: one owner.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.broker.jars import BROKER_COORDINATES, find_java, free_ports, resolve_jars
from penstock.broker.process import EmbeddedBroker, format_storage, node_properties, write_configuration

_HOST = "127.0.0.1"


class EmbeddedCluster:
    """Some brokers; a context manager.

    What brokers keep for groups and transactions has a replica on each of them. A broker that is killed counts as dead
    after three seconds.

    Args:
        directory: holds a directory for each node.
        count: of brokers.
        properties: server properties that win over the built-in ones.

    Attributes:
        brokers: the nodes; the first is the controller.
    """

    def __init__(self, directory: Path, count: int = 2, properties: Mapping[str, str] | None = None) -> None:
        controller, *ports = free_ports(1 + count)
        more = _shared(count) | dict(properties or {})
        self._overrides = [node_overrides(number, port, controller) | more for number, port in enumerate(ports, 1)]
        self.brokers = [
            EmbeddedBroker(directory / str(number), port=port, properties=overrides, heap="256m")
            for number, (port, overrides) in enumerate(zip(ports, self._overrides, strict=True), 1)
        ]
        self._controller_port = controller
        self._running = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of clients: all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def broker_at(self, address: str) -> EmbeddedBroker:
        """The broker whose clients know it by this host and port."""
        return next(broker for broker in self.brokers if broker.bootstrap_servers == address)

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._format()
            for broker in self.brokers:
                starting.enter_context(broker)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def _format(self) -> None:
        """Makes the nodes' storage, all of one cluster. A broker that finds its own made leaves it as it is."""
        java, class_path = find_java(), os.pathsep.join(map(str, resolve_jars(BROKER_COORDINATES)))
        cluster_id = None
        for broker, overrides in zip(self.brokers, self._overrides, strict=True):
            directory = broker.data_dir.absolute()
            properties = node_properties(directory, _HOST, broker.port, self._controller_port, overrides)
            configuration = write_configuration(directory, properties)
            cluster_id = format_storage(java, class_path, configuration, [], cluster_id)


def node_overrides(number: int, port: int, controller_port: int) -> dict[str, str]:
    """The server properties in which a node of a cluster differs from a node alone.

    >>> node_overrides(2, 9092, 9090)["listeners"], node_overrides(2, 9092, 9090)["controller.quorum.voters"]
    ('PLAINTEXT://127.0.0.1:9092', '1@127.0.0.1:9090')
    """
    own = f"PLAINTEXT://{_HOST}:{port}"
    first = number == 1
    return {
        "process.roles": "broker,controller" if first else "broker",
        "node.id": str(number),
        "controller.quorum.voters": f"1@{_HOST}:{controller_port}",
        "listeners": f"{own},CONTROLLER://{_HOST}:{controller_port}" if first else own,
    }


def _shared(count: int) -> dict[str, str]:
    return {
        "default.replication.factor": str(count),
        # Leaders go back to a broker soon after it is there again.
        "leader.imbalance.check.interval.seconds": "1",
        "leader.imbalance.per.broker.percentage": "0",
        "offsets.topic.replication.factor": str(count),
        "transaction.state.log.replication.factor": str(count),
    }
