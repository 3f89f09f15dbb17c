"""Settings that nobody reads are told, with the name that was meant; those that somebody may read are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from testkit.doubles.control_plane import SOURCE
from tests.unit.rest.api_client import Api, serving

from penstock.api import Converter, SourceConnector, SourceTask, Transformation
from penstock.config import ConfigDef, ConfigType, EnvVarConfigProvider, Importance
from penstock.plugins import Plugins
from penstock.validation.settings import closest, worker_warnings
from penstock.validation.validator import ConnectorValidator

FILE = {"name": "a", "connector.class": "FileStreamSource", "file": "f", "topic": "t"}
SINK = {"name": "a", "connector.class": "FileStreamSink", "file": "f", "topics": "t"}
JSON = "org.apache.kafka.connect.json.JsonConverter"
MASK = "org.apache.kafka.connect.transforms.MaskField$Value"
TOMBSTONE = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
REGISTRY = "io.confluent.connect.avro.AvroConverter"


class Free(SourceConnector):
    """Its settings are whatever somebody gives it."""

    def start(self, props: Mapping[str, str]) -> None:
        pass

    def stop(self) -> None:
        pass

    def task_class(self) -> type[SourceTask]:
        return SourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return []

    def config(self) -> ConfigDef:
        return ConfigDef()


class Prefixed(Free):
    """Defines some of its settings, and reads others below a prefix."""

    def config(self) -> ConfigDef:
        definition = ConfigDef()
        for name in ("connection.user", "table.name", "sink"):
            definition.define(name, ConfigType.STRING, default="", importance=Importance.LOW, doc="")
        return definition


class FreeTransform(Transformation):
    """Takes any settings."""

    def config(self) -> ConfigDef:
        return ConfigDef()

    def configure(self, configs: Mapping[str, object]) -> None:
        pass


class FreeConverter(Converter):
    """Takes any settings."""

    def configure(self, configs: Mapping[str, object], is_key: bool) -> None:
        pass


HERE = __name__


def warned(config: Mapping[str, str]) -> dict[str, str]:
    """The warnings by name."""
    infos = ConnectorValidator(Plugins()).infos(config, config)
    return {one.name: one.message for one in infos.warnings}


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (FILE, "flie", "file"),
        (FILE, "errors.tolerence", "errors.tolerance"),
        (FILE, "task.max", "tasks.max"),
        (FILE, "tasksMax", "tasks.max"),
        (FILE, "vaule.converter", "value.converter"),
        (SINK, "topic", "topics"),
        (SINK, "errors.deadletterqueue.topic.nmae", "errors.deadletterqueue.topic.name"),
        (FILE, "producer.override.lingr.ms", "producer.override.linger.ms"),
        (SINK, "consumer.override.max.poll.record", "consumer.override.max.poll.records"),
        (FILE | {"value.converter": JSON}, "value.converter.schema.enable", "value.converter.schemas.enable"),
        (
            FILE | {"value.converter": REGISTRY, "value.converter.schema.registry.url": "http://x"},
            "value.converter.schema.registry.ulr",
            "value.converter.schema.registry.url",
        ),
        (
            FILE | {"transforms": "m", "transforms.m.type": MASK, "transforms.m.fields": "x"},
            "transforms.m.replacment",
            "transforms.m.replacement",
        ),
        (
            FILE | {"transforms": "m", "transforms.m.type": MASK, "transforms.m.fields": "x"},
            "transforms.m.predicat",
            "transforms.m.predicate",
        ),
        (
            FILE | {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"},
            "topic.creation.default.retension.ms",
            "topic.creation.default.retention.ms",
        ),
        (FILE | {"connector.class": f"{HERE}.Free"}, "errors.tolerence", "errors.tolerance"),
        (FILE | {"connector.class": f"{HERE}.Prefixed"}, "conection.user", "connection.user"),
    ],
)
def test_a_wrong_name_is_told_with_the_closest(base: dict[str, str], name: str, meant: str) -> None:
    plain = warned(base)
    assert name not in plain
    found = warned({**base, name: "1"})
    assert found.keys() == plain.keys() | {name}
    assert found[name].endswith(f"Did you mean {meant}?")


def test_what_changes_nothing_says_why() -> None:
    found = warned(
        {
            **FILE,
            "value.converter.schemas.enable": "false",
            "transforms.m.type": MASK,
            "transforms": "mask",
            "transforms.mask.type": MASK,
            "transforms.mask.fields": "x",
            "predicates": "p",
            "predicates.p.type": TOMBSTONE,
            "predicates.p.nothing": "x",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.logs.include": "x",
            "quite.another": "x",
        }
    )
    assert found == {
        "value.converter.schemas.enable": "it changes nothing, because the connector has no value.converter of its "
        "own: the worker's is used",
        "transforms.m.type": "it changes nothing, because transforms does not list m",
        "predicates.p.nothing": "RecordIsTombstone has no setting of this name; it changes nothing",
        "topic.creation.logs.include": "it changes nothing, because topic.creation.groups does not list logs",
        "quite.another": "FileStreamSourceConnector and Kafka Connect have no setting of this name; it changes nothing",
    }


@pytest.mark.parametrize(
    "config",
    [
        FILE
        | {
            "tasks.max": "1",
            "errors.tolerance": "all",
            "key.converter.plugin.version": "1",
            "config.action.reload": "none",
        },
        FILE | {"producer.override.linger.ms": "1", "producer.override.sasl.jaas.config": "x"},
        # What librdkafka alone has is passed on to it.
        FILE | {"consumer.override.queued.min.messages": "1000"},
        SINK | {"consumer.override.client.id": "x", "admin.override.retries": "3", "topics.regex": ""},
        FILE
        | {
            "topic.creation.groups": "logs",
            "topic.creation.logs.include": "x",
            "topic.creation.logs.cleanup.policy": "compact",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.confluent.tier.enable": "true",
        },
        FILE | {"connector.class": f"{HERE}.Free", "anything": "1", "a.b.c": "2", "flie": "x", "connection.url": "x"},
        FILE
        | {
            "connector.class": f"{HERE}.Prefixed",
            "connection.url": "x",
            "connection.user.1": "x",
            "connection.user2": "x",
            "sink.a.b": "x",
            "kafka.acks": "1",
        },
        FILE | {"transforms": "f", "transforms.f.type": f"{HERE}.FreeTransform", "transforms.f.anything.at.all": "1"},
        FILE | {"value.converter": f"{HERE}.FreeConverter", "value.converter.anything": "1"},
        FILE
        | {
            "value.converter": REGISTRY,
            "value.converter.schema.registry.url": "http://x",
            "value.converter.basic.auth.credentials.source": "USER_INFO",
            "value.converter.basic.auth.user.info": "a:b",
            "value.converter.auto.register.schemas": "false",
            "value.converter.use.latest.version": "true",
            "value.converter.enhanced.avro.schema.support": "true",
        },
        FILE
        | {
            "transforms": "a.b",
            "transforms.a.b.type": MASK,
            "transforms.a.b.fields": "x",
            "transforms.a.b.predicate": "p",
            "transforms.a.b.negate": "true",
            "predicates": "p",
            "predicates.p.type": TOMBSTONE,
        },
    ],
)
def test_what_somebody_may_read_is_not_told(config: dict[str, str]) -> None:
    allowed = {"anything", "a.b.c", "file", "topic"}
    assert set(warned(config)) <= (allowed if HERE in config["connector.class"] else set())


def test_the_worker_s_file_is_looked_at_too() -> None:
    known = {
        "bootstrap.servers": "x",
        "key.converter": JSON,
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": "x",
        "config.storage.topic": "x",
        "group.id": "connect",
        "spark.driver.memory": "1g",
        "sasl.mechanism": "PLAIN",
        "producer.linger.ms": "1",
        "config.providers": "env",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "x",
        "listeners.https.ssl.keystore.location": "x",
        "metrics.context.connect.kafka.cluster.id": "x",
    }
    assert worker_warnings(known, Plugins()) == []
    wrong = {
        "offset.flush.intervall.ms": "Did you mean offset.flush.interval.ms?",
        "producer.lingr.ms": "Did you mean producer.linger.ms?",
        "value.converter.schema.enable": "Did you mean value.converter.schemas.enable?",
        "config.providers.evn.class": "config.providers does not list evn",
        "config.providers.env.parm.x": "Did you mean config.providers.env.param?",
        "quite.another": "a worker has no setting of this name; it changes nothing",
    }
    found = {one.name: one.message for one in worker_warnings(known | dict.fromkeys(wrong, "1"), Plugins())}
    assert found.keys() == wrong.keys()
    for name, end in wrong.items():
        assert found[name].endswith(end)
    # Extensions get the worker's whole file, so they may read what nobody defines.
    with_extension = {**known, "rest.extension.classes": "my.Extension", "quite.another": "1", "listners": "x"}
    assert [one.name for one in worker_warnings(with_extension, Plugins())] == ["listners"]


@pytest.mark.parametrize("name", ["transforms.", "transforms.x", "predicates.", "topic.creation.", "value.converter."])
def test_half_a_name_is_told_like_any_other(name: str) -> None:
    assert set(warned({**FILE, name: "x"})) == {name}


@pytest.mark.parametrize("name", ["a", "", "x.y", "ms", "retention.s", "errors"])
def test_names_that_are_merely_short_are_not_taken_for_others(name: str) -> None:
    assert closest(name, ["b", "x.z", "mx", "retention.ms", "file", "errors.tolerance"]) is None


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def values_of(api: Api) -> dict[str, str]:
    """What the config provider ``env`` has."""
    provider = api.setup.worker._parts.transformer._providers["env"]
    assert isinstance(provider, EnvVarConfigProvider)
    return provider._all


def test_a_validation_tells_warnings_beside_what_java_s_clients_read(api: Api) -> None:
    path = "/connector-plugins/FileStreamSource/config/validate"
    right = api.call("PUT", path, FILE)[1]
    assert set(right) == {"name", "error_count", "groups", "configs"}
    found = api.call("PUT", path, {**FILE, "flie": "x", "batch.size": "${env:NOPE}", "note": "${vault:a:b}"})[1]
    assert found.pop("warnings") == [
        {
            "name": "flie",
            "message": "FileStreamSourceConnector and Kafka Connect have no setting of this name; it changes nothing. "
            "Did you mean file?",
        },
        {
            "name": "note",
            "message": "FileStreamSourceConnector and Kafka Connect have no setting of this name; it changes nothing",
        },
        {
            "name": "batch.size",
            "message": "${env:NOPE} in the setting batch.size is not resolved: the config provider env "
            "(EnvVarConfigProvider) has no value 'NOPE'; it cannot be started so",
        },
        {
            "name": "note",
            "message": "${vault:a:b} in the setting note is not resolved: the worker has no config provider vault "
            "(config.providers; there are env); it is taken as it stands",
        },
    ]
    assert found.keys() == right.keys()
    assert [one["value"]["name"] for one in found["configs"]] == [one["value"]["name"] for one in right["configs"]]


def test_warnings_are_in_the_log_when_a_connector_is_created(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.setup.validator.strict = True
    api.call("POST", "/connectors", {"name": "a", "config": {**FILE, "flie": "x"}})
    assert "Connector a: flie: FileStreamSourceConnector and Kafka Connect have no setting of this name" in caplog.text


def test_a_placeholder_without_a_value_fails_the_start(api: Api) -> None:
    config = {"connector.class": SOURCE, "password": "${env:NOPE}", "user": "<${env:NEITHER}>", "note": "${vault:a:b}"}
    status, message = api.error("POST", "/connectors", {"name": "a", "config": config})
    assert status == 400
    for setting, key in (("password", "NOPE"), ("user", "NEITHER")):
        assert f"${{env:{key}}} in the setting {setting} is not resolved" in message
    assert "the config provider env (EnvVarConfigProvider) has no value 'NOPE'" in message
    assert "vault" not in message
    assert api.call("GET", "/connectors")[1] == []
    values_of(api).update(NOPE="1", NEITHER="2")
    assert api.call("POST", "/connectors", {"name": "a", "config": config})[0] == 201


def test_a_value_that_has_gone_fails_restarts_and_ends_nothing(api: Api) -> None:
    api.create("a", password="${env:SECRET}")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    del values_of(api)["SECRET"]
    status, message = api.error("POST", "/connectors/a/restart")
    assert (status, "has no value 'SECRET'" in message) == (500, True)
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert api.call("GET", "/connectors/a/explain")[0] == 200
    assert api.error("POST", "/connectors/a/tasks/0/restart")[0] == 500
    api.setup.await_state("a", "RUNNING", ["RUNNING"])


def test_a_setting_of_the_worker_is_told_where_it_belongs() -> None:
    found = warned(FILE | {"batch.max.records": "5"})
    assert found.get("batch.max.records") == (
        "it is a setting of the worker and changes nothing here: it belongs into the worker's file"
    )
