"""The input and output of the pipeline: plain values that the worker and the pipeline share.

Main types: ``PolledBatch`` and ``ProduceBatch`` (source path), ``SinkBatch`` (sink path, made of a table as in
``CONSUMED_SCHEMA``), ``PendingBatch`` (a batch that was begun), ``RecordError`` (a failed record is data, not an
exception) and ``PipelineSpec`` (what a task's pipeline is made of).

Owning thread: none; every value is immutable once built and may cross threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import SparkSession

    from penstock.api import (
        BaseTransformation,
        Converter,
        HeaderConverter,
        Predicate,
        SinkFrame,
        SinkRecord,
        SourceFrame,
        SourceRecord,
        ValueForm,
    )
    from penstock.pipeline.batch.groups import Why
    from penstock.pipeline.spark.gate import Passage

#: Headers in Kafka's form: the schema is gone, the value is bytes.
WIRE_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

#: The columns of ``ProduceBatch.table``.
PRODUCE_SCHEMA: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", WIRE_HEADERS),
        ("dropped", pa.bool_()),
    ]
)

#: The columns of consumed messages. ``timestamp_type`` is 0 (create time), 1 (append time) or -1 (none).
CONSUMED_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", WIRE_HEADERS),
    ]
)


class Stage:
    """Names of the error-handled stages, as in the dead letter queue's headers."""

    TRANSFORMATION: Final = "TRANSFORMATION"
    KEY_CONVERTER: Final = "KEY_CONVERTER"
    VALUE_CONVERTER: Final = "VALUE_CONVERTER"
    HEADER_CONVERTER: Final = "HEADER_CONVERTER"


T = TypeVar("T")

#: The records of one or more polls of a task, in order, or a frame.
PolledBatch: TypeAlias = "Sequence[SourceRecord] | SourceFrame"

#: Receives the number of records of a batch as rows, by reason, and as columns under None.
Moved: TypeAlias = "Callable[[Mapping[Why | None, int]], None]"


class Submit(Protocol):
    """Starts the job of a batch, or puts it off. ``PendingBatch`` itself puts it off until its result is asked for."""

    def __call__(self, job: Callable[[], T], /, *, shares: int | None = None) -> PendingBatch[T]:
        """Submits a job.

        Args:
            job: Makes the result.
            shares: For one that only waits until a job has been done that batches share: the bytes that the batch
                holds meanwhile. More batches may be begun beside it then.
        """
        ...


class PendingBatch(Generic[T]):
    """A batch that was begun, or its job: ``result`` does what is left, on the thread that asks for it.

    Args:
        job: Makes the result.
        shares: See ``Submit``.
    """

    __slots__ = ("_job",)

    def __init__(self, job: Callable[[], T], /, *, shares: int | None = None) -> None:
        self._job = job

    def result(self) -> T:
        """Returns the result; it is asked for once."""
        return self._job()


def without_patience(passage: Passage, batch: PendingBatch[T]) -> T:
    """The result of a batch that lets others join its job until it is asked for."""
    passage()
    return batch.result()


@dataclass(frozen=True)
class RecordError:
    """The reason why one record failed.

    Attributes:
        seq: The position of the record in its batch.
        stage: One of ``Stage``.
        executing_class: The class that was running, by its Java name if it has one.
        exception_class: The Java name of the exception (or its Python path).
        message: The text of the exception.
        retriable: True if the same record may pass in a retry.
        exception: The exception itself if Python code raised it.
    """

    seq: int
    stage: str
    executing_class: str
    exception_class: str
    message: str | None
    retriable: bool = False
    exception: BaseException | None = None


@dataclass(frozen=True)
class ProduceBatch:
    """Converted records; row i of ``table`` is record i of the input, unless there are ``origins``.

    Attributes:
        table: Columns as in ``PRODUCE_SCHEMA``; a failed record's row holds nulls.
        errors: Failed records by ``seq``.
        topic: The topic, when all rows have the same one.
        has_headers: True if any row has a header.
        has_dropped: True if a transform dropped any row.
        has_keys: True if any row has a key.
        has_partition: True if any row names its partition.
        timestamp: The timestamp, when all rows have the same one (and it is not null).
        origins: For each row the input record from which it was made, ascending: a transform made several rows, or
            none, of one record. None = row i is record i.
    """

    table: pa.Table
    errors: Mapping[int, RecordError]
    topic: str | None
    has_headers: bool
    has_dropped: bool
    has_keys: bool
    has_partition: bool
    timestamp: int | None
    origins: np.ndarray | None = None


@dataclass(frozen=True)
class SinkBatch:
    """The batch for a sink task.

    Attributes:
        records: For record tasks, aligned with the consumed rows; None = dropped or failed.
        frames: For frame tasks: runs of rows with equal schemas, in order; a null has the schema of its run.
        errors: Failed records by row.
        count_dropped: The number of rows that a transform dropped.
        origins: For each of ``records`` the row from which it was made, ascending: a transform made several records, or
            none, of one row. None = record i is of row i.
    """

    records: Sequence[SinkRecord | None] | None
    frames: Sequence[SinkFrame] | None
    errors: Mapping[int, RecordError]
    count_dropped: int
    origins: np.ndarray | None = None


@dataclass(frozen=True)
class TransformStage:
    """One entry of ``transforms``: runs where ``predicate(record) xor negate``.

    ``props`` and ``predicate_props`` are the configurations of the instances, if they are known.
    """

    alias: str
    transformation: BaseTransformation
    predicate: Predicate | None = None
    negate: bool = False
    props: Mapping[str, object] | None = None
    predicate_props: Mapping[str, object] | None = None


def _spend_nothing(alias: str, seconds: float) -> None:
    """Does nothing: the time of transforms is not measured."""


@dataclass(frozen=True)
class PipelineSpec:
    """The parts of one task's pipeline: configured instances, and the owner.

    Attributes:
        key_converter, value_converter, header_converter: Configured converters.
        transforms: The chain, in order.
        connector: Name of the connector.
        task: Number of the task.
        value_form: For frame sinks: typed columns or Java's text of each value. None = record task.
        frames_join: True if values of different schemas that one column can hold are one frame.
        nothing_beside_spark: True if columns that no step reads go through Spark too.
        without_spark: True if a batch without steps bypasses Spark, for previews of a few records.
        no_session: True without a session: parts that need a plan are processed record by record, everything else as
            columns.
        session: Returns the Spark session for a frame sink; None: the pipeline's runtime does.
    """

    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    transforms: Sequence[TransformStage] = ()
    connector: str = ""
    task: int = 0
    value_form: ValueForm | None = None
    frames_join: bool = False
    spent: Callable[[str, float], None] = _spend_nothing
    nothing_beside_spark: bool = False
    without_spark: bool = False
    no_session: bool = False
    session: Callable[[], SparkSession] | None = None
