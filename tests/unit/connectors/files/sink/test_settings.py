"""Settings of the file sink: names of Java's, what is not there, and what does not fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.files import FileSink
from penstock.connectors.files.sink.partitioners import TimestampExtractor
from penstock.connectors.files.sink.settings import FileSinkConfig
from penstock.errors import ConfigException

S3 = {
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "s3.bucket.name": "b",
    "s3.region": "eu-west-1",
    "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
    "flush.size": "3",
    "rotate.interval.ms": "60000",
    "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
    "partition.duration.ms": "3600000",
    "path.format": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
    "locale": "en-US",
    "timezone": "UTC",
    "timestamp.extractor": "RecordField",
    "timestamp.field": "at",
    "schema.compatibility": "BACKWARD",
    "behavior.on.null.values": "ignore",
    "s3.part.size": "5242880",
    "store.kafka.keys": "false",
}


def test_a_configuration_of_the_java_connector_is_understood() -> None:
    config = FileSinkConfig.parse(S3)
    assert (config.format, config.partitioner) == ("avro", "time")
    assert config.directories().extractor is TimestampExtractor.RECORD_FIELD
    location = config.location()
    assert location.url == "s3://b"
    assert location.s3 is not None
    assert (location.s3.bucket, location.s3.region, location.s3.endpoint) == ("b", "eu-west-1", None)
    assert (config.rotation().records, config.rotation().span_ms) == (3, 60_000)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"url": "s3a://b/p/q/"}, "s3a://b/p/q/"),
        ({"gcs.bucket.name": "b"}, "gs://b"),
        ({"azblob.container.name": "c", "azblob.account.name": "a"}, "abfss://c@a.dfs.core.windows.net"),
        ({"hdfs.url": "hdfs://h:9000"}, "hdfs://h:9000"),
        ({"store.url": "hdfs://h:9000"}, "hdfs://h:9000"),
        ({"url": "/a/b"}, "/a/b"),
    ],
)
def test_every_sink_says_in_its_own_words_where_files_go(settings: dict[str, str], url: str) -> None:
    assert FileSinkConfig.parse(settings).location().url == url


def test_a_bucket_of_another_store_has_an_address_and_a_prefix() -> None:
    s3 = FileSinkConfig.parse({"url": "s3://b/p/q/", "store.url": "http://h:1"}).location().s3
    assert s3 is not None
    assert (s3.prefix, s3.endpoint) == ("p/q", "http://h:1")


@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        ({"keys.format.class": "xml"}, "keys.format.class", "parquet, json, avro"),
        ({"store.kafka.headers": "true", "headers.format.class": "bytes"}, "headers.format.class", "are no bytes"),
        ({"hive.integration": "true"}, "hive.integration", "is not there"),
        ({"format.class": "x.y.XmlFormat"}, "format.class", "write one of"),
        ({"partitioner.class": "com.mine.MyPartitioner"}, "partitioner.class", "write one of"),
        ({"partition.duration.ms": "-1"}, "partition.duration.ms", "needs it"),
        ({"path.format": ""}, "path.format", "needs it"),
        ({"path.format": "'year"}, "path.format", "without a partner"),
        ({"partitioner.class": "field"}, "partition.field.name", "needs the names of fields"),
        ({"timestamp.extractor": "com.mine.Extractor"}, "timestamp.extractor", "write Record"),
        ({"timezone": "Mars/Base"}, "timezone", "no time zone"),
        ({"s3.bucket.name": ""}, "url", "says where the files go"),
        ({"s3.bucket.name": "", "store.url": "http://h:1"}, "s3.bucket.name", "http://h:1 (store.url) is a store with"),
        ({"url": "ftpx://a"}, "url", "No file system"),
        # Azure's client would end the process over a key that it cannot decode.
        ({"url": "abfss://c@a.dfs.core.windows.net", "azblob.account.key": "k"}, "url", "account a is not in Base64"),
        ({"url": "abfss://c/p"}, "url", "names no account"),
        ({"rotate.interval.ms": "0"}, "rotate.interval.ms", "above 0, or -1"),
        ({"schema.compatibility": "SOME"}, "schema.compatibility", "NONE"),
        ({"format.class": "bytes", "metadata.columns": "key"}, "metadata.columns", "no columns"),
        ({"metadata.columns": "color"}, "metadata.columns", "color"),
        ({"file.delim": "/"}, "file.delim", "without a slash"),
        ({"directory.delim": "-"}, "directory.delim", "slash"),
    ],
)
def test_what_is_wrong_is_said_at_the_setting(changes: dict[str, str], name: str, text: str) -> None:
    settings = {**S3, **changes}
    errors = FileSink().validate(settings).errors()
    assert any(text in one for one in errors[name]), errors
    with pytest.raises(ConfigException):
        FileSinkConfig.parse(settings)


def test_a_directory_that_cannot_be_is_an_error_of_validation_and_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = {"url": str(tmp_path / "file" / "below"), "flush.size": "1"}
    (text,) = FileSink().validate(settings).errors()["url"]
    assert "Not a directory" in text
    assert "Not a directory" in FileSink().obstacles(settings)[0]
    assert FileSink().validate({**settings, "url": str(tmp_path / "new")}).errors() == {}
