"""Vectors of configuration: ConfigDef itself, the settings of connectors, and those that plugins define.

Main functions: ``run``, ``run_config_vector``. No Spark is needed; plugins are asked for their settings.

Owning thread: none; nothing is shared but the plugins, which take any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from conformance.vectors.compare import judge
from conformance.vectors.model import Failure, Outcome, Success, Vector
from penstock import api
from penstock.config import (
    AnyNonDuplicate,
    CaseInsensitiveValidString,
    CompositeValidator,
    ConfigDef,
    ConfigType,
    ConfigValue,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Password,
    Range,
    Validator,
    ValidList,
    ValidString,
    convert_to_string,
    parse_type,
)
from penstock.config.parse import class_path
from penstock.plugins import PluginKind, PluginNotFoundException, Plugins
from penstock.settings.connector import connector_values, validate_connector
from penstock.settings.connector_definitions import CONNECTOR, SINK, SOURCE
from penstock.settings.plugin_classes import InstalledPlugins, class_resolver
from penstock.settings.topics import (
    DEFAULT_GROUP,
    TopicCreation,
    check_topics,
    parse_topic_creation,
    parse_topics_list,
    require_valid_topics,
    uses_topic_creation,
)

NOT_BUILT: Final = "not built yet"
#: Java classes that vectors name and that are no plugins.
_JAVA_CLASSES: Final[Mapping[str, type]] = {
    "java.lang.String": str,
    "org.apache.kafka.connect.storage.Converter": api.Converter,
}
_BASES: Final = {"ConnectorConfig": CONNECTOR, "SourceConnectorConfig": SOURCE, "SinkConnectorConfig": SINK}
_VALIDATORS: Final[Mapping[str, Callable[[Any], Validator]]] = {
    "atLeast": Range.at_least,
    "between": lambda bounds: Range.between(*bounds),
    "in": lambda texts: ValidString(*texts),
    "inIgnoreCase": lambda texts: CaseInsensitiveValidString(*texts),
    "nonEmptyString": lambda _: NonEmptyString(),
    "nonEmptyStringWithoutControlChars": lambda _: NonEmptyStringWithoutControlChars(),
    "nonNull": lambda _: NonNull(),
    "listSize": ListSize,
    "validList": lambda texts: ValidList.of(*texts),
    "validListNonEmpty": lambda texts: ValidList.non_empty_of(*texts),
    "anyNonDuplicate": lambda allowed: AnyNonDuplicate(empty_allowed=allowed[0], null_allowed=allowed[1]),
    "composite": lambda parts: CompositeValidator(*map(_validator, parts)),
}


class NotBuiltError(Exception):
    """A class of Kafka that has no counterpart here so far."""


class RecordedClasses(InstalledPlugins):
    """Finds the classes that vectors name, and knows afterwards by which name each was asked for."""

    def __init__(self, plugins: Plugins) -> None:
        super().__init__(plugins)
        self._named: dict[type, str] = {}

    def find_class(self, kind: PluginKind | None, text: str) -> type:
        """The class of a Java name.

        Raises:
            LookupError: Java has no such class either.
            NotBuiltError: Java has one, we do not.
        """
        found = _JAVA_CLASSES.get(text) or self._plugin(kind, text)
        self._named[found] = text
        return found

    def find_plugin(self, text: str) -> type:
        """The plugin of a Java name, of any kind."""
        return self.find_class(None, text)

    def java_words(self, message: str) -> str:
        """A message of ours with the names by which the vector knows our classes."""
        for cls in sorted(self._named, key=lambda cls: -len(class_path(cls))):
            message = message.replace(class_path(cls), self._named[cls])
        return message

    def encode(self, value: object) -> Any:
        """A parsed value as vectors write it."""
        if isinstance(value, Password):
            return {"$password": value.value}
        if isinstance(value, type):
            return {"$class": self._named.get(value, class_path(value))}
        return [self.encode(item) for item in value] if isinstance(value, list) else value

    def _plugin(self, kind: PluginKind | None, text: str) -> type:
        try:
            return super().find_class(kind, text)
        except (LookupError, PluginNotFoundException) as error:
            if not text.startswith("org.apache.kafka."):
                raise LookupError(text) from error
            raise NotBuiltError(text) from error


def run_config_vector(vector: Mapping[str, Any], plugins: Plugins) -> str | None:
    """Runs one line of a vector file, and compares messages too.

    Returns:
        None when the result is Java's; else the reason, which begins with `NOT_BUILT` when a class is missing here.
    """
    parsed = Vector(
        vector["id"],
        vector["kind"],
        vector["class"],
        vector.get("config") or {},
        vector["input"],
        vector.get("expect"),
        vector.get("error"),
    )
    outcome = run(parsed, plugins)
    verdict = judge(parsed, outcome)
    if verdict.reason is None and verdict.same_message is False:
        assert isinstance(outcome, Failure)
        assert parsed.error is not None
        return f"the message is {outcome.message!r}, expected {parsed.error['message']!r}"
    return verdict.reason


def run(vector: Vector, plugins: Plugins | None = None) -> Outcome:
    """Runs a vector against the configuration code."""
    classes = RecordedClasses(_stock_plugins() if plugins is None else plugins)
    try:
        return Success(_run(vector, classes))
    except NotBuiltError as error:
        return Failure("apply", "", None, f"{NOT_BUILT}: {error}")
    except Exception as error:
        failure = Failure.of("apply", error)
        return Failure(failure.phase, failure.error, classes.java_words(str(error)))


@lru_cache(maxsize=1)
def _stock_plugins() -> Plugins:
    return Plugins.discover(())


def _run(vector: Vector, classes: RecordedClasses) -> dict[str, Any]:
    given = vector.input
    match vector.cls:
        case "ConfigDef":
            return _config_def(vector, classes)
        case "ConfigDef.parseType":
            value, kind = _decode(given["value"]), ConfigType(given["type"])
            return {"value": classes.encode(parse_type("cfg", value, kind, resolve_class=class_resolver(classes)))}
        case "ConfigDef.convertToString":
            return {"value": convert_to_string(_decode(given["value"]), ConfigType(given["type"]))}
        case "PluginConfigKeys":
            return {"keys": _keys(classes.find_plugin(given["plugin"])().config(), classes)}
        case _:
            return _connector_config(vector, classes)


def _config_def(vector: Vector, classes: RecordedClasses) -> dict[str, Any]:
    definition = ConfigDef()
    for entry in vector.input["defs"]:
        default = {"default": _decode(entry["default"])} if "default" in entry else {}
        validator = _validator(entry["validator"]) if "validator" in entry else None
        definition.define(entry["name"], ConfigType(entry["type"]), validator=validator, **default)
    config, resolve = _config(vector), class_resolver(classes)
    if vector.input["op"] == "parse":
        parsed = definition.parse(config, resolve_class=resolve)
        return {"values": {name: classes.encode(value) for name, value in parsed.items()}}
    found = definition.validate(config, resolve_class=resolve)
    return {"values": {value.name: _encode_value(value, classes, complete=True) for value in found}}


def _connector_config(vector: Vector, classes: RecordedClasses) -> dict[str, Any]:
    config, base = _config(vector), _BASES[vector.cls]
    match vector.input["op"]:
        case "keys":
            return {"keys": _keys(base, classes)}
        case "validate":
            return _errors(base.validate(config, resolve_class=class_resolver(classes)), classes)
        case "topics":
            found = base.validate_all(config, resolve_class=class_resolver(classes))
            check_topics(config, found)
            return _errors(list(found.values()), classes)
        case "topicsThrow":
            require_valid_topics(config)
            return {"valid": True}
        case "parseTopicsList":
            return {"value": parse_topics_list(config)}
        case "enriched":
            # The topics are checked by the operations above; Java's enriched definition does not know them.
            definition, enriched = validate_connector(ConfigDef(base), config, classes)
            extra = sorted(set(definition.names()) - set(base.names()))
            return {**_errors(list(enriched.values()), classes), "extraKeys": extra}
        case _:
            return _new(vector, base, config, classes)


def _new(vector: Vector, base: ConfigDef, config: Mapping[str, Any], classes: RecordedClasses) -> dict[str, Any]:
    values = connector_values(base, config, classes)
    result: dict[str, Any] = {"values": {name: classes.encode(values[name]) for name in vector.input["get"]}}
    if vector.input.get("topicCreation") and uses_topic_creation(config):
        creation = parse_topic_creation(config)
        result["groups"] = {name: _group(creation, name) for name in vector.input.get("groups", ())}
    return result


def _group(creation: TopicCreation, name: str) -> dict[str, Any]:
    group = creation.group(name)
    numbers = {"partitions": group.partitions, "replicationFactor": group.replication_factor}
    patterns = {"include": list(group.include), "exclude": list(group.exclude)} if name != DEFAULT_GROUP else {}
    return {**numbers, **patterns, "other": dict(group.configs)}


def _keys(definition: ConfigDef, classes: RecordedClasses) -> list[dict[str, Any]]:
    rows = []
    for key in definition.keys.values():
        default = {"default": classes.encode(key.default), "defaultAsString": key.default_text()}
        rows.append(
            {
                "name": key.name,
                "type": key.type.value,
                "required": not key.has_default,
                **(default if key.has_default else {}),
                "importance": key.importance.value,
                "group": key.group,
                "orderInGroup": key.order,
                "width": key.width.value,
                "displayName": key.display_name,
                "dependents": list(key.dependents),
            }
        )
    return rows


def _errors(found: Sequence[ConfigValue], classes: RecordedClasses) -> dict[str, Any]:
    wrong = [value for value in found if value.error_messages]
    return {"errors": {value.name: _encode_value(value, classes, complete=False) for value in wrong}}


def _encode_value(value: ConfigValue, classes: RecordedClasses, *, complete: bool) -> dict[str, Any]:
    encoded = {
        "value": classes.encode(value.value),
        "errors": [classes.java_words(message) for message in value.error_messages],
    }
    if complete:
        encoded.update(recommended=list(value.recommended_values), visible=value.visible)
    return encoded


def _validator(data: Mapping[str, Any]) -> Validator:
    ((name, argument),) = data.items()
    return _VALIDATORS[name](argument)


def _config(vector: Vector) -> dict[str, Any]:
    return {name: _decode(value) for name, value in vector.config.items()}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    return Password(content) if tag == "$password" else int(content)
