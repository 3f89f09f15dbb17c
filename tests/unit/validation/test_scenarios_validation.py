"""What the validation of a configuration answers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pytest

from penstock.api import Converter
from penstock.config import ConfigDef, ConfigType
from penstock.converters.string import StringConverter
from penstock.errors import ConfigException
from penstock.kafka.settings.table import OverridePolicy, parse_policy
from penstock.plugins import Plugins
from penstock.transforms.predicates import TopicNameMatches
from penstock.validation.validator import ConnectorValidator

SOURCE = {"name": "a", "connector.class": "FileStreamSource", "topic": "t"}
SINK = {"name": "a", "connector.class": "FileStreamSink", "topics": "t"}
HOIST = "org.apache.kafka.connect.transforms.HoistField$Value"


def answer(config: dict[str, str], policy: OverridePolicy | None = None) -> dict[str, Any]:
    """The body of the answer."""
    return ConnectorValidator(Plugins(), policy).infos(config, config).to_json()


def faults(config: dict[str, str], policy: OverridePolicy | None = None) -> dict[str, list[str]]:
    """The faults of each setting that has some."""
    found = answer(config, policy)["configs"]
    return {entry["value"]["name"]: entry["value"]["errors"] for entry in found if entry["value"]["errors"]}


class Abstract(Converter):
    @abstractmethod
    def more(self) -> None: ...


class NeedsArguments(StringConverter):
    def __init__(self, size: int) -> None: ...


class Explodes(StringConverter):
    def __init__(self) -> None:
        raise ValueError("no licence")


class WithoutDefinition(StringConverter):
    def config(self) -> ConfigDef:
        return None  # type: ignore[return-value]


class BrokenDefinition(StringConverter):
    def config(self) -> ConfigDef:
        raise ValueError("cannot say")


class Demanding(StringConverter):
    def config(self) -> ConfigDef:
        return ConfigDef().define("must", ConfigType.INT, group="Demands")


def test_a_good_configuration_has_no_errors_and_all_settings() -> None:
    source, sink = answer(SOURCE), answer(SINK)
    assert source["error_count"] == sink["error_count"] == 0
    assert source["name"] == "FileStreamSource"
    names = [entry["value"]["name"] for entry in source["configs"]]
    assert len(names) == 27
    assert names[:2] == ["name", "connector.class"]
    assert names[-3:] == ["file", "topic", "batch.size"]
    others = [entry["value"]["name"] for entry in sink["configs"]]
    assert "topics" in set(others) - set(names)
    assert "topic.creation.groups" in set(names) - set(others)
    assert sink["groups"] == ["Common", "Transforms", "Predicates", "Error Handling"]
    assert source["groups"] == [
        *sink["groups"],
        "Topic Creation",
        "Exactly Once Support",
        "offsets.topic",
    ]
    assert source["configs"][names.index("topic")]["definition"]["group"] is None
    batch = source["configs"][names.index("batch.size")]
    assert batch["definition"] == {
        "name": "batch.size",
        "type": "INT",
        "required": False,
        "default_value": "2000",
        "importance": "LOW",
        "documentation": batch["definition"]["documentation"],
        "group": None,
        "width": "NONE",
        "display_name": "batch.size",
        "dependents": [],
        "order_in_group": -1,
    }
    assert batch["value"] == {
        "name": "batch.size",
        "value": "2000",
        "recommended_values": [],
        "errors": [],
        "visible": True,
    }


def test_class_settings_recommend_what_is_installed() -> None:
    by_name = {entry["value"]["name"]: entry["value"] for entry in answer(SOURCE)["configs"]}
    assert "org.apache.kafka.connect.json.JsonConverter" in by_name["key.converter"]["recommended_values"]


def test_transforms_add_their_settings_and_groups() -> None:
    found = answer({**SOURCE, "transforms": "x", "transforms.x.type": HOIST, "transforms.x.field": "f"})
    assert found["error_count"] == 0
    assert "Transforms: x" in found["groups"]
    by_name = {entry["value"]["name"]: entry["value"] for entry in found["configs"]}
    assert by_name["transforms.x.type"]["value"] == HOIST
    assert by_name["transforms.x.field"]["value"] == "f"


def test_a_missing_setting_is_an_error_of_that_setting() -> None:
    config = {"connector.class": "FileStreamSource"}
    assert faults(config) == {
        "name": ['Missing required configuration "name" which has no default value.'],
        "topic": ['Missing required configuration "topic" which has no default value.'],
    }


def test_neither_and_both_of_topics_and_its_regex() -> None:
    neither = {"name": "a", "connector.class": "FileStreamSink"}
    assert set(faults(neither)) == {"topics", "topics.regex"}
    assert faults(neither)["topics"] == ["Must configure one of topics or topics.regex"]
    both = faults({**SINK, "topics.regex": "a.*"})
    words = ["topics and topics.regex are mutually exclusive options, but both are set."]
    assert both == {"topics": words, "topics.regex": words}


def test_a_sink_that_would_read_its_dead_letters() -> None:
    assert set(faults({**SINK, "errors.deadletterqueue.topic.name": "t"})) == {"topics"}
    regex = {"name": "a", "connector.class": "FileStreamSink", "topics.regex": "d.*"}
    assert set(faults({**regex, "errors.deadletterqueue.topic.name": "dead"})) == {"topics.regex"}


@pytest.mark.parametrize(
    ("more", "setting", "advice"),
    [
        ({"name": "a"}, "name", "another name, or set consumer.override.group.id"),
        ({"name": "b", "consumer.override.group.id": "connect-a"}, "consumer.override.group.id", "choose another"),
        ({"name": "a", "consumer.override.group.id": "other"}, None, ""),
        ({"name": "b"}, None, ""),
    ],
)
def test_a_sink_in_the_group_of_the_workers(more: dict[str, str], setting: str | None, advice: str) -> None:
    config = {**SINK, **more}
    found = ConnectorValidator(Plugins(), group_id="connect-a").infos(config, config).findings
    wrong = {one.name: one.value.error_messages for one in found if one.value.error_messages}
    assert list(wrong) == [setting] * (setting is not None)
    for (message,) in wrong.values():
        assert f"named {config['name']} conflicts with Connect worker group connect-a" in message
        assert advice in message
    source = {**SOURCE, "name": "a"}
    assert ConnectorValidator(Plugins(), group_id="connect-a").infos(source, source).to_json()["error_count"] == 0


@pytest.mark.parametrize("setting", ["transforms", "predicates", "topic.creation.groups"])
def test_an_alias_that_is_there_twice(setting: str) -> None:
    assert "Duplicate alias provided." in str(faults({**SOURCE, setting: "x,x"})[setting])


def test_transforms_without_a_usable_class() -> None:
    for config in (
        {"transforms": "x"},
        {"transforms": "x", "transforms.x.type": "NoSuchThing"},
        {"transforms": "x", "transforms.x.type": "org.apache.kafka.connect.json.JsonConverter"},
    ):
        assert set(faults({**SOURCE, **config})) == {"transforms.x.type"}
    for config in (
        {"predicates": "x"},
        {"predicates": "x", "predicates.x.type": "NoSuchThing"},
        {"predicates": "x", "predicates.x.type": HOIST},
    ):
        assert set(faults({**SOURCE, **config})) == {"predicates.x.type"}


def test_negate_without_a_predicate() -> None:
    config = {"transforms": "x", "transforms.x.type": HOIST, "transforms.x.field": "f", "transforms.x.negate": "true"}
    assert "there is no config 'transforms.x.predicate'" in str(faults({**SOURCE, **config})["transforms.x.type"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NoSuchThing", "Class NoSuchThing could not be found."),
        (HOIST, "does not implement the Converter interface"),
        (f"{__name__}:Abstract", "is abstract"),
        (f"{__name__}:NeedsArguments", "no-argument constructor"),
        (f"{__name__}:Explodes", "no licence"),
        (f"{__name__}:BrokenDefinition", "Failed to load ConfigDef from"),
    ],
)
def test_a_converter_that_cannot_be_used_is_an_error_of_its_setting(name: str, words: str) -> None:
    found = faults({**SOURCE, "value.converter": name})
    assert set(found) == {"value.converter"}
    assert words in str(found["value.converter"])


def test_a_converter_refuses_its_settings_or_has_no_definition() -> None:
    demanding = {**SOURCE, "value.converter": f"{__name__}:Demanding"}
    assert set(faults(demanding)) == {"value.converter.must"}
    assert faults({**demanding, "value.converter.must": "5"}) == {}
    assert "Demands" in answer(demanding)["groups"]
    assert faults({**SOURCE, "value.converter": f"{__name__}:WithoutDefinition"}) == {}
    json = {**SOURCE, "value.converter": "JsonConverter", "value.converter.schemas.cache.size": "many"}
    assert "value.converter.schemas.cache.size" in faults(json)
    assert set(faults({**SOURCE, "header.converter": HOIST})) == {"header.converter"}


def test_policies_for_client_settings() -> None:
    acks, login = "producer.override.acks", "producer.override.sasl.mechanism"
    config = {**SOURCE, acks: "1", login: "PLAIN"}
    assert faults(config) == {}
    assert set(faults(config, parse_policy("None", ()))) == {acks, login}
    assert set(faults(config, parse_policy("Principal", ()))) == {acks}
    assert set(faults(config, parse_policy("Allowlist", ["acks"]))) == {login}
    assert faults({**SOURCE, acks: "1"}, parse_policy("None", ()))[acks] == [
        "The 'None' policy does not allow 'acks' to be overridden in the connector configuration."
    ]
    with pytest.raises(ConfigException, match="no such policy"):
        parse_policy("Sometimes", ())


def test_only_the_clients_that_a_connector_uses_are_looked_at() -> None:
    none = parse_policy("None", ())
    assert faults({**SOURCE, "consumer.override.a": "1", "admin.override.a": "1"}, none) == {}
    assert set(faults({**SINK, "consumer.override.a": "1", "producer.override.a": "1"}, none)) == {
        "consumer.override.a"
    }
    letters = {**SINK, "errors.deadletterqueue.topic.name": "d", "producer.override.a": "1", "admin.override.a": "1"}
    assert set(faults(letters, none)) == {"producer.override.a", "admin.override.a"}
    creating = {**SOURCE, "topic.creation.default.partitions": "1", "admin.override.a": "1"}
    assert "admin.override.a" in faults(creating, none)


def test_client_settings_that_cannot_be_used_are_faults() -> None:
    found = faults({**SOURCE, "producer.override.interceptor.classes": "com.example.Audit"})
    assert set(found) == {"producer.override.interceptor.classes"}


def test_faults_of_client_settings_name_the_whole_setting_and_count_the_workers_settings() -> None:
    config = {**SOURCE, "producer.override.acks": "7", "producer.override.compression.type": "zip"}
    assert faults(config) == {
        "producer.override.acks": [
            "Invalid value 7 for configuration producer.override.acks: String must be one of: all, -1, 0, 1"
        ],
        "producer.override.compression.type": [
            "Invalid value zip for configuration producer.override.compression.type: "
            "String must be one of: none, gzip, snappy, lz4, zstd"
        ],
    }
    secured = {**SOURCE, "producer.override.security.protocol": "SASL_SSL", "producer.override.sasl.mechanism": "PLAIN"}
    assert set(faults(secured)) == {"producer.override.sasl.jaas.config"}
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    worker = {"producer.sasl.jaas.config": login, "producer.linger.ms": "soon"}
    infos = ConnectorValidator(Plugins(), None, worker).infos(secured, secured)
    assert not any(finding.value.error_messages for finding in infos.findings)


@pytest.mark.parametrize(
    ("setting", "text", "closest"),
    [
        ("value.converter", "JsonConvertr", "JsonConverter"),
        ("header.converter", "SimpleHeaderConvertor", "SimpleHeaderConverter"),
        ("transforms.x.type", "HoistFeld$Value", "HoistField$Value"),
        ("predicates.x.type", "TopicNameMatch", "TopicNameMatches"),
    ],
)
def test_a_class_that_is_not_there_is_answered_with_those_that_are_and_the_closest(
    setting: str, text: str, closest: str
) -> None:
    config = {**SOURCE, setting: text}
    if not setting.endswith("converter"):
        config[setting.partition(".")[0]] = "x"
    [message] = faults(config)[setting]
    assert message.startswith(f"Invalid value {text} for configuration {setting}: Class {text} could not be found. Av")
    assert message.endswith(f". Did you mean {closest}?")


def transform(cls: str, **settings: str) -> dict[str, str]:
    own = {f"transforms.x.{name.replace('__', '.')}": value for name, value in settings.items()}
    return {"transforms": "x", "transforms.x.type": f"org.apache.kafka.connect.transforms.{cls}", **own}


JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
AVRO = {
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://localhost:1",
}
PREDICATE = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"


@pytest.mark.parametrize(
    ("settings", "at", "text"),
    [
        (transform("TimestampConverter$Value", target__type="string"), "transforms.x.type", "requires format option"),
        (transform("SetSchemaMetadata$Key"), "transforms.x.type", "Neither schema name nor version configured"),
        (transform("InsertField$Value"), "transforms.x.type", "No field insertion configured"),
        (
            transform("InsertField$Value", static__field="a"),
            "transforms.x.static.value",
            "Invalid value null for configuration transforms.x.static.value: No value specified for static field: a",
        ),
        (
            transform("HeaderFrom$Value", fields="a,b", headers="c", operation="copy"),
            "transforms.x.type",
            "'fields' config must have the same number of elements as 'headers' config.",
        ),
        (
            transform("ExtractField$Value", field="`a", field__syntax__version="V2"),
            "transforms.x.type",
            "Incomplete backtick pair in path",
        ),
        (
            {"value.converter": JSON, "value.converter.schema.content": "{"},
            "value.converter",
            "Failed to parse schema in converter config",
        ),
        (
            {"value.converter": JSON, "value.converter.schema.content": '{"type":"bogus"}'},
            "value.converter",
            "Unknown schema type: bogus",
        ),
        (
            {"key.converter": STRING, "key.converter.converter.encoding": "nope"},
            "key.converter",
            f"Invalid value {STRING} for configuration key.converter: Unsupported encoding nope",
        ),
        (
            {"header.converter": STRING, "header.converter.converter.encoding": "nope"},
            "header.converter",
            "Unsupported encoding nope",
        ),
        (
            {**AVRO, "value.converter.basic.auth.credentials.source": "USER_INFO"},
            "value.converter",
            "basic.auth.user.info must be user:password",
        ),
        (
            {**AVRO, "value.converter.schema.registry.ssl.truststore.location": "/not/there"},
            "value.converter.schema.registry.ssl.truststore.location",
            "It cannot be read: No such file or directory",
        ),
    ],
)
def test_what_only_configure_refuses_is_an_error_of_the_validation(
    settings: dict[str, str], at: str, text: str
) -> None:
    found = faults({**SINK, **settings})
    assert list(found) == [at]
    assert len(found[at]) == 1
    assert text in found[at][0]


class Unreachable(StringConverter):
    """Looks for a server when it is configured."""

    def configure(self, configs: Any, is_key: bool | None = None) -> None:
        raise AssertionError("nobody asked for it")


def test_classes_of_users_are_not_configured_for_a_validation() -> None:
    assert faults({**SINK, "value.converter": f"{__name__}.Unreachable"}) == {}


def test_a_class_is_not_configured_with_settings_that_are_wrong_already() -> None:
    found = faults({**SINK, **transform("InsertField$Value", replace__null__with__default="perhaps")})
    assert list(found) == ["transforms.x.replace.null.with.default"]


def test_a_predicate_is_configured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: TopicNameMatches, configs: Any) -> None:
        raise ConfigException("pattern", configs["pattern"], "Not today")

    monkeypatch.setattr(TopicNameMatches, "configure", refuse)
    found = faults({**SINK, "predicates": "p", "predicates.p.type": PREDICATE, "predicates.p.pattern": "a"})
    expected = "Invalid value a for configuration predicates.p.pattern: Not today"
    assert found == {"predicates.p.pattern": [expected]}
