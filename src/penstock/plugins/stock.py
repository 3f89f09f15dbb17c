"""The plugins that come with Penstock, as a table of names and places, without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock import __version__
from penstock.plugins.kinds import PluginDescriptor, PluginKind

_CONNECT = "org.apache.kafka.connect"
_PROVIDER = "org.apache.kafka.common.config.provider"
_OWN = "penstock.connectors"


def _stock(kind: PluginKind, name: str, target: str, *aliases: str) -> PluginDescriptor:
    return PluginDescriptor(kind, name, target, aliases, __version__)


def _own(kind: PluginKind, target: str, *aliases: str) -> PluginDescriptor:
    """A connector whose name is its place, next to names of others that it replaces."""
    return _stock(kind, f"{_OWN}.{target.replace(':', '.')}", f"{_OWN}.{target}", *aliases)


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
            PluginKind.PREDICATE, f"{_CONNECT}.transforms.predicates.{name}", f"penstock.transforms.predicates:{name}"
        )
        for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    ]


_SOURCES: Final = (
    _stock(PluginKind.SOURCE, f"{_CONNECT}.file.FileStreamSourceConnector", f"{_OWN}.file:FileStreamSourceConnector"),
    _own(PluginKind.SOURCE, "directory:DirectorySourceConnector"),
    _own(PluginKind.SOURCE, "jdbc:JdbcSource", "io.confluent.connect.jdbc.JdbcSourceConnector"),
    _own(PluginKind.SOURCE, "spark:SparkSource"),
    _own(PluginKind.SOURCE, "tables:TableSource"),
    _own(
        PluginKind.SOURCE,
        "files:FileSource",
        *(
            f"com.github.jcustenborder.kafka.connect.spooldir.SpoolDir{kind}SourceConnector"
            for kind in ("Csv", "Json", "SchemaLessJson", "LineDelimited", "Avro", "BinaryFile")
        ),
        "io.streamthoughts.kafka.connect.filepulse.source.FilePulseSourceConnector",
        "io.confluent.connect.s3.source.S3SourceConnector",
    ),
    _own(
        PluginKind.SOURCE,
        "datagen:DatagenSource",
        "io.confluent.kafka.connect.datagen.DatagenConnector",
        "Datagen",
        "DatagenConnector",
    ),
    _own(PluginKind.SOURCE, "http:HttpSource"),
    *(
        _own(PluginKind.SOURCE, f"mirror:Mirror{name}", f"{_CONNECT}.mirror.Mirror{name}Connector")
        for name in ("Source", "Checkpoint", "Heartbeat")
    ),
)
_SINKS: Final = (
    _stock(PluginKind.SINK, f"{_CONNECT}.file.FileStreamSinkConnector", f"{_OWN}.file:FileStreamSinkConnector"),
    _own(PluginKind.SINK, "jdbc:JdbcSink", "io.confluent.connect.jdbc.JdbcSinkConnector"),
    _own(PluginKind.SINK, "spark:SparkSink"),
    _own(
        PluginKind.SINK,
        "files:FileSink",
        "io.confluent.connect.s3.S3SinkConnector",
        "io.confluent.connect.gcs.GcsSinkConnector",
        "io.confluent.connect.azure.blob.AzureBlobStorageSinkConnector",
        "io.confluent.connect.hdfs.HdfsSinkConnector",
        "io.confluent.connect.hdfs3.Hdfs3SinkConnector",
    ),
    _own(
        PluginKind.SINK,
        "tables:TableSink",
        "org.apache.iceberg.connect.IcebergSinkConnector",
        "io.tabular.iceberg.connect.IcebergSinkConnector",
    ),
    _own(PluginKind.SINK, "http:HttpSink"),
)
_PROVIDERS: Final = tuple(
    _stock(PluginKind.CONFIG_PROVIDER, f"{_PROVIDER}.{name}", f"penstock.config.providers:{name}")
    for name in ("FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider")
)
#: Everything built in. A test resolves each entry.
STOCK: Final = (*_SOURCES, *_SINKS, *_converters(), *_transforms(), *_predicates(), *_PROVIDERS)

#: The task classes with a Java name, by that name. Connectors return their task classes, so these are not plugins; the
#: name is in the task configurations (``task.class``), which workers of both kinds read.
TASK_CLASSES: Final[Mapping[str, str]] = {
    f"{_CONNECT}.file.FileStreamSourceTask": f"{_OWN}.file:FileStreamSourceTask",
    f"{_CONNECT}.file.FileStreamSinkTask": "penstock.connectors.file:FileStreamSinkTask",
    f"{_CONNECT}.mirror.MirrorSourceTask": "penstock.connectors.mirror.task:MirrorTask",
    f"{_CONNECT}.mirror.MirrorCheckpointTask": "penstock.connectors.mirror.checkpoints:CheckpointTask",
    f"{_CONNECT}.mirror.MirrorHeartbeatTask": "penstock.connectors.mirror.heartbeats:HeartbeatTask",
}
