"""The plugins that come with Penstock, as a table of names and places, without importing them.

Main objects: ``STOCK``; ``TASK_CLASSES``, Java's names of the classes of their tasks. Constants; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock import __version__
from penstock.plugins.kinds import PluginDescriptor, PluginKind

_CONNECT = "org.apache.kafka.connect"
_PROVIDER = "org.apache.kafka.common.config.provider"


def _stock(kind: PluginKind, name: str, target: str, *aliases: str) -> PluginDescriptor:
    return PluginDescriptor(kind, name, target, aliases, __version__)


_NUMBERS: Final = ("ShortConverter", "IntegerConverter", "LongConverter", "FloatConverter", "DoubleConverter")


def _converters() -> list[PluginDescriptor]:
    stock = [
        (f"{_CONNECT}.json.JsonConverter", "penstock.converters.json.converter:JsonConverter"),
        (f"{_CONNECT}.storage.StringConverter", "penstock.converters.string:StringConverter"),
        (f"{_CONNECT}.converters.ByteArrayConverter", "penstock.converters.primitives:ByteArrayConverter"),
        (f"{_CONNECT}.converters.BooleanConverter", "penstock.converters.primitives:BooleanConverter"),
        *((f"{_CONNECT}.converters.{name}", f"penstock.converters.primitives:{name}") for name in _NUMBERS),
    ]
    both = (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER)
    found = [_stock(kind, name, target) for kind in both for name, target in stock]
    simple = f"{_CONNECT}.storage.SimpleHeaderConverter"
    target = "penstock.converters.string:SimpleHeaderConverter"
    return [*found, *_registry_converters(), _stock(PluginKind.HEADER_CONVERTER, simple, target)]


def _registry_converters() -> list[PluginDescriptor]:
    """The converters of the extra ``registry``; as in Java, there is none for headers."""
    return [
        _stock(PluginKind.CONVERTER, java, f"penstock.converters.registry.{target}")
        for java, target in (
            ("io.confluent.connect.avro.AvroConverter", "converters:AvroConverter"),
            ("io.confluent.connect.json.JsonSchemaConverter", "converters:JsonSchemaConverter"),
            ("io.confluent.connect.protobuf.ProtobufConverter", "converters:ProtobufConverter"),
        )
    ]


def _mirrors() -> list[PluginDescriptor]:
    package = "penstock.connectors.mirror"
    return [
        _stock(
            PluginKind.SOURCE,
            f"{package}.Mirror{name}",
            f"{package}:Mirror{name}",
            f"{_CONNECT}.mirror.Mirror{name}Connector",
        )
        for name in ("Source", "Checkpoint", "Heartbeat")
    ]


def _transforms() -> list[PluginDescriptor]:
    found = []
    for name, module in (
        ("Cast", "types"),
        ("ExtractField", "extraction"),
        ("Flatten", "restructuring"),
        ("HeaderFrom", "headers"),
        ("HoistField", "extraction"),
        ("InsertField", "field_values"),
        ("MaskField", "field_values"),
        ("ReplaceField", "restructuring"),
        ("SetSchemaMetadata", "types"),
        ("TimestampConverter", "timestamp_converter"),
    ):
        for side in ("Key", "Value"):
            java = f"{_CONNECT}.transforms.{name}${side}"
            target = f"penstock.transforms.{module}:{name}{side}"
            found.append(_stock(PluginKind.TRANSFORMATION, java, target, f"{_CONNECT}.transforms.{name}.{side}"))
    for name, module in (
        ("DropHeaders", "headers"),
        ("Filter", "predicates"),
        ("InsertHeader", "headers"),
        ("RegexRouter", "topics"),
        ("TimestampRouter", "topics"),
        ("ValueToKey", "restructuring"),
    ):
        java = f"{_CONNECT}.transforms.{name}"
        found.append(_stock(PluginKind.TRANSFORMATION, java, f"penstock.transforms.{module}:{name}"))
    found.append(_stock(PluginKind.TRANSFORMATION, "penstock.transforms.Sql", "penstock.transforms.sql.transform:Sql"))
    unwrap = "ExtractNewRecordState"
    target = f"penstock.transforms.debezium:{unwrap}"
    found.append(_stock(PluginKind.TRANSFORMATION, f"io.debezium.transforms.{unwrap}", target))
    return found


def _predicates() -> list[PluginDescriptor]:
    return [
        _stock(
            PluginKind.PREDICATE,
            f"{_CONNECT}.transforms.predicates.{name}",
            f"penstock.transforms.predicates:{name}",
        )
        for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    ]


#: Everything built in. A test resolves each entry.
STOCK: Final[tuple[PluginDescriptor, ...]] = (
    _stock(
        PluginKind.SOURCE,
        f"{_CONNECT}.file.FileStreamSourceConnector",
        "penstock.connectors.file:FileStreamSourceConnector",
    ),
    _stock(
        PluginKind.SINK,
        f"{_CONNECT}.file.FileStreamSinkConnector",
        "penstock.connectors.file:FileStreamSinkConnector",
    ),
    _stock(
        PluginKind.SOURCE,
        "penstock.connectors.directory.DirectorySourceConnector",
        "penstock.connectors.directory:DirectorySourceConnector",
    ),
    _stock(
        PluginKind.SOURCE,
        "penstock.connectors.jdbc.JdbcSource",
        "penstock.connectors.jdbc:JdbcSource",
        "io.confluent.connect.jdbc.JdbcSourceConnector",
    ),
    _stock(
        PluginKind.SINK,
        "penstock.connectors.jdbc.JdbcSink",
        "penstock.connectors.jdbc:JdbcSink",
        "io.confluent.connect.jdbc.JdbcSinkConnector",
    ),
    _stock(
        PluginKind.SOURCE,
        "penstock.connectors.spark.SparkSource",
        "penstock.connectors.spark:SparkSource",
    ),
    _stock(
        PluginKind.SINK,
        "penstock.connectors.spark.SparkSink",
        "penstock.connectors.spark:SparkSink",
    ),
    _stock(
        PluginKind.SINK,
        "penstock.connectors.files.FileSink",
        "penstock.connectors.files:FileSink",
        "io.confluent.connect.s3.S3SinkConnector",
        "io.confluent.connect.gcs.GcsSinkConnector",
        "io.confluent.connect.azure.blob.AzureBlobStorageSinkConnector",
        "io.confluent.connect.hdfs.HdfsSinkConnector",
        "io.confluent.connect.hdfs3.Hdfs3SinkConnector",
    ),
    _stock(
        PluginKind.SOURCE,
        "penstock.connectors.tables.TableSource",
        "penstock.connectors.tables:TableSource",
    ),
    _stock(
        PluginKind.SINK,
        "penstock.connectors.tables.TableSink",
        "penstock.connectors.tables:TableSink",
        "org.apache.iceberg.connect.IcebergSinkConnector",
        "io.tabular.iceberg.connect.IcebergSinkConnector",
    ),
    _stock(
        PluginKind.SOURCE,
        "penstock.connectors.files.FileSource",
        "penstock.connectors.files:FileSource",
        *(
            f"com.github.jcustenborder.kafka.connect.spooldir.SpoolDir{kind}SourceConnector"
            for kind in ("Csv", "Json", "SchemaLessJson", "LineDelimited", "Avro", "BinaryFile")
        ),
        "io.streamthoughts.kafka.connect.filepulse.source.FilePulseSourceConnector",
        "io.confluent.connect.s3.source.S3SourceConnector",
    ),
    _stock(
        PluginKind.SOURCE,
        "penstock.connectors.datagen.DatagenSource",
        "penstock.connectors.datagen:DatagenSource",
        "io.confluent.kafka.connect.datagen.DatagenConnector",
        "Datagen",
        "DatagenConnector",
    ),
    _stock(
        PluginKind.SOURCE,
        "penstock.connectors.http.HttpSource",
        "penstock.connectors.http:HttpSource",
    ),
    _stock(
        PluginKind.SINK,
        "penstock.connectors.http.HttpSink",
        "penstock.connectors.http:HttpSink",
    ),
    *_mirrors(),
    *_converters(),
    *_transforms(),
    *_predicates(),
    _stock(
        PluginKind.CONFIG_PROVIDER, f"{_PROVIDER}.FileConfigProvider", "penstock.config.providers:FileConfigProvider"
    ),
    _stock(
        PluginKind.CONFIG_PROVIDER,
        f"{_PROVIDER}.DirectoryConfigProvider",
        "penstock.config.providers:DirectoryConfigProvider",
    ),
    _stock(
        PluginKind.CONFIG_PROVIDER,
        f"{_PROVIDER}.EnvVarConfigProvider",
        "penstock.config.providers:EnvVarConfigProvider",
    ),
)

#: The task classes with a Java name, by that name. Connectors return their task classes, so these are not plugins; the
#: name is in the task configurations (``task.class``), which workers of both kinds read.
TASK_CLASSES: Final[Mapping[str, str]] = {
    f"{_CONNECT}.file.FileStreamSourceTask": "penstock.connectors.file:FileStreamSourceTask",
    f"{_CONNECT}.file.FileStreamSinkTask": "penstock.connectors.file:FileStreamSinkTask",
    f"{_CONNECT}.mirror.MirrorSourceTask": "penstock.connectors.mirror.task:MirrorTask",
    f"{_CONNECT}.mirror.MirrorCheckpointTask": "penstock.connectors.mirror.checkpoints:CheckpointTask",
    f"{_CONNECT}.mirror.MirrorHeartbeatTask": "penstock.connectors.mirror.heartbeats:HeartbeatTask",
}
