"""The shared state of all requests of a herder: the configuration, the running instances, the leader, the requests in
progress.

``ControlPlane`` is filled when the worker is ready, and requests wait for that with ``ready``. ``Membership`` is the
herder's interface to a group of workers. ``Health`` and ``Created`` are answers of the herder.

Thread: the herder's, unless a method says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.errors import ConflictException, ConnectException, NotFoundException, ProducerFencedException
from penstock.herder.connector_facts import ConnectorFacts
from penstock.herder.loop import HerderLoop
from penstock.herder.running import Running, spec_of
from penstock.model.cluster_config import ClusterConfig, ConfiguredConnector, Entry, plain
from penstock.model.payloads import ConnectorView
from penstock.model.states import Unit, Units, all_units, connector_of
from penstock.stores.interface import ConfigStore, StatusStore
from penstock.validation.config_infos import Redaction, masked, masked_tasks, unmasked
from penstock.validation.validator import ConfigurationValidator
from penstock.worker.worker import Worker

if TYPE_CHECKING:
    from penstock.herder.cluster.worker_cluster import WorkerCluster

#: The time limit of reading the configuration before a change.
_READ_S: Final = 30.0


class NotHereException(ConnectException):
    """Another worker has to serve this request.

    Attributes:
        url: The REST address of that worker; None if it is unknown now.
        config: The configuration to send, if the received one is incomplete: it had a secret in its hidden form.
    """

    def __init__(self, message: str, url: str | None, config: Mapping[str, str | None] | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.config = config


class RebalanceExpectedException(ConflictException):
    """An error: the configuration has changed, and the group has not assigned the work again yet."""

    def __init__(self) -> None:
        super().__init__(
            "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config "
            "change)"
        )


class Membership:
    """The membership of a worker in its group; this class is the group of one of a standalone worker, which leads and
    runs everything.

    Attributes:
        sole: True if there can be no other worker.
    """

    sole = True

    @property
    def generation(self) -> int:
        """The generation of the group at its last assignment. Thread: any."""
        return 0

    @property
    def obstacle(self) -> str | None:
        """The reason why this worker has no place in its group, in a sentence; None if it has one. Thread: any."""
        return None

    def begin(self) -> None:
        """Starts the membership: the worker serves."""

    def assigned(self, config: ClusterConfig) -> Units:
        """The units that are assigned to this worker."""
        return all_units(config.task_counts)

    def require_leader(self, config: Mapping[str, str | None] | None = None) -> None:
        """Raises NotHereException, with the configuration to send to the leader, unless this worker is the leader."""

    def require_owner(self, unit: Unit) -> None:
        """Raises NotHereException, with the owner or who knows it, unless this worker runs the unit."""

    def require_stable(self) -> None:
        """Raises RebalanceExpectedException while the assignment is about to change."""

    async def steady(self, *, dealt: bool) -> None:
        """Waits while the group assigns the work, at most for its time limit; the caller must check the result.

        Args:
            dealt: True to wait for an assignment of the present configuration; False to wait only for the leader.
        """

    def configured(self, before: ClusterConfig, after: ClusterConfig) -> None:
        """Called with each new snapshot: added connectors or tasks need an assignment."""

    async def close(self) -> None:
        """Leaves the group."""


@dataclass(frozen=True)
class HerderParts:
    """The objects that a herder gets once the worker exists.

    Attributes:
        worker: Runs connectors and tasks.
        validator: Checks configurations.
        config: Stores the configuration.
        statuses: Stores the states of connectors and tasks.
        membership: The worker's membership in its group.
        kafka_cluster_id: The id of the Kafka cluster, for display.
        on_deleted: Called with the name of each deleted connector.
        cluster: The worker's part in a group; None for a standalone worker.
    """

    worker: Worker
    validator: ConfigurationValidator
    config: ConfigStore
    statuses: StatusStore
    membership: Membership
    kafka_cluster_id: str | None = None
    on_deleted: Callable[[str], None] = lambda name: None
    cluster: WorkerCluster | None = None


class ControlPlane:
    """The herder's parts, and the locks and notes that its requests share.

    Attributes:
        loop: The herder's thread.
        worker_id: ``host:port`` of the worker.
        snapshot: The configuration that this worker applies.
        stages: The present step of the requests for each connector.
        facts: The facts of the connectors' classes, and their secrets; like ``running``, set by ``serve``.
        running: The instances on this worker.
        storing: Held while a change is decided and stored, so that its basis does not change.
    """

    facts: ConnectorFacts
    running: Running

    def __init__(self, loop: HerderLoop, worker_id: str) -> None:
        self.loop = loop
        self.worker_id = worker_id
        self.snapshot = ClusterConfig()
        self.stages: dict[str, str] = {}
        self._parts: HerderParts | None = None
        self._served = asyncio.Event()
        self._offsets: dict[str, asyncio.Lock] = {}
        self._turns: dict[Unit, int] = {}
        self._turn = count(1)
        self.storing = asyncio.Lock()

    # ------------------------------------------------------------------ parts
    def serve(self, parts: HerderParts, running: Running) -> None:
        """Sets the worker's parts; waiting requests continue."""
        self.facts = ConnectorFacts(self.loop, parts.validator, lambda config: parts.worker.resolvable(config).data)
        self.running = running
        self._parts = parts
        self._served.set()

    async def ready(self) -> HerderParts:
        """Waits until the worker's parts are set."""
        await self._served.wait()
        return self.parts

    async def steady(self, *, dealt: bool = False) -> HerderParts:
        """Waits until the worker is ready and knows the leader.

        Args:
            dealt: True to wait also for an assignment of the present configuration.
        """
        parts = await self.ready()
        await parts.membership.steady(dealt=dealt)
        return parts

    @property
    def serving(self) -> bool:
        """True if the worker's parts are set. Thread: any."""
        return self._parts is not None

    @property
    def parts(self) -> HerderParts:
        assert self._parts is not None
        return self._parts

    @property
    def worker(self) -> Worker:
        return self.parts.worker

    # ------------------------------------------------------------------ the configuration
    async def write(self, entries: Sequence[Entry], *, leading: bool = True) -> None:
        """Stores records of the configuration; this worker acts on them when it returns.

        Args:
            entries: The records.
            leading: True if only the leader may write them.

        Raises:
            ConflictException: another worker has become the leader.
            ConnectException, KafkaException: the records could not be stored.
        """
        store = self.parts.config
        try:
            await self.loop.off_loop("store", lambda: store.write(entries, leading=leading))
        except ProducerFencedException as error:
            if self.parts.cluster is not None:
                self.parts.cluster.on_fenced()
            raise ConflictException(f"Another worker has begun to lead the group; try again: {error}") from error

    def connector(self, name: str, message: str) -> ConfiguredConnector:
        """The configuration of a connector; raises NotFoundException with this message if there is none."""
        found = self.snapshot.connectors.get(name)
        if found is None:
            raise NotFoundException(message)
        return found

    # ------------------------------------------------------------------ the running instances
    def reconcile(self, connectors: Collection[str] | None = None) -> None:
        """Starts and stops instances of these connectors (None: all) to match the configuration and the assignment;
        returns at once.
        """
        cluster, running = self.parts.cluster, self.running.units
        assigned = self.parts.membership.assigned(self.snapshot)
        if connectors is not None:
            assigned, running = assigned.of_connectors(connectors), running.of_connectors(connectors)
        mine = set(assigned)
        for unit in dict.fromkeys((*running, *assigned)):
            name = connector_of(unit)
            turn = self._turns.get(unit, 0)
            fenced = False if cluster is None or unit not in mine else cluster.fences(name)
            if fenced is None and not isinstance(unit, str):
                # This runs again once its class has answered.
                continue
            spec = spec_of(self.snapshot, unit, turn, fenced=fenced is True) if unit in mine else None
            self.running.want(unit, spec, self.snapshot.target(name))

    def begin_anew(self, units: Iterable[Unit]) -> None:
        """Replaces instances that run here by new ones with the same settings; returns at once."""
        chosen = list(units)
        self.take_turn(chosen)
        self.reconcile({connector_of(unit) for unit in chosen})

    def take_turn(self, units: Iterable[Unit]) -> None:
        """Marks units to be replaced by new instances, even if their settings are the same."""
        for unit in units:
            self._turns[unit] = next(self._turn)

    def ended(self, unit: Unit) -> None:
        """Notes that a unit no longer runs here."""
        self._turns.pop(unit, None)

    # ------------------------------------------------------------------ waiting requests
    @contextmanager
    def stage(self, name: str, doing: str) -> Iterator[None]:
        """Notes the present step of a request about a connector, for the errors of timeouts."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = f"{doing} of connector {name}, which began at {since}"
        self.stages[name] = text
        try:
            yield
        finally:
            if self.stages.get(name) == text:
                del self.stages[name]

    def offsets_lock(self, name: str) -> asyncio.Lock:
        """Held while the offsets of a connector are changed; taken before any other lock."""
        return self._offsets.setdefault(name, asyncio.Lock())

    @asynccontextmanager
    async def deciding(self, name: str) -> AsyncIterator[None]:
        """A lock for a change of a connector; it waits for changes of its offsets, and for changes being stored.

        The decision uses all stored records: a worker that does not know yet of another leader still finds the records
        of that leader.
        """
        async with self.offsets_lock(name), self.storing:
            await self.read_all()
            yield

    async def read_all(self) -> None:
        """Waits until this worker acts on all that is stored now."""
        if not self.parts.membership.sole:
            store = self.parts.config
            await self.loop.off_loop("read-configs", lambda: store.refresh(_READ_S))

    # ------------------------------------------------------------------ for readers, any thread
    def view(self, name: str) -> ConnectorView | None:
        """Everything that readers may know of a connector, without secrets; None if there is none of that name."""
        snapshot = self.snapshot
        known = snapshot.connectors.get(name)
        if known is None or not self.serving:
            return None
        checked, secrets = self.facts.known(name, known.config), self.facts.secrets(name, known)
        statuses, given = self.parts.statuses, plain(known.config)
        return ConnectorView(
            name,
            MappingProxyType(masked(given, secrets)),
            checked.type,
            snapshot.target(name),
            statuses.connector(name),
            tuple(masked_tasks([plain(config) for config in known.tasks], given, secrets)),
            tuple(statuses.tasks(name)),
        )

    def redaction(self, name: str) -> Redaction:
        """Removes a connector's secrets from texts. Thread: any."""
        return self.facts.redaction(name, self.snapshot.connectors.get(name)) if self.serving else Redaction({})

    def unmasked(self, name: str, config: Mapping[str, str | None]) -> dict[str, str | None]:
        """Replaces hidden values in a configuration by the stored secrets of the connector of this name."""
        known = self.snapshot.connectors.get(name)
        if known is None:
            return dict(config)
        return unmasked(config, plain(known.config), self.facts.secrets(name, known))


class Views(Mapping[str, ConnectorView]):
    """All connectors, each in its state at the time of the access. Thread: any."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._names = tuple(plane.snapshot.connectors) if plane.serving else ()

    def __getitem__(self, name: str) -> ConnectorView:
        found = self._plane.view(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Health(Enum):
    """The health of the worker as a whole, with the text of the health endpoint."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True)
class Created:
    """The outcome of a request that creates or changes a connector."""

    created: bool
    view: ConnectorView
