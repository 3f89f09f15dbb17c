"""Makes the bulk work of tasks from settings: clients, the topic of markers, recipes.

Main functions: ``make_bulk`` (sources), ``make_bulk_sink``. Nothing is opened before the first run.

Thread: the one that builds the task.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api.bulk import BulkSinkTask
from penstock.errors import KafkaException, KafkaRetriableException
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
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import SinkSettings, SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.bulk.engine import BulkEngine, BulkServices
from penstock.worker.bulk.executor import MessageTarget
from penstock.worker.bulk.planning import Chain
from penstock.worker.bulk.range_work import Letters, TopicReading
from penstock.worker.bulk.runs import Markers, canonical
from penstock.worker.bulk.shipping import probe_for_executors
from penstock.worker.bulk.sink_driver import BulkSinkDriver, BulkSinkServices
from penstock.worker.errors.reporters import DeadLetterSettings
from penstock.worker.errors.tolerance import ErrorHandler
from penstock.worker.factory.instances import make_recipes

log = logging.getLogger(__name__)

#: Stands for the transactional id of each Spark partition.
_ID: Final = "penstock-bulk"


@dataclass(frozen=True)
class Chained:
    """The parts of a task that its bulk work shares."""

    pipeline: SourcePipeline
    jobs: SparkJobs
    topics: TopicCreator
    errors: ErrorHandler


def writers_name(worker: Mapping[str, str], host: str) -> str:
    """The name under which a worker, or its group, writes bulk work.

    A standalone worker has no group: its host and its offset file identify it, because that file has the offsets of its
    connectors.

    >>> writers_name({"group.id": "loads"}, "one")
    'loads'
    >>> writers_name({"offset.storage.file.filename": "/var/offsets"}, "one")
    'standalone-aee0059e'
    """
    if group := worker.get("group.id", "").strip():
        return group
    place = os.path.abspath(worker.get("offset.storage.file.filename", ""))
    return f"standalone-{hashlib.sha256(f'{host}:{place}'.encode()).hexdigest()[:8]}"


def make_bulk(
    task: ConnectorTaskId,
    worker: WorkerSettings,
    settings: SourceSettings,
    plugins: Plugins,
    runtime: SparkRuntime,
    chained: Chained,
    *,
    probe: Callable[[str], None],
    exactly_once: bool,
) -> BulkEngine:
    """The bulk work of a task.

    Args:
        task: The task.
        worker: The worker's settings.
        settings: The connector's settings.
        plugins: Loads the classes.
        runtime: The Spark session.
        chained: The objects that it shares with the rest of the task.
        probe: Called at named points, for kill tests.
        exactly_once: True if the worker's tasks write in transactions; then bulk work does, too, whatever the
            producer's settings.

    Raises:
        ConfigException: A setting cannot be used.
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
            writers_name(worker.raw, socket.gethostname()),
            runtime,
            worker.spark_settings(),
            Chain(chained.pipeline, chained.jobs, make_recipes(worker, settings, plugins, task.connector)),
            delivery,
            chained.topics,
            chained.errors,
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
        worker: The worker's settings.
        connector: The connector.
        config: Its settings, placeholders resolved.
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
        log.info("Connector %s has no markers of bulk runs that the worker may see: %s", connector, error)
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


@dataclass(frozen=True)
class SinkChained:
    """The parts of a sink task that its bulk work shares.

    Attributes:
        pipeline: Converters and transforms of the worker.
        jobs: Compiles plans.
        consumer: Settings of the task's consumer.
        errors: Counts failed records.
        note_topics: Called with the topics that are read.
    """

    pipeline: SinkPipeline
    jobs: SparkJobs
    consumer: ClientSettings
    errors: ErrorHandler
    note_topics: Callable[[Sequence[str]], None]


def make_bulk_sink(
    user: BulkSinkTask,
    task: ConnectorTaskId,
    worker: WorkerSettings,
    settings: SinkSettings,
    plugins: Plugins,
    runtime: SparkRuntime,
    chained: SinkChained,
    *,
    probe: Callable[[str], None],
) -> BulkSinkDriver:
    """The driver of a bulk sink task.

    Args:
        user: The user's task.
        task: Its id.
        worker: The worker's settings.
        settings: The connector's settings.
        plugins: Loads the classes.
        runtime: The Spark session.
        chained: The objects that it shares with the rest of the task.
        probe: Called at named points, for kill tests.

    Raises:
        ConfigException: A setting cannot be used.
    """
    letters = None
    if settings.dlq_topic:
        producer = producer_settings(worker.raw, settings.raw, client_id=dead_letter_producer_id(*task))
        letters = Letters(
            DeadLetterSettings(settings.dlq_topic, settings.dlq_replication_factor, settings.dlq_context_headers),
            ColumnSettings.of(producer),
        )
    reading = TopicReading(
        task,
        dict(chained.consumer.checked().librdkafka),
        make_recipes(worker, settings, plugins, task.connector),
        chained.errors.policy,
        settings.frames.join,
        letters,
    )
    admin = admin_settings(worker.raw, settings.raw, client_id=admin_client_id(*task))
    return BulkSinkDriver(
        user,
        BulkSinkServices(
            task,
            runtime,
            chained.pipeline.in_one_process,
            reading,
            chained.jobs,
            admin.checked().librdkafka,
            chained.consumer.librdkafka.get("isolation.level") == "read_committed",
            chained.errors,
            chained.note_topics,
            probe,
        ),
    )
