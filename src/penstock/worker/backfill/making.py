"""Plans and builds backfills from a connector's configuration: ``BackfillPlanner``, ``SinkBackfill``.

``sink_ranges``: the messages that a request for a backfill of a sink means. Asks Kafka, and the tasks of sources; any
thread but the herder's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.api import BackfillSpan, SinkConnector, SourceTask, TopicPartition
from penstock.api.bulk import BulkSinkTask
from penstock.clients.reader import RecordReader
from penstock.errors import (
    BadRequestException,
    ConflictException,
    NotFoundException,
    NotReadyException,
    RetriableException,
)
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.consumer.offsets import Subscription
from penstock.kafka.settings.client import admin_client_id, admin_settings, consumer_settings, sink_consumer_id
from penstock.model import ConnectorType
from penstock.model.payloads import BackfillPlan, BackfillQuestion, BackfillRange, BackfillRequest, BackfillShare
from penstock.plugins import Plugins
from penstock.settings import InstalledPlugins, SinkSettings, SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.backfill.range_consumer import RangeConsumer
from penstock.worker.backfill.reading import plan_parts
from penstock.worker.sink.task import SinkTaskRunner
from penstock.worker.task.configs import TASK_CLASS, load_class
from penstock.worker.task.spec import Sessions, TaskSession


class Offsets(Protocol):
    """The part of ``TopicAdmin`` that is needed here."""

    def existing_partitions(self, topics: Collection[str] | None) -> set[TopicPartition]:
        """All partitions of topics that exist."""

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that each partition still has."""

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""

    def offsets_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is not older."""


def sink_ranges(request: BackfillRequest, subscription: Subscription, admin: Offsets) -> list[BackfillRange]:
    """The ranges that are read; those without messages are left out.

    Args:
        request: The request.
        subscription: The connector's topics.
        admin: Asks Kafka.

    Raises:
        BadRequestException: An offset or a topic is none of the connector's.
        NotFoundException: None of its topics exists.
    """
    topics = None if subscription.pattern is not None else subscription.topics
    existing = admin.existing_partitions(topics)
    places = sorted(one for one in existing if topics is not None or subscription.covers(one.topic))
    if not places:
        raise NotFoundException("None of the connector's topics exists: there is nothing to read again")
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    if request.of is not None:
        raise BadRequestException("of names a part of a source; the parts of a sink are partitions of topics: offsets")
    if request.span is not None:
        raise BadRequestException(
            "The offsets of a sink are ranges of topics: objects with kafka_topic, kafka_partition, start_offset and "
            "end_offset, on the command line TOPIC:PARTITION=START..END"
        )
    if request.ranges:
        found = [_checked(one, begins, ends) for one in request.ranges]
        seen = [(one.topic, one.partition) for one in found]
        if len(set(seen)) < len(seen):
            raise BadRequestException("A partition is there twice: a backfill reads one range of each")
    else:
        assert request.start_ms is not None, "a request has times or offsets"
        starts = admin.offsets_at(places, request.start_ms)
        stops = ends if request.end_ms is None else admin.offsets_at(places, request.end_ms)
        found = [BackfillRange(*one, max(starts[one], begins[one]), min(stops[one], ends[one])) for one in places]
    return sorted(one for one in found if one.start < one.end)


def _checked(
    one: BackfillRange, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> BackfillRange:
    place = TopicPartition(one.topic, one.partition)
    if place not in ends:
        raise BadRequestException(f"{one.topic}-{one.partition} is no partition of the connector's topics")
    if not begins[place] <= one.start < one.end <= ends[place]:
        raise BadRequestException(
            f"{one.topic}-{one.partition} has the offsets {begins[place]} to {ends[place]}, and {one.start} to "
            f"{one.end} was asked for: the end is greater than the start, and both are among them"
        )
    return one


log = logging.getLogger(__name__)


class BackfillPlanner:
    """Plans backfills.

    Args:
        settings: The worker's.
        plugins: Where classes come from.
        sessions: The worker's Spark session, for sources that read with it.
    """

    def __init__(self, settings: WorkerSettings, plugins: Plugins, sessions: Sessions) -> None:
        self._settings = settings
        self._plugins = plugins
        self._sessions = sessions

    def __call__(self, asked: BackfillQuestion) -> BackfillPlan:
        """Plans the reads and writes of a request.

        Raises:
            BadRequestException: That is not possible; says why.
            NotFoundException: There is nothing to read.
            NotReadyException: A source cannot be asked now.
            ConflictException: A source does not answer as it has to.
        """
        if asked.kind is not ConnectorType.SINK:
            return self._of_source(asked)
        if issubclass(load_class(asked.tasks[0]()[TASK_CLASS]), BulkSinkTask):
            raise BadRequestException(
                f"Connector {asked.name} has Spark's executors write ranges of its topics, and a backfill would write "
                f"at the same time: stop it, and set its offsets back with PATCH /connectors/{asked.name}/offsets. "
                "SparkSink replaces its files of these messages then, and TableSink adds their rows once more"
            )
        return self._of_sink(asked.name, asked.config, asked.request)

    # ------------------------------------------------------------------ sources
    def _of_source(self, asked: BackfillQuestion) -> BackfillPlan:
        name, settings = asked.name, SourceSettings.parse(asked.config, InstalledPlugins(self._plugins))
        instead = f"stop it, and set its offsets back with PATCH /connectors/{name}/offsets"
        span = _span(name, asked.request)
        if settings.isolation.mode != "none":
            raise BadRequestException(
                f"The tasks of connector {name} have processes of their own (task.isolation), in which they are only "
                f"polled: {instead}"
            )
        shares: list[BackfillShare] = []
        for read_config in asked.tasks:
            config = read_config()
            cls = load_class(config[TASK_CLASS])
            lacking = BadRequestException(
                f"Connector {name} is a source, and its task {cls.__name__} has no backfills: {instead}"
            )
            if not issubclass(cls, SourceTask) or cls.plan_backfill is SourceTask.plan_backfill:
                raise lacking
            session = TaskSession(f"the plan of a backfill of {name}", self._sessions)
            try:
                parts = plan_parts(cls(), config, span, session.session)
            except NotImplementedError as error:
                raise lacking from error
            except (BadRequestException, NotFoundException, ConflictException):
                raise
            except RetriableException as error:
                raise NotReadyException(f"Connector {name} cannot be asked for a backfill now: {error}") from error
            except Exception as error:
                log.warning("The plan of a backfill of connector %s failed", name, exc_info=True)
                raise ConflictException(
                    f"Connector {name} cannot plan a backfill: {type(error).__name__}: {error}"
                ) from error
            if parts:
                shares.append(BackfillShare(read_config, parts))
        parts = [part for share in shares for part in share.parts]
        counts = [part.rows for part in parts]
        total = None if None in counts else sum(one or 0 for one in counts)
        cls = self._plugins.resolve_connector(asked.config["connector.class"])
        writes = f"Kafka, to the topics of connector {name} ({cls.__name__}), through its transforms and converters"
        return BackfillPlan([part.to_json() for part in parts], writes, total, shares=shares)

    # ------------------------------------------------------------------ sinks
    def _of_sink(self, name: str, config: Mapping[str, str], request: BackfillRequest) -> BackfillPlan:
        settings = SinkSettings.parse(config, InstalledPlugins(self._plugins))
        client = admin_settings(self._settings.raw, settings.raw, client_id=admin_client_id(name))
        admin = TopicAdmin(dict(client.checked().librdkafka), name=f"connector {name}", timeout_s=client.api_timeout_s)
        try:
            ranges = sink_ranges(request, subscription_of(settings), admin)
        finally:
            admin.close()
        reads = [one.to_json() for one in ranges]
        total = sum(one.end - one.start for one in ranges)
        cls = self._plugins.resolve_connector(config["connector.class"])
        assert issubclass(cls, SinkConnector)
        writes = f"the target of connector {name} ({cls.__name__}), through its transforms"
        return BackfillPlan(reads, writes, total, ranges)


def _span(name: str, request: BackfillRequest) -> BackfillSpan:
    """The range of a source's backfill.

    Raises:
        BadRequestException: It is one of topics.
    """
    if request.ranges:
        raise BadRequestException(
            f"Connector {name} is a source: the offsets of its backfill are an object with from and to, on the command "
            "line FROM..TO"
        )
    if request.span is not None:
        return BackfillSpan(first=request.span[0], end=request.span[1], of=request.of)
    assert request.start_ms is not None, "a request has times or offsets"
    end_ms = time.time_ns() // 1_000_000 if request.end_ms is None else request.end_ms
    if end_ms <= request.start_ms:
        raise BadRequestException("A backfill begins before it ends, and its beginning, from, is in the future")
    return BackfillSpan(start_ms=request.start_ms, end_ms=end_ms, of=request.of)


def subscription_of(settings: SinkSettings) -> Subscription:
    """The topics of a sink."""
    return Subscription.matching(settings.topics_regex) if settings.topics_regex else Subscription.of(settings.topics)


def range_consumer(
    worker: Mapping[str, str], settings: SinkSettings, connector: str, task: int, ranges: Sequence[BackfillRange]
) -> RangeConsumer:
    """The consumer of a sink's backfill.

    Raises:
        ConfigException: The client does not take a setting.
    """
    client = consumer_settings(
        worker, settings.raw, client_id=sink_consumer_id(connector, task), group_id=f"connect-{connector}-backfill"
    )
    reader = RecordReader(dict(client.checked().librdkafka), name=f"backfill of {connector}")
    return RangeConsumer(reader, {TopicPartition(one.topic, one.partition): (one.start, one.end) for one in ranges})


class SinkBackfill:
    """A sink's task that reads ranges; see ``BackfillTask``.

    Args:
        runner: The task.
        consumer: The consumer that it reads from.
    """

    def __init__(self, runner: SinkTaskRunner, consumer: RangeConsumer) -> None:
        self._runner = runner
        self._consumer = consumer

    @property
    def runner(self) -> SinkTaskRunner:
        return self._runner

    @property
    def all_done(self) -> bool:
        if not self._consumer.all_read:
            return False
        ends = self._consumer.ends()
        delivered = self._runner.delivered
        return all(delivered.get(place, -1) >= end for place, end in ends.items())

    @property
    def unread(self) -> Sequence[TopicPartition]:
        return self._consumer.unread

    @property
    def records(self) -> int:
        return self._runner.counts.records_read

    @property
    def positions(self) -> Sequence[Mapping[str, object]]:
        return [
            {"kafka_topic": place.topic, "kafka_partition": place.partition, "offset": offset}
            for place, offset in sorted(self._consumer.committed.items())
        ]
