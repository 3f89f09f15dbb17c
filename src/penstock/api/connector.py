"""Connectors, which describe a job and divide it into tasks, and the base classes of tasks. A connector moves no data.

Owning thread: the worker calls each connector and each task on a thread of its own (methods name the exceptions).
Connector contexts may be used from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from penstock.api.metrics import PluginMetrics
from penstock.api.record import TopicPartition
from penstock.config import AbstractConfig, Config, ConfigDef, ConfigValue, find_class
from penstock.errors import IllegalWorkerStateException


class Task(ABC):
    """A share of a connector's job. Subclass ``SourceTask``, ``FrameSourceTask``, ``SinkTask`` or ``FrameSinkTask``.

    Lifecycle: made with no arguments; ``initialize`` and ``start`` once; the loop; ``stop`` once. A restarted task is a
    new instance.

    Attributes:
        config_class: The class that parses ``settings``.
        settings: The configuration given to ``start``, parsed by ``config_class``.

    Source: org.apache.kafka.connect.connector.Task.
    """

    config_class: ClassVar[type[AbstractConfig] | None] = None
    settings: Any

    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads its settings, opens resources, finds where to resume. The default parses ``settings``.

        Called once, on the task's thread, after ``initialize``; again only after RetriableException. May block for a
        while: the task is RUNNING when it returns.

        Args:
            props: The configuration that the connector's ``task_configs`` returned for this task, placeholders
                replaced.

        Raises:
            RetriableException: (or KafkaRetriableException) Called again after ``retry_after_s`` of the error, or
                otherwise after a wait that grows up to ``source.retry.delay.max.ms``, or ``errors.retry.delay.max.ms``
                for a sink.
            Exception: Any other makes the task FAILED; ``stop`` is still called.
        """
        if self.config_class is not None:
            self.settings = self.config_class.parse(props, resolve_class=find_class)

    def stop(self) -> None:
        """Ends: releases the resources of ``start``. The default does nothing.

        Called once, on the task's thread, after everything else of the task has ended; also when ``start`` failed
        midway, so check which resources exist. The worker abandons a task that has not ended within
        ``task.shutdown.graceful.timeout.ms``: it commits nothing more. An exception is logged and has no other effect.
        """

    def version(self) -> str:
        """The version; normally the connector's version."""
        return "undefined"


class TaskContext(ABC):
    """The interface through which every task makes requests of the worker: the common part of source and sink tasks.

    Source: org.apache.kafka.connect.source.SourceTaskContext and SinkTaskContext.
    """

    @abstractmethod
    def configs(self) -> dict[str, str]:
        """The task's newest configuration, with placeholders replaced again (a secret may have changed)."""

    def plugin_metrics(self) -> PluginMetrics:
        """Returns the registry for the task's own metrics, which ``GET /metrics`` shows until the task ends.

        Source: KIP-877.

        Raises:
            NotImplementedError: The context does not come from a worker and does not override this method.
        """
        raise NotImplementedError(f"{type(self).__name__} has no plugin metrics: override plugin_metrics()")

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        """Reports the progress of work that has an end, such as the first load of a table.

        ``GET /connectors/NAME/status``, ``explain``, the terminal and the metrics ``penstock_task_progress_done`` and
        ``penstock_task_progress_total`` show it until the next call or the end of the task. Any thread; cheap enough to
        call after each batch.

        Args:
            done: The amount done; None: shows no progress any more.
            total: The total amount; None if it is not known. May change.
            unit: The unit: ``rows``, ``bytes``, ``files``.

        Raises:
            ValueError: A number is negative or not a number, or the unit is not a text.

        Source: Penstock's own.
        """


class OffsetStorageReader(ABC):
    """Reads the source offsets that this connector's tasks have committed.

    The worker implements it; connectors and tasks get it from their context. In a connector it sees the commits of all
    its tasks (every ``offset.flush.interval.ms``), which lag their reads.

    Thread: any; calls block while the store is read.
    Source: org.apache.kafka.connect.storage.OffsetStorageReader; KIP-131 for its use in connectors.
    """

    @abstractmethod
    def offset(self, partition: Mapping[str, object]) -> dict[str, Any] | None:
        """The committed offset of one source partition, or None when there is none.

        Values have the types they were stored with; numbers of any width come back as int or float.

        Raises:
            ConnectException: The store cannot be read, or the connector or task has closed meanwhile.
        """

    @abstractmethod
    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, Any] | None]:
        """The committed offsets of many source partitions, in the given order, from one read of the store.

        Raises:
            ConnectException: The store cannot be read, or the connector or task has closed meanwhile.
        """


T = TypeVar("T")


class ConnectorUtils:
    """Helpers for ``task_configs``. Source: org.apache.kafka.connect.util.ConnectorUtils."""

    @staticmethod
    def group_partitions(elements: Sequence[T], num_groups: int) -> list[list[T]]:
        """Divides elements into groups of nearly equal size, in order; the first groups are larger.

        With fewer elements than groups some groups are empty: pass ``min(len(elements), max_tasks)`` to avoid idle
        tasks.

        Raises:
            ValueError: The number of groups is less than one.

        >>> ConnectorUtils.group_partitions([1, 2, 3, 4, 5], 3)
        [[1, 2], [3, 4], [5]]
        >>> ConnectorUtils.group_partitions([1], 2)
        [[1], []]
        """
        if num_groups <= 0:
            raise ValueError("Number of groups must be positive.")
        size, larger = divmod(len(elements), num_groups)
        groups: list[list[T]] = []
        start = 0
        for group in range(num_groups):
            end = start + size + (1 if group < larger else 0)
            groups.append(list(elements[start:end]))
            start = end
        return groups


class ExactlyOnceSupport(Enum):
    """The support of a source connector for exactly-once delivery with a given configuration.

    Source: org.apache.kafka.connect.source.ExactlyOnceSupport, KIP-618.
    """

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorTransactionBoundaries(Enum):
    """The support of a source connector for defining the boundaries of its own transactions.

    Source: org.apache.kafka.connect.source.ConnectorTransactionBoundaries, KIP-618.
    """

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorContext(ABC):
    """The interface through which a connector makes requests of the worker. The worker implements it.

    Attributes:
        is_preview: True if a preview shows only some records: the connector must not change its target.

    Thread: any, also threads of the connector's own. None of the calls waits for the requested work.
    Source: org.apache.kafka.connect.connector.ConnectorContext.

    Raises:
        IllegalWorkerStateException: From every method, after the connector was shut down, deleted or abandoned.
    """

    is_preview: bool = False

    @abstractmethod
    def request_task_reconfiguration(self) -> None:
        """Asks the worker to call ``task_configs`` again, soon, on the connector's thread.

        Call it when the source has changed (a new file, a new table). If the new task configurations are the same as
        before, no task is restarted. Ignored while the connector is paused or stopped: a resume calls ``task_configs``
        anyway.
        """

    @abstractmethod
    def raise_error(self, error: BaseException) -> None:
        """Makes the connector FAILED with this error in its status; for errors on the connector's own threads.

        The first error wins. The connector's tasks go on.
        """

    @abstractmethod
    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        """Asks the worker to restart the tasks with these numbers, or all tasks of this connector.

        For a monitor thread that detects a stuck or failed task from its offsets. Numbers that do not exist are
        ignored.
        Source: KIP-131, "restart all tasks".
        """

    def plugin_metrics(self) -> PluginMetrics:
        """Returns the registry for the connector's own metrics, which ``GET /metrics`` shows until this instance ends.

        They survive a pause or stop and the next start: add them in ``initialize``, or remove them in ``stop``.
        Source: KIP-877.

        Raises:
            NotImplementedError: The context does not come from a worker and does not override this method.
        """
        raise NotImplementedError(f"{type(self).__name__} has no plugin metrics: override plugin_metrics()")


class SourceConnectorContext(ConnectorContext):
    """The interface through which a source connector makes requests of the worker. Source: KIP-131."""

    @abstractmethod
    def offset_storage_reader(self) -> OffsetStorageReader:
        """A reader of the offsets that this connector's tasks have committed; usable after ``initialize``."""


class SinkConnectorContext(ConnectorContext):
    """The interface through which a sink connector makes requests of the worker. Source: KIP-131."""


def _task_class(named: type[Task]) -> Any:
    """A ``task_class`` method that returns the task class named by the connector."""

    def task_class(self: object) -> type[Task]:
        return named

    return task_class


class Connector(ABC):
    """Describes a job and divides it into tasks. Subclass ``SourceConnector`` or ``SinkConnector``.

    A minimal connector sets ``config_class`` and ``task_class``. Everything else has a default: ``config`` is the
    definition of that class, ``start`` keeps the settings, ``stop`` does nothing, and ``task_configs`` does not divide
    the job.

    Attributes:
        config_class: The class of its settings.
        props: The configuration given to ``start``.
        settings: The same, parsed by ``config_class``.

    Lifecycle: made with no arguments; ``initialize`` once; then ``start`` and ``stop``, which may alternate (a resume
    starts the same instance again). ``validate``, ``config`` and the offset hooks may be called on other instances that
    are never initialized or started, so they must depend on their arguments only.

    Thread: the connector's own thread for everything except ``validate`` and ``config`` (any thread). An exception from
    any method makes the connector FAILED; its tasks go on.
    Source: org.apache.kafka.connect.connector.Connector.
    """

    config_class: ClassVar[type[AbstractConfig] | None] = None
    props: dict[str, str]
    settings: Any
    _context: ConnectorContext | None = None
    if TYPE_CHECKING:
        # A class or the method below: subclasses may use either form.
        task_class: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        named = cls.__dict__.get("task_class")
        if isinstance(named, type):
            cls.task_class = _task_class(named)

    def initialize(self, context: ConnectorContext) -> None:
        """Stores the context.

        Called once, before ``start``, also when the connector is created paused or stopped. Must not block. An override
        must call ``super().initialize``.

        Args:
            context: A ``SourceConnectorContext`` for sources, a ``SinkConnectorContext`` for sinks.
        """
        self._context = context

    def context(self) -> ConnectorContext:
        """The context; for subclasses and their threads.

        Raises:
            IllegalWorkerStateException: ``initialize`` was not called yet.
        """
        context: ConnectorContext = self._context_of(ConnectorContext)
        return context

    def _context_of(self, kind: type) -> Any:
        context = self._context
        if context is None:
            raise IllegalWorkerStateException(f"{type(self).__name__} has no context before initialize() is called")
        if not isinstance(context, kind):
            raise IllegalWorkerStateException(f"{type(self).__name__} was initialized with {type(context).__name__}")
        return context

    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads its settings, starts monitor threads. The default keeps ``props``, and parses ``settings``.

        Called after ``initialize``, and again after ``stop`` when a paused or stopped connector is resumed. Must not
        block for long: the connector is RUNNING, and its tasks are configured, only after ``start`` returns.

        Args:
            props: The whole connector configuration with ``name`` and ``connector.class``, placeholders replaced.

        Raises:
            RetriableException: (or KafkaRetriableException) Called again, on the same instance, after ``retry_after_s``
                of the error, or otherwise after a wait that grows up to ``source.retry.delay.max.ms``, or
                ``errors.retry.delay.max.ms`` for a sink. The connector is UNASSIGNED until then.
            Exception: Any other makes the connector FAILED; the REST request that creates it returns the error.
        """
        self.props = dict(props)
        if self.config_class is not None:
            self.settings = self.config_class.parse(props, resolve_class=find_class)

    if not TYPE_CHECKING:

        @abstractmethod
        def task_class(self) -> type[Task]:
            """The class of this connector's tasks. Called after ``start``, before ``task_configs``. Must not block.

            Most connectors set a class attribute instead: ``task_class = MyTask``.
            """

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Divides the job: one configuration for each task, at most ``max_tasks`` (``tasks.max``).

        Called often: after each ``start`` and after each ``request_task_reconfiguration``. May read the source. Return
        the same configurations while nothing has changed, because different ones restart the tasks.

        Args:
            max_tasks: The maximum number of tasks, 1 or more.

        Returns:
            The configuration for each task's ``start``; an empty list means nothing to do now. More than ``max_tasks``
            fails the connector (unless ``tasks.max.enforce=false``). The default: one task for a source, ``max_tasks``
            tasks for a sink, which share the partitions of its topics. Each task has the connector's configuration.

        Raises:
            RetriableException: (or KafkaRetriableException) Called again, as ``start`` is; the connector stays RUNNING.
            Exception: Any other makes the connector FAILED.
        """
        return [dict(self.props)]

    def stop(self) -> None:
        """Ends: stops monitor threads, releases resources. The default does nothing.

        Called on pause, stop, delete, restart and shutdown, if the connector was started. After five seconds the worker
        abandons a connector that has to end for good. ``start`` may follow on the same instance.
        """

    def reconfigure(self, props: Mapping[str, str]) -> None:
        """Switches to another configuration: by default ``stop``, then ``start``.

        A connector may call it itself. A worker never does: it makes a new instance for a changed configuration.
        """
        self.stop()
        self.start(props)

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks a configuration: errors and recommended values for each setting.

        Called before a connector is created or changed, and by the REST validation, on any thread and often on a new
        instance. May connect to the source. Report problems in the result: an exception is an internal error (500). The
        default checks against ``config()``, where a setting of type CLASS must name an importable class, then for
        conflicts (``AbstractConfig.faults``), and without any of these calls ``faults``.

        Args:
            connector_configs: The configuration, placeholders replaced.

        Returns:
            A ``ConfigValue`` for each setting of ``config()``; one with error messages rejects the configuration.
        """
        checked = Config(self.config().validate(connector_configs, resolve_class=find_class))
        if self.config_class is None:
            return checked
        found: Iterable[tuple[str, str]] = self.config_class.refused(connector_configs)
        if not found and not checked.errors():
            settings = self.config_class._of_texts(connector_configs, find_class)
            found = list(settings.faults(connector_configs)) or self.faults(settings)
        values = {one.name: one for one in checked.config_values}
        for name, text in found:
            value = values.setdefault(name, ConfigValue(name, connector_configs.get(name)))
            value.add_error_message(f"{name}: {text}")
        return Config(list(values.values()))

    def faults(self, settings: Any) -> Iterable[tuple[str, str]]:
        """The faults that only the external system shows: it is unreachable, or lacks a table.

        Conflicts between settings belong into ``AbstractConfig.faults``.

        Called by the default ``validate``, on any thread and on a new instance. May connect to the system.

        Args:
            settings: The configuration, parsed by ``config_class``.

        Returns:
            A map of setting names to texts for people. The default finds nothing.
        """
        return ()

    def config(self) -> ConfigDef:
        """The settings of this connector: by default those of ``config_class``; none without one.

        Called at any time, on new instances. Must not block.
        """
        return ConfigDef() if self.config_class is None else self.config_class.definition()

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Returns the reasons why a connector with this configuration has nothing to do now: a missing file or table.

        Called for ``GET /connectors/NAME/explain``, on any thread and on a new instance. It may query the external
        system for a second or two. The default finds nothing.

        Args:
            props: The configuration, placeholders replaced.

        Returns:
            One clause for people for each reason, without a full stop: ``the file /data/in.txt does not exist``.
        """
        return ()

    def version(self) -> str:
        """The version, as shown by the REST API. Called at any time, on new instances. Must not block."""
        return "undefined"


class SourceConnector(Connector):
    """A connector that moves data into Kafka. Source: org.apache.kafka.connect.source.SourceConnector, KIP-131."""

    def context(self) -> SourceConnectorContext:
        """The context, which can also read this connector's committed source offsets.

        Raises:
            IllegalWorkerStateException: ``initialize`` was not called yet, or not with a source connector's context.
        """
        context: SourceConnectorContext = self._context_of(SourceConnectorContext)
        return context

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Returns the support for exactly-once delivery with this configuration, or None if it is not stated.

        Called by workers with exactly-once delivery, before ``start`` and on a new instance, if the configuration has
        ``exactly.once.support=required``. A standalone worker does not call it.

        Args:
            props: The configuration, placeholders replaced.
        """
        return None

    def can_define_transaction_boundaries(self, props: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Returns the support for transaction boundaries that its tasks define through the transaction context.

        Called by workers with exactly-once delivery if ``transaction.boundary=connector``.

        Args:
            props: The configuration, placeholders replaced.
        """
        return ConnectorTransactionBoundaries.UNSUPPORTED

    def alter_offsets(
        self, props: Mapping[str, str], offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None]
    ) -> bool:
        """Forwards offsets that the REST API is about to change to the source, or refuses the change.

        Called on a new instance, on a worker's thread, while the connector is STOPPED; may block. Unless this raises,
        the worker then changes its offset store.

        Args:
            props: The connector's configuration.
            offsets: The new offset of each source partition (``dict(key)`` is the partition); None: the offset is
                removed. A reset passes all known partitions with None.

        Returns:
            True if the connector checks offsets and accepts these; False: it does not say, the default.

        Raises:
            ConnectException: The connector refuses; the client receives the text (400; 500 if it is retriable).
            NotImplementedError: The connector does not support changing offsets (400).
        """
        return False


class SinkConnector(Connector):
    """A connector that moves data out of Kafka. Source: org.apache.kafka.connect.sink.SinkConnector, KIP-131.

    Attributes:
        has_positions: True if the target may have a position in partitions for which the group has no offset: a reset
            passes all partitions of the connector's topics to ``alter_offsets`` then, not only those with an offset.
    """

    has_positions: ClassVar[bool] = False
    TOPICS_CONFIG: ClassVar[str] = "topics"
    TOPICS_REGEX_CONFIG: ClassVar[str] = "topics.regex"

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """See ``Connector.task_configs``."""
        return [dict(self.props) for _ in range(max_tasks)]

    def context(self) -> SinkConnectorContext:
        """The context.

        Raises:
            IllegalWorkerStateException: ``initialize`` was not called yet, or not with a sink connector's context.
        """
        context: SinkConnectorContext = self._context_of(SinkConnectorContext)
        return context

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Forwards offsets that the REST API is about to change to the sink system, or refuses the change.

        Called on a new instance, on a worker's thread, while the connector is STOPPED; may block. Unless this raises,
        the worker then changes the consumer group's offsets.

        Args:
            props: The connector's configuration.
            offsets: The new offset of each partition; None: the offset is removed.

        Returns:
            True if the connector checks offsets and accepts these; False: it does not say, the default.

        Raises:
            ConnectException: The connector refuses; the client receives the text (400; 500 if it is retriable).
            NotImplementedError: The connector does not support changing offsets (400).
        """
        return False
