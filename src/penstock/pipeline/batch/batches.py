"""The input and output of the pipeline: values that the worker and the pipeline share, and the errors of a batch.

A failed record is data (``RecordError``), not an exception. Thread: ``Failures`` and ``LazyColumns`` belong to a task's
pipeline thread; all other values are immutable once built and may cross threads.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from penstock.errors import ConnectException, RetriableException, java_class_name
from penstock.telemetry import Metrics
from penstock.telemetry.metrics import SPARK_RECORDS_TOTAL

if TYPE_CHECKING:
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
    from penstock.pipeline.plan.chain import GroupOutcome
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
Column: TypeAlias = pa.Array | pa.ChunkedArray

#: The records of one or more polls of a task, in order, or a frame.
PolledBatch: TypeAlias = "Sequence[SourceRecord] | SourceFrame"

#: Receives the number of records of a batch as rows, by reason, and as columns under None.
Moved: TypeAlias = "Callable[[Mapping[Why | None, int]], None]"


class Submit(Protocol):
    """Starts the job of a batch, or puts it off. ``PendingBatch`` itself puts it off until its result is asked for."""

    def __call__(self, job: Callable[[], T], /, *, shares: int | None = None) -> PendingBatch[T]:
        """Submits a job.

        ``shares``: the job only waits until a job has been done that batches share; the batch holds this many bytes
        meanwhile, and more batches may be begun beside it.
        """
        ...


class LazyColumns(Mapping[str, Column]):
    """Columns by name, each built on first access."""

    def __init__(self, makers: Mapping[str, Callable[[], Column]]) -> None:
        self._makers = makers
        self._made: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class PendingBatch(Generic[T]):
    """A batch that was begun, or its job: ``result`` does what is left, on the thread that asks for it."""

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


@dataclass(frozen=True)
class PipelineSpec:
    """The parts of one task's pipeline: configured instances, and the owner.

    Attributes:
        transforms: The chain, in order.
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
    spent: Callable[[str, float], None] = lambda alias, seconds: None
    nothing_beside_spark: bool = False
    without_spark: bool = False
    no_session: bool = False
    session: Callable[[], SparkSession] | None = None


class Why(enum.Enum):
    """The reasons why records go as rows."""

    MANY_SCHEMAS = "many schemas for few records"
    DEEP_SCHEMA = "a deeply nested schema"
    HALF_PAIR = "half of a surrogate pair"
    HUGE_VALUE = "a huge value"
    MIXED_VALUES = "schemaless values, few or of mixed kinds"
    NO_COLUMNS = "a step that has no columns for such schemaless values"
    ONE_BY_ONE = "messages of a schema registry, read or written one by one"
    NO_SPARK = "a look at a few records"
    OWN_CLASS = "a class of your own, in the worker"
    STATELESS = "a stateless class of your own, in Python workers of Spark"


#: The reasons that name the author of a transform or converter; the others say why it is not columns.
_OF_USERS: Final = (Why.OWN_CLASS, Why.STATELESS)


class PathCounts:
    """Counts the records of each path in the metrics; not by task, so that the sum survives a restart of the task."""

    def __init__(self, metrics: Metrics, connector: str) -> None:
        self._metrics = metrics
        self._connector = connector

    def __call__(self, paths: Mapping[Why | None, int]) -> None:
        """Adds the records of a batch as rows, by reason, and as columns under None."""
        for why, count in paths.items():
            path, reason = ("columns", "") if why is None else ("rows", why.value)
            self._metrics.counter(SPARK_RECORDS_TOTAL, connector=self._connector, road=path, why=reason).add(count)


class Failures:
    """The errors of one batch: the first one of each record; and the records that were not columns, with the reason.

    A record that was processed as a row anywhere counts as one, once: with the reason of a stock class, if there is
    one, because a user's own class takes any records as rows.

    A record of the batch may have become several rows, or none (``spread``). An error of a row is that of its record,
    whose other rows are not processed further.
    """

    def __init__(self) -> None:
        self.errors: dict[int, RecordError] = {}
        #: The record of each row; None = row i is record i.
        self.origins: np.ndarray | None = None
        self._rows: list[tuple[Why, np.ndarray | None]] = []

    def spread(self, origins: np.ndarray) -> None:
        """Notes that rows have changed: ``origins`` has the former row of each."""
        self.origins = origins if self.origins is None else self.origins[origins]

    def went_as_rows(self, rows: Sequence[int] | np.ndarray | None, why: Why) -> None:
        """Notes rows that were not processed as columns; None = all."""
        if rows is not None and self.origins is not None:
            rows = self.origins[np.asarray(rows, dtype=np.int64)]
        self._rows.append((why, None if rows is None else np.asarray(rows, dtype=np.int64)))

    def paths(self, rows: int, *, consumed: bool = False) -> Counter[Why | None]:
        """Counts the records processed as rows for each reason, and as columns under None.

        ``consumed``: counts original records, which transforms may have turned into several rows, or none.
        """
        origins = None if consumed else self.origins
        records = rows if origins is None else int(origins.max(initial=-1)) + 1
        reasons = list(Why)
        found = np.full(max([records, *(some.max(initial=-1) + 1 for _, some in self._rows if some is not None)]), -1)
        for why, some in sorted(self._rows, key=lambda one: one[0] not in _OF_USERS):
            found[slice(None) if some is None else some] = reasons.index(why)
        codes, counts = np.unique(found if origins is None else found[origins], return_counts=True)
        pairs = zip(codes.tolist(), counts.tolist(), strict=True)
        return Counter({None if code < 0 else reasons[code]: count for code, count in pairs})

    def seq(self, row: int) -> int:
        """The record of a row."""
        return row if self.origins is None else int(self.origins[row])

    def of_row(self, row: int) -> RecordError | None:
        """The error of the record of a row."""
        return self.errors.get(self.seq(row)) if self.errors else None

    def failed(self, rows: int) -> np.ndarray:
        """True for the rows of failed records."""
        if self.origins is not None:
            return np.isin(self.origins, list(self.errors))
        failed = np.zeros(rows, dtype=bool)
        failed[np.fromiter(self.errors, dtype=np.int64)] = True
        return failed

    def raised(self, row: int, stage: str, executing_class: str, error: BaseException) -> None:
        """Notes an exception of Python code for a row."""
        retriable = isinstance(error, RetriableException)
        name = java_class_name(error)
        seq = self.seq(row)
        # The record is excluded from later steps, so this is its only error.
        self.errors[seq] = RecordError(seq, stage, executing_class, name, _text(error), retriable, error)

    def failed_before_headers(self, row: int, *, source: bool) -> bool:
        """True if a record failed in a stage that comes before its headers are converted.

        Kafka Connect converts headers after transforms and before key and value on the way to Kafka, and after key and
        value and before transforms on the way from it; here that may happen in another order.
        """
        error = self.of_row(row)
        if error is None:
            return False
        return error.stage == Stage.HEADER_CONVERTER or (error.stage == Stage.TRANSFORMATION) is source

    def found(self, outcomes: Iterable[GroupOutcome]) -> None:
        """Notes the errors of Spark jobs."""
        for outcome in outcomes:
            self._found(outcome)

    def _found(self, outcome: GroupOutcome) -> None:
        if outcome.error is None:
            return
        valid = np.flatnonzero(outcome.error.is_valid().to_numpy())
        for index, error in zip(valid.tolist(), outcome.error.take(valid).to_pylist(), strict=True):
            place = outcome.places[error["place"]]
            seq = self.seq(index if outcome.rows is None else int(outcome.rows[index]))
            message = error["message"]
            before = self.errors.get(seq)
            if before is not None and place.stage == Stage.TRANSFORMATION:
                continue
            told = message if place.advice is None else f"{str(message).rstrip()} {place.advice}"
            self.errors[seq] = RecordError(
                seq,
                place.stage,
                place.executing_class,
                place.exception_class,
                message,
                exception=exception_of(place.exception_class, told),
            )


def _text(error: BaseException) -> str | None:
    return str(error) if error.args else None


def exception_of(java_name: str, message: str | None) -> Exception:
    """The exception for an error that a step reports by its Java name; a ``ConnectException`` if no class has that
    name.
    """
    kind = _BY_JAVA_NAME.get(java_name, ConnectException)
    return kind(message) if message is not None else kind()


def _all_below(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _all_below(child))]


#: Of classes with one name the one above the others: which subclasses there are depends on the modules imported before.
_BY_JAVA_NAME: Mapping[str, type[Exception]] = {
    kind.__dict__["java_name"]: kind for kind in reversed(_all_below(ConnectException)) if "java_name" in kind.__dict__
}


@dataclass(frozen=True)
class InstanceRecipe:
    """The recipe of an instance: its class, and the argument of ``configure``."""

    cls: type
    config: Mapping[str, object]

    def make(self, *more: object) -> Any:
        """Makes and configures a new instance."""
        made = self.cls()
        made.configure(dict(self.config), *more)
        return made
