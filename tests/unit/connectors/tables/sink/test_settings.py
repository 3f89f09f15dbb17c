"""Settings of the table sink: names of Iceberg's sink, what is refused, what is warned about."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.setting_values import OnNull
from penstock.connectors.tables import TableSink
from penstock.connectors.tables.places import TableFormat
from penstock.connectors.tables.sink.settings import TableSettings, TableSinkConfig, WriteMode, is_known

#: As users of the Java connector have it.
JAVA = {
    "name": "s",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "events",
    "iceberg.tables": "db.one,db.two",
    "iceberg.tables.route-field": "type",
    "iceberg.table.db.one.route-regex": "a.*",
    "iceberg.table.db.one.id-columns": "id, at",
    "iceberg.table.db.two.partition-by": "day(at), bucket(id, 4)",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
    "iceberg.tables.schema-force-optional": "true",
    "iceberg.tables.default-commit-branch": "ingest",
    "iceberg.tables.default-partition-by": "kind",
    "iceberg.control.topic": "control",
    "iceberg.control.commit.interval-ms": "1000",
    "iceberg.catalog": "prod",
    "iceberg.catalog.catalog-impl": "org.apache.iceberg.rest.RESTCatalog",
    "iceberg.catalog.uri": "http://127.0.0.1:1/catalog",
    "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "iceberg.catalog.client.region": "eu-west-1",
}


def faults(properties: dict[str, str]) -> dict[str, list[str]]:
    return {
        one.name: one.error_messages for one in TableSink().validate(properties).config_values if one.error_messages
    }


def test_settings_of_icebergs_sink_are_understood() -> None:
    config = TableSinkConfig.parse(JAVA)
    assert config.format is TableFormat.ICEBERG
    assert (config.tables, config.route_field, config.catalog_name) == (("db.one", "db.two"), "type", "prod")
    assert (config.auto_create, config.auto_evolve, config.schema_force_optional) == (True, True, True)
    assert (config.commit_interval_ms, config.write_mode) == (1000, WriteMode.APPEND)
    assert config.on_null(JAVA) is OnNull.IGNORE
    assert config.of_table("db.one", JAVA) == TableSettings(("id", "at"), ("kind",), "ingest")
    assert config.of_table("db.two", JAVA) == TableSettings((), ("day(at)", "bucket(id, 4)"), "ingest")
    assert [(name, one.java) for name, one in config.routes(JAVA).items()] == [("db.one", "a.*")]
    properties = config.catalog_properties(JAVA)
    assert properties == {
        "type": "rest",
        "uri": "http://127.0.0.1:1/catalog",
        "client.region": "eu-west-1",
        "s3.region": "eu-west-1",
    }
    assert all(is_known(name) for name in JAVA if name.startswith("iceberg."))


def test_tabulars_settings_for_changes_are_understood() -> None:
    old = {**JAVA, "iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}
    assert TableSinkConfig.parse(old).write_mode is WriteMode.UPSERT
    assert TableSinkConfig.parse({**JAVA, "iceberg.tables.cdc-field": "op"}).write_mode is WriteMode.UPSERT


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("iceberg.catalog.type", "hadoop", "pyiceberg has the catalogs rest, sql"),
        ("iceberg.catalog.catalog-impl", "org.apache.iceberg.nessie.NessieCatalog", "pyiceberg has the catalogs"),
        ("iceberg.tables.schema-case-insensitive", "true", "names count as they are written"),
        ("iceberg.tables.write-props.write.format.default", "orc", "set it as a property of the table"),
        ("iceberg.tables.default-partition-by", "hourly(at)", "hourly(at) is no partition"),
        ("iceberg.table.db.one.route-regex", "(", "is no regular expression"),
        ("iceberg.tables.auto-create-enabled", "maybe", "auto.create"),
    ],
)
def test_settings_that_are_not_there_are_named(setting: str, value: str, text: str) -> None:
    found = faults({**JAVA, setting: value})
    assert found
    assert text in str(found)


def test_settings_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    given = {"name": "s", "topics": "t", "url": str(tmp_path / "lake")}
    assert faults(given) == {}
    assert "dynamic.tables needs" in str(faults({**given, "dynamic.tables": "true"})["route.field"])
    assert "needs write.mode=upsert" in str(faults({**given, "cdc.field": "op"})["write.mode"])
    assert "partitioned by columns" in str(faults({**given, "partition.by": "day(at)"})["partition.by"])
    assert "says where the tables are" in str(faults({**given, "url": ""})["url"])
    assert not (tmp_path / "lake").exists()


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for kind in ("delta", "iceberg"):
        found = faults({"name": "s", "topics": "t", "url": str(tmp_path / "file" / "x"), "table.format": kind})
        assert "Not a directory" in str(found["url"])
