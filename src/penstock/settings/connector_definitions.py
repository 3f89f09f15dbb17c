"""The settings that every connector has: the common ones, those of sources and those of sinks.

`ConnectorConfig`, `SourceConnectorConfig` and `SinkConnectorConfig` are Kafka Connect's, the other classes Penstock's
own. Constants; any thread. Source: the classes of these names of Kafka 4.3.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Final

from penstock.api import TransactionBoundary
from penstock.config import (
    CaseInsensitiveValidString,
    CompositeValidator,
    ConfigDef,
    ConfigType,
    Importance,
    LambdaValidator,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Range,
    ValidList,
    ValidString,
    Width,
    setting,
)
from penstock.config.abstract_config import TypedConfig
from penstock.config.java_pattern import compile_java
from penstock.config.parse import invalid, java_text
from penstock.errors import ConfigException
from penstock.plugins import PluginKind
from penstock.settings.plugin_classes import ensure_concrete_subclass

COMMON: Final = "Common"
TRANSFORMS: Final = "Transforms"
PREDICATES: Final = "Predicates"
ERRORS: Final = "Error Handling"
TOPIC_CREATION: Final = "Topic Creation"
EXACTLY_ONCE: Final = "Exactly Once Support"
OFFSETS_TOPIC: Final = "offsets.topic"
#: Bytes of UTF-8 in a connector's name: each may be three characters of a path, of which the server reads 64 KiB.
LONGEST_NAME: Final = 10_000
#: Python with PyArrow takes about half of this.
LEAST_MEMORY: Final = 128 * 1024 * 1024

_NO_VERSION = "This worker has one version of each plugin; a value is checked against nothing."


class PluginClass:
    """A class that extends the base of a kind of plugin and can be created; null and unresolved text pass."""

    def __init__(self, kind: PluginKind) -> None:
        self._kind = kind

    def ensure_valid(self, name: str, value: object) -> None:
        """Refuses other classes, abstract classes, and classes whose constructor requires arguments."""
        if not isinstance(value, type):
            return
        ensure_concrete_subclass(self._kind.base(), value)
        try:
            inspect.signature(value).bind()
        except TypeError as error:
            raise ConfigException(
                name, java_text(value), f"Could not find a public no-argument constructor for class: {error}"
            ) from error
        except ValueError:
            # Classes written in C may have no signature: then creating an instance shows the fault.
            return

    def __str__(self) -> str:
        base = f"org.apache.kafka.connect.storage.{self._kind.noun}"
        return f"A concrete subclass of {base}, A class with a public, no-argument constructor"


def unique_aliases(description: str) -> CompositeValidator:
    """A list without repeated items; empty items pass, as in Kafka."""

    def check(name: str, value: object) -> None:
        if isinstance(value, list) and len(set(value)) < len(value):
            raise invalid(name, value, "Duplicate alias provided.")

    return CompositeValidator(NonNull(), LambdaValidator(check, description))


def valid_regex() -> LambdaValidator:
    """A regular expression in Java's syntax."""

    def check(name: str, value: object) -> None:
        compile_java(str(value), name=name)

    return LambdaValidator(check, "valid regex")


def optional(validator: Range) -> LambdaValidator:
    """A check that accepts null."""

    def check(name: str, value: object) -> None:
        if value is not None:
            validator.ensure_valid(name, value)

    return LambdaValidator(check, str(validator))


def _at(order: int, width: Width, display_name: str) -> dict[str, Any]:
    """The place of a setting in its group, and how a user interface shows it."""
    return {"order": order, "width": width, "display_name": display_name}


#: Not `setting` itself: mypy takes no unpacked arguments there.
_setting: Final = partial(setting)
_common: Final = partial(setting, group=COMMON)
_error: Final = partial(setting, group=ERRORS)
_exactly_once: Final = partial(setting, group=EXACTLY_ONCE)


def _converter(side: str, what: str, order: int, kind: PluginKind = PluginKind.CONVERTER) -> Any:
    return _common(
        f"{side}.converter",
        default=None,
        validator=PluginClass(kind),
        importance=Importance.LOW,
        doc=f"Converts the {what} of records between Connect's data and the bytes in Kafka; unset takes the worker's.",
        **_at(order, Width.SHORT, f"{side.title()} converter class"),
    )


def _converter_version(side: str, order: int) -> Any:
    return _common(
        default=None,
        importance=Importance.LOW,
        doc=f"The version of the {side} converter to use. {_NO_VERSION}",
        **_at(order, Width.SHORT, f"{side.title()} converter version"),
    )


class ConnectorName(NonEmptyStringWithoutControlChars):
    """The validator of a connector's name: one that a path of the REST API can hold."""

    def ensure_valid(self, name: str, value: object) -> None:
        """Refuses the empty text, control characters, and a text longer than ``LONGEST_NAME``."""
        super().ensure_valid(name, value)
        size = len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0
        if size > LONGEST_NAME:
            told = f"has {size} bytes, and at most {LONGEST_NAME} are possible: no request could reach the connector"
            raise invalid(name, f"{str(value)[:20]}...", told)


class ConnectorConfig(TypedConfig):
    """The settings of every connector."""

    name: str = _common(
        validator=ConnectorName(),
        importance=Importance.HIGH,
        doc="The name of the connector, unique in the worker or cluster.",
        **_at(1, Width.MEDIUM, "Connector name"),
    )
    connector_class: str = _common(
        importance=Importance.HIGH,
        doc="The connector's class: its Java name for Kafka's own connectors, the path of a Python class, or an alias "
        "such as FileStreamSource.",
        **_at(2, Width.LONG, "Connector class"),
    )
    connector_plugin_version: str | None = _common(
        default=None,
        doc=f"The version of the connector to use. {_NO_VERSION}",
        **_at(3, Width.MEDIUM, "Connector version"),
    )
    tasks_max: int = _common(
        default=1,
        validator=Range.at_least(1),
        importance=Importance.HIGH,
        doc="The most tasks that the connector may have.",
        **_at(4, Width.SHORT, "Tasks max"),
    )
    tasks_max_enforce: bool = _common(
        default=True,
        importance=Importance.LOW,
        doc="Fail a connector that makes more tasks than tasks.max instead of only warning.",
        **_at(5, Width.SHORT, "Enforce tasks max"),
    )
    key_converter_class: type | None = _converter("key", "keys", 6)
    key_converter_plugin_version: str | None = _converter_version("key", 7)
    value_converter_class: type | None = _converter("value", "values", 8)
    value_converter_plugin_version: str | None = _converter_version("value", 9)
    header_converter_class: type | None = _converter("header", "headers", 10, PluginKind.HEADER_CONVERTER)
    header_converter_plugin_version: str | None = _converter_version("header", 11)
    transform_aliases: tuple[str, ...] = _setting(
        "transforms",
        default=(),
        validator=unique_aliases("unique transformation aliases"),
        importance=Importance.LOW,
        doc="Aliases of the transformations to apply to each record, in this order.",
        group=TRANSFORMS,
        **_at(12, Width.LONG, "Transforms"),
    )
    predicate_aliases: tuple[str, ...] = _setting(
        "predicates",
        default=(),
        validator=unique_aliases("unique predicate aliases"),
        importance=Importance.LOW,
        doc="Aliases of the predicates that transformations may name.",
        group=PREDICATES,
        **_at(13, Width.LONG, "Predicates"),
    )
    config_action_reload: str = _common(
        default="restart",
        validator=ValidString("none", "restart"),
        importance=Importance.LOW,
        doc="What to do when a value from a config provider runs out: restart the connector, or nothing.",
        **_at(14, Width.MEDIUM, "Reload Action"),
    )
    errors_retry_timeout_ms: int = _error(
        "errors.retry.timeout",
        ConfigType.LONG,
        default=0,
        doc="Milliseconds for which a failed operation is tried again: 0 for not at all, -1 for ever.",
        **_at(1, Width.MEDIUM, "Retry Timeout for Errors"),
    )
    errors_retry_delay_max_ms: int = _error(
        type=ConfigType.LONG,
        default=60000,
        doc="The longest pause between two tries; pauses double until they reach it.",
        **_at(2, Width.MEDIUM, "Maximum Delay Between Retries for Errors"),
    )
    errors_tolerance: str = _error(
        default="none",
        validator=ValidString("none", "all"),
        doc="none: a bad record fails its task. all: bad records are skipped.",
        **_at(3, Width.SHORT, "Error Tolerance"),
    )
    errors_log_enable: bool = _error(
        default=False,
        doc="Log each failed operation, also if it is tolerated.",
        **_at(4, Width.SHORT, "Log Errors"),
    )
    errors_log_include_messages: bool = _error(
        default=False,
        doc="Put the record itself in that log: for a source its key, value and headers, for a sink its place.",
        **_at(5, Width.SHORT, "Log Error Details"),
    )


class SourceConnectorConfig(ConnectorConfig):
    """The settings of every source connector; the settings of its groups of new topics are in `topics`."""

    topic_creation_groups: tuple[str, ...] = _setting(
        default=(),
        validator=unique_aliases("unique topic creation groups"),
        importance=Importance.LOW,
        doc="Groups of rules for the topics that the worker creates for this connector.",
        group=TOPIC_CREATION,
        **_at(1, Width.LONG, "Topic Creation Groups"),
    )
    exactly_once_support: str = _exactly_once(
        default="requested",
        validator=CaseInsensitiveValidString("requested", "required"),
        doc="required: the connector is refused unless it can deliver exactly once. requested: it is tried.",
        **_at(2, Width.SHORT, "Exactly once support"),
    )
    transaction_boundary: TransactionBoundary = _exactly_once(
        default=TransactionBoundary.POLL,
        validator=CaseInsensitiveValidString(*(one.value for one in TransactionBoundary)),
        doc="When transactions end: after each poll, after an interval, or when the connector says so.",
        **_at(3, Width.SHORT, "Transaction Boundary"),
    )
    transaction_boundary_interval_ms: int | None = _exactly_once(
        type=ConfigType.LONG,
        default=None,
        validator=optional(Range.at_least(0)),
        importance=Importance.LOW,
        doc="The length of a transaction with transaction.boundary=interval; unset takes the worker's "
        "offset.flush.interval.ms.",
        **_at(4, Width.SHORT, "Transaction boundary interval"),
    )
    offsets_topic: str | None = _setting(
        "offsets.storage.topic",
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        doc="A topic of its own for this connector's source offsets; unset takes the worker's.",
        group=OFFSETS_TOPIC,
        **_at(1, Width.LONG, "Offsets topic"),
    )


class SinkConnectorConfig(ConnectorConfig):
    """The settings of every sink connector."""

    topics: tuple[str, ...] = _common(
        default=(),
        validator=ValidList.any_non_duplicate(empty_allowed=True, null_allowed=False),
        importance=Importance.HIGH,
        doc="The topics to read, separated by commas. Give this or topics.regex.",
        **_at(4, Width.LONG, "Topics"),
    )
    topics_regex: str = _common(
        default="",
        validator=valid_regex(),
        importance=Importance.HIGH,
        doc="A regular expression in Java's syntax that the names of the topics to read match as a whole. Give this or "
        "topics.",
        **_at(4, Width.LONG, "Topics regex"),
    )
    dlq_topic: str = _error(
        "errors.deadletterqueue.topic.name",
        default="",
        doc="The topic to which records are written that failed here; empty for none.",
        **_at(6, Width.MEDIUM, "Dead Letter Queue Topic Name"),
    )
    dlq_replication_factor: int = _error(
        "errors.deadletterqueue.topic.replication.factor",
        ConfigType.SHORT,
        default=3,
        doc="The replication factor of that topic, if the worker has to create it.",
        **_at(7, Width.MEDIUM, "Dead Letter Queue Topic Replication Factor"),
    )
    dlq_context_headers: bool = _error(
        "errors.deadletterqueue.context.headers.enable",
        default=False,
        doc="Say in headers of those records, named __connect.errors.*, what failed and where.",
        **_at(8, Width.MEDIUM, "Enable Error Context Headers"),
    )


class IsolationConfig(TypedConfig):
    """The settings of every connector that Kafka Connect does not have."""

    mode: str = _common(
        "task.isolation",
        default="none",
        validator=ValidString("none", "process"),
        importance=Importance.LOW,
        doc="none: tasks run in the worker's process. process: each task has a process of its own, so that one that "
        "ends it, holds the interpreter or uses up memory harms only itself.",
        **_at(15, Width.SHORT, "Task Isolation"),
    )
    memory_max_bytes: int | None = _common(
        "task.isolation.memory.max.bytes",
        ConfigType.LONG,
        default=None,
        validator=optional(Range.at_least(LEAST_MEMORY)),
        importance=Importance.LOW,
        doc="The most memory that the process of a task may take for data, with task.isolation=process: what goes "
        "beyond it is a MemoryError in the task. Unset: no limit.",
        **_at(16, Width.MEDIUM, "Memory of Isolated Tasks"),
    )


class FramesConfig(TypedConfig):
    """The settings of sink connectors that Kafka Connect does not have; they act on tasks that take frames."""

    join: bool = _common(
        "frames.join",
        ConfigType.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="true: records of different schemas that one column can hold together are one frame. A struct has the "
        "fields of all of them, null where one is missing; int32 goes with int64, optional with required. false: "
        "each run of records with one schema is a frame.",
        **_at(17, Width.SHORT, "Join Frames"),
    )


#: The settings with the longest wait before the worker repeats a call that asked for it.
SOURCE_RETRY_DELAY: Final = "source.retry.delay.max.ms"
SINK_RETRY_DELAY: Final = "errors.retry.delay.max.ms"


class SourceRetryConfig(TypedConfig):
    """The settings of source connectors that Kafka Connect does not have."""

    delay_max_ms: int = _setting(
        SOURCE_RETRY_DELAY,
        type=ConfigType.LONG,
        default=60_000,
        validator=Range.at_least(1),
        importance=Importance.MEDIUM,
        doc="The longest wait, in milliseconds, before poll(), start(), or a connector's task_configs() is called "
        "again after it raised RetriableException; the wait begins with 250 ms and is doubled each time. An error with "
        "retry_after_s says itself when.",
        group=ERRORS,
        **_at(6, Width.MEDIUM, "Maximum Delay Between Calls of a Source That Asks for Them Again"),
    )


CONNECTOR: Final = ConnectorConfig.definition()
SOURCE: Final = SourceConnectorConfig.definition()
SINK: Final = SinkConnectorConfig.definition()
ISOLATION: Final = IsolationConfig.definition()
FRAMES: Final = FramesConfig.definition()
SOURCE_RETRY: Final = SourceRetryConfig.definition()
#: Penstock's own settings of sink and of source connectors.
OF_SINKS: Final = ConfigDef(ISOLATION, FRAMES)
OF_SOURCES: Final = ConfigDef(ISOLATION, SOURCE_RETRY)
