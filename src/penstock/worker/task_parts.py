"""The parts that a task is made of, from its settings: its instance, converters, transforms, and its bulk work.

Nothing of bulk work is opened before the first run. Thread: the one that builds the task.

Source: org.apache.kafka.connect.runtime.Worker.TaskBuilder, isolation.Plugins.newConverter.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from penstock.api import BaseTransformation, Converter, HeaderConverter, Monitorable, Predicate, Task
from penstock.api.bulk import BulkSinkTask
from penstock.errors import ConnectException, KafkaException, KafkaRetriableException, as_exception
from penstock.kafka.admin import TopicAdmin, TopicCreator, plan_of
from penstock.kafka.settings.client import (
    ClientSettings,
    admin_client_id,
    admin_settings,
    dead_letter_producer_id,
    producer_settings,
    source_producer_id,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.topic_log.internal_topics import InternalTopic, Kind, connector_offset_log, on_producers_cluster
from penstock.kafka.topic_log.log import MadeLog
from penstock.model import ConnectorTaskId
from penstock.pipeline.batch.batches import InstanceRecipe, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import PluginKind, Plugins
from penstock.plugins.kinds import SignatureError, check_methods
from penstock.settings import (
    ConnectorSettings,
    InvalidSettingsError,
    PluginSpec,
    SettingFault,
    SinkSettings,
    SourceSettings,
)
from penstock.settings.worker import ConverterSettings, WorkerSettings
from penstock.stores.offset_file import replace_file
from penstock.worker.bulk.engine import BulkEngine, BulkServices
from penstock.worker.bulk.executor import MessageTarget
from penstock.worker.bulk.planning import Chain
from penstock.worker.bulk.range_work import DeadLetters, TopicReading
from penstock.worker.bulk.runs import Markers, canonical
from penstock.worker.bulk.shipping import Parts, TransformRecipe, probe_for_executors
from penstock.worker.bulk.sink_driver import BulkSinkDriver, BulkSinkServices
from penstock.worker.errors import DeadLetterSettings, ErrorHandler
from penstock.worker.isolation.process import TaskProcess, isolated
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import TASK_CLASS, TaskRequest, load_class

log = logging.getLogger(__name__)

T = TypeVar("T")
TaskT = TypeVar("TaskT", bound=Task)


@dataclass(frozen=True)
class TaskParts:
    """The configured converters and transforms of one task."""

    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    transforms: tuple[TransformStage, ...] = ()


def new_task(
    request: TaskRequest, base: type[TaskT], settings: ConnectorSettings | None = None, made: ExitStack | None = None
) -> tuple[TaskT, TaskProcess | None]:
    """An instance of the task's class; where ``task.isolation=process`` says so, one that stands for it in the worker.

    Returns:
        The task, and the process in which it will be; ``made`` closes that.

    Raises:
        ConnectException: the class is not there, cannot be made, does not extend ``base``, or has a method that cannot
            be called.
    """
    path = request.task_config.get(TASK_CLASS)
    if not path:
        raise ConnectException(f"task {request.id} has no {TASK_CLASS}")
    cls = load_class(path)
    try:
        check_methods(cls)
    except SignatureError as error:
        raise ConnectException(f"task {request.id} cannot be used: {error}") from error
    if settings is None or made is None or settings.isolation.mode != "process":
        return _made(f"task {request.id}", cls, base), None
    if not issubclass(cls, base):
        raise ConnectException(f"task {request.id}: {path} does not extend {base.__name__}")
    process = TaskProcess(request.id, path, settings.isolation.memory_max_bytes)
    made.callback(process.close)
    task: TaskT = isolated(cls, process)
    return task, process


def make_parts(
    worker: WorkerSettings,
    settings: ConnectorSettings,
    plugins: Plugins,
    made: ExitStack,
    metrics: InstanceMetrics | None = None,
) -> TaskParts:
    """Makes and configures converters and transforms; ``made`` closes them.

    A converter that the connector names gets the connector's sub-settings; otherwise the worker's converter gets the
    worker's sub-settings only. `metrics` are the task's metrics; None: they are not shown.
    """
    metrics = metrics or InstanceMetrics.unread()
    converters = make_converters(worker, settings, plugins, made, metrics)
    return TaskParts(*converters, tuple(_transforms(settings, made, metrics)))


def make_converters(
    worker: WorkerSettings,
    settings: ConnectorSettings,
    plugins: Plugins,
    made: ExitStack,
    metrics: InstanceMetrics | None = None,
) -> tuple[Converter, Converter, HeaderConverter]:
    """Makes and configures the converters of a task: of keys, values and headers; ``made`` closes them.

    `metrics` are the task's metrics; None: they are not shown, as for a task's second set of converters.
    """
    metrics = metrics or InstanceMetrics.unread()
    key, value, header = _converters_of(worker, settings, plugins)
    return (
        _converter("key.converter", *key, made, metrics, is_key=True),
        _converter("value.converter", *value, made, metrics, is_key=False),
        _header_converter("header.converter", *header, made, metrics),
    )


def make_recipes(worker: WorkerSettings, settings: ConnectorSettings, plugins: Plugins, connector: str) -> Parts:
    """The recipes of a task's converters and transforms, for other processes."""
    key, value, header = _converters_of(worker, settings, plugins)
    chain = []
    for spec in settings.transforms:
        chosen = None if spec.predicate is None else settings.predicates[spec.predicate]
        predicate = None if chosen is None else InstanceRecipe(chosen.type, dict(chosen.config))
        chain.append(TransformRecipe(spec.alias, InstanceRecipe(spec.type, dict(spec.config)), predicate, spec.negate))
    return Parts(connector, InstanceRecipe(*key), InstanceRecipe(*value), InstanceRecipe(*header), tuple(chain))


def _converters_of(
    worker: WorkerSettings, settings: ConnectorSettings, plugins: Plugins
) -> tuple[tuple[type, dict[str, object]], ...]:
    return (
        _chosen("key.converter", PluginKind.CONVERTER, settings.key_converter, worker.key_converter, plugins),
        _chosen("value.converter", PluginKind.CONVERTER, settings.value_converter, worker.value_converter, plugins),
        _chosen(
            "header.converter", PluginKind.HEADER_CONVERTER, settings.header_converter, worker.header_converter, plugins
        ),
    )


def check_worker_converters(worker: WorkerSettings, plugins: Plugins) -> None:
    """Makes and configures the worker's own converters once, so that a wrong one ends the start and not every task.

    Raises:
        InvalidSettingsError: some cannot be found, made or configured; all of them are listed.
    """
    faults = []
    metrics = InstanceMetrics.unread()
    for name, kind, given in (
        ("key.converter", PluginKind.CONVERTER, worker.key_converter),
        ("value.converter", PluginKind.CONVERTER, worker.value_converter),
        ("header.converter", PluginKind.HEADER_CONVERTER, worker.header_converter),
    ):
        with ExitStack() as made:
            try:
                cls, config = _chosen(name, kind, None, given, plugins)
                if kind is PluginKind.HEADER_CONVERTER:
                    _header_converter(name, cls, config, made, metrics)
                else:
                    _converter(name, cls, config, made, metrics, is_key=name == "key.converter")
            except ConnectException as error:
                rule = f"Invalid value {given.class_text} for configuration {name}: {error}"
                faults.append(SettingFault(name, given.class_text, rule))
    if faults:
        raise InvalidSettingsError("Worker configuration", faults)


def _chosen(
    name: str, kind: PluginKind, own: PluginSpec | None, default: ConverterSettings, plugins: Plugins
) -> tuple[type, dict[str, object]]:
    config: Mapping[str, str]
    if own is not None:
        cls, config = own.type, own.config
    else:
        cls, config = plugins.resolve(kind, default.class_text), default.config
    return cls, {**config, "converter.type": name.partition(".")[0]}


def _converter(
    name: str, cls: type, config: dict[str, object], made: ExitStack, metrics: InstanceMetrics, *, is_key: bool
) -> Converter:
    converter: Converter = _made(name, cls, Converter)  # type: ignore[type-abstract]
    made.callback(converter.close)
    _configure(name, lambda: converter.configure(config, is_key))
    _monitor(name, converter, metrics, converter="key" if is_key else "value")
    return converter


def _header_converter(
    name: str, cls: type, config: dict[str, object], made: ExitStack, metrics: InstanceMetrics
) -> HeaderConverter:
    converter: HeaderConverter = _made(name, cls, HeaderConverter)  # type: ignore[type-abstract]
    made.callback(converter.close)
    _configure(name, lambda: converter.configure(config))
    _monitor(name, converter, metrics, converter="header")
    return converter


def _transforms(settings: ConnectorSettings, made: ExitStack, metrics: InstanceMetrics) -> list[TransformStage]:
    stages = []
    for spec in settings.transforms:
        name = f"transforms.{spec.alias}"
        transformation: BaseTransformation = _made(name, spec.type, BaseTransformation)  # type: ignore[type-abstract]
        made.callback(transformation.close)
        _configure(name, partial(transformation.configure, dict(spec.config)))
        _monitor(name, transformation, metrics, transformation=spec.alias)
        predicate: Predicate | None = None
        predicate_props: Mapping[str, object] | None = None
        if spec.predicate is not None:
            chosen = settings.predicates[spec.predicate]
            name = f"predicates.{chosen.alias}"
            predicate = _made(name, chosen.type, Predicate)  # type: ignore[type-abstract]
            made.callback(predicate.close)
            predicate_props = chosen.config
            _configure(name, partial(predicate.configure, dict(predicate_props)))
            # One predicate may stand at several transforms, each time as an instance of its own.
            _monitor(name, predicate, metrics, transformation=spec.alias, predicate=chosen.alias)
        stages.append(TransformStage(spec.alias, transformation, predicate, spec.negate, spec.config, predicate_props))
    return stages


def _made(name: str, cls: type, base: type[T]) -> T:
    try:
        instance: object = cls()
    except BaseException as error:
        raise ConnectException(f"{name}: {cls.__name__} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(instance, base):
        raise ConnectException(f"{name}: {cls.__module__}.{cls.__qualname__} does not extend {base.__name__}")
    return instance


def _configure(name: str, configure: Callable[[], None]) -> None:
    try:
        configure()
    except BaseException as error:
        raise ConnectException(f"{name} cannot be configured: {as_exception(error)}") from error


def _monitor(name: str, plugin: object, metrics: InstanceMetrics, **labels: str) -> None:
    if not isinstance(plugin, Monitorable):
        return
    try:
        plugin.with_plugin_metrics(metrics.plugin(**labels))
    except BaseException as error:
        raise ConnectException(f"{name} cannot add its metrics: {as_exception(error)}") from error


#: Stands for the transactional id of each Spark partition.
_ID: Final = "penstock-bulk"
#: Tasks that begin their first runs at once write the name once.
_NAMING: Final = threading.Lock()


def writers_name(worker: Mapping[str, str], host: str) -> str:
    """The name under which a worker, or its group, writes bulk work.

    A standalone worker has no group. Its offset file identifies it, because that file has the offsets of its
    connectors: the name is made of the host and the file's path, and kept in a file next to it, so that it stays where
    the offsets are moved to another host, or a container has a new host name.

    >>> writers_name({"group.id": "loads"}, "one")
    'loads'
    """
    if group := worker.get("group.id", "").strip():
        return group
    offsets = os.path.abspath(worker.get("offset.storage.file.filename", ""))
    kept = Path(f"{offsets}.bulk")
    made = f"standalone-{hashlib.sha256(f'{host}:{offsets}'.encode()).hexdigest()[:8]}"
    try:
        with _NAMING:
            if kept.exists() and (name := kept.read_text().strip()):
                return name
            replace_file(kept, f"{made}\n".encode())
    except (OSError, UnicodeDecodeError) as error:
        log.warning(
            "The name %s of this worker's bulk work cannot be kept in %s (%s). A run that is half done begins anew if "
            "the worker moves to another host.",
            made,
            kept,
            error,
        )
    return made


def make_bulk(
    task: ConnectorTaskId,
    worker: WorkerSettings,
    settings: SourceSettings,
    plugins: Plugins,
    runtime: SparkRuntime,
    pipeline: SourcePipeline,
    jobs: SparkJobs,
    topics: TopicCreator,
    errors: ErrorHandler,
    *,
    probe: Callable[[str], None],
    exactly_once: bool,
) -> BulkEngine:
    """The bulk work of a task.

    Args:
        exactly_once: True if the worker's tasks write in transactions; then bulk work does, too, whatever the
            producer's settings.
    """
    config = on_producers_cluster(settings.raw)
    client_id = source_producer_id(*task)
    plain = producer_settings(worker.raw, settings.raw, client_id=client_id)
    transactions = exactly_once or ColumnSettings.of(plain).idempotent
    if transactions:
        plain = producer_settings(worker.raw, settings.raw, client_id=client_id, transactional_id=_ID)
    rules = settings.topic_creation
    delivery = MessageTarget(
        ColumnSettings.of(plain),
        transactions,
        not settings.errors_tolerance_all,
        _marker_topic(worker),
        connector_offset_log(worker.raw, config, *task, transactional=True),
        admin_settings(worker.raw, config, client_id=admin_client_id(*task)).checked().librdkafka,
        None if rules is None else plan_of(rules),
    )
    return BulkEngine(
        task,
        BulkServices(
            partial(writers_name, worker.raw, socket.gethostname()),
            runtime,
            worker.spark_settings(),
            Chain(pipeline, jobs, make_recipes(worker, settings, plugins, task.connector)),
            delivery,
            topics,
            errors,
            settings.errors_log_include_messages,
            probe_for_executors(probe),
        ),
    )


def _marker_topic(worker: WorkerSettings) -> InternalTopic:
    return InternalTopic.of(Kind.BULK, {**worker.raw, "bulk.storage.topic": worker.bulk_storage_topic})


def forget_bulk_runs(
    worker: WorkerSettings,
    connector: str,
    config: Mapping[str, str],
    partitions: Collection[Mapping[str, object] | None] | None,
) -> None:
    """Removes markers of a connector's runs, where there are any. Waits for the brokers.

    Args:
        partitions: The source partitions whose runs are forgotten; None: all.

    Raises:
        KafkaException: Kafka cannot be reached, or refuses.
    """
    config = on_producers_cluster(config)
    topic = _marker_topic(worker)
    admin = admin_settings(worker.raw, config, client_id=admin_client_id(connector)).checked().librdkafka
    client = TopicAdmin(dict(admin), name=f"the topic {topic.name}")
    try:
        if not client.topic_exists(topic.name):
            return
    except KafkaRetriableException:
        raise
    except KafkaException as error:
        log.info("The worker may not see the markers of bulk runs of connector %s: %s", connector, error)
        return
    finally:
        client.close()
    made = MadeLog(topic, connector_offset_log(worker.raw, config, connector, transactional=True), admin)
    markers = Markers()
    try:
        made.start(markers.take)
        known = None if partitions is None else {canonical(one) for one in partitions}
        group = writers_name(worker.raw, socket.gethostname())
        if gone := markers.entries_of_connector(group, connector, known):
            made.write(gone)
            log.info("The markers of bulk runs of connector %s are removed: %d records", connector, len(gone))
    finally:
        made.stop()


def make_bulk_sink(
    user: BulkSinkTask,
    task: ConnectorTaskId,
    worker: WorkerSettings,
    settings: SinkSettings,
    plugins: Plugins,
    runtime: SparkRuntime,
    pipeline: SinkPipeline,
    jobs: SparkJobs,
    consumer: ClientSettings,
    errors: ErrorHandler,
    note_topics: Callable[[Sequence[str]], None],
    *,
    probe: Callable[[str], None],
) -> BulkSinkDriver:
    """The driver of a bulk sink task."""
    queue = None
    if settings.dlq_topic:
        producer = producer_settings(worker.raw, settings.raw, client_id=dead_letter_producer_id(*task))
        queue = DeadLetters(
            DeadLetterSettings(settings.dlq_topic, settings.dlq_replication_factor, settings.dlq_context_headers),
            ColumnSettings.of(producer),
        )
    reading = TopicReading(
        task,
        dict(consumer.checked().librdkafka),
        make_recipes(worker, settings, plugins, task.connector),
        errors.policy,
        settings.frames.join,
        queue,
    )
    admin = admin_settings(worker.raw, settings.raw, client_id=admin_client_id(*task))
    return BulkSinkDriver(
        user,
        BulkSinkServices(
            task,
            runtime,
            pipeline.in_one_process,
            reading,
            jobs,
            admin.checked().librdkafka,
            consumer.librdkafka.get("isolation.level") == "read_committed",
            errors,
            note_topics,
            probe,
        ),
    )
