"""Plans and builds backfills out of a connector's configuration: ``BackfillPlanner``, ``SinkBackfill``.

Asks Kafka; any thread but the herder's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.api import SinkConnector, TopicPartition
from penstock.api.bulk import BulkSinkTask
from penstock.clients.reader import RecordReader
from penstock.errors import BadRequestException
from penstock.kafka.admin.topics import TopicAdmin
from penstock.kafka.consumer.subscription import Subscription
from penstock.kafka.settings.client import admin_client_id, admin_settings, consumer_settings, sink_consumer_id
from penstock.model import ConnectorType
from penstock.model.backfill import BackfillPlan, BackfillRange, BackfillRequest
from penstock.plugins import Plugins
from penstock.settings import InstalledPlugins, SinkSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.backfill.planning import sink_ranges
from penstock.worker.backfill.range_consumer import RangeConsumer
from penstock.worker.sink.task import SinkTaskRunner
from penstock.worker.task.configs import TASK_CLASS, load_class


class BackfillPlanner:
    """Plans backfills.

    Args:
        settings: The worker's.
        plugins: Where classes come from.
    """

    def __init__(self, settings: WorkerSettings, plugins: Plugins) -> None:
        self._settings = settings
        self._plugins = plugins

    def __call__(
        self,
        name: str,
        kind: ConnectorType,
        config: Mapping[str, str],
        task_config: Mapping[str, str],
        request: BackfillRequest,
    ) -> BackfillPlan:
        """Plans what a request reads and writes.

        Args:
            name: The connector.
            kind: Source or sink.
            config: Its settings, placeholders resolved.
            task_config: Those of one of its tasks.
            request: What was asked for.

        Raises:
            BadRequestException: That is not possible; says why.
            NotFoundException: There is nothing to read.
        """
        if kind is not ConnectorType.SINK:
            raise BadRequestException(
                f"Connector {name} is a source, and its class implements no backfill: stop it, and set its offsets "
                f"back with PATCH /connectors/{name}/offsets"
            )
        if issubclass(load_class(task_config[TASK_CLASS]), BulkSinkTask):
            raise BadRequestException(
                f"Connector {name} has Spark's executors write ranges of its topics, and a backfill would write beside "
                f"them: stop it, and set its offsets back with PATCH /connectors/{name}/offsets; its files of these "
                "messages are replaced"
            )
        return self._of_sink(name, config, request)

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
        consumer: What it reads from.
    """

    def __init__(self, runner: SinkTaskRunner, consumer: RangeConsumer) -> None:
        self._runner = runner
        self._consumer = consumer

    @property
    def runner(self) -> SinkTaskRunner:
        """See ``BackfillTask``."""
        return self._runner

    @property
    def all_done(self) -> bool:
        """See ``BackfillTask``."""
        if not self._consumer.all_read:
            return False
        ends = self._consumer.ends()
        delivered = self._runner.delivered
        return all(delivered.get(place, -1) >= end for place, end in ends.items())

    @property
    def unread(self) -> Sequence[TopicPartition]:
        """See ``BackfillTask``."""
        return self._consumer.unread

    @property
    def records(self) -> int:
        """See ``BackfillTask``."""
        return self._runner.counts.records_read
