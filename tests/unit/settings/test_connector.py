"""Connector configurations: parsing, transforms and predicates, what validation reports."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api import Predicate, TransactionBoundary, Transformation
from penstock.config import ConfigDef, ConfigType, Range
from penstock.errors import ConfigException, ConnectException
from penstock.plugins import PluginKind, Plugins
from penstock.settings import (
    SINK,
    SOURCE,
    ConnectorSettings,
    InstalledPlugins,
    SinkSettings,
    SourceSettings,
    validate_connector,
)


class Upper(Transformation):
    """A transformation with settings, one of which the worker hides."""

    def apply(self, record: Any) -> Any:
        return record

    def config(self) -> ConfigDef:
        return (
            ConfigDef()
            .define("field", ConfigType.STRING)
            .define("times", ConfigType.INT, default=1, validator=Range.at_least(1))
            .define("negate", ConfigType.STRING, default="hidden")
        )


class Picky(Upper):
    """A transformation that cannot be created without an argument."""

    def __init__(self, needed: int) -> None:
        self.needed = needed


class Silent(Upper):
    """A transformation that does not say what its settings are."""

    def config(self) -> ConfigDef:
        return None  # type: ignore[return-value]


class Half(Transformation):
    """An abstract transformation: `apply` is missing."""


class Always(Predicate):
    """A predicate with a setting."""

    def test(self, record: Any) -> bool:
        return True

    def config(self) -> ConfigDef:
        return ConfigDef().define("name", ConfigType.STRING)


class FakeClasses(InstalledPlugins):
    """The classes of this module, by their simple names."""

    def __init__(self) -> None:
        pass

    def find_class(self, kind: PluginKind | None, text: str) -> type:
        if text == "Broken":
            raise ConnectException("importing module broken failed with ImportError: no module numpy")
        found = {cls.__name__: cls for cls in (Upper, Picky, Silent, Half, Always, str)}.get(text)
        if found is None:
            raise LookupError(text)
        return found

    def installed(self, kind: PluginKind) -> list[str]:
        return [f"a {kind.value}"]


BASE = {"name": "c", "connector.class": "FileStreamSink"}
SINK_BASE = {**BASE, "topics": "t"}
CHAIN = {
    "transforms": "up, again",
    "transforms.up.type": "Upper",
    "transforms.up.field": "f",
    "transforms.up.predicate": "p",
    "transforms.up.negate": "true",
    "transforms.again.type": "Upper",
    "transforms.again.field": "g",
    "transforms.again.times": "3",
    "predicates": "p",
    "predicates.p.type": "Always",
    "predicates.p.name": "x",
}


def test_the_defaults_of_a_sink() -> None:
    settings = SinkSettings.parse(SINK_BASE, FakeClasses())
    assert (settings.name, settings.connector_class, settings.tasks_max) == ("c", "FileStreamSink", 1)
    assert settings.tasks_max_enforce
    assert settings.topics == ("t",)
    assert (settings.topics_regex, settings.dlq_topic) == ("", "")
    assert (settings.key_converter, settings.value_converter, settings.header_converter) == (None, None, None)
    assert (settings.transforms, settings.predicates) == ((), {})
    assert (settings.errors_retry_timeout_ms, settings.errors_retry_delay_max_ms) == (0, 60000)
    assert not settings.errors_tolerance_all
    assert settings.config_action_reload == "restart"


def test_the_chain_of_transformations_is_taken_apart() -> None:
    settings = SinkSettings.parse({**SINK_BASE, **CHAIN}, FakeClasses())
    up, again = settings.transforms
    assert (up.alias, up.type, up.predicate, up.negate) == ("up", Upper, "p", True)
    assert up.config == {"type": "Upper", "field": "f"}
    assert (again.alias, again.predicate, again.negate) == ("again", None, False)
    assert again.config == {"type": "Upper", "field": "g", "times": "3"}
    assert settings.predicates["p"].type is Always
    assert settings.predicates["p"].config == {"type": "Always", "name": "x"}


def test_a_predicate_that_is_not_there_is_named() -> None:
    config = {**SINK_BASE, **CHAIN, "transforms.up.predicate": "q"}
    with pytest.raises(ConfigException, match=r"Invalid value q for configuration transforms\.up\.predicate: .*\[p\]"):
        SinkSettings.parse(config, FakeClasses())


def test_a_sinks_own_settings() -> None:
    config = {
        **BASE,
        "topics.regex": "a.*",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "consumer.override.max.poll.records": "5",
    }
    settings = SinkSettings.parse(config, FakeClasses())
    assert (settings.topics, settings.topics_regex) == ((), "a.*")
    assert (settings.dlq_topic, settings.dlq_replication_factor, settings.dlq_context_headers) == ("dead", 1, True)
    assert settings.errors_tolerance_all
    assert settings.raw == config


def test_a_sources_own_settings() -> None:
    config = {
        **BASE,
        "exactly.once.support": "Required",
        "transaction.boundary": "INTERVAL",
        "transaction.boundary.interval.ms": "10",
        "offsets.storage.topic": "o",
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
    }
    settings = SourceSettings.parse(config, FakeClasses())
    assert settings.exactly_once_support == "Required"
    assert (settings.transaction_boundary, settings.transaction_boundary_interval_ms) == (
        TransactionBoundary.INTERVAL,
        10,
    )
    assert settings.offsets_topic == "o"
    assert settings.topic_creation is not None
    assert settings.topic_creation.group_for("x").partitions == 2
    assert SourceSettings.parse(config, FakeClasses(), topic_creation_enabled=False).topic_creation is None
    assert SourceSettings.parse(BASE, FakeClasses()).topic_creation is None


def test_converters_come_with_their_settings() -> None:
    config = {
        **BASE,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.ignored": "without a class the worker's converter is used",
    }
    settings = ConnectorSettings.parse(config, InstalledPlugins(Plugins.discover()))
    assert settings.key_converter is not None
    assert settings.key_converter.type.__name__ == "JsonConverter"
    assert settings.key_converter.config == {"schemas.enable": "false"}
    assert settings.value_converter is None


def test_secrets_do_not_show_in_what_is_logged() -> None:
    settings = SinkSettings.parse({**SINK_BASE, **CHAIN, "transforms.up.field": "s3cret"}, FakeClasses())
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize("name", ["name", "connector.class", "tasks.max.enforce", "errors.log.enable", "topics.regex"])
def test_an_explicit_null_is_refused_before_it_can_do_harm(name: str) -> None:
    config: dict[str, Any] = {**SINK_BASE, name: None}
    with pytest.raises(ConfigException, match=f"null for configuration {name}"):
        SinkSettings.parse(config, FakeClasses())


def _errors(config: dict[str, Any]) -> dict[str, list[str]]:
    _, found = validate_connector(SINK, {**SINK_BASE, **config}, FakeClasses())
    return {name: value.error_messages for name, value in found.items() if value.error_messages}


def test_every_fault_of_the_chain_is_reported_with_its_setting() -> None:
    found = _errors({**CHAIN, "transforms.up.times": "0", "transforms.again.negate": "1", "predicates.p.type": "No"})
    assert found == {
        "transforms.up.times": ["Invalid value 0 for configuration times: Value must be at least 1"],
        "transforms.again.type": [
            "Config 'transforms.again.negate' was provided but there is no config 'transforms.again.predicate' "
            "defining a predicate to be negated."
        ],
        "transforms.again.negate": [
            "Invalid value 1 for configuration transforms.again.negate: Expected value to be either true or false"
        ],
        "predicates.p.type": ["Invalid value No for configuration predicates.p.type: Class No could not be found."],
    }


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        ("str", "Class class builtins.str does not implement the Transformation interface"),
        ("Always", f"Class class {Always.__module__}.Always does not implement the Transformation interface"),
        ("Half", "This class is abstract and cannot be created."),
        ("Picky", "Error getting config definition from Transformation: "),
        ("Silent", "must return a ConfigDef"),
        ("Broken", "transforms.a.type: importing module broken failed with ImportError: no module numpy"),
    ],
)
def test_a_class_that_cannot_be_used_is_reported_on_its_type(cls: str, message: str) -> None:
    found = _errors({"transforms": "a", "transforms.a.type": cls})
    assert list(found) == ["transforms.a.type"]
    assert any(message in text for text in found["transforms.a.type"])


def test_the_settings_of_a_chain_have_groups_of_their_own_and_the_hidden_one_is_the_workers() -> None:
    definition, _ = validate_connector(SOURCE, {**BASE, **CHAIN}, FakeClasses())
    added = [key for key in definition.keys.values() if key.name not in SOURCE.keys]
    assert [(key.name, key.group, key.order) for key in added if key.name.startswith("transforms.up.")] == [
        ("transforms.up.type", "Transforms: up", 0),
        ("transforms.up.plugin.version", "Transforms: up", 1),
        ("transforms.up.field", "Transforms: up", 2),
        ("transforms.up.negate", "Transforms: up", 3),
        ("transforms.up.predicate", "Transforms: up", 4),
        ("transforms.up.times", "Transforms: up", 5),
    ]
    assert definition.keys["transforms.up.negate"].type is ConfigType.BOOLEAN
    assert definition.groups()[-3:] == ["Transforms: up", "Transforms: again", "Predicates: p"]


def test_installed_plugins_are_recommended() -> None:
    _, found = validate_connector(SOURCE, {**BASE, **CHAIN}, FakeClasses())
    assert found["transforms.up.type"].recommended_values == ["a transformation"]
    assert found["predicates.p.type"].recommended_values == ["a predicate"]
    assert found["key.converter"].recommended_values == ["a converter"]
    assert found["header.converter"].recommended_values == ["a header_converter"]


def test_definitions_of_connectors_are_not_changed_by_enriching_them() -> None:
    before = SOURCE.names()
    validate_connector(SOURCE, {**BASE, **CHAIN}, FakeClasses())
    assert SOURCE.names() == before


def test_installed_plugins_find_classes_by_name_and_by_path() -> None:
    classes = InstalledPlugins(Plugins.discover())
    found = classes.find_class(PluginKind.TRANSFORMATION, "org.apache.kafka.connect.transforms.HoistField$Value")
    assert found.__name__ == "HoistFieldValue"
    assert classes.find_class(PluginKind.PREDICATE, "HoistField$Value") is found
    assert classes.find_class(None, "builtins.str") is str
    assert "org.apache.kafka.connect.json.JsonConverter" in classes.installed(PluginKind.CONVERTER)
    with pytest.raises(LookupError):
        classes.find_class(PluginKind.CONVERTER, "no.such.Converter")
