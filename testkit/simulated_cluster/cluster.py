"""A simulated cluster: herders, each on its own node, over one log and one group.

Main types: ``SimulatedCluster``, ``SimulatedNode``. See the package for how.

Thread: one, for everything.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from typing import TypeVar

from penstock.errors import BadRequestException, ConflictException, ConnectException, NotFoundException
from penstock.herder import Herder, HerderParts
from penstock.herder.cluster.leader import FencingRounds, LeaderDuties
from penstock.herder.cluster.member import WorkerGroup
from penstock.herder.cluster.session_keys import Signer, Verifier
from penstock.herder.cluster.worker_cluster import WorkerCluster
from penstock.kafka.group.events import GroupEvents
from penstock.model import ConnectorTaskId, ConnectorType, TargetState
from penstock.model.cluster_config import task_entries
from penstock.rest.errors import status_of
from penstock.rest.services import refusal
from penstock.settings import DistributedSettings, ExactlyOnceSourceSupport
from penstock.validation.config_infos import ConfigInfos
from penstock.validation.validator import Checked
from testkit.simulated_cluster.clock import NodeLoop, VirtualLoop
from testkit.simulated_cluster.coordinator import Coordinator, SimulatedMember
from testkit.simulated_cluster.producers import Producers
from testkit.simulated_cluster.stores import ConfigLog, LogConfigStore, SharedStatuses
from testkit.simulated_cluster.workers import Change, NotedWorker

_NONCES = count()

T = TypeVar("T")
Unit = str | ConnectorTaskId


class TrustingValidator:
    """Takes every configuration; a connector is a source, with as many tasks as ``tasks.max`` says."""

    def __call__(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        return Checked(ConnectorType.SOURCE, "1", int(config.get("tasks.max") or 1))

    def facts(self, resolved: Mapping[str, str]) -> Checked:
        return self(resolved, resolved)

    def infos(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> ConfigInfos:
        return ConfigInfos("simulated", [], [])

    def new_connector(self, config: Mapping[str, str]) -> object:
        raise NotImplementedError


class SimulatedNode:
    """One worker of the cluster.

    Attributes:
        name: Its name, also the host of its address.
        alive: Whether its process is there.
    """

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        self.name = name
        self.url = f"http://{name}:8083/"
        self.alive = True
        self._cluster = cluster
        loop = cluster.loop
        self.thread = NodeLoop(loop, cluster.moment)
        producers = cluster.producers
        self.worker = NotedWorker(
            name, loop, cluster.story.append, cluster.moment, self.thread, producers, cluster.orders
        )
        self.config = LogConfigStore(cluster.log, loop, self.thread, cluster.moment, fencing=producers is not None)
        self.herder = Herder(f"{name}:8083", self.thread)  # type: ignore[arg-type]
        self.worker.listener = self.herder
        plane = self.herder.plane
        self.group = WorkerGroup(plane, cluster.settings, self.url, self._member, clock_ms=loop.now_ms)
        self.duties = LeaderDuties(plane, self.group, cluster.settings, clock_ms=loop.now_ms, random_bytes=bytes)
        self.group.on_round = self.duties.on_round
        verifier = Verifier(cluster.settings.keys.verified, loop.now_ms)
        fencing = None
        if producers is not None:
            fencing = FencingRounds(plane, self.group.require_leader, cluster.settings.group_id, producers.fence)
        services = WorkerCluster(
            plane,
            self.group,
            self.duties,
            verifier,
            _Others(cluster, self),  # type: ignore[arg-type]
            lambda logger, level: None,
            fencing,
            wait_for=lambda holds, timeout_s: holds(),
        )
        self.herder.serve(
            HerderParts(
                self.worker,  # type: ignore[arg-type]
                TrustingValidator(),  # type: ignore[arg-type]
                self.config,
                cluster.statuses,
                self.group,
                "simulated",
                cluster=services,
            )
        )
        self.services = services

    def _member(self, events: GroupEvents) -> SimulatedMember:
        cluster = self._cluster
        return SimulatedMember(
            cluster.coordinator,
            self.name,
            self.thread,
            events,  # type: ignore[arg-type]
            heartbeat_s=cluster.settings.heartbeat_interval_ms / 1000,
            lost_answers=cluster.loses_answer,
        )

    # ------------------------------------------------------------------ faults
    def crash(self) -> None:
        """As SIGKILL: what ran here ends, and nobody is told."""
        self.alive = False
        self.thread.die()
        for unit in list(self.worker.running):
            del self.worker.running[unit]
            self._cluster.story.append(Change(self._cluster.loop.time(), self.name, unit, False))
        self._cluster.log.readers.remove(self.config)

    def freeze(self) -> None:
        """As SIGSTOP: what runs here stays, and does nothing."""
        self.thread.freeze()

    def thaw(self) -> None:
        """As SIGCONT."""
        self.thread.thaw()

    def leave(self) -> None:
        """As SIGTERM: a clean stop."""
        self._cluster.answer(self.thread.submit(self.herder.shut_down))
        self.alive = False
        self.thread.die()
        self._cluster.log.readers.remove(self.config)


class SimulatedCluster:
    """Workers, their log and their group.

    Args:
        seed: Of all delays and faults.
        settings: More settings of the workers.
        lost: Which share of the answers of rounds gets lost.

    Attributes:
        orders: What units do in calls: see ``NotedWorker``.
    """

    def __init__(self, seed: int = 0, settings: Mapping[str, str] | None = None, lost: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.loop = VirtualLoop()
        self._lost = lost
        self.settings = DistributedSettings.parse(
            {
                "bootstrap.servers": "simulated:9092",
                "key.converter": "none",
                "value.converter": "none",
                "group.id": "simulated",
                "scheduled.rebalance.max.delay.ms": "20000",
                **(settings or {}),
            }
        )
        exactly_once = self.settings.exactly_once is ExactlyOnceSourceSupport.ENABLED
        self.producers = Producers() if exactly_once else None
        self.story: list[Change] = []
        self.orders: dict[tuple[str, str], str] = {}
        self.log = ConfigLog()
        self.statuses = SharedStatuses()
        self.coordinator = Coordinator(
            self.loop,
            self.moment,
            session_s=self.settings.session_timeout_ms / 1000,
            rebalance_s=self.settings.rebalance_timeout_ms / 1000,
        )
        self.nodes: dict[str, SimulatedNode] = {}
        self._put: dict[str, int] = {}

    def close(self) -> None:
        """Ends everything."""
        for node in self.nodes.values():
            node.thread.die()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_for(0.1)
        self.loop.close()

    # ------------------------------------------------------------------ chance
    def moment(self) -> float:
        """A short time."""
        return self.random.uniform(0.001, 0.02)

    def loses_answer(self) -> bool:
        """True if an answer gets lost."""
        return self.random.random() < self._lost

    # ------------------------------------------------------------------ workers and requests
    def add(self, name: str) -> SimulatedNode:
        """Starts a worker."""
        node = self.nodes[name] = SimulatedNode(self, name)
        return node

    def present(self) -> list[SimulatedNode]:
        """The workers whose processes are there."""
        return [node for node in self.nodes.values() if node.alive]

    def leader(self) -> SimulatedNode | None:
        """The worker that leads, by its own word."""
        return next((node for node in self.present() if node.group.place.leads and not node.thread.frozen), None)

    def put(self, name: str, tasks: int = 1, **config: str) -> None:
        """Creates or changes a connector through the leader; waits for the answer."""
        settings = {"connector.class": "Simulated", "tasks.max": str(tasks), **config}
        # As over REST: who creates a connector says which state it is to have.
        target = None if name in self._put else TargetState.STARTED
        self.ask(lambda leader: leader.put_connector(name, settings, target=target, replace=True))
        self._put[name] = tasks

    def delete(self, name: str) -> None:
        """Deletes a connector through the leader; waits for the answer."""
        self.ask(lambda leader: leader.delete_connector(name))
        del self._put[name]

    def settle(self) -> None:
        """Waits until what was put runs, once and evenly."""
        wanted: set[Unit] = {ConnectorTaskId(name, task) for name, tasks in self._put.items() for task in range(tasks)}
        self.until(lambda: self.stable() and self.configured() == wanted | self._put.keys())

    def ask(self, request: Callable[[Herder], Future[T]]) -> T:
        """Makes a request to the leader; waits for the answer."""
        self.until(lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        return self.answer(request(leader.herder))

    def answer(self, future: Future[T]) -> T:
        """Lets time pass until there is an answer."""
        self.until(future.done)
        return future.result()

    def until(self, holds: Callable[[], bool], timeout_s: float = 600.0, step_s: float = 0.05) -> None:
        """Lets time pass until something is true."""
        end = self.loop.time() + timeout_s
        while not holds():
            assert self.loop.time() < end, f"not within {timeout_s} s of virtual time: {self.where()}"
            self.loop.run_for(step_s)

    def owner(self, unit: Unit) -> SimulatedNode:
        """The worker that a unit runs on."""
        (found,) = [node for node in self.present() if unit in node.worker.running]
        return found

    # ------------------------------------------------------------------ what is
    def where(self) -> dict[str, list[Unit]]:
        """Returns the units that run on each worker."""
        return {node.name: list(node.worker.running) for node in self.present()}

    def configured(self) -> set[Unit]:
        """Returns the units that are to run, as the member knows them that has read most of the log."""
        known = max((node.config.snapshot for node in self.present()), key=lambda config: config.offset)
        units: set[Unit] = set(known.connectors)
        for name in known.connectors:
            if known.target(name) is not TargetState.STOPPED:
                units.update(known.task_ids(name))
        return units

    def stable(self) -> bool:
        """True if everything runs once, evenly, and no worker is about to change that."""
        nodes = [node for node in self.present() if not node.thread.frozen]
        counted = Counter(unit for node in nodes for unit in node.worker.running)
        configured = self.configured()
        if set(counted) != configured or any(number > 1 for number in counted.values()):
            return False
        places = [node.group.place for node in nodes]
        return (
            len({place.generation for place in places}) == 1
            and any(place.leads for place in places)
            and all(set(node.group.place.assigned) & configured == set(node.worker.running) for node in nodes)
            and self._even(nodes)
            and (self.producers is None or all(map(self._writes, nodes)))
        )

    def _writes(self, node: SimulatedNode) -> bool:
        return all(node.worker.writes(unit) for unit in node.worker.running if isinstance(unit, ConnectorTaskId))

    def _even(self, nodes: list[SimulatedNode]) -> bool:
        for kind in (str, ConnectorTaskId):
            loads = [sum(isinstance(unit, kind) for unit in node.worker.running) for node in nodes]
            if max(loads) - min(loads) > 1:
                return False
        return True


class _Others:
    """The requests of workers to each other, without a network."""

    def __init__(self, cluster: SimulatedCluster, node: SimulatedNode) -> None:
        self._cluster = cluster
        self._node = node
        self._signer = Signer(cluster.settings.keys.signature, cluster.loop.now_ms, lambda: f"{next(_NONCES)}")

    def put_task_configs(self, url: str, connector: str, configs: Sequence[dict[str, str]]) -> None:
        node = self._signed("POST", url, f"/connectors/{connector}/tasks")
        node.group.require_leader()
        node.config.refresh(1.0)
        if connector not in node.config.snapshot.connectors:
            raise NotFoundException(f"Connector {connector} not found")
        if configs and node.config.snapshot.target(connector) is TargetState.STOPPED:
            raise BadRequestException(f"Connector {connector} is stopped")
        node.config.write(task_entries(connector, configs), leading=True)

    def fence(self, url: str, connector: str) -> Future[None]:
        # The caller's loop waits for it.
        return self._signed("PUT", url, f"/connectors/{connector}/fence").herder.fence_zombies(connector)

    def restart_task(self, url: str, task: ConnectorTaskId) -> None:
        self._at(url).herder.restart_task(task.connector, task.task)

    def _signed(self, method: str, url: str, path: str) -> SimulatedNode:
        """The worker that is asked, if it takes the signature of the one that asks."""
        found, key = self._at(url), self._node.herder.plane.snapshot.session_key
        headers = {} if key is None else self._signer.headers(key, method, path, b"")
        try:
            found.services.check_signature(method, path, headers, b"")
        except ConnectException as error:
            raise refusal(status_of(error), str(error), f"{method} {path}", signed=key is not None) from error
        return found

    def _at(self, url: str) -> SimulatedNode:
        found = next((node for node in self._cluster.present() if node.url == url), None)
        if found is None or found.thread.frozen:
            raise ConflictException(f"nobody answers at {url}")
        return found
