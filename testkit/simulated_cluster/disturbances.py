"""The disturbances of a simulated cluster, and what must be true whatever has happened.

Main types: ``Disturbed``, which makes things happen and keeps account of what users were answered; ``ACTIONS``, their
names.

Thread: that of the simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.errors import ConnectException, KafkaException
from penstock.herder import Herder
from penstock.model import ConnectorTaskId, TargetState
from testkit.simulated_cluster.cluster import SimulatedCluster, SimulatedNode

_MOST_WORKERS: Final = 5
_NAMES: Final = "xyz"
_SETTLE_S: Final = 60.0


class Disturbed:
    """A cluster to which things happen.

    Args:
        cluster: With at least one worker.

    Attributes:
        wanted: What users were promised: the number of tasks of each connector.
        stopped: The connectors that they were promised to be stopped.
        unsure: The connectors about which a request has failed: it may have been stored all the same.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.wanted: dict[str, int] = {}
        self.stopped: set[str] = set()
        self.unsure: set[str] = set()
        self._random = cluster.random

    def happen(self, action: str, pause_s: float) -> None:
        """Lets one thing happen, then some time pass."""
        ACTIONS[action](self)
        self.cluster.loop.run_for(pause_s)

    def settle(self) -> None:
        """Waits until all disturbances are over and the cluster has come to rest, then checks what must be true."""
        self.cluster.loop.run_for(_SETTLE_S)
        self.cluster.until(self.cluster.stable)
        snapshot = self.cluster.present()[0].config.snapshot
        running = Counter(unit for node in self.cluster.present() for unit in node.worker.running)
        for name in self.wanted.keys() | snapshot.connectors.keys():
            if name in self.unsure:
                continue
            assert (name in snapshot.connectors) == (name in self.wanted), f"{name}: an answered request was lost"
            tasks = {unit.task for unit in running if isinstance(unit, ConnectorTaskId) and unit.connector == name}
            stopped = name in self.stopped
            assert (snapshot.target(name) is TargetState.STOPPED) == stopped, f"{name}: a target state was lost"
            assert tasks == set(range(0 if stopped else self.wanted.get(name, 0))), f"{name} runs tasks {tasks}"
        errors = [error for node in self.cluster.nodes.values() for error in node.thread.errors]
        assert not errors, errors

    # ------------------------------------------------------------------ actions
    def join(self) -> None:
        """Another worker comes."""
        if len(self.cluster.present()) < _MOST_WORKERS:
            self.cluster.add(f"w{len(self.cluster.nodes)}")

    def leave(self) -> None:
        """A worker stops."""
        if (node := self._one_of_several()) is not None:
            node.leave()

    def crash(self) -> None:
        """A worker's process is killed."""
        if (node := self._one_of_several()) is not None:
            node.crash()

    def freeze(self) -> None:
        """A worker's process stands still for a while."""
        if (node := self._one_of_several()) is not None:
            node.freeze()
            self.cluster.loop.call_later(self._random.uniform(0.5, 40), lambda: node.thaw() if node.alive else None)

    def put(self) -> None:
        """A connector is created or changed."""
        name, tasks = self._random.choice(_NAMES), self._random.randint(1, 4)
        config = {"connector.class": "Simulated", "tasks.max": str(tasks), "seed": str(self._random.random())}
        if self._ask(name, lambda herder, name: herder.put_connector(name, config, replace=True)):
            self.wanted[name] = tasks

    def delete(self) -> None:
        """A connector is deleted."""
        if (name := self._some_connector()) is not None and self._ask(name, Herder.delete_connector):
            del self.wanted[name]
            self.stopped.discard(name)

    def stop(self) -> None:
        """A connector is stopped."""
        if (name := self._some_connector()) is not None and self._ask(name, Herder.stop_connector):
            self.stopped.add(name)

    def resume(self) -> None:
        """A connector is resumed."""
        if (name := self._some_connector()) is not None and self._ask(name, Herder.resume_connector):
            self.stopped.discard(name)

    def restart(self) -> None:
        """A connector is restarted with its tasks."""
        if (name := self._some_connector()) is not None:
            self._ask(
                name,
                lambda herder, name: herder.restart_connector_and_tasks(name, include_tasks=True, only_failed=False),
                changes=False,
            )

    def outage(self) -> None:
        """The coordinator of the group cannot be reached for a while."""
        self.cluster.coordinator.reachable = False
        self.cluster.loop.run_for(self._random.uniform(0.5, 15))
        self.cluster.coordinator.reachable = True

    def unreadable(self) -> None:
        """A worker cannot read the config topic for a while."""
        node = self._random.choice(self.cluster.present())
        node.config.readable = False

        def readable() -> None:
            node.config.readable = True
            node.config.notice()

        self.cluster.loop.call_later(self._random.uniform(0.5, 10), readable)

    # ------------------------------------------------------------------ inside
    def _one_of_several(self) -> SimulatedNode | None:
        awake = [node for node in self.cluster.present() if not node.thread.frozen]
        return self._random.choice(awake) if len(awake) > 1 else None

    def _some_connector(self) -> str | None:
        return self._random.choice(sorted(self.wanted)) if self.wanted else None

    def _ask(self, name: str, request: Callable[[Herder, str], object], *, changes: bool = True) -> bool:
        try:
            self.cluster.ask(lambda herder: request(herder, name))  # type: ignore[arg-type, return-value]
        except (ConnectException, KafkaException):
            if changes:
                self.unsure.add(name)
            return False
        return True


ACTIONS: Final[dict[str, Callable[[Disturbed], None]]] = {
    one.__name__: one
    for one in (
        Disturbed.join,
        Disturbed.leave,
        Disturbed.crash,
        Disturbed.freeze,
        Disturbed.put,
        Disturbed.delete,
        Disturbed.stop,
        Disturbed.resume,
        Disturbed.restart,
        Disturbed.outage,
        Disturbed.unreadable,
    )
}
