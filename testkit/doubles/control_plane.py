"""A standalone herder over a real worker whose tasks are doubles: the control plane without Kafka and Spark.

Main names: ``running`` (a context manager), ``Setup`` (what a test works with).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn, cast

from penstock.api import BackfillPart, Connector, OffsetAndMetadata, OffsetStorageReader, TopicPartition
from penstock.config.providers import ConfigTransformer, EnvVarConfigProvider
from penstock.config.validators import NonEmptyStringWithoutControlChars
from penstock.errors import BadRequestException, ConfigException, KafkaException, KafkaRetriableException
from penstock.herder import Herder, HerderParts, Membership
from penstock.herder.control_plane import Health
from penstock.kafka.admin import GroupClient
from penstock.kafka.settings.client import admin_settings
from penstock.model import ConnectorType, State
from penstock.model.payloads import BackfillPlan, BackfillQuestion, BackfillRange, BackfillShare, PreviewRequest
from penstock.plugins import Plugins
from penstock.stores.config import FileConnectorStore, LocalConfigStore
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader
from penstock.stores.status import LocalStatusStore
from penstock.telemetry import Metrics
from penstock.validation.config_infos import ConfigInfos
from penstock.validation.validator import Checked, ConnectorValidator
from penstock.worker.connector_offsets import ConnectorOffsets, SinkGroup
from penstock.worker.source.delivery_guarantee import SourceOffsets
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import (
    StateReport,
    TaskRequest,
)
from penstock.worker.task.waiting import Hints
from penstock.worker.worker import Worker, WorkerParts
from testkit.connectors.probes import BOARD
from testkit.waiting import await_true

SOURCE = "testkit.connectors.probes:ProbeSource"
SINK = "testkit.connectors.probes:ProbeSink"
#: The worker's file, as far as connectors are told of it.
WORKER_SETTINGS = {
    "value.converter": "org.example.Worker",
    "value.converter.schemas.enable": "false",
    "value.converter.basic.auth.user.info": "me:hunter2",
    "producer.linger.ms": "7",
    "producer.ssl.key.password": "hunter2",
    "consumer.max.poll.records": "9",
    "listeners": "http://:8083",
}


class FakeTask:
    """A task that does at once what it is told, and records it; those stuck in ``start`` or ``stop`` do not end."""

    def __init__(self, request: TaskRequest, report: StateReport, stuck: str = "") -> None:
        self.request = request
        self.report = report
        self.stuck = stuck
        self.cancelled = False
        self.has_delivered = False
        self.hints = Hints()
        self._ended = threading.Event()
        self._stop_asked = False

    def start(self) -> None:
        if self.stuck == "start":
            return
        if self._stop_asked:
            self.report(State.UNASSIGNED, None)
            self._ended.set()
        else:
            self.report(State.PAUSED if self.request.paused else State.RUNNING, None)

    def pause(self) -> None:
        self.report(State.PAUSED, None)

    def resume(self) -> None:
        self.report(State.RUNNING, None)

    def stop(self) -> None:
        self._stop_asked = True
        if not self.stuck:
            self.report(State.UNASSIGNED, None)
            self._ended.set()

    def cancel(self) -> None:
        self.cancelled = True

    def fail(self, error: Exception) -> None:
        self.report(State.FAILED, str(error))

    def join(self, timeout_s: float | None = None) -> bool:
        return self._ended.wait(timeout_s)


class EchoOffsets(OffsetStorageReader):
    """Answers with what is stored, and without it with what was asked for."""

    def __init__(self, reader: OffsetReader) -> None:
        self._reader = reader

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        return self._reader.offset(partition) or {"read": partition["file"]}

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        return [self.offset(partition) for partition in partitions]


class GroupBusy(Exception):
    """The exception that the double of an admin client raises for a group with members."""


class FakeGroups:
    """Consumer groups and topics without a cluster; each partition has the offsets 0 to 99, a second apart."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.topics = {"t": 2}
        self.forbidden: set[str] = set()
        self.busy = False
        self.away = False

    def group_offsets(self, group: str, topics: Iterable[str] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        if self.away:
            raise KafkaRetriableException("No broker answers")
        return {at: OffsetAndMetadata(offset) for at, offset in self.groups.get(group, {}).items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._check()
        self.groups.setdefault(group, {}).update(offsets)

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        # A broker refuses only partitions that a member reads.
        for at in partitions:
            self.groups.get(group, {}).pop(at, None)

    def require_idle(self, group: str) -> None:
        self._check()

    def delete_group(self, group: str) -> None:
        self._check()
        self.groups.pop(group, None)

    def group_busy(self, error: Exception) -> bool:
        return isinstance(error, GroupBusy)

    def existing_partitions(self, topics: Iterable[str] | None) -> set[TopicPartition]:
        wanted = self.topics if topics is None else topics
        return {TopicPartition(topic, n) for topic in wanted for n in range(self.topics.get(topic, 0))}

    def topic_exists(self, topic: str) -> bool:
        if topic in self.forbidden:
            raise KafkaException(f"describing the topic {topic} failed: Topic authorization failed")
        return topic in self.topics

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def offsets_at(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, min(100, -(-timestamp_ms // 1000)))

    def close(self) -> None: ...

    def _check(self) -> None:
        if self.busy:
            raise GroupBusy


def _check_name(name: str | None) -> None:
    """Refuses what the definition of a connector's settings refuses.

    Raises:
        BadRequestException: the name is empty or has control characters.
    """
    try:
        NonEmptyStringWithoutControlChars().ensure_valid("name", name)
    except ConfigException as error:
        raise BadRequestException(str(error)) from error


class LaxValidator:
    """Takes every configuration that names a class and has a possible name; settings called password are secrets.

    Attributes:
        strict: Whether configurations are checked as a worker does it.
    """

    def __init__(self, plugins: Plugins) -> None:
        self._real = ConnectorValidator(plugins)
        self.strict = False

    def __call__(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        if self.strict:
            return self._real(config, resolved)
        text = resolved.get("connector.class")
        if not text:
            raise BadRequestException("Connector config contains no connector type")
        _check_name(config.get("name"))
        BOARD.hit(str(resolved.get("name")), "validate", record=False)
        self._real.new_connector(resolved)
        enforce = resolved.get("tasks.max.enforce", "true") == "true"
        kind = ConnectorType.SINK if "Sink" in text else ConnectorType.SOURCE
        return Checked(kind, "7", int(resolved.get("tasks.max") or 1), enforce, frozenset({"password"}))

    def facts(self, resolved: Mapping[str, str]) -> Checked:
        return self(resolved, resolved)

    def infos(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> ConfigInfos:
        return self._real.infos(config, resolved)

    def new_connector(self, config: Mapping[str, str]) -> Connector:
        return self._real.new_connector(config)


class FakeBackfill:
    """A backfill that has read all when its task says so."""

    unread = ()
    positions = ()
    records = 7

    def __init__(self, task: FakeTask) -> None:
        self.runner = task

    @property
    def all_done(self) -> bool:
        """True once a test has set it, on the task."""
        return bool(getattr(self.runner, "all_done", False))


class Setup:
    """The objects that a test gets."""

    def __init__(self, connectors: FileConnectorStore | None = None, plugins: Plugins | None = None) -> None:
        self.tasks: list[FakeTask] = []
        self.task_error: Exception | None = None
        self.stuck = ""
        self.connectors = connectors
        self.previews: list[PreviewRequest] = []
        self.statuses = LocalStatusStore()
        self.metrics = Metrics()
        self.herder = Herder("127.0.0.1:8083")
        self.env = {"SECRET": "hunter2"}
        self.store = MemoryOffsetStore()
        self.store.start()
        self.groups = FakeGroups()
        #: The source partitions whose bulk runs were forgotten, by connector; None: all of them.
        self.forgotten: list[tuple[str, Collection[Mapping[str, object] | None] | None]] = []
        plugins = plugins or Plugins(stock=())
        self.validator = LaxValidator(Plugins())
        parts = WorkerParts(
            worker_id="127.0.0.1:8083",
            plugins=plugins,
            transformer=ConfigTransformer({"env": EnvVarConfigProvider(self.env)}),
            offset_reader=lambda name, config: EchoOffsets(OffsetReader(self.store, name)),
            make_task=self._make_task,
            offsets=ConnectorOffsets(
                SourceOffsets(self.store),
                _group,
                lambda group, timeout_s: cast("GroupClient", self.groups),
                _no_producer,
                lambda name, config, partitions: self.forgotten.append((name, partitions)),
            ),
            preview=self._preview,
            settings=WORKER_SETTINGS,
            task_stop_timeout_s=0.3,
            connector_stop_timeout_s=0.3,
            metrics=self.metrics,
            connector_metrics=lambda name: InstanceMetrics(self.metrics, {"connector": name}),
            plan_backfill=self._plan_backfill,
            make_backfill=lambda request, report: FakeBackfill(self._make_task(request, report)),
        )
        self.worker = Worker(parts, self.herder, self.herder)

    def _preview(self, request: PreviewRequest) -> dict[str, object]:
        self.previews.append(request)
        return {"type": request.type.value, "ended_by": "end", "records": []}

    def _plan_backfill(self, asked: BackfillQuestion) -> BackfillPlan:
        request = asked.request
        if asked.kind is not ConnectorType.SINK:
            if request.span is None:
                raise BadRequestException(f"Connector {asked.name} goes by positions")
            part = BackfillPart({"file": request.of}, {"from": request.span[0], "to": request.span[1]})
            shares = [BackfillShare(read, [part]) for read in asked.tasks]
            return BackfillPlan([part.to_json()], "its topic", None, shares=shares)
        times = [BackfillRange("t", 0, request.start_ms, request.end_ms or 50)] if request.start_ms is not None else []
        ranges = [one for one in (*request.ranges, *times) if one.start < one.end]
        total = sum(one.end - one.start for one in ranges)
        return BackfillPlan([one.to_json() for one in ranges], "its target", total, ranges)

    def _make_task(self, request: TaskRequest, report: StateReport) -> FakeTask:
        if self.task_error is not None:
            raise self.task_error
        task = FakeTask(request, report, self.stuck)
        self.tasks.append(task)
        return task

    def serve(self, except_for: Iterable[str] = ()) -> None:
        """Lets the herder serve."""
        self.config = LocalConfigStore(self.connectors, except_for=tuple(except_for))
        self.herder.serve(HerderParts(self.worker, self.validator, self.config, self.statuses, Membership(), "cluster"))

    def put(self, name: str, cls: str = SOURCE, **config: str) -> None:
        """Creates or changes a connector; ``tasks_max`` stands for ``tasks.max``."""
        settings = {"connector.class": cls, **{key.replace("_", "."): value for key, value in config.items()}}
        self.herder.put_connector(name, settings, replace=True).result(10)

    def state(self, name: str) -> tuple[str | None, list[str]]:
        """State of a connector and its tasks, for readers."""
        view = self.herder.connectors().get(name)
        if view is None:
            return None, []
        return view.status.state.value if view.status else None, [task.state.value for task in view.tasks]

    def await_state(self, name: str, connector: str | None, tasks: list[str]) -> None:
        """Waits for these states."""
        await_true(lambda: self.state(name) == (connector, tasks), lambda: f"{name} is {self.state(name)}")


def _group(connector: str, config: Mapping[str, str]) -> SinkGroup:
    return SinkGroup(
        config.get("consumer.override.group.id", f"connect-{connector}"),
        admin_settings({}, client_id="test"),
        connector,
    )


def _no_producer(connector: str, config: Mapping[str, str], transactional_id: str) -> NoReturn:
    raise AssertionError("A standalone worker has no transactions")


@contextmanager
def running(connectors: FileConnectorStore | None = None, plugins: Plugins | None = None) -> Iterator[Setup]:
    """A herder that serves, stopped at the end.

    Args:
        connectors: Where connectors outlive it.
        plugins: The worker's; by default it has none, but finds classes by their paths.
    """
    BOARD.clear()
    setup = Setup(connectors, plugins)
    setup.herder.start()
    setup.serve()
    # The herder's thread takes it in; whoever reads before that sees a worker that starts.
    await_true(lambda: setup.herder.health()[0] is Health.HEALTHY)
    try:
        yield setup
    finally:
        for event in BOARD.block.values():
            event.set()
        setup.herder.stop(10)
