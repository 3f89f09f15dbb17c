"""The settings that every connector has: the common ones, those of sources and those of sinks.

Main objects: `CONNECTOR`, `SOURCE`, `SINK` (Kafka Connect's), `ISOLATION` (Penstock's own). Constants; any thread.

Source: ConnectorConfig, SourceConnectorConfig and SinkConnectorConfig of Kafka 4.3.
"""

from __future__ import annotations

import inspect
from typing import Final

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
)
from penstock.config.java_regex import compile_java
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
#: Python with PyArrow takes about half of it.
LEAST_MEMORY: Final = 128 * 1024 * 1024

_NO_VERSION = "This worker has one version of each plugin; a value is checked against nothing."


class PluginClass:
    """A class that extends the base of a kind of plugin and can be created; null and unresolved text pass."""

    def __init__(self, kind: PluginKind) -> None:
        self._kind = kind

    def ensure_valid(self, name: str, value: object) -> None:
        """Refuses other classes, abstract classes, and classes whose constructor wants arguments."""
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
            # Classes written in C may not tell their signature: creating them will tell.
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
    """A check that lets null pass."""

    def check(name: str, value: object) -> None:
        if value is not None:
            validator.ensure_valid(name, value)

    return LambdaValidator(check, str(validator))


def _common() -> ConfigDef:
    definition = (
        ConfigDef()
        .define(
            "name",
            ConfigType.STRING,
            validator=NonEmptyStringWithoutControlChars(),
            importance=Importance.HIGH,
            doc="The name of the connector, unique in the worker or cluster.",
            group=COMMON,
            order=1,
            width=Width.MEDIUM,
            display_name="Connector name",
        )
        .define(
            "connector.class",
            ConfigType.STRING,
            importance=Importance.HIGH,
            doc="The connector's class: its Java name for Kafka's own connectors, the path of a Python class, or an "
            "alias such as FileStreamSource.",
            group=COMMON,
            order=2,
            width=Width.LONG,
            display_name="Connector class",
        )
        .define(
            "connector.plugin.version",
            ConfigType.STRING,
            default=None,
            importance=Importance.MEDIUM,
            doc=f"The version of the connector to use. {_NO_VERSION}",
            group=COMMON,
            order=3,
            width=Width.MEDIUM,
            display_name="Connector version",
        )
    )
    _define_tasks(definition)
    _define_converters(definition)
    return definition


def _define_tasks(definition: ConfigDef) -> None:
    (
        definition.define(
            "tasks.max",
            ConfigType.INT,
            default=1,
            validator=Range.at_least(1),
            importance=Importance.HIGH,
            doc="The most tasks that the connector may have.",
            group=COMMON,
            order=4,
            width=Width.SHORT,
            display_name="Tasks max",
        ).define(
            "tasks.max.enforce",
            ConfigType.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Fail a connector that makes more tasks than tasks.max instead of only warning.",
            group=COMMON,
            order=5,
            width=Width.SHORT,
            display_name="Enforce tasks max",
        )
    )


def _define_converters(definition: ConfigDef) -> None:
    order = 6
    for side, kind, what in (
        ("key", PluginKind.CONVERTER, "keys of records"),
        ("value", PluginKind.CONVERTER, "values of records"),
        ("header", PluginKind.HEADER_CONVERTER, "headers of records"),
    ):
        definition.define(
            f"{side}.converter",
            ConfigType.CLASS,
            default=None,
            validator=PluginClass(kind),
            importance=Importance.LOW,
            doc=f"Converts the {what} between Connect's data and the bytes in Kafka; unset takes the worker's.",
            group=COMMON,
            order=order,
            width=Width.SHORT,
            display_name=f"{side.title()} converter class",
        )
        definition.define(
            f"{side}.converter.plugin.version",
            ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            doc=f"The version of the {side} converter to use. {_NO_VERSION}",
            group=COMMON,
            order=order + 1,
            width=Width.SHORT,
            display_name=f"{side.title()} converter version",
        )
        order += 2


def _define_chain(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "transforms",
            ConfigType.LIST,
            default="",
            validator=unique_aliases("unique transformation aliases"),
            importance=Importance.LOW,
            doc="Aliases of the transformations to apply to each record, in this order.",
            group=TRANSFORMS,
            order=12,
            width=Width.LONG,
            display_name="Transforms",
        )
        .define(
            "predicates",
            ConfigType.LIST,
            default="",
            validator=unique_aliases("unique predicate aliases"),
            importance=Importance.LOW,
            doc="Aliases of the predicates that transformations may name.",
            group=PREDICATES,
            order=13,
            width=Width.LONG,
            display_name="Predicates",
        )
        .define(
            "config.action.reload",
            ConfigType.STRING,
            default="restart",
            validator=ValidString("none", "restart"),
            importance=Importance.LOW,
            doc="What to do when a value from a config provider runs out: restart the connector, or nothing.",
            group=COMMON,
            order=14,
            width=Width.MEDIUM,
            display_name="Reload Action",
        )
    )


def _define_errors(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "errors.retry.timeout",
            ConfigType.LONG,
            default=0,
            importance=Importance.MEDIUM,
            doc="Milliseconds for which a failed operation is tried again: 0 for not at all, -1 for ever.",
            group=ERRORS,
            order=1,
            width=Width.MEDIUM,
            display_name="Retry Timeout for Errors",
        )
        .define(
            "errors.retry.delay.max.ms",
            ConfigType.LONG,
            default=60000,
            importance=Importance.MEDIUM,
            doc="The longest pause between two tries; pauses double until they reach it.",
            group=ERRORS,
            order=2,
            width=Width.MEDIUM,
            display_name="Maximum Delay Between Retries for Errors",
        )
        .define(
            "errors.tolerance",
            ConfigType.STRING,
            default="none",
            validator=ValidString("none", "all"),
            importance=Importance.MEDIUM,
            doc="none: a bad record fails its task. all: bad records are skipped.",
            group=ERRORS,
            order=3,
            width=Width.SHORT,
            display_name="Error Tolerance",
        )
        .define(
            "errors.log.enable",
            ConfigType.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Log each failed operation, also those that are tolerated.",
            group=ERRORS,
            order=4,
            width=Width.SHORT,
            display_name="Log Errors",
        )
        .define(
            "errors.log.include.messages",
            ConfigType.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Put the record itself in that log: for a source its key, value and headers, for a sink its place.",
            group=ERRORS,
            order=5,
            width=Width.SHORT,
            display_name="Log Error Details",
        )
    )


def _source() -> ConfigDef:
    return _define_exactly_once(
        ConfigDef(CONNECTOR).define(
            "topic.creation.groups",
            ConfigType.LIST,
            default="",
            validator=unique_aliases("unique topic creation groups"),
            importance=Importance.LOW,
            doc="Groups of rules for the topics that the worker creates for this connector.",
            group=TOPIC_CREATION,
            order=1,
            width=Width.LONG,
            display_name="Topic Creation Groups",
        )
    )


def _define_exactly_once(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "exactly.once.support",
            ConfigType.STRING,
            default="requested",
            validator=CaseInsensitiveValidString("requested", "required"),
            importance=Importance.MEDIUM,
            doc="required: the connector is refused unless it can deliver exactly once. requested: it is tried.",
            group=EXACTLY_ONCE,
            order=2,
            width=Width.SHORT,
            display_name="Exactly once support",
        )
        .define(
            "transaction.boundary",
            ConfigType.STRING,
            default="poll",
            validator=CaseInsensitiveValidString("poll", "interval", "connector"),
            importance=Importance.MEDIUM,
            doc="When transactions end: after each poll, after an interval, or when the connector says so.",
            group=EXACTLY_ONCE,
            order=3,
            width=Width.SHORT,
            display_name="Transaction Boundary",
        )
        .define(
            "transaction.boundary.interval.ms",
            ConfigType.LONG,
            default=None,
            validator=optional(Range.at_least(0)),
            importance=Importance.LOW,
            doc="The length of a transaction with transaction.boundary=interval; unset takes the worker's "
            "offset.flush.interval.ms.",
            group=EXACTLY_ONCE,
            order=4,
            width=Width.SHORT,
            display_name="Transaction boundary interval",
        )
        .define(
            "offsets.storage.topic",
            ConfigType.STRING,
            default=None,
            validator=NonEmptyString(),
            importance=Importance.LOW,
            doc="A topic of its own for this connector's source offsets; unset takes the worker's.",
            group=OFFSETS_TOPIC,
            order=1,
            width=Width.LONG,
            display_name="Offsets topic",
        )
    )


def _sink() -> ConfigDef:
    return _define_dead_letters(
        ConfigDef(CONNECTOR)
        .define(
            "topics",
            ConfigType.LIST,
            default="",
            validator=ValidList.any_non_duplicate(empty_allowed=True, null_allowed=False),
            importance=Importance.HIGH,
            doc="The topics to read, separated by commas. Give this or topics.regex.",
            group=COMMON,
            order=4,
            width=Width.LONG,
            display_name="Topics",
        )
        .define(
            "topics.regex",
            ConfigType.STRING,
            default="",
            validator=valid_regex(),
            importance=Importance.HIGH,
            doc="A regular expression in Java's syntax that the names of the topics to read match as a whole. Give "
            "this or topics.",
            group=COMMON,
            order=4,
            width=Width.LONG,
            display_name="Topics regex",
        )
    )


def _define_dead_letters(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "errors.deadletterqueue.topic.name",
            ConfigType.STRING,
            default="",
            importance=Importance.MEDIUM,
            doc="The topic to which records are written that failed here; empty for none.",
            group=ERRORS,
            order=6,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Name",
        )
        .define(
            "errors.deadletterqueue.topic.replication.factor",
            ConfigType.SHORT,
            default=3,
            importance=Importance.MEDIUM,
            doc="The replication factor of that topic, if the worker has to create it.",
            group=ERRORS,
            order=7,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Replication Factor",
        )
        .define(
            "errors.deadletterqueue.context.headers.enable",
            ConfigType.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Say in headers of those records, named __connect.errors.*, what failed and where.",
            group=ERRORS,
            order=8,
            width=Width.MEDIUM,
            display_name="Enable Error Context Headers",
        )
    )


#: What every connector may set beside Kafka Connect's own settings.
ISOLATION: Final = (
    ConfigDef()
    .define(
        "task.isolation",
        ConfigType.STRING,
        default="none",
        validator=ValidString("none", "process"),
        importance=Importance.LOW,
        doc="none: tasks run in the worker's process. process: each task has a process of its own, so that one that "
        "ends it, holds the interpreter or uses up memory harms itself alone.",
        group=COMMON,
        order=15,
        width=Width.SHORT,
        display_name="Task Isolation",
    )
    .define(
        "task.isolation.memory.max.bytes",
        ConfigType.LONG,
        default=None,
        validator=optional(Range.at_least(LEAST_MEMORY)),
        importance=Importance.LOW,
        doc="The most memory that the process of a task may take for data, with task.isolation=process: what goes "
        "beyond it is a MemoryError in the task. Unset: no limit.",
        group=COMMON,
        order=16,
        width=Width.MEDIUM,
        display_name="Memory of Isolated Tasks",
    )
)
CONNECTOR: Final = _define_errors(_define_chain(_common()))
SOURCE: Final = _source()
SINK: Final = _sink()
