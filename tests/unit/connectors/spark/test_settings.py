"""Settings of the Spark connectors: what does not fit together, and what is hidden."""

from __future__ import annotations

import pytest

from penstock.config import Password
from penstock.connectors.spark import SparkSink, SparkSource
from penstock.connectors.spark.source.settings import SparkSourceConfig

FILES = {"topic": "t", "mode": "files", "spark.format": "parquet", "spark.path": "/in"}
SINK = {"topics": "t", "spark.format": "parquet", "spark.path": "/out"}


def faults(kind: type[SparkSource] | type[SparkSink], settings: dict[str, str]) -> dict[str, str]:
    found = kind().validate(settings)
    return {one.name: one.error_messages[0] for one in found.config_values if one.error_messages}


def without(settings: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in names}


@pytest.mark.parametrize(
    ("changed", "setting", "text"),
    [
        ({"spark.format": ""}, "spark.format", "is missing"),
        ({"spark.path": ""}, "spark.path", "is missing"),
        ({"mode": "new"}, "mode", "Invalid value"),
        ({"spark.query": "SELECT 1"}, "spark.query", "{source}"),
        ({"spark.query": "SELECT * FROM {source}"}, "spark.query", "file by file"),
        ({"spark.query": "SELECT * FROM {source}", "spark.format": "", "mode": "bulk"}, "spark.format", "is missing"),
        ({"spark.query": "SELECT rand() FROM {source}", "mode": "bulk"}, "spark.query", "rand() gives another value"),
        ({"spark.query": "SELECT * FROM {source} LIMIT 3", "mode": "bulk"}, "spark.query", "LIMIT without ORDER BY"),
        ({"spark.format": "delta"}, "mode", "rows do not count any more"),
        ({"spark.format": "jdbc"}, "mode", "no files that could be listed"),
        ({"mode": "incrementing"}, "incrementing.column.name", "is missing"),
        ({"mode": "versions"}, "mode", "Delta"),
        ({"spark.schema": "id bigin"}, "spark.schema", "bigin, which is no type of Spark"),
        ({"spark.schema": "wait interval day"}, "spark.schema", "interval"),
        ({"bulk.interval.ms": "0"}, "bulk.interval.ms", "above 0"),
        ({"spark.bulk": "true"}, "spark.bulk", "is for mode=bulk"),
        ({"spark.bulk": "true", "mode": "bulk", "bulk.interval.ms": "9"}, "bulk.interval.ms", "read once"),
        ({"batch.max.rows": "0"}, "batch.max.rows", "at least 1"),
    ],
)
def test_settings_of_a_source_that_do_not_fit_together_are_named(
    changed: dict[str, str], setting: str, text: str
) -> None:
    found = faults(SparkSource, {**FILES, **changed})
    assert text in found[setting]


@pytest.mark.parametrize(("kind", "settings"), [(SparkSource, FILES), (SparkSink, SINK)])
def test_tasks_in_processes_of_their_own_are_refused(
    kind: type[SparkSource] | type[SparkSink], settings: dict[str, str]
) -> None:
    found = faults(kind, {**settings, "task.isolation": "process"})
    assert "has no Spark session" in found["task.isolation"]
    assert faults(kind, {**settings, "task.isolation": "none"}) == {}


def test_a_source_that_is_right_has_no_faults() -> None:
    assert faults(SparkSource, FILES) == {}
    query = {"topic": "t", "mode": "bulk", "spark.query": "SELECT * FROM orders ORDER BY id LIMIT 10"}
    assert faults(SparkSource, query) == {}


@pytest.mark.parametrize(
    ("changed", "setting", "text"),
    [
        ({"spark.format": ""}, "spark.format", "is missing"),
        ({"spark.path": ""}, "spark.path", "is missing"),
        ({"spark.table": "db.t"}, "spark.table", "both set"),
        ({"spark.format": "binaryFile"}, "spark.format", "read only"),
        ({"mode": "upsert"}, "key.columns", "is missing"),
        ({"mode": "upsert", "key.columns": "id"}, "mode", "parquet has no MERGE"),
        ({"mode": "upsert", "key.columns": "id", "spark.format": "jdbc"}, "mode", "JDBC sink"),
        ({"delete.enabled": "true"}, "delete.enabled", "mode=upsert"),
        ({"mode": "overwrite"}, "partition.columns", "would replace all"),
        ({"mode": "overwrite", "spark.format": "jdbc", "partition.columns": "d"}, "mode", "no partitions"),
        ({"spark.schema": "id bigint,"}, "spark.schema", "it ends where"),
        ({"metadata.columns": "offsets"}, "metadata.columns", "offset"),
        ({"frame.min.rows": "0"}, "frame.min.rows", "at least 1"),
    ],
)
def test_settings_of_a_sink_that_do_not_fit_together_are_named(
    changed: dict[str, str], setting: str, text: str
) -> None:
    found = faults(SparkSink, {**SINK, **changed})
    assert text in found[setting]


def test_formats_that_only_jars_bring_are_accepted_with_every_mode() -> None:
    assert faults(SparkSink, {**SINK, "spark.format": "my.format", "mode": "upsert", "key.columns": "id"}) == {}
    assert faults(SparkSource, {**FILES, "spark.format": "my.format", "mode": "bulk"}) == {}


def test_options_are_settings_and_those_that_may_be_secrets_are_passwords() -> None:
    options = {"spark.option.header": "true", "spark.option.sfPassword": "p1", "spark.option.fs.s3a.secret.key": "s1"}
    config = SparkSourceConfig.parse({**FILES, **options})

    assert config.options() == {"header": "true", "sfPassword": "p1", "fs.s3a.secret.key": "s1"}
    assert [name for name, value in config.spark_option.items() if isinstance(value, Password)] == [
        "sfPassword",
        "fs.s3a.secret.key",
    ]
    assert "p1" not in repr(config)
    assert "s1" not in repr(config)
    found = {one.name: one.value for one in SparkSource().validate({**FILES, **options}).config_values}
    assert str(found["spark.option.sfPassword"]) == "[hidden]"
    assert found["spark.option.header"] == "true"


BULK = {**SINK, "spark.bulk": "true"}


@pytest.mark.parametrize(
    ("changed", "setting", "text"),
    [
        ({"spark.format": "delta"}, "spark.bulk", "is for spark.path and the formats parquet, orc, csv, json"),
        ({"spark.path": "", "spark.table": "t"}, "spark.bulk", "is for spark.path"),
        ({"mode": "overwrite", "partition.columns": "day"}, "mode", "set mode=append"),
        ({"partition.columns": "day"}, "partition.columns", "one file for a range"),
        ({"spark.format": "csv"}, "spark.format", "set spark.option.header=true"),
        ({"spark.option.compression": "brotli"}, "spark.option.compression", "snappy, gzip, zstd, lz4, none"),
        ({"spark.option.maxRecordsPerFile": "5"}, "spark.option.maxRecordsPerFile", "for Spark's own writer"),
    ],
)
def test_settings_of_a_bulk_sink_that_do_not_fit_together_are_named(
    changed: dict[str, str], setting: str, text: str
) -> None:
    assert text in faults(SparkSink, {**BULK, **changed})[setting]


def test_a_bulk_sink_that_is_right_has_no_faults_and_a_task_of_its_own() -> None:
    for right in ({}, {"spark.format": "csv", "spark.option.header": "true"}, {"spark.option.compression": "zstd"}):
        assert faults(SparkSink, {**BULK, **right}) == {}
    connector = SparkSink()
    connector.start({**BULK, "name": "lake"})
    assert connector.task_class().__name__ == "SparkBulkSinkTask"
