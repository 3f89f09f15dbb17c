"""The public API for authors of connectors, transforms, predicates and converters. Needs the standard library only.

Start from:

- ``SourceConnector`` (``connector``) with ``SourceTask`` or ``FrameSourceTask`` (``source``): a source.
- ``PartitionedSource`` and ``PartitionedTask`` (``partitioned``): a source of many tables, files or feeds.
- ``SinkConnector`` (``connector``) with ``SinkTask`` or ``FrameSinkTask`` (``sink``): a sink.
- ``SourceRecord``, ``SinkRecord`` (``record``) and the frames of ``frames``: what tasks return and receive, record by
  record or as columns.
- ``BackfillSpan`` and ``BackfillPart`` (``source``): a range of a source that is read once more.
- ``arrow`` and ``spark_types``: conversion between their types and schemas.
- ``Transformation``, ``FrameTransformation``, ``Predicate``, ``Converter`` and ``HeaderConverter`` (``transform``): the
  chain between a task and Kafka.
- ``PluginMetrics`` (``metrics``) and ``RestExtension`` (``rest``): a plugin's own metrics and REST paths.

Data types are in ``penstock.data``, settings in ``penstock.config``, errors in ``penstock.errors``. ``penstock.worker``
calls all of these.
"""

from penstock.api.connector import (
    Connector,
    ConnectorContext,
    ConnectorTransactionBoundaries,
    ConnectorUtils,
    ExactlyOnceSupport,
    OffsetStorageReader,
    SinkConnector,
    SinkConnectorContext,
    SourceConnector,
    SourceConnectorContext,
    Task,
)
from penstock.api.frames.frame import Frame, FrameGatherer, Rows, SinkFrame, SourceFrame, ValueForm, isolate
from penstock.api.metrics import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    MetricName,
    Min,
    Monitorable,
    PluginMetrics,
    Rate,
    SampleWindow,
    Sensor,
    Stat,
    Value,
)
from penstock.api.partitioned import Chunk, PartitionedSource, PartitionedTask, RetryPolicy, assigned_partitions
from penstock.api.record import (
    UNCHANGED,
    ConnectRecord,
    OffsetAndMetadata,
    RecordMetadata,
    SinkRecord,
    SourceRecord,
    TimestampType,
    TopicPartition,
    Unchanged,
)
from penstock.api.rest import ClusterState, RestExtension, RestExtensionContext, RestRequest, RestResponse
from penstock.api.sink import (
    AnySinkTask,
    Closing,
    ErrantRecordReporter,
    FrameSinkTask,
    OffsetsInTarget,
    SinkTask,
    SinkTaskContext,
)
from penstock.api.source import (
    BackfillPart,
    BackfillSpan,
    FrameSourceTask,
    SourceTask,
    SourceTaskContext,
    TransactionBoundary,
    TransactionContext,
)
from penstock.api.transform import (
    BaseTransformation,
    Converter,
    FrameTransformation,
    HeaderConverter,
    Predicate,
    Transformation,
)

__all__ = [
    "UNCHANGED",
    "AnySinkTask",
    "Avg",
    "BackfillPart",
    "BackfillSpan",
    "BaseTransformation",
    "Chunk",
    "Closing",
    "ClusterState",
    "ConnectRecord",
    "Connector",
    "ConnectorContext",
    "ConnectorTransactionBoundaries",
    "ConnectorUtils",
    "Converter",
    "CumulativeCount",
    "CumulativeSum",
    "ErrantRecordReporter",
    "ExactlyOnceSupport",
    "Frame",
    "FrameGatherer",
    "FrameSinkTask",
    "FrameSourceTask",
    "FrameTransformation",
    "HeaderConverter",
    "Max",
    "MetricName",
    "Min",
    "Monitorable",
    "OffsetAndMetadata",
    "OffsetStorageReader",
    "OffsetsInTarget",
    "PartitionedSource",
    "PartitionedTask",
    "PluginMetrics",
    "Predicate",
    "Rate",
    "RecordMetadata",
    "RestExtension",
    "RestExtensionContext",
    "RestRequest",
    "RestResponse",
    "RetryPolicy",
    "Rows",
    "SampleWindow",
    "Sensor",
    "SinkConnector",
    "SinkConnectorContext",
    "SinkFrame",
    "SinkRecord",
    "SinkTask",
    "SinkTaskContext",
    "SourceConnector",
    "SourceConnectorContext",
    "SourceFrame",
    "SourceRecord",
    "SourceTask",
    "SourceTaskContext",
    "Stat",
    "Task",
    "TimestampType",
    "TopicPartition",
    "TransactionBoundary",
    "TransactionContext",
    "Transformation",
    "Unchanged",
    "Value",
    "ValueForm",
    "assigned_partitions",
    "isolate",
]
