"""Builds the runner of a task from its configuration: the task, converters, transforms, pipeline and Kafka clients.

Importing this module imports Spark, Arrow and the Kafka client, so it is imported after the REST server is up.

Thread: called on the short-lived ``start-<task>`` threads, several at a time; the shared objects are thread-safe.

Source: org.apache.kafka.connect.runtime.Worker.TaskBuilder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from penstock.api import AnySinkTask, FrameSinkTask, SinkRecord, SourceTask, Task, ValueForm
from penstock.api.bulk import BulkSinkTask
from penstock.kafka.admin import GroupClient, TopicAdmin, TopicCreator, plan_of
from penstock.kafka.consumer.consumer import RecordConsumer
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.client import (
    ClientSettings,
    admin_client_id,
    admin_settings,
    consumer_settings,
    dead_letter_admin_id,
    dead_letter_producer_id,
    producer_settings,
    sink_consumer_id,
    sink_instance_id,
    source_producer_id,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.model import ConnectorTaskId, ConnectorType
from penstock.pipeline.batch.batches import PathCounts, PipelineSpec
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import Gate
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import ConnectorSettings, DistributedSettings, InstalledPlugins, SinkSettings, SourceSettings
from penstock.settings.connector_definitions import SINK_RETRY_DELAY, SOURCE_RETRY_DELAY
from penstock.settings.worker import WorkerSettings
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader
from penstock.telemetry import Metrics, no_probe
from penstock.telemetry.metrics import TRANSFORM_SECONDS_TOTAL
from penstock.threads import NoThreadException, start_within
from penstock.worker.backfill_tasks import (
    RangeConsumer,
    SinkBackfill,
    SourceBackfill,
    parts_task,
    range_consumer,
    subscription_of,
)
from penstock.worker.backfills import BackfillTask
from penstock.worker.connector_offsets import ConnectorOffsets, SinkGroup
from penstock.worker.errors import (
    ConsumedMessage,
    DeadLetterQueue,
    DeadLetterSettings,
    ErrorCounts,
    ErrorHandler,
    ErrorPolicy,
    ErrorReporter,
    LogReporter,
    RecordEncoder,
    create_topic,
    message_as_text,
)
from penstock.worker.isolation.process import TaskProcess
from penstock.worker.sink.fetching import PartitionHolders
from penstock.worker.sink.queues import SinkConsumer
from penstock.worker.sink.task import SinkServices, SinkTaskRunner
from penstock.worker.source.delivery_guarantee import ConnectorOffsetReader, SourceCommits, SourceOffsets
from penstock.worker.source.offset_commit import CommitHooks
from penstock.worker.source.task import SourceServices, SourceTaskRunner
from penstock.worker.task.bounded_queue import AT_ONCE, BatchLimits, SharedLoad
from penstock.worker.task.engine import TaskServices, TaskSession, TaskSpec
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import TASK_CLASS, StateReport, TaskRequest, TaskRunner, load_class
from penstock.worker.task.waiting import RetryBackoff
from penstock.worker.task_metrics import publish_sink, publish_source, withdraw
from penstock.worker.task_parts import (
    TaskParts,
    forget_bulk_runs,
    make_bulk,
    make_bulk_sink,
    make_converters,
    make_parts,
    new_task,
)

log = logging.getLogger(__name__)
TaskT = TypeVar("TaskT", bound=Task)

#: The time limit of a request for a connector's group; below the time limit of a REST request.
_OFFSETS_TIMEOUT_S = 30.0


class TaskBuilder:
    """Makes the runners of a worker's tasks.

    Args:
        note_topics: Gets the topics that a task of a connector uses; None if they are not tracked.
        static_id: The worker's part of the ids of its static group members; None for dynamic ones.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        plugins: Plugins,
        runtime: SparkRuntime,
        offsets: SourceOffsets,
        metrics: Metrics,
        *,
        probe: Callable[[str], None] = no_probe,
        note_topics: Callable[..., None] | None = None,
        static_id: str | None = None,
        kafka_cluster_id: str | None = None,
    ) -> None:
        self._settings = settings
        self._kafka_cluster_id = kafka_cluster_id
        self._static_id = static_id
        self._note_topics = note_topics
        self._probe = probe
        self._plugins = plugins
        self._classes = InstalledPlugins(plugins)
        self._runtime = runtime
        self._offsets = offsets
        # One for all tasks: plans are shared, and small batches of several tasks go in one job.
        self._jobs = SparkJobs(runtime, Gate(max(1, runtime.parallelism)))
        self._load = SharedLoad(max(AT_ONCE, runtime.parallelism))
        self._holders = PartitionHolders()
        self._metrics = metrics

    def offset_reader(self, connector: str, config: Mapping[str, str]) -> OffsetReader:
        """The reader of a connector's committed source offsets; `config` has its placeholders resolved."""
        return ConnectorOffsetReader(lambda: self._offsets.of_connector(connector, config), connector)

    def connector_metrics(self, connector: str) -> InstanceMetrics:
        return self._own_metrics(connector=connector)

    def _own_metrics(self, **labels: str) -> InstanceMetrics:
        return InstanceMetrics(self._metrics, labels, window=self._settings.sample_window)

    def _task_metrics(self, request: TaskRequest, made: ExitStack) -> InstanceMetrics:
        """Creates the registry to which the parts of a task add their metrics; closed after all of them."""
        metrics = self._own_metrics(connector=request.id.connector, task=str(request.id.task))
        made.callback(metrics.close)
        return metrics

    def connector_offsets(self) -> ConnectorOffsets:
        forget_runs = partial(forget_bulk_runs, self._settings)
        return ConnectorOffsets(self._offsets, self._group_of, self._group_admin, self._offset_producer, forget_runs)

    def _offset_producer(
        self, connector: str, config: Mapping[str, str], transactional_id: str
    ) -> TransactionalProducer:
        client = producer_settings(
            self._settings.raw, config, client_id=source_producer_id(connector, 0), transactional_id=transactional_id
        )
        return TransactionalProducer(self._sending(client), name=f"{connector} (offsets)", connector=connector)

    def _group_of(self, connector: str, config: Mapping[str, str]) -> SinkGroup:
        """The consumer group of a sink: its own name for it, the worker's, or the default."""
        client = consumer_settings(
            self._settings.raw, config, client_id=admin_client_id(connector), group_id=f"connect-{connector}"
        )
        if any(fault.name == "group.id" for fault in client.refused):
            # The default settings would read other offsets than the requested ones.
            client.checked()
        admin = admin_settings(self._settings.raw, config, client_id=admin_client_id(connector))
        return SinkGroup(str(client.java["group.id"]), admin, connector)

    def _group_admin(self, group: SinkGroup, timeout_s: float | None) -> GroupClient:
        return GroupClient(group.client, name=f"connector {group.name}", timeout_s=timeout_s or _OFFSETS_TIMEOUT_S)

    def __call__(self, request: TaskRequest, report: StateReport) -> TaskRunner:
        """Builds one task; closes the built parts if another part fails."""
        self._runtime.want()
        with ExitStack() as made:
            if request.connector_type is ConnectorType.SINK:
                runner: TaskRunner = self._sink(request, report, made)
            else:
                runner = self._source(request, report, made)
            # After this the runner closes everything itself.
            made.pop_all()
        return runner

    def backfill(self, request: TaskRequest, report: StateReport) -> BackfillTask:
        self._runtime.want()
        with ExitStack() as made:
            if request.connector_type is ConnectorType.SINK:
                sink = self._sink(request, report, made)
                consumer = sink.consumer
                assert isinstance(consumer, RangeConsumer)
                backfill: BackfillTask = SinkBackfill(sink, consumer)
            else:
                backfill = self._parts_of_source(request, report, made)
            made.pop_all()
        return backfill

    # ------------------------------------------------------------------ source tasks
    def _source(self, request: TaskRequest, report: StateReport, made: ExitStack) -> SourceTaskRunner:
        settings = self._source_settings(request)
        task, process = new_task(request, SourceTask, settings, made)  # type: ignore[type-abstract]
        return self._source_runner(request, report, made, settings, task, process, self._offsets)

    def _parts_of_source(self, request: TaskRequest, report: StateReport, made: ExitStack) -> SourceBackfill:
        """The task of a source's backfill: at least once, and with offsets of its own."""
        assert request.backfill is not None
        shares = request.backfill.shares

        def make(config: Mapping[str, str]) -> SourceTask:
            return new_task(replace(request, task_config=config), SourceTask)[0]  # type: ignore[type-abstract]

        store = MemoryOffsetStore()
        reading = parts_task(shares, make, load_class(request.task_config[TASK_CLASS]))
        settings = self._source_settings(request)
        runner = self._source_runner(request, report, made, settings, reading, None, SourceOffsets(store))
        return SourceBackfill(runner, reading, shares, store)

    def _source_settings(self, request: TaskRequest) -> SourceSettings:
        return SourceSettings.parse(
            request.connector_config, self._classes, topic_creation_enabled=self._settings.topic_creation_enable
        )

    def _source_runner(
        self,
        request: TaskRequest,
        report: StateReport,
        made: ExitStack,
        settings: SourceSettings,
        task: SourceTask,
        process: TaskProcess | None,
        offsets: SourceOffsets,
    ) -> SourceTaskRunner:
        metrics = self._task_metrics(request, made)
        parts = make_parts(self._settings, settings, self._plugins, made, metrics)
        session = TaskSession(str(request.id), self._runtime)
        commits = SourceCommits(self._settings, offsets, settings, self._settings.sample_window, self._probe)
        sender = commits.producer(request.id, task)
        made.callback(sender.close, 0)
        store, committer = commits.committer(request, sender, CommitHooks(task))
        made.callback(store.stop)
        jobs = self._jobs.of_a_task()
        pipeline = SourcePipeline(
            self._runtime, self._spec(request, parts), jobs, PathCounts(self._metrics, request.id.connector)
        )
        topics = self._topic_creation(request, settings, made)
        counts = ErrorCounts()
        errors = _errors(request, settings, counts, _log_reporters(settings, request, counts))
        source = SourceServices(
            pipeline=pipeline,
            producer=sender,
            topics=topics,
            committer=committer,
            offset_reader=OffsetReader(store, request.id.connector),
            requests=commits.requests(request.id, task),
            bulk=make_bulk(
                request.id,
                self._settings,
                settings,
                self._plugins,
                self._runtime,
                pipeline,
                jobs,
                topics,
                errors,
                probe=self._probe,
                exactly_once=self._offsets.exactly_once,
            ),
        )
        services = TaskServices(
            report,
            session,
            errors,
            self._load,
            metrics,
            # After this the runner closes everything itself.
            close=made.pop_all().close,
            abandoned=_ending(request.id, jobs, process),
            probe=self._probe,
            note_topics=self._notes(request),
        )
        runner = SourceTaskRunner(
            self._task_spec(request, task, RetryBackoff(settings.retry.delay_max_ms / 1000, SOURCE_RETRY_DELAY)),
            services,
            source,
        )
        if process is not None:
            process.on_death = runner.fail
        publish_source(self._metrics, runner)
        return runner

    def _topic_creation(self, request: TaskRequest, settings: SourceSettings, made: ExitStack) -> TopicCreator:
        rules = settings.topic_creation
        if rules is None:
            return TopicCreator(str(request.id), None, None)
        client = admin_settings(
            self._settings.raw, settings.raw, client_id=admin_client_id(request.id.connector, request.id.task)
        )
        admin = TopicAdmin(self._client(client), name=str(request.id), timeout_s=client.api_timeout_s)
        made.callback(admin.close)
        return TopicCreator(str(request.id), plan_of(rules), admin)

    # ------------------------------------------------------------------ sink tasks
    def _sink(self, request: TaskRequest, report: StateReport, made: ExitStack) -> SinkTaskRunner:
        settings = SinkSettings.parse(request.connector_config, self._classes)
        task, process = new_task(request, AnySinkTask, settings, made)
        metrics = self._task_metrics(request, made)
        parts = make_parts(self._settings, settings, self._plugins, made, metrics)
        client = consumer_settings(
            self._settings.raw,
            settings.raw,
            client_id=sink_consumer_id(request.id.connector, request.id.task),
            group_id=f"connect-{request.id.connector}",
            instance_id=None if self._static_id is None else sink_instance_id(self._static_id, *request.id),
            instance_suffix=f"-{request.id.task}" if settings.tasks_max > 1 else "",
        )
        consumer: SinkConsumer
        if request.backfill is not None:
            consumer = range_consumer(self._settings.raw, settings, *request.id, request.backfill.ranges)
        else:
            consumer = RecordConsumer(
                self._client(client),
                name=f"{request.id.connector} task {request.id.task}",
                api_timeout_s=client.api_timeout_s,
                refresh_s=client.refresh_s,
            )
        session = TaskSession(str(request.id), self._runtime)
        jobs = self._jobs.of_a_task()
        pipeline = SinkPipeline(
            self._runtime,
            self._spec(request, parts, task, session, frames_join=settings.frames.join),
            jobs,
            PathCounts(self._metrics, request.id.connector),
        )
        errors = _errors(request, settings, ErrorCounts(), ())
        note = self._notes(request)
        bulk = None
        if isinstance(task, BulkSinkTask):
            bulk = make_bulk_sink(
                task,
                request.id,
                self._settings,
                settings,
                self._plugins,
                self._runtime,
                pipeline,
                jobs,
                client,
                errors,
                note,
                probe=self._probe,
            )
        sink = SinkServices(
            pipeline,
            consumer,
            subscription_of(settings),
            make_reporters=self._sink_reporters(request, settings),
            encode=self._encoder(request, settings, made),
            holder=self._holders.holder(
                f"{request.id if request.backfill else client.java['group.id']} at {client.java['bootstrap.servers']}",
                client.max_poll_interval_s,
            ),
            shares_id=self._shares_id(client, request.id),
            bulk=bulk,
            is_backfill=request.backfill is not None,
            kafka_cluster_id=self._kafka_cluster_id,
        )
        services = TaskServices(
            report,
            session,
            errors,
            self._load,
            metrics,
            # After this the runner closes everything itself.
            close=made.pop_all().close,
            abandoned=_ending(request.id, jobs, process),
            probe=self._probe,
            note_topics=note,
        )
        runner = SinkTaskRunner(
            self._task_spec(
                request, bulk or task, RetryBackoff(settings.errors_retry_delay_max_ms / 1000, SINK_RETRY_DELAY)
            ),
            services,
            sink,
        )
        if process is not None:
            process.on_death = runner.fail
        publish_sink(self._metrics, runner)
        return runner

    def _shares_id(self, client: ClientSettings, task: ConnectorTaskId) -> bool:
        """True if the task's static member id is derived from that of the group of workers, not set by a user."""
        if self._static_id is None or not isinstance(self._settings, DistributedSettings):
            return False
        return client.java.get("group.instance.id") == sink_instance_id(self._static_id, *task)

    def _notes(self, request: TaskRequest) -> Callable[[Sequence[str]], None]:
        """Makes the function that notes the topics of a task; it does nothing if topics are not tracked."""
        note, (connector, task) = self._note_topics, request.id
        return (lambda topics: None) if note is None else partial(note, connector, task=task)

    def forget(self, task: ConnectorTaskId) -> None:
        """The task was stopped: its metrics go. Thread: the herder's."""
        withdraw(self._metrics, task)

    def _sink_reporters(
        self, request: TaskRequest, settings: SinkSettings
    ) -> Callable[[ErrorCounts], Sequence[ErrorReporter]]:
        def make(counts: ErrorCounts) -> list[ErrorReporter]:
            reporters = _log_reporters(settings, request, counts)
            if settings.dlq_topic:
                reporters.append(self._dead_letters(request, settings, settings.dlq_topic, counts))
            return reporters

        return make

    def _encoder(
        self, request: TaskRequest, settings: SinkSettings, made: ExitStack
    ) -> Callable[[SinkRecord], ConsumedMessage]:
        """Encodes records that the task reports, for the dead letter queue: no other reporter shows their bytes."""
        if not settings.dlq_topic:
            return message_as_text
        return RecordEncoder(*make_converters(self._settings, settings, self._plugins, made), task=str(request.id))

    def _dead_letters(
        self, request: TaskRequest, settings: SinkSettings, topic: str, counts: ErrorCounts
    ) -> DeadLetterQueue:
        """Opens the dead letter queue of a task; creates its topic if it is missing."""
        own = DeadLetterSettings(topic, settings.dlq_replication_factor, settings.dlq_context_headers)
        connector, task = request.id
        client = admin_settings(self._settings.raw, settings.raw, client_id=dead_letter_admin_id(connector, task))
        admin = TopicAdmin(self._client(client), name=str(request.id), timeout_s=client.api_timeout_s)
        try:
            create_topic(own, admin)
        finally:
            admin.close()
        sender = producer_settings(self._settings.raw, settings.raw, client_id=dead_letter_producer_id(connector, task))
        return DeadLetterQueue(own, request.id, RecordProducer(self._sending(sender), name=str(request.id)), counts)

    # ------------------------------------------------------------------ parts
    def _task_spec(self, request: TaskRequest, task: TaskT, backoff: RetryBackoff) -> TaskSpec[TaskT]:
        settings = self._settings
        return TaskSpec(
            request.id,
            task,
            request.task_config,
            request.read_task_config,
            BatchLimits(settings.batch_max_records, settings.batch_max_bytes),
            settings.offset_flush_interval_ms / 1000,
            settings.offset_flush_timeout_ms / 1000,
            request.paused,
            backoff,
        )

    def _client(self, settings: ClientSettings) -> dict[str, object]:
        settings.log_unused(log)
        return dict(settings.checked().librdkafka)

    def _sending(self, settings: ClientSettings) -> ColumnSettings:
        settings.log_unused(log)
        return ColumnSettings.of(settings)

    def _spec(
        self,
        request: TaskRequest,
        parts: TaskParts,
        task: AnySinkTask | None = None,
        session: TaskSession | None = None,
        *,
        frames_join: bool = False,
    ) -> PipelineSpec:
        return PipelineSpec(
            parts.key_converter,
            parts.value_converter,
            parts.header_converter,
            parts.transforms,
            request.id.connector,
            request.id.task,
            _form_of(task),
            frames_join=frames_join,
            spent=self._spent(request),
            nothing_beside_spark=self._settings.all_through_spark,
            session=None if session is None else session.session,
        )

    def _spent(self, request: TaskRequest) -> Callable[[str, float], None]:
        def add(alias: str, seconds: float) -> None:
            tags = {"connector": request.id.connector, "transform": alias}
            self._metrics.counter(TRANSFORM_SECONDS_TOTAL, **tags).add(seconds)

        return add


def _form_of(task: AnySinkTask | None) -> ValueForm | None:
    if isinstance(task, BulkSinkTask):
        return ValueForm.COLUMNS
    return task.value_form if isinstance(task, FrameSinkTask) else None


def _errors(
    request: TaskRequest, settings: ConnectorSettings, counts: ErrorCounts, reporters: Sequence[ErrorReporter]
) -> ErrorHandler:
    policy = ErrorPolicy(
        settings.errors_tolerance_all,
        settings.errors_retry_timeout_ms,
        settings.errors_retry_delay_max_ms,
        settings.errors_log_enable,
        settings.errors_log_include_messages,
    )
    return ErrorHandler(policy, reporters, counts=counts, owner=str(request.id))


def _log_reporters(settings: ConnectorSettings, request: TaskRequest, counts: ErrorCounts) -> list[ErrorReporter]:
    if not settings.errors_log_enable:
        return []
    return [LogReporter(str(request.id), counts, include_messages=settings.errors_log_include_messages)]


def _ending(task: ConnectorTaskId, jobs: SparkJobs, process: TaskProcess | None) -> Callable[[], None]:
    """Returns the function that kills the work of an abandoned task: its process and its Python work in Spark."""

    def end() -> None:
        if process is not None:
            process.kill()
        with suppress(NoThreadException):
            start_within(f"abandon-{task}", jobs.end_python_work)

    return end
