"""Which connector configurations are refused, and with what words."""

from pathlib import Path

import pytest
from testkit.connectors.probes import ProbeSource
from testkit.doubles.control_plane import SINK, SOURCE

from penstock.config import ConfigDef, ConfigType, SubclassOf
from penstock.errors import BadRequestException
from penstock.model import ConnectorType
from penstock.plugins import Plugins
from penstock.validation.validator import Checked, ConnectorValidator


def check(**config: str | None) -> Checked:
    """The outcome for a configuration; ``tasks_max`` stands for ``tasks.max``."""
    given = {"name": "a", **{key.replace("_", "."): value for key, value in config.items()}}
    return ConnectorValidator(Plugins())(given, given)


def refusal(**config: str | None) -> str:
    """The text of the error for a configuration."""
    with pytest.raises(BadRequestException) as caught:
        check(**config)
    return str(caught.value)


def test_a_right_configuration_tells_type_version_and_tasks() -> None:
    assert check(connector_class=SOURCE, tasks_max="3") == Checked(ConnectorType.SOURCE, "7", 3, True)
    sink = check(connector_class=SINK, topics="t", tasks_max_enforce="false")
    assert sink == Checked(ConnectorType.SINK, "7", 1, False)


def test_a_missing_or_unknown_class() -> None:
    assert "contains no connector type: set connector.class" in refusal()
    message = refusal(connector_class="FileStreemSource")
    assert message.startswith("Failed to find any class that implements Connector and which name matches FileStreemS")
    assert "Did you mean FileStreamSource? If it is none of these, install" in message


def test_all_faults_are_told_at_once() -> None:
    message = refusal(connector_class=SINK, tasks_max="0", errors_tolerance="some", key_converter="NoSuch")
    assert message.startswith("Connector configuration is invalid and contains the following 4 error(s):\n")
    assert "Invalid value 0 for configuration tasks.max: Value must be at least 1" in message
    assert "Invalid value some for configuration errors.tolerance: " in message
    assert "Invalid value NoSuch for configuration key.converter: " in message
    assert "Must configure one of topics or topics.regex" in message


def test_what_only_tasks_would_fail_with_is_refused_too() -> None:
    rules = {"topic.creation.default.partitions": "0", "topic.creation.groups": "a", "topic.creation.a.include": "["}
    message = refusal(connector_class=SOURCE, **rules)
    assert "contains the following 2 error(s):\n" in message
    assert 'Missing required configuration "topic.creation.default.replication.factor"' in message
    assert (
        "Invalid value 0 for configuration topic.creation.default.partitions: Number of partitions must be" in message
    )
    numbers = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
    message = refusal(connector_class=SOURCE, **{**rules, **numbers})
    assert "topic.creation.a.include: Syntax error in regular expression" in message
    given = {"name": "a", "connector.class": SOURCE, **rules}
    unused = ConnectorValidator(Plugins(), None, {"topic.creation.enable": "false"})
    assert unused(given, given).type is ConnectorType.SOURCE
    hoist = {"transforms": "x", "transforms.x.type": "HoistField$Value", "transforms.x.field": "f"}
    message = refusal(connector_class=SINK, topics="t", **hoist, **{"transforms.x.predicate": "gone"})
    assert "Invalid value gone for configuration transforms.x.predicate: No predicate has this alias" in message


def test_names_are_neither_empty_nor_with_control_characters() -> None:
    assert "\nInvalid value  for configuration name: String may not be empty\n" in refusal(
        name="", connector_class=SOURCE
    )
    assert "name: String may not contain control sequences but had the following ASCII chars: 10" in refusal(
        name="a\nb", connector_class=SOURCE
    )


def test_a_null_is_a_fault() -> None:
    message = refusal(connector_class=SOURCE, anything=None)
    assert "anything: Null value can not be supplied as the configuration value." in message


def test_a_connector_that_cannot_be_made_or_checked_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, *args: object) -> object:
        raise ValueError("no licence")

    with monkeypatch.context() as patch:
        patch.setattr(ProbeSource, "__init__", broken)
        assert "cannot be made: its constructor raised ValueError: no licence" in refusal(connector_class=SOURCE)
    with monkeypatch.context() as patch:
        patch.setattr(ProbeSource, "validate", broken)
        assert "ProbeSource.validate() raised ValueError: no licence" in refusal(connector_class=SOURCE)
    with monkeypatch.context() as patch:
        patch.setattr(ProbeSource, "validate", lambda self, config: None)
        assert "validate() must return a Config, and has returned NoneType" in refusal(connector_class=SOURCE)
    with monkeypatch.context() as patch:
        patch.setattr(ProbeSource, "config", broken)
        assert refusal(connector_class=SOURCE) == (
            f"Invalid value {SOURCE} for configuration connector.class: ProbeSource.config() raised ValueError: "
            "no licence"
        )
    with monkeypatch.context() as patch:
        patch.setattr(ProbeSource, "config", lambda self: {"a": 1})
        assert "config() must return a ConfigDef, and has returned dict" in refusal(connector_class=SOURCE)


class Choosy(ProbeSource):
    """Has two settings of type CLASS, one of which wants a certain base."""

    def config(self) -> ConfigDef:
        return (
            ConfigDef()
            .define("any.class", ConfigType.CLASS, default=None, doc="Any class.")
            .define("error.class", ConfigType.CLASS, default=None, validator=SubclassOf(Exception), doc="An error.")
        )


def test_a_connectors_own_classes_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_python.py").write_text("class :\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    choosy = f"{__name__}.Choosy"

    def refused(any_class: str, error_class: str | None = None) -> str:
        return refusal(connector_class=choosy, any_class=any_class, error_class=error_class)

    check(connector_class=choosy, any_class="collections.OrderedDict", error_class="builtins:ValueError")
    assert "Invalid value collections.Nothing for configuration any.class: Class collections.Nothing could not" in (
        refused("collections.Nothing")
    )
    assert "for configuration any.class: Class nowhere.Nothing could not be found: No module named" in (
        refused("nowhere.Nothing")
    )
    assert "Class not_python.Mine cannot be loaded: SyntaxError" in refused("not_python.Mine")
    both = refused("Nothing", "collections.OrderedDict")
    assert "expected package.module.Class" in both
    assert "for configuration error.class: Class must extend builtins.Exception" in both


def test_settings_of_a_converter_with_a_schema_registry_are_checked_and_its_secrets_hidden() -> None:
    avro = "io.confluent.connect.avro.AvroConverter"
    message = refusal(
        connector_class=SOURCE,
        value_converter=avro,
        value_converter_schema_registry_url="localhost:8081",
        value_converter_value_subject_name_strategy="mine",
        key_converter=avro,
    )
    assert "configuration schema.registry.url: It is no address of the form http://host:port" in message
    assert "Invalid value mine for configuration value.subject.name.strategy: It must be one of" in message
    assert 'Missing required configuration "schema.registry.url" which has no default value.' in message

    checked = check(
        connector_class=SOURCE,
        value_converter="AvroConverter",
        value_converter_schema_registry_url="http://localhost:8081",
        value_converter_basic_auth_user_info="me:secret",
    )
    assert "value.converter.basic.auth.user.info" in checked.secrets


def test_options_of_a_format_are_known_settings_and_those_that_may_be_secrets_are_hidden() -> None:
    given = {"name": "a", "connector.class": "SparkSource", "topic": "t", "mode": "bulk", "spark.format": "jdbc"}
    given |= {"spark.option.url": "jdbc:x", "spark.option.accessKey": "hunter2hunter2", "spark.optoin.x": "1"}
    validator = ConnectorValidator(Plugins())
    infos = validator.infos(given, given)

    found = {one.name: one.to_json() for one in infos.findings if one.name.startswith("spark.option.")}
    assert {name: one["value"]["value"] for name, one in found.items()} == {  # type: ignore[index] # JSON
        "spark.option.url": "jdbc:x",
        "spark.option.accessKey": "[hidden]",
    }
    assert found["spark.option.accessKey"]["definition"]["type"] == "PASSWORD"  # type: ignore[index] # JSON
    assert "spark.option.accessKey" in validator(given, given).secrets
    assert "spark.option.accessKey" in validator.facts(given).secrets
    assert [one.name for one in infos.warnings] == ["spark.optoin.x"]
    assert "hunter2" not in str(infos.to_json())
