"""Connectors: they describe a job and divide it into tasks; they move no data themselves.

Main types: ``SourceConnector`` and ``SinkConnector`` to subclass, and the contexts the worker gives them, with what
they lead to (``OffsetStorageReader``); ``ConnectorUtils``, which divides a list among tasks.

Owning thread: each connector has a thread of its own, on which the worker calls it. Contexts may be used from any
thread.

``Task`` and ``TaskContext``: what source and sink tasks, and their contexts, share.

Owning thread: each task has a thread of its own, on which the worker calls it (exceptions are named at the methods).
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

    Life: made with no arguments; ``initialize`` and ``start`` once; the loop; ``stop`` once. A task that failed or was
    restarted is a new instance.

    Attributes:
        config_class: The class of its settings, for ``settings``.
        settings: What ``start`` was given, parsed by ``config_class``.

    Source: org.apache.kafka.connect.connector.Task.
    """

    config_class: ClassVar[type[AbstractConfig] | None] = None
    settings: Any

    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads its settings, opens resources, finds where to resume. The default parses ``settings``.

        Called once, on the task's thread, after ``initialize``; again where it asks for that. May block for a while:
        the task is RUNNING when it returns.

        Args:
            props: What the connector's ``task_configs`` gave for this task, placeholders replaced.

        Raises:
            RetriableException: (or KafkaRetriableException) Called again after ``retry_after_s`` of the error, else
                after a wait that grows up to ``source.retry.delay.max.ms``, or ``errors.retry.delay.max.ms`` of a sink.
            Exception: Any other makes the task FAILED; ``stop`` is called even then.
        """
        if self.config_class is not None:
            self.settings = self.config_class.parse(props)

    def stop(self) -> None:
        """Ends: releases what ``start`` opened. The default does nothing.

        Called once, on the task's thread, when nothing else of the task runs or will run; also when ``start`` failed
        half way, so nothing may be taken to exist. A task that has not ended within
        ``task.shutdown.graceful.timeout.ms`` is abandoned: it commits nothing more. An exception is logged and does no
        harm.
        """

    def version(self) -> str:
        """The version; normally that of the connector."""
        return "undefined"


class TaskContext(ABC):  # noqa: B024 - what the worker implements is in its subclasses
    """The interface through which every task makes requests of the worker: the common part of source and sink tasks.

    Source: Penstock's own.
    """

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        """Says how far the task is with work that has an end, such as the first load of a table.

        ``GET /connectors/NAME/status``, ``explain``, the terminal and the metrics ``penstock_task_progress_done`` and
        ``penstock_task_progress_total`` show it until something else is said or the task ends. Any thread; costs
        nothing, so it may be called after each batch.

        Args:
            done: How much is done; None: there is nothing to tell any more.
            total: How much there is; None if that is not known. May change.
            unit: What is counted: ``rows``, ``bytes``, ``files``.

        Raises:
            ValueError: A number is negative or none, or the unit is no text.

        Source: Penstock's own.
        """


class OffsetStorageReader(ABC):
    """Reads the source offsets that this connector's tasks have committed.

    The worker implements it; connectors and tasks get it from their context. In a connector it sees what all its tasks
    have committed (they commit every ``offset.flush.interval.ms``), which lags behind what they have read.

    Thread: any; calls block while the store is read.
    Source: org.apache.kafka.connect.storage.OffsetStorageReader; KIP-131 for its use in connectors.
    """

    @abstractmethod
    def offset(self, partition: Mapping[str, object]) -> dict[str, Any] | None:
        """The committed offset of one source partition, or None when there is none.

        Values have the types they were stored with. Numbers come back as int or float, whatever width they had.

        Raises:
            ConnectException: The store cannot be read, or the connector or task was closed meanwhile.
        """

    @abstractmethod
    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, Any] | None]:
        """The committed offsets of many source partitions, in the order asked for, in one read of the store.

        Raises:
            ConnectException: The store cannot be read, or the connector or task was closed meanwhile.
        """


T = TypeVar("T")


class ConnectorUtils:
    """Helpers for ``task_configs``. Source: org.apache.kafka.connect.util.ConnectorUtils."""

    @staticmethod
    def group_partitions(elements: Sequence[T], num_groups: int) -> list[list[T]]:
        """Divides elements into groups of nearly equal size, in order; the first groups are the larger ones.

        Groups are empty when there are fewer elements than groups: give ``min(len(elements), max_tasks)`` groups to
        have no idle tasks.

        Raises:
            ValueError: Less than one group is asked for.

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
        is_preview: True if only some records are to be shown: a connector that would prepare its target leaves it as
            it is.

    Thread: any, also threads of the connector's own. None of the calls waits for the work it asks for.
    Source: org.apache.kafka.connect.connector.ConnectorContext.

    Raises:
        IllegalWorkerStateException: From every method, once the connector was shut down, deleted or abandoned.
    """

    is_preview: bool = False

    @abstractmethod
    def request_task_reconfiguration(self) -> None:
        """Asks the worker to call ``task_configs`` again, soon, on the connector's thread.

        Call it when the source has changed (a new file, a new table). If the new task configurations are the same as
        before, no task is restarted. Ignored while the connector is paused or stopped: resuming asks anyway.
        """

    @abstractmethod
    def raise_error(self, error: BaseException) -> None:
        """Makes the connector FAILED with this error in its status; for errors on threads of the connector's own.

        The first error wins. The connector's tasks go on.
        """

    @abstractmethod
    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        """Asks the worker to restart tasks of this connector: these numbers, or all.

        For a monitor thread that sees in the offsets that a task is stuck or failed. Numbers that do not exist are
        ignored.
        Source: KIP-131, "restart all tasks".
        """

    def plugin_metrics(self) -> PluginMetrics:
        """Returns the registry for the connector's own metrics, which ``GET /metrics`` shows until this instance ends.

        They stay when it is paused or stopped and started again: add them in ``initialize``, or remove them in
        ``stop``.
        Source: KIP-877.

        Raises:
            NotImplementedError: From a context that is none of a worker's and does not override it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no plugin metrics: override plugin_metrics()")


class SourceConnectorContext(ConnectorContext):
    """The interface through which a source connector makes requests of the worker. Source: KIP-131."""

    @abstractmethod
    def offset_storage_reader(self) -> OffsetStorageReader:
        """A reader of the offsets this connector's tasks have committed; usable from ``initialize`` on."""


class SinkConnectorContext(ConnectorContext):
    """The interface through which a sink connector makes requests of the worker. Source: KIP-131."""


def _task_class(named: type[Task]) -> Any:
    """The method ``task_class`` of a connector that names the class of its tasks."""

    def task_class(self: object) -> type[Task]:
        return named

    return task_class


class Connector(ABC):
    """Describes a job and divides it into tasks. Subclass ``SourceConnector`` or ``SinkConnector``.

    The shortest one names its ``config_class`` and its ``task_class``. Everything else has a default: ``config`` is the
    definition of that class, ``start`` keeps the settings, ``stop`` does nothing, and the job is not divided.

    Attributes:
        config_class: The class of its settings.
        props: The configuration that ``start`` was given.
        settings: The same, parsed by ``config_class``.

    Life: made with no arguments; ``initialize`` once; then ``start`` and ``stop``, which may alternate (a resume starts
    the same instance again). ``validate``, ``config`` and the offset hooks may be called on other instances that are
    never initialized or started, so they must depend on their arguments alone.

    Thread: the connector's own thread for everything but ``validate`` and ``config`` (any thread). An exception from
    any method makes the connector FAILED; its tasks go on.
    Source: org.apache.kafka.connect.connector.Connector.
    """

    config_class: ClassVar[type[AbstractConfig] | None] = None
    props: dict[str, str]
    settings: Any
    _context: ConnectorContext | None = None
    if TYPE_CHECKING:
        # A class, or the method below: both forms are written in subclasses.
        task_class: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        named = cls.__dict__.get("task_class")
        if isinstance(named, type):
            cls.task_class = _task_class(named)

    def initialize(self, context: ConnectorContext) -> None:
        """Takes the context.

        Called once, before ``start``, also when the connector begins its life paused or stopped. Must not block.
        Overriding it: call this one too.

        Args:
            context: A ``SourceConnectorContext`` for sources, a ``SinkConnectorContext`` for sinks.
        """
        self._context = context

    def context(self) -> ConnectorContext:
        """The context; for subclasses and their threads.

        Raises:
            IllegalWorkerStateException: ``initialize`` was not called yet.
        """
        if self._context is None:
            raise IllegalWorkerStateException(f"{type(self).__name__} has no context before initialize() is called")
        return self._context

    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads its settings, starts monitor threads. The default keeps ``props``, and parses ``settings``.

        Called after ``initialize``, and again after ``stop`` when a paused or stopped connector is resumed. Must not
        block for long: a connector is RUNNING, and its tasks are configured, only after it returns.

        Args:
            props: The whole connector configuration with ``name`` and ``connector.class``, placeholders replaced.

        Raises:
            Exception: Any makes the connector FAILED; creating it over REST answers with the error.
        """
        self.props = dict(props)
        if self.config_class is not None:
            self.settings = self.config_class.parse(props)

    if not TYPE_CHECKING:

        @abstractmethod
        def task_class(self) -> type[Task]:
            """The class of this connector's tasks. Called after ``start``, before ``task_configs``. Must not block.

            A class that needs no method for it names the class: ``task_class = MyTask``.
            """

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Divides the job: one configuration for each task, at most ``max_tasks`` (``tasks.max``).

        Called after each ``start`` and after each ``request_task_reconfiguration``, so often; may read the source, and
        should give the same answer while nothing changed, since another answer restarts the tasks.

        Args:
            max_tasks: The most tasks there may be, 1 or more.

        Returns:
            What each task's ``start`` is given; an empty list means nothing to do now. More than ``max_tasks`` fails
            the connector (unless ``tasks.max.enforce=false``). The default: one task for a source; as many as there may
            be for a sink, which share the partitions of its topics. Each has the connector's configuration.
        """
        return [dict(self.props)]

    def stop(self) -> None:
        """Ends: stops monitor threads, releases resources. The default does nothing.

        Called on pause, stop, delete, restart and shutdown, if it was started. It has five seconds; one that takes
        longer is abandoned when it is to end for good. ``start`` may follow on the same instance.
        """

    def reconfigure(self, props: Mapping[str, str]) -> None:
        """Goes on with another configuration: by default ``stop``, then ``start``.

        For connectors that call it themselves. A worker never does: a changed configuration gets a new instance.
        """
        self.stop()
        self.start(props)

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks a configuration: errors and recommended values for each setting.

        Called before a connector is created or changed, and by the REST validation, on any thread and often on a fresh
        instance. May connect to the source to check. Report problems in the result, not by an exception: an exception
        is an internal error (500). The default checks against ``config()``, where a setting of type CLASS must name a
        class that can be imported, and then asks ``faults``.

        Args:
            connector_configs: The configuration, placeholders replaced.

        Returns:
            A ``ConfigValue`` for each setting of ``config()``; those with error messages refuse the configuration.
        """
        checked = Config(self.config().validate(connector_configs, resolve_class=find_class))
        refused = [] if self.config_class is None else self.config_class.refused(connector_configs)
        if refused:
            added = [ConfigValue(name, connector_configs[name]) for name, _ in refused]
            for value, (name, text) in zip(added, refused, strict=True):
                value.add_error_message(f"{name}: {text}")
            return Config([*checked.config_values, *added])
        if self.config_class is not None and not checked.errors():
            definition = self.config_class.definition()
            values = {one.name: one for one in checked.config_values}
            for name, text in self.faults(self.config_class.of(definition.parse(connector_configs))):
                values[name].add_error_message(f"{name}: {text}")
        return checked

    def faults(self, settings: Any) -> Iterable[tuple[str, str]]:
        """The faults of settings that are right by themselves: two do not fit together, or the system is not there.

        Called by the default ``validate``, on any thread and on a fresh instance. May connect to the system.

        Args:
            settings: The configuration, parsed by ``config_class``.

        Returns:
            The name of a setting and a text for people, for each. The default finds nothing.
        """
        return ()

    def config(self) -> ConfigDef:
        """The settings this connector knows: by default, those of ``config_class``, none without one.

        Called at any time, on fresh instances. Must not block.
        """
        return ConfigDef() if self.config_class is None else self.config_class.definition()

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Returns the reasons why a connector of this configuration has nothing to do now: a missing file or table.

        Called for ``GET /connectors/NAME/explain``, on any thread and on a fresh instance. It may look at the other
        system for a second or two. The default finds nothing.

        Args:
            props: The configuration, placeholders replaced.

        Returns:
            A clause for people for each, without a full stop: ``the file /data/in.txt does not exist``.
        """
        return ()

    def version(self) -> str:
        """The version, as shown by the REST API. Called at any time, on fresh instances. Must not block."""
        return "undefined"


class SourceConnector(Connector):
    """A connector that moves data into Kafka. Source: org.apache.kafka.connect.source.SourceConnector, KIP-131."""

    def context(self) -> SourceConnectorContext:
        """The context, which can also read this connector's committed source offsets.

        Raises:
            IllegalWorkerStateException: ``initialize`` was not called yet, or not with a source connector's context.
        """
        context = super().context()
        if not isinstance(context, SourceConnectorContext):
            raise IllegalWorkerStateException(f"{type(self).__name__} was initialized with {type(context).__name__}")
        return context

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Returns the support for exactly-once delivery with this configuration, or None if it is not stated.

        For workers that deliver exactly once, which ask before ``start`` and on a fresh instance when the configuration
        has ``exactly.once.support=required``. A standalone worker does not ask.

        Args:
            props: The configuration, placeholders replaced.
        """
        return None

    def can_define_transaction_boundaries(self, props: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Returns the support for transaction boundaries that its tasks define through the transaction context.

        For workers that deliver exactly once, which ask when ``transaction.boundary=connector``.

        Args:
            props: The configuration, placeholders replaced.
        """
        return ConnectorTransactionBoundaries.UNSUPPORTED

    def alter_offsets(
        self, props: Mapping[str, str], offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None]
    ) -> bool:
        """Offsets are about to be changed through the REST API: forward them to the source, or refuse.

        Called on a fresh instance, on a worker's thread, while the connector is STOPPED; may block. The worker writes
        its own store afterwards in any case.

        Args:
            props: The connector's configuration.
            offsets: The new offset of each source partition (``dict(key)`` is the partition); None: removed. All of the
                known ones with None when offsets are reset.

        Returns:
            Whether it knows about offsets and accepts these; False: not stated, the default.

        Raises:
            ConnectException: To refuse; the text goes to the caller.
            NotImplementedError: To say that changing offsets is not supported (400).
        """
        return False


class SinkConnector(Connector):
    """A connector that moves data out of Kafka. Source: org.apache.kafka.connect.sink.SinkConnector, KIP-131."""

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
        context = super().context()
        if not isinstance(context, SinkConnectorContext):
            raise IllegalWorkerStateException(f"{type(self).__name__} was initialized with {type(context).__name__}")
        return context

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Offsets are about to be changed through the REST API: forward them to the sink system, or refuse.

        Called on a fresh instance, on a worker's thread, while the connector is STOPPED; may block. The worker changes
        the consumer group afterwards in any case.

        Args:
            props: The connector's configuration.
            offsets: The new offset of each partition; None: removed.

        Returns:
            Whether it knows about offsets and accepts these; False: not stated, the default.

        Raises:
            ConnectException: To refuse; the text goes to the caller.
            NotImplementedError: To say that changing offsets is not supported (400).
        """
        return False
